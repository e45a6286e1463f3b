//! Event counts of the scheduler, one set per CPU, natively and simulated alike. They are not
//! shared memory of the model.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm_memory::Time;
use hitm_topology::CpuId;

use crate::base::journal::{Conservation, Entry, Journal};

macro_rules! counts {
    ($($(#[doc = $doc:literal])+ $count:ident = $name:literal,)+) => {
        /// An event that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(#[doc = $doc])+ $count,)+
        }

        impl Count {
            /// All counts.
            pub const ALL: &'static [Self] = &[$(Self::$count),+];

            /// Returns the name in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$count => $name,)+ }
            }

            /// Returns the meaning.
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
    /// Queues that told cpupri that their most urgent task is more, or less, urgent than before.
    LevelChange = "level_change",
    /// Looks of a CPU for tasks that wait elsewhere.
    Look = "look",
    /// Tasks that were pushed to another CPU.
    Push = "push",
    /// Pulls while another CPU was overloaded.
    Pull = "pull",
    /// Times that a CPU took tasks from the ring of another one.
    Take = "take",
    /// Push works that were sent to a CPU.
    PushInterrupt = "push_ipi",
    /// CPUs that were asked to look for another task.
    Kick = "kick",
    /// CPUs that became overloaded.
    OverloadSet = "overload_set",
    /// CPUs that ceased to be overloaded.
    OverloadClear = "overload_clear",
    /// Fair tasks for which a CPU was chosen.
    Place = "place",
    /// CPUs that a wakeup of a fair task looked at, to see whether they idle.
    Probe = "probe",
    /// Fair tasks that went to a CPU with less to do.
    Balance = "balance",
}

/// One CPU's counts, on lines of their own: of the whole run, and of the measured stretch.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PerCpuCounts {
    all: [AtomicU64; Count::ALL.len()],
    between: [AtomicU64; Count::ALL.len()],
}

/// The counts of a scheduler.
#[derive(Debug)]
pub struct Stats {
    /// By CPU, and last those of visitors, which act as a CPU and are none.
    cpus: Box<[PerCpuCounts]>,
    /// Returns the CPU that counts in the present world, or `None` for a visitor.
    here: fn() -> Option<CpuId>,
    /// Returns the time in the present world.
    now: fn() -> Time,
    /// The measured stretch, in picoseconds. It begins at `NEVER` if none is set.
    stretch: [AtomicU64; 2],
    /// The journal of queues, if one is kept.
    journal: OnceLock<Journal>,
}

/// Relaxed: a statistic orders nothing.
const STATISTIC: Ordering = Ordering::Relaxed;

impl Stats {
    pub(crate) fn new(cpus: usize, here: fn() -> Option<CpuId>, now: fn() -> Time) -> Self {
        let stretch = [Time::NEVER, Time::NEVER].map(|time| AtomicU64::new(time.as_picos()));
        Self {
            cpus: (0..=cpus).map(|_| PerCpuCounts::default()).collect(),
            here,
            now,
            stretch,
            journal: OnceLock::new(),
        }
    }

    /// Also counts separately the events at `from` or later and before `until`;
    /// [`Stats::sum_between`] returns them. Call it before that time.
    pub fn count_between(&self, from: Time, until: Time) {
        for (word, time) in self.stretch.iter().zip([from, until]) {
            word.store(time.as_picos(), STATISTIC);
        }
    }

    #[inline]
    pub(crate) fn add(&self, count: Count) {
        let here = (self.here)();
        let counts = &self.cpus[here.map_or(self.cpus.len() - 1, CpuId::index)];
        let add = |word: &AtomicU64| match here {
            // Only this CPU writes it.
            Some(_) => word.store(word.load(STATISTIC) + 1, STATISTIC),
            None => _ = word.fetch_add(1, STATISTIC),
        };
        add(&counts.all[count as usize]);
        let [from, until] = [0, 1].map(|end| Time::from_picos(self.stretch[end].load(STATISTIC)));
        if from != Time::NEVER && (from..until).contains(&(self.now)()) {
            add(&counts.between[count as usize]);
        }
    }

    /// Keeps a journal of queues from now on, for [`Stats::conservation`]. Call it before the first
    /// task is created. If [`Stats::count_between`] was called, no earlier time can be asked for.
    pub fn keep_journal(&self) {
        let from = Time::from_picos(self.stretch[0].load(STATISTIC));
        let from = if from == Time::NEVER { Time::START } else { from };
        self.journal.get_or_init(|| Journal::new(self.cpus.len() - 1, from));
    }

    /// Notes an entry in the journal, if one is kept.
    #[inline]
    pub(crate) fn note(&self, entry: impl FnOnce() -> Entry) {
        if let Some(journal) = self.journal.get() {
            journal.note((self.now)(), entry());
        }
    }

    /// Returns how far work was conserved between two times, or `None` unless
    /// [`Stats::keep_journal`] was called.
    #[must_use]
    pub fn conservation(&self, from: Time, until: Time) -> Option<Conservation> {
        Some(self.journal.get()?.conservation(from, until))
    }

    /// Returns how many CPUs idled on average in each of `parts` equal parts of the time between
    /// two times, or `None` unless [`Stats::keep_journal`] was called.
    #[must_use]
    pub fn idle_cpus(&self, from: Time, until: Time, parts: usize) -> Option<Vec<f64>> {
        Some(self.journal.get()?.idle_cpus(from, until, parts))
    }

    /// Returns one CPU's count of its own events.
    #[must_use]
    pub fn on(&self, cpu: CpuId, count: Count) -> u64 {
        self.cpus[cpu.index()].all[count as usize].load(STATISTIC)
    }

    /// Returns the sum over all CPUs.
    #[must_use]
    pub fn sum(&self, count: Count) -> u64 {
        self.cpus.iter().map(|counts| counts.all[count as usize].load(STATISTIC)).sum()
    }

    /// Returns the sum over all CPUs of the events in the stretch of [`Stats::count_between`].
    #[must_use]
    pub fn sum_between(&self, count: Count) -> u64 {
        self.cpus.iter().map(|counts| counts.between[count as usize].load(STATISTIC)).sum()
    }

    /// Returns all sums in the order of [`Count::ALL`].
    #[must_use]
    pub fn sums(&self) -> Vec<(Count, u64)> {
        Count::ALL.iter().map(|&count| (count, self.sum(count))).collect()
    }

    /// Returns all sums like [`sums`](Self::sums), but of the stretch of [`Stats::count_between`].
    #[must_use]
    pub fn sums_between(&self) -> Vec<(Count, u64)> {
        Count::ALL.iter().map(|&count| (count, self.sum_between(count))).collect()
    }
}
