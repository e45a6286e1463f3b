//! The state of the search for an idle CPU in shared memory (Linux's sched domains).
//!
//! **Layout.** [`Shared`] is one line per LLC, with the original's false sharing; [`Domain`] has
//! lines per CPU, of which wakers on other CPUs read two. Both have the original's offsets.

use std::fmt;

use hitm_memory::{AtomicWord, LineStart, Memory, PerCpu, Placed, PlainWord, described};
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::idle::idle_mask::IdleMasks;
use crate::base::idle::scan::Masks;

/// The cost of a migration, in nanoseconds: Linux's.
pub(crate) const MOVE_COSTS: u64 = 500_000;

/// If tasks on the target run longer than this on average, a waking task should go to an idle CPU
/// instead of waiting; in nanoseconds. An interrupt, the exit from idle and a switch take 6 us on
/// the simulated machines, and the task's lines follow. Values from 10 to 50 us make no measurable
/// difference (`docs/results/fair.md`).
pub(crate) const WAKE_COSTS: u64 = 20_000;

/// The average idle time of a CPU that has not idled yet, and the largest: Linux's, in nanoseconds.
pub(crate) const IDLE_MOST: u64 = 2 * MOVE_COSTS;

/// Averages move by an eighth: Linux's.
const AVERAGED_OVER: i64 = 8;

described! {
    /// The words that the CPUs of an LLC share for the search.
    pub struct Shared<M: Memory> as "sched_domain_shared" {
        reference: [u32; 2],
        /// 1 while a core may be idle. Set by a CPU whose core falls idle, cleared by a search that
        /// found none.
        pub(crate) has_idle_cores: M::Atomic<u32>,
        /// The number of CPUs that a search examines, with
        /// [`UTIL`](crate::linux::idle::one_pass::UTIL); 0 stops hitm's search. Written by
        /// balance.
        pub(crate) nr_idle_scan: M::Atomic<u32>,
    }
}

described! {
    /// One CPU's view of its LLC.
    pub struct Domain<M: Memory> as "sched_domain" {
        links_and_limits: [u64; 8],
        balance: [u64; 4],
        /// The average cost of a scan, in nanoseconds. Written by this CPU after each scan, beside
        /// `shared`.
        pub(crate) avg_scan_cost: M::Plain<u64>,
        statistics: [u64; 2],
        /// Which [`Shared`] is that of its LLC. Read by a wakeup towards this CPU.
        pub(crate) shared: M::Plain<u64>,
        third_line: LineStart,
        /// The number of CPUs of the LLC. Read by a wakeup towards this CPU.
        pub(crate) span_weight: M::Plain<u32>,
        /// In the original these fields are in the run queue; no other CPU writes the line.
        idleness: LineStart,
        /// Since when this CPU idles, in picoseconds; 0 while it does not.
        pub(crate) idles_from: M::Plain<u64>,
        /// Its average idle time, in nanoseconds.
        pub(crate) avg_idle: M::Plain<u64>,
        /// Since when the running task runs, in picoseconds. Kept with [`Kept::Hints`], as the next
        /// word.
        pub(crate) runs_from: M::Plain<u64>,
        /// The average time until a switch, in nanoseconds. Read by a wakeup towards this CPU while
        /// the LLC is busy.
        pub(crate) avg_run: M::Plain<u64>,
    }
}

const _: () = assert!(std::mem::offset_of!(Domain<hitm_memory::Native>, avg_scan_cost) == 96, "the original's offset");
const _: () = assert!(std::mem::offset_of!(Domain<hitm_memory::Native>, shared) == 120, "the original's offset");

/// The state of idle CPUs, as the search keeps it.
pub(crate) enum Kept<M: Memory> {
    /// None: the search examines queues.
    Nothing,
    /// Masks from which a search claims a CPU:
    /// [`Claims`](crate::linux::idle::claims::Claims).
    Claims(IdleMasks<M>),
    /// A mask of the CPUs whose queues are worth examining:
    /// [`Hints`](crate::shipped::hints::Hints).
    Hints(IdleMasks<M>),
}

/// The state of the search.
pub(crate) struct SchedDomains<M: Memory> {
    shared: Box<[Placed<M, Shared<M>>]>,
    pub(crate) domains: PerCpu<M, Domain<M>>,
    pub(crate) masks: Box<[Masks<M>]>,
    pub(crate) kept: Kept<M>,
    /// Whether a core has several CPUs.
    pub(crate) has_siblings: bool,
}

impl<M: Memory> SchedDomains<M> {
    /// The state for a machine, with `kept`, the state of its idle CPUs.
    pub(crate) fn new(topology: &Topology, kept: Kept<M>) -> Self {
        let shared = |llc: usize| {
            let words =
                Shared { reference: [0; 2], has_idle_cores: M::Atomic::new(1), nr_idle_scan: M::Atomic::new(u32::MAX) };
            let node = topology.cpus_of(Scope::Llc, llc).first().map(|&cpu| topology.cpu(cpu).node);
            Placed::new(words, Some(llc), node)
        };
        let domain = |cpu: CpuId| {
            let llc = topology.part_of(Scope::Llc, cpu);
            Domain {
                links_and_limits: [0; 8],
                balance: [0; 4],
                avg_scan_cost: M::Plain::new(0),
                statistics: [0; 2],
                shared: M::Plain::new(llc as u64),
                third_line: LineStart,
                idleness: LineStart,
                span_weight: M::Plain::new(topology.cpus_of(Scope::Llc, llc).len() as u32),
                idles_from: M::Plain::new(0),
                avg_idle: M::Plain::new(IDLE_MOST),
                runs_from: M::Plain::new(0),
                avg_run: M::Plain::new(0),
            }
        };
        Self {
            shared: (0..topology.parts(Scope::Llc)).map(shared).collect(),
            domains: PerCpu::new(topology, domain),
            kept,
            masks: topology.cpu_ids().map(|cpu| Masks::new(topology, cpu)).collect(),
            has_siblings: topology.parts(Scope::Core) < topology.cpus(),
        }
    }

    /// Returns the words that the CPUs of the LLC of `cpu` share.
    #[track_caller]
    pub(crate) fn shared_of(&self, cpu: CpuId) -> &Shared<M> {
        &self.shared[self.domains[cpu].shared.peek() as usize]
    }
}

impl<M: Memory> fmt::Debug for SchedDomains<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedDomains").field("llcs", &self.shared.len()).finish_non_exhaustive()
    }
}

/// Returns the average `before`, updated with `newest`.
pub(crate) fn averaged(before: u64, newest: u64) -> u64 {
    (before as i64 + (newest as i64 - before as i64) / AVERAGED_OVER) as u64
}
