//! Idle CPUs that search for work: few at a time are called.
//!
//! **Claim.** A CPU that has a task to spare calls an idle CPU only if few CPUs search already: one
//! of each [`CPUS_PER_SEARCHER`]. So a burst of wakeups costs few interrupts, and a task that its
//! own CPU runs next costs none. A CPU that has found tasks calls up to two others, so that many
//! CPUs come to work in a time that grows with the logarithm of their number, until the searchers
//! are as many as they may be.
//!
//! **Origin.** The searching workers of Go's scheduler (D. Vyukov, "Scalable Go Scheduler Design
//! Doc", 2012) and Tokio's. They count threads and keep a list of those that sleep; here a word for
//! each CPU says that it idles, and the nearest one is called.
//!
//! **State** of a CPU's word.
//!
//! | state | meaning | set by | left by |
//! |---|---|---|---|
//! | `BUSY` | it runs a task, or is about to | itself | itself |
//! | `IDLE` | it found nothing to run | itself | itself, or who calls it |
//! | `CALLED` | it must search | who calls it | itself |
//!
//! One word counts the CPUs that are `IDLE` (low bits) and those that search: those that are
//! `CALLED`, and callers that have not chosen a CPU yet. All transitions of that word are RMW
//! operations. The count of idle CPUs is never less than the number of `IDLE` words.
//!
//! **Protocol.** A CPU that has found nothing: (1) becomes `IDLE` and is counted; (2) fences; (3)
//! looks once more at what is advertised. If it finds a task, it becomes `BUSY`, and calls another
//! CPU if more tasks wait. A CPU with a task to spare: (1) advertises it; (2) fences; (3) reads the
//! counts; (4) if a CPU idles and few search, counts a searcher and makes an idle CPU `CALLED`;
//! (5) interrupts it. If (4) finds no `IDLE` word, it is no searcher any more, and reads the words
//! once more. If another caller counts a searcher in (4) first, it leaves the search to that one.
//!
//! **Invariant.** If a task that is to spare stays where it is, then no CPU that may run it idles,
//! or a CPU searches. A CPU that ends a search without a task becomes `IDLE` in the same operation,
//! and looks once more.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | advertisement, fence SeqCst of the caller, counts | counts, fence SeqCst in `begin_idle`, advertisement | the idle CPU is counted, or the task is seen |
//! | advertisement, fence SeqCst of the caller, counts (a searcher) | the searcher's counts, fence SeqCst in `begin_idle`, advertisement | the searcher sees the task, or is not counted as one any more |
//! | `IDLE`, counted AcqRel | counts of a caller that found no `IDLE` word, AcqRel | the caller sees the `IDLE` words of all CPUs that others did not call because of it |
//!
//! The model checker runs these words: `searchers/loom.rs`.
//!
//! **Layout.** The words of up to sixteen CPUs of an LLC share a line. Who looks for an idle CPU
//! reads the words of many, and most of these lines were written elsewhere: with a line for each
//! CPU, a call took 14 us on 480 CPUs of which the nearest 160 were busy. On a machine of up to
//! sixteen CPUs each has a line, as few words are read there.
//!
//! **Cost.** While no CPU idles: one load of a line that no CPU writes. An idle time: two
//! read-modify-writes of the counts, one of the CPU's word, a fence, and a second look. A call: at
//! most one miss for each of these lines.
//!
//! **Limits.** The counts are one word of the machine. They are written when CPUs begin and end to
//! idle.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LINE, Memory, PerCpu, Placed, PlainWord, described};
use hitm_topology::{CpuId, MAX_CPUS, Scope, Topology};

/// For so many CPUs one searches at a time, and one on a smaller machine. Each searcher takes locks
/// and lines of the CPUs that have tasks, so a larger share would cost them more. Ours: see the
/// scaling of yields in `docs/results/benchmarks.md`.
const CPUS_PER_SEARCHER: usize = 16;

/// Yields after which a CPU looks for the first time whether others have more tasks. Ours: a look
/// takes lines of up to eight other CPUs, about as much time as ten yields.
const LOOKS_AFTER: u32 = 1 << 4;

/// Yields at which it looks at least once. The looks take about a hundredth of the time then.
const LOOKS_OF: u32 = 1 << 10;

/// One searcher in the counts.
const SEARCHER: u32 = 1 << 16;

const _: () = assert!(MAX_CPUS < SEARCHER as usize, "the counts of idle CPUs have room");

const BUSY: u32 = 0;
const IDLE: u32 = 1;
const CALLED: u32 = 2;

described! {
    /// The counts.
    pub(crate) struct Counts<M: Memory> as "idle_counts" {
        /// The CPUs that idle, and from bit 16 on those that search.
        word: M::Atomic<u32>,
    }
}

