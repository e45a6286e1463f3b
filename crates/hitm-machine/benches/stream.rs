//! How fast the machine is on a stream of accesses that stays the same, without any scheduler: the
//! model alone, the whole machine, and a bare loop beside it that does as many switches and loads.
//!
//! ```text
//! cargo bench -p hitm-machine --bench stream [-- --quick] [ROUNDS]
//! ```
//!
//! The stream is described in `pinned`. What this does not show: a scheduler's own data, which the
//! host's caches hold beside the machine's; `hitm-workloads: benches/machine.rs` has that.

mod bare;
mod pinned;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Instant;

use hitm_machine::internals::{Directory, Outcome, Request};
use hitm_machine::{Arbitration, Config, CostSet, Costs, Latencies, Totals};
use hitm_topology::Topology;

use self::pinned::{Access, LINES, stream};

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
        let (outcome, decide_at) = directory.arrive(Request {
            cpu,
            line,
            kind,
            time: now,
            way,
            lead: 0,
            access: line,
            kernel: false,
            operation: 0,
        });
        due.extend(decide_at.map(|time| Reverse((time, line))));
        if let Outcome::Granted(grant) = outcome {
            directory.conclude(grant.request.line);
        }
    }
    (misses, begin.elapsed().as_secs_f64())
}

/// The whole machine. Returns counts, bytes of the table of lines, seconds.
fn replay_on_machine(topology: &Arc<Topology>, stream: &[Access], rounds: usize) -> (Totals, usize, f64) {
    let (machine, main) = pinned::machine(topology, Config::default(), stream, rounds);
    let begin = Instant::now();
    machine.run(main).expect("the stream ends");
    let seconds = begin.elapsed().as_secs_f64();
    (machine.results().totals, machine.table_bytes(), seconds)
}

fn millions(count: u64) -> f64 {
    count as f64 * 1e-6
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (runs, rounds) = if quick { (1, 2) } else { (5, 100) };
    // A number of rounds, to take one count of instructions from another.
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(rounds);
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
            millions(totals.misses.count()) / seconds,
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
