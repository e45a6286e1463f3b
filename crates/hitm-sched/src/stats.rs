//! Counts of what the scheduler did, one set a CPU, natively and simulated alike. They are not shared memory of the model.

use std::sync::atomic::{AtomicU64, Ordering};

use hitm_topology::CpuId;

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $count:ident = $name:literal,)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(#[doc = $doc])+ $count,)+
        }

        impl Count {
            /// All counts.
            pub const ALL: &'static [Self] = &[$(Self::$count),+];

            /// The name in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$count => $name,)+ }
            }

            /// What it means.
            #[must_use]
            pub fn describe(self) -> &'static str {
                match self { $(Self::$count => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

counts! {
    /// Sleeping tasks that were woken.
    Wake = "wake",
    /// Switches from one task, or none, to another.
    ContextSwitch = "context_switch",
    /// Tasks that were queued on another CPU than before.
    Migration = "migration",
    /// Searches for CPUs that run something less urgent.
    Find = "find",
    /// Tasks that were pushed to another CPU.
    Push = "push",
    /// Pulls while another CPU was overloaded.
    Pull = "pull",
    /// Push works that were sent to a CPU.
    PushInterrupt = "push_ipi",
    /// CPUs that were asked to look for another task.
    Kick = "kick",
    /// CPUs that became overloaded.
    OverloadSet = "overload_set",
    /// CPUs that ceased to be overloaded.
    OverloadClear = "overload_clear",
}

/// One CPU's counts, on lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PerCpuCounts([AtomicU64; Count::ALL.len()]);

/// The counts of a scheduler.
#[derive(Debug)]
pub struct Stats {
    cpus: Box<[PerCpuCounts]>,
    /// The CPU that counts, for the world at hand.
    here: fn() -> CpuId,
}

impl Stats {
    pub(crate) fn new(cpus: usize, here: fn() -> CpuId) -> Self {
        Self { cpus: (0..cpus).map(|_| PerCpuCounts::default()).collect(), here }
    }

    #[inline]
    pub(crate) fn add(&self, count: Count) {
        let counts = &self.cpus[(self.here)().index()].0;
        // Relaxed: a statistic.
        counts[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What one CPU has counted, of its own doing.
    #[must_use]
    pub fn on(&self, cpu: CpuId, count: Count) -> u64 {
        // Relaxed: a statistic.
        self.cpus[cpu.index()].0[count as usize].load(Ordering::Relaxed)
    }

    /// The sum over all CPUs.
    #[must_use]
    pub fn sum(&self, count: Count) -> u64 {
        // Relaxed: a statistic.
        self.cpus.iter().map(|counts| counts.0[count as usize].load(Ordering::Relaxed)).sum()
    }

    /// All sums, in the order of [`Count::ALL`].
    #[must_use]
    pub fn sums(&self) -> Vec<(Count, u64)> {
        Count::ALL.iter().map(|&count| (count, self.sum(count))).collect()
    }
}
