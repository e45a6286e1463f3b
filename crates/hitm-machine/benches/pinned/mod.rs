//! The pinned stream of accesses: `stream.bin`, 16,384 words of four bytes, the low byte first.
//!
//! | bits | what |
//! |---|---|
//! | 0 to 8 | the CPU, of 480 |
//! | 9 to 20 | the line: the first 32 are everybody's, then eight of each CPU |
//! | 21 and 22 | the kind: load, store, read-modify-write |
//! | 23 to 31 | nanoseconds of work before it: for one access in three, exponentially with a mean of 60, at most 511 |
//!
//! It was drawn once, from the rates of FFmpeg's contended baseline, and is not drawn again: bursts
//! of a CPU of about twelve accesses; one access in nine goes to a line of all, one in twelve to a
//! line of another CPU, the rest to the CPU's own; of those of all, two in five are
//! read-modify-writes and as many are loads. `tests/it/stream.rs` holds it to that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Config, CostSet, Costs, Kind, Machine, Simulated};
use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice, Platform, Span};
use hitm_topology::{CpuId, Topology};

static STREAM: &[u8] = include_bytes!("stream.bin");

/// CPUs that the stream is of.
pub(crate) const CPUS: u32 = 480;
/// Lines that all CPUs touch.
pub(crate) const SHARED: u32 = 32;
/// Lines of each CPU.
pub(crate) const OWN: u32 = 8;
/// All lines.
pub(crate) const LINES: usize = (SHARED + CPUS * OWN) as usize;

/// One access of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) cpu: u32,
    pub(crate) line: u32,
    pub(crate) kind: Kind,
    /// Nanoseconds of work before it.
    pub(crate) gap: u64,
}

/// The stream, in its order.
pub(crate) fn stream() -> Vec<Access> {
    let read = |bytes: &[u8]| {
        let bits = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let kind = [Kind::Load, Kind::Store, Kind::Rmw][(bits >> 21 & 3) as usize];
        Access { cpu: bits & 511, line: bits >> 9 & 4_095, kind, gap: u64::from(bits >> 23) }
    };
    STREAM.chunks_exact(4).map(read).collect()
}

/// A machine with the stream's lines, and what its CPUs do: each its own accesses in their order,
/// `rounds` times.
pub(crate) fn machine(
    topology: &Arc<Topology>,
    config: Config,
    stream: &[Access],
    rounds: usize,
) -> (Machine, impl Fn(CpuId) + 'static) {
    let machine = Machine::new(topology.clone(), Costs::of(topology, CostSet::Linux), config);
    let fields = || vec![Field::word("word", 0, 4, "touched by the stream")];
    let make = |_| <Simulated as Memory>::Atomic::<u32>::new(0);
    let lines = 0..LINES;
    let words: Vec<_> = machine
        .enter(|| lines.map(|_| PlacedSlice::<Simulated, _>::new("line", None, None, 1, &fields, make)).collect());
    let own = |cpu| stream.iter().filter(|access| access.cpu == cpu).copied().collect();
    let by_cpu: Vec<Vec<Access>> = (0..CPUS).map(own).collect();
    let main = move |cpu: CpuId| {
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
    };
    (machine, main)
}