/// The words of one line.
const GROUP: usize = LINE / size_of::<u32>();

described! {
    /// What CPUs that are near to each other do, for those that could call them.
    pub(crate) struct IdleStates<M: Memory> as "idle_states" {
        /// Busy, idle or called, by CPU. Written by the CPU, and by whoever calls it.
        states: [M::Atomic<u32>; GROUP] = words,
    }
}

described! {
    /// What a CPU notes for itself.
    pub(crate) struct Notes<M: Memory> as "idle_notes" {
        /// 1 while the CPU is not busy: a busy one need not read its word, on a line that others
        /// write. Its own.
        idles: M::Plain<u32>,
        /// 1 while a task waits here that the CPU has kept for itself. Its own.
        keeps: M::Plain<u32>,
        /// How often a task has yielded here since the CPU took tasks because of that. Its own.
        yields: M::Plain<u32>,
    }
}

/// The idle CPUs, and those that search.
pub(crate) struct Searchers<M: Memory> {
    counts: Placed<M, Counts<M>>,
    groups: Box<[Placed<M, IdleStates<M>>]>,
    /// Where the state of each CPU is: the group, and the place in it.
    places: Box<[(u16, u16)]>,
    notes: PerCpu<M, Notes<M>>,
    /// How many CPUs may search at a time.
    most: u32,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Call {
    /// This CPU searches from now on. The caller interrupts it.
    Cpu(CpuId),
    /// As many CPUs search already as may, or another one was called just now.
    Searched,
    /// No CPU idles.
    NoneIdles,
}

impl<M: Memory> Searchers<M> {
    /// Creates the words of CPUs that are all busy.
    pub(crate) fn new(topology: &Topology) -> Self {
        let mut near: Vec<CpuId> = topology.cpu_ids().collect();
        let part = |cpu, scope| topology.part_of(scope, cpu);
        near.sort_by_key(|&cpu| [Scope::Node, Scope::Llc, Scope::Core].map(|scope| part(cpu, scope)));
        // Of how many CPUs the words share a line.
        let shared = if near.len() > GROUP { GROUP } else { 1 };
        let of_llcs = near.chunk_by(|&one, &other| part(one, Scope::Llc) == part(other, Scope::Llc));
        let groups: Vec<&[CpuId]> = of_llcs.flat_map(|cpus| cpus.chunks(shared)).collect();
        let mut places = vec![(0, 0); near.len()].into_boxed_slice();
        for (group, cpus) in groups.iter().enumerate() {
            for (at, cpu) in cpus.iter().enumerate() {
                places[cpu.index()] = (group as u16, at as u16);
            }
        }
        let group = |(index, cpus): (usize, &&[CpuId])| {
            let states = IdleStates { states: std::array::from_fn(|_| M::Atomic::new(BUSY)) };
            Placed::new(states, Some(index), Some(topology.cpu(cpus[0]).node))
        };
        let notes = |_| Notes { idles: M::Plain::new(0), keeps: M::Plain::new(0), yields: M::Plain::new(0) };
        Self {
            groups: groups.iter().enumerate().map(group).collect(),
            places,
            notes: PerCpu::new(topology, notes),
            counts: Placed::new(Counts { word: M::Atomic::new(0) }, None, None),
            most: topology.cpus().div_ceil(CPUS_PER_SEARCHER) as u32,
        }
    }

    /// Returns whether a CPU idles: a hint, unless the caller has fenced.
    #[track_caller]
    pub(crate) fn any_idle(&self) -> bool {
        // Relaxed: a hint, or fenced.
        self.counts.word.load(Ordering::Relaxed) % SEARCHER != 0
    }

    /// Calls the first idle CPU of `near`, unless enough CPUs search. `near` has all CPUs. The
    /// caller has advertised a task and has fenced.
    pub(crate) fn call<C: Iterator<Item = CpuId>>(&self, near: impl Fn() -> C) -> Call {
        let counts = &self.counts.word;
        loop {
            // Relaxed: the caller has fenced.
            let seen = counts.load(Ordering::Relaxed);
            if seen / SEARCHER >= self.most {
                return Call::Searched;
            }
            if seen % SEARCHER == 0 {
                return if seen == 0 { Call::NoneIdles } else { Call::Searched };
            }
            // AcqRel: sees the `IDLE` words that are counted. Pairs with `begin_idle`. Relaxed on
            // failure: the caller has fenced.
            match counts.compare_exchange(seen, seen + SEARCHER, Ordering::AcqRel, Ordering::Relaxed) {
                // Another caller has counted a searcher after this one's fence. That searcher sees
                // what is advertised. If the other caller finds no `IDLE` word instead, it looks
                // again, and a CPU that idles later sees it. Where many call at once, each would
                // fail many times.
                Err(now) if now / SEARCHER > seen / SEARCHER => return Call::Searched,
                Err(_) => continue,
                Ok(_) => {}
            }
            if let Some(cpu) = near().find(|&cpu| self.claim(cpu)) {
                // AcqRel: all transitions of the counts continue the release sequences before.
                counts.fetch_sub(1, Ordering::AcqRel);
                return Call::Cpu(cpu);
            }
            // AcqRel: the words that are read next are at least as new as those of the CPUs that
            // others did not call because of this search. Pairs with `begin_idle`.
            counts.fetch_sub(SEARCHER, Ordering::AcqRel);
            // Relaxed: acquired above.
            if !near().any(|cpu| self.state(cpu).load(Ordering::Relaxed) == IDLE) {
                return Call::NoneIdles;
            }
        }
    }

