//! How fast the machine is on a stream of accesses that stays the same, without any scheduler: the model alone, the whole
//! machine, and a bare loop beside it that does as many switches and loads.
//!
//! ```text
//! cargo bench -p hitm-machine --bench stream [-- --quick]
//! ```
//!
//! The stream is `stream.bin`, 16,384 accesses of 480 CPUs in bursts of about twelve, four bytes each: CPU in bits 0 to 8, line in
//! 9 to 20, kind in 21 and 22, nanoseconds of work before it in 23 to 31. One access in eight goes to 32 lines that all
//! share, one in twelve to a line of another CPU, the rest to eight lines of the CPU's own: the shares of misses and
//! switches are near those of the contended baseline of FFmpeg. It was drawn once and is not drawn again. What it does not show: the
//! host's caches hold less of a scheduler's own data; `hitm-workloads: benches/machine.rs` has that.

mod bare;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hitm_machine::coherence::{Directory, Outcome, Request};
use hitm_machine::{Arbitration, Config, CostSet, Costs, Kind, Latencies, Machine, Simulated, Totals};
use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice, Platform, Span};
use hitm_topology::Topology;

static STREAM: &[u8] = include_bytes!("stream.bin");
const LINES: usize = 32 + 480 * 8;

#[derive(Clone, Copy)]
struct Access {
    cpu: u32,
    line: u32,
    kind: Kind,
    /// Nanoseconds of work before it.
    gap: u64,
}

fn stream() -> Vec<Access> {
    let read = |bytes: &[u8]| {
        let bits = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let kind = [Kind::Load, Kind::Store, Kind::Rmw][(bits >> 21 & 3) as usize];
        Access { cpu: bits & 511, line: bits >> 9 & 4_095, kind, gap: u64::from(bits >> 23) }
    };
    STREAM.chunks_exact(4).map(read).collect()
}

/// The model alone: one access after the other, all CPUs at one time. Returns misses and seconds.
fn replay_on_model(topology: &Topology, stream: &[Access], rounds: usize) -> (u64, f64) {
    let costs = Costs::of(topology, CostSet::Linux);
    let mut directory = Directory::new(Latencies::new(topology, &costs), Arbitration::LocalFirst, 1, 1);
    directory.grow(LINES, 0);
    let way = directory.latencies().one_way;
    let (mut now, mut misses) = (0, 0);
    let mut due: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut grants = Vec::new();
    let begin = Instant::now();
    for access in std::iter::repeat_n(stream, rounds).flatten() {
        // What 480 CPUs do side by side comes this much faster than one CPU's work.
        now += 500 + access.gap * 2;
        while let Some(&Reverse((time, line))) = due.peek().filter(|Reverse((time, _))| *time <= now) {
            due.pop();
            due.extend(directory.decide(line, time, &mut grants).map(|again| Reverse((again, line))));
            grants.drain(..).for_each(|grant| directory.conclude(grant.request.line));
        }
        let Access { cpu, line, kind, .. } = *access;
        if directory.hit(cpu, line, kind, now).is_some() {
            continue;
        }
        misses += 1;
        directory.announce(line);
        let (outcome, decide_at) =
            directory.arrive(Request { cpu, line, kind, time: now, way, lead: 0, access: line, kernel: false });
        due.extend(decide_at.map(|time| Reverse((time, line))));
        if let Outcome::Granted(grant) = outcome {
            directory.conclude(grant.request.line);
        }
    }
    (misses, begin.elapsed().as_secs_f64())
}

/// The whole machine: each CPU does its own accesses in their order. Returns counts, bytes of the table of lines, seconds.
fn replay_on_machine(topology: &Arc<Topology>, stream: &[Access], rounds: usize) -> (Totals, usize, f64) {
    let costs = Costs::of(topology, CostSet::Linux);
    let machine = Machine::new(topology.clone(), costs, Config::default());
    let fields = || vec![Field::word("word", 0, 4, "touched by the stream")];
    let make = |_| <Simulated as Memory>::Atomic::<u32>::new(0);
    let lines = 0..LINES;
    let words: Vec<_> = machine
        .enter(|| lines.map(|_| PlacedSlice::<Simulated, _>::new("line", None, None, 1, &fields, make)).collect());
    let own = |cpu| stream.iter().filter(|access| access.cpu == cpu).copied().collect();
    let by_cpu: Vec<Vec<Access>> = (0..topology.cpus() as u32).map(own).collect();
    let begin = Instant::now();
    let ended = machine.run(move |cpu| {
        // Relaxed throughout: nothing is published, the words are there to be touched.
        let order = Ordering::Relaxed;
        for access in std::iter::repeat_n(&by_cpu[cpu.index()], rounds).flatten() {
            if access.gap > 0 {
                Simulated::compute(Span::from_nanos(access.gap));
            }
            let word = &words[access.line as usize][0];
            match access.kind {
                Kind::Load => drop(word.load(order)),
                Kind::Store => word.store(1, order),
                Kind::Rmw => drop(word.fetch_add(1, order)),
            }
        }
    });
    ended.expect("the stream ends");
    let seconds = begin.elapsed().as_secs_f64();
    (machine.results().totals, machine.table_bytes(), seconds)
}

fn millions(count: u64) -> f64 {
    count as f64 * 1e-6
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (runs, rounds) = if quick { (1, 2) } else { (5, 100) };
    let topology = Arc::new(hitm_topology::parse("gnr-2x120").expect("a preset"));
    let stream = stream();
    let accesses = (stream.len() * rounds) as u64;
    println!("{} accesses of 480 CPUs, {rounds} times", stream.len());
    for _ in 0..runs {
        let (misses, seconds) = replay_on_model(&topology, &stream, rounds);
        println!(
            "  model alone:   {:6.2} M accesses/s, {:5.2} M misses/s",
            millions(accesses) / seconds,
            millions(misses) / seconds
        );
        let (totals, table_bytes, seconds) = replay_on_machine(&topology, &stream, rounds);
        let accesses = totals.accesses();
        println!(
            "  whole machine: {:6.2} M accesses/s, {:5.2} M misses/s, {:.2} switches an access",
            millions(accesses) / seconds,
            millions(totals.misses) / seconds,
            totals.resumes as f64 / accesses as f64
        );
        let bare = bare::seconds(480, totals.resumes, accesses, table_bytes);
        println!(
            "  bare loop:     {:6.2} M accesses/s; the machine takes {:.1} times as long",
            millions(accesses) / bare,
            seconds / bare
        );
    }
}