    #[track_caller]
    fn state(&self, cpu: CpuId) -> &M::Atomic<u32> {
        let (group, at) = self.places[cpu.index()];
        &self.groups[usize::from(group)].states[usize::from(at)]
    }

    /// Makes `cpu` search if it idles.
    fn claim(&self, cpu: CpuId) -> bool {
        let state = self.state(cpu);
        // Relaxed, all: the interrupt that follows publishes what the CPU is called for.
        state.load(Ordering::Relaxed) == IDLE
            && state.compare_exchange(IDLE, CALLED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns whether `cpu`, which asks, was called.
    #[track_caller]
    pub(crate) fn is_called(&self, cpu: CpuId) -> bool {
        // Relaxed: the caller takes interrupts before it asks.
        self.notes[cpu].idles.get() != 0 && self.state(cpu).load(Ordering::Relaxed) == CALLED
    }

    /// `cpu`, which calls, has found nothing to run. It must look once more.
    pub(crate) fn begin_idle(&self, cpu: CpuId) {
        self.notes[cpu].idles.set(1);
        let state = self.state(cpu);
        // Relaxed: others make `CALLED` of `IDLE` alone.
        let change = match state.load(Ordering::Relaxed) {
            IDLE => 0,
            CALLED => 1_u32.wrapping_sub(SEARCHER),
            _ => 1,
        };
        if change != 0 {
            // Relaxed: published by the count.
            state.store(IDLE, Ordering::Relaxed);
            // AcqRel: publishes the word. Pairs with `call`.
            self.counts.word.fetch_add(change, Ordering::AcqRel);
        }
        // SeqCst: between the counts and the look at what is advertised. Pairs with the fence of
        // a CPU that calls.
        M::fence(Ordering::SeqCst);
    }

    /// `cpu`, which calls, has something to run, or leaves. Returns whether it was a searcher: then
    /// others have relied on its search.
    #[track_caller]
    pub(crate) fn end_idle(&self, cpu: CpuId) -> bool {
        if self.notes[cpu].idles.get() == 0 {
            return false;
        }
        self.notes[cpu].idles.set(0);
        // Relaxed: whoever reads the word tolerates an old value.
        let was_called = self.state(cpu).swap(BUSY, Ordering::Relaxed) == CALLED;
        // AcqRel: as in `call`.
        self.counts.word.fetch_sub(if was_called { SEARCHER } else { 1 }, Ordering::AcqRel);
        was_called
    }

    /// Notes whether a task waits at `cpu`, which calls, that it has kept for itself.
    #[track_caller]
    pub(crate) fn set_keeps(&self, cpu: CpuId, keeps: bool) {
        self.notes[cpu].keeps.set(u32::from(keeps));
    }

    /// A task yields at `cpu`, which calls. Returns the number of this time if the CPU should look
    /// whether others have more tasks: soon at first, and then ever less often.
    #[track_caller]
    pub(crate) fn yields(&self, cpu: CpuId) -> Option<u32> {
        let yields = &self.notes[cpu].yields;
        let time = yields.get().wrapping_add(1);
        yields.set(time);
        let is_next = if time < LOOKS_OF { time.is_power_of_two() } else { time.is_multiple_of(LOOKS_OF) };
        (time >= LOOKS_AFTER && is_next).then_some(time)
    }

    /// `cpu`, which calls, has got tasks at a yield: others may have still more.
    #[track_caller]
    pub(crate) fn yields_to_others(&self, cpu: CpuId) {
        self.notes[cpu].yields.set(0);
    }

    /// Returns whether a task waits at `cpu`, which calls, that it has kept for itself.
    #[track_caller]
    pub(crate) fn keeps(&self, cpu: CpuId) -> bool {
        self.notes[cpu].keeps.get() != 0
    }
}

impl<M: Memory> fmt::Debug for Searchers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Searchers").field("counts", &self.counts.word).finish_non_exhaustive()
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;
