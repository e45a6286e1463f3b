//! Where a fair task that wakes should run: the search for an idle CPU.
//!
//! **Origin.** Linux's: wake-affine chooses between the CPU that wakes and the one where the task ran last; from there, tried in this
//! order: that *target*, the previous CPU, the one before that, an idle core, an idle CPU and an idle sibling of the target, all in
//! the target's LLC. [`IdleSearch`] says how the last three are found.
//!
//! **What is left out.** The search of the least loaded CPU for a new task, which is placed as one that wakes where it was made; the
//! count of how many a waker wakes, above which the original does not ask wake-affine; the hint that the waker is about to sleep;
//! averages of load, in whose place wake-affine compares the weights that are queued now; per-CPU kernel threads; capacities;
//! clusters; the count of busy CPUs, since ticks do not stop here. What a scan may cost is told from the utilisation of this instant,
//! not from an average. The masks of a scan are the CPU's own and cost no access here: of the variants, what a copy of a mask and a
//! clear of each visited CPU cost is missing.
//!
//! **Layout.** [`Shared`] is one line an LLC, false sharing and all; [`Domain`] two lines a CPU, of which wakers elsewhere read one.
//! A probe reads the lines of the queue that hold its running task and its count of tasks.
//!
//! **Cost.** Counted: [`Count::Probe`] is a CPU that was looked at.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, LineStart, Memory, PerCpu, Placed, PlainWord, Platform, Time, described};
use hitm_topology::{CpuId, Scope, Topology};

use super::class::Fair;
use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// How an idle CPU is searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdleSearch {
    /// v5.10's two passes: an idle core, then an idle CPU, as many as the time that the searcher idled allows.
    #[default]
    Baseline,
    /// As the baseline, but the second pass leaves out whom the first has seen (Mel Gorman, December 2020, not merged).
    SinglePass,
    /// v5.12's: one pass, over cores if one may idle, else over CPUs.
    Merged,
    /// v6.0's: as `Merged`, with the number of CPUs told from how busy the LLC is.
    Util,
}

/// The least number of CPUs that a bounded scan counts to: Linux's.
const SCAN_LEAST: u64 = 4;

/// How much of the time that a CPU idles on average a scan may take: a 512th. Linux's.
const IDLE_FUZZ: u64 = 512;

/// Averages move by an eighth: Linux's.
const AVERAGED_OVER: i64 = 8;

/// What a CPU is taken to idle before it has: twice what a migration costs, which is also the most. Linux's, nanoseconds.
const IDLE_MOST: u64 = 1_000_000;

/// By how much, in hundredths, a queue may be fuller than another within an LLC: Linux's.
const IMBALANCE_PCT: u64 = 117;

described! {
    /// What the CPUs of an LLC share for the search.
    pub struct Shared<M: Memory> as "sched_domain_shared" {
        reference: [u32; 2],
        /// 1 while a core may be idle. Set by a CPU whose core falls idle, cleared by a search that found none.
        pub(crate) has_idle_cores: M::Atomic<u32>,
        /// How many CPUs a search looks at, with [`IdleSearch::Util`]. Written by balance.
        pub(crate) nr_idle_scan: M::Atomic<u32>,
    }
}

described! {
    /// One CPU's view of its LLC.
    pub struct Domain<M: Memory> as "sched_domain" {
        links_and_limits: [u64; 8],
        balance: [u64; 4],
        /// What a scan has cost on average, nanoseconds. Written by this CPU after each, beside `shared`.
        pub(crate) avg_scan_cost: M::Plain<u64>,
        statistics: [u64; 2],
        /// Which [`Shared`] is that of its LLC. Read by who wakes a task towards this CPU.
        pub(crate) shared: M::Plain<u64>,
        third_line: LineStart,
        /// How many CPUs the LLC has.
        pub(crate) span_weight: M::Plain<u32>,
        /// Since when this CPU idles, picoseconds; 0 while it does not.
        pub(crate) idles_from: M::Plain<u64>,
        /// How long it idles on average, nanoseconds.
        pub(crate) avg_idle: M::Plain<u64>,
    }
}

const _: () = assert!(std::mem::offset_of!(Domain<hitm_memory::Native>, avg_scan_cost) == 96, "the original's offset");
const _: () = assert!(std::mem::offset_of!(Domain<hitm_memory::Native>, shared) == 120, "the original's offset");

/// What the search keeps.
pub(crate) struct Places<M: Memory> {
    shared: Box<[Placed<M, Shared<M>>]>,
    pub(crate) domains: PerCpu<M, Domain<M>>,
    /// Whether any core has several CPUs.
    has_siblings: bool,
}

impl<M: Memory> Places<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
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
                span_weight: M::Plain::new(topology.cpus_of(Scope::Llc, llc).len() as u32),
                idles_from: M::Plain::new(0),
                avg_idle: M::Plain::new(IDLE_MOST),
            }
        };
        Self {
            shared: (0..topology.parts(Scope::Llc)).map(shared).collect(),
            domains: PerCpu::new(topology, domain),
            has_siblings: topology.parts(Scope::Core) < topology.cpus(),
        }
    }

    /// What the CPUs of the LLC of `cpu` share.
    #[track_caller]
    fn shared_of(&self, cpu: CpuId) -> &Shared<M> {
        &self.shared[self.domains[cpu].shared.peek() as usize]
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// The CPU for `id`, which wakes and ran on `prev` last.
    pub(crate) fn select_fair(&self, id: TaskId, prev: CpuId) -> CpuId {
        let may = self.tasks.allowed(id).intersection(&self.rd.active);
        let here = P::current_cpu();
        let target = if may.contains(here) { self.affine(id, here, prev) } else { prev };
        let chosen = self.idle_sibling(id, prev, target, &may);
        if target == here {
            // The waker is likely to be woken by this one: here its partner was.
            let waker = self.rqs[here].curr().filter(|&curr| self.is_fair(curr));
            waker.into_iter().for_each(|waker| self.tasks.fair(waker).recent_cpu.set(link(here)));
        }
        chosen
    }

    /// Wake-affine: whether the task is drawn to the CPU that wakes it.
    fn affine(&self, id: TaskId, here: CpuId, prev: CpuId) -> CpuId {
        if here == prev {
            return prev;
        }
        if self.is_available(here) && self.share_cache(here, prev) {
            return if self.is_available(prev) { prev } else { here };
        }
        if self.is_available(prev) {
            return prev;
        }
        let weight = u64::from(self.tasks.fair(id).weight.peek());
        let [here_load, prev_load] = [here, prev].map(|cpu| self.load_of(cpu));
        // The task comes to one of the two: to that with less, a little in favour of where it was.
        if (here_load + weight) * 100 < (prev_load + weight) * (100 + (IMBALANCE_PCT - 100) / 2) { here } else { prev }
    }

    /// The weights that are queued on a CPU: a hint.
    pub(crate) fn load_of(&self, cpu: CpuId) -> u64 {
        let queue = self.fair_queue(cpu);
        let curr = super::words::task(queue.curr.peek());
        queue.load.peek() + curr.map_or(0, |curr| u64::from(self.tasks.fair(curr).weight.peek()))
    }

    fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        self.topology.part_of(Scope::Llc, one) == self.topology.part_of(Scope::Llc, other)
    }

    /// Whether nothing runs on a CPU or is queued there: a hint.
    fn is_available(&self, cpu: CpuId) -> bool {
        self.stats.add(Count::Probe);
        self.idles(cpu)
    }

    fn idles(&self, cpu: CpuId) -> bool {
        self.rqs[cpu].curr().is_none() && self.rqs[cpu].nr_running.peek() == 0
    }

    /// The sets around `cpu`: its core, and its LLC.
    fn around(&self, cpu: CpuId) -> [&CpuSet; 2] {
        let [core, llc, ..] = &self.neighbourhoods[cpu.index()];
        [core, llc]
    }

    fn idle_sibling(&self, id: TaskId, prev: CpuId, target: CpuId, may: &CpuSet) -> CpuId {
        if may.contains(target) && self.is_available(target) {
            return target;
        }
        if prev != target && self.share_cache(prev, target) && may.contains(prev) && self.is_available(prev) {
            return prev;
        }
        let recent_word = &self.tasks.fair(id).recent_cpu;
        let recent = cpu_of(recent_word.peek()).filter(|&cpu| cpu != prev && cpu != target);
        if let Some(recent) = recent
            && self.share_cache(recent, target)
            && may.contains(recent)
            && self.is_available(recent)
        {
            recent_word.set(link(prev));
            return recent;
        }
        let mut mask = self.around(target)[1].clone();
        mask.intersect(may);
        let found = match self.rd.config.idle {
            IdleSearch::Baseline | IdleSearch::SinglePass => self.two_passes(target, mask),
            IdleSearch::Merged | IdleSearch::Util => self.one_pass(prev, target, mask),
        };
        found.unwrap_or(target)
    }

    fn places(&self) -> &Places<P> {
        &self.fair().places
    }

    /// Whether a core of the LLC of `target` may idle.
    fn may_have_idle_core(&self, target: CpuId) -> bool {
        // Relaxed: a hint.
        self.places().has_siblings && self.places().shared_of(target).has_idle_cores.load(Ordering::Relaxed) != 0
    }

    fn tell_no_idle_core(&self, target: CpuId) {
        // Relaxed: a hint. One that falls idle just now may be overlooked until the next one does.
        self.places().shared_of(target).has_idle_cores.store(0, Ordering::Relaxed);
    }

    /// v5.10's, and the single pass.
    fn two_passes(&self, target: CpuId, mut mask: CpuSet) -> Option<CpuId> {
        let all = mask.clone();
        if self.may_have_idle_core(target) {
            let mut cores = mask.clone();
            while let Some(cpu) = cores.first_from(target) {
                let core = self.around(cpu)[0];
                let mut is_idle = true;
                for sibling in core.iter() {
                    if self.rd.config.idle == IdleSearch::SinglePass {
                        mask.remove(sibling);
                    }
                    if !self.is_available(sibling) {
                        is_idle = false;
                        break;
                    }
                }
                if is_idle {
                    return Some(cpu);
                }
                core.iter().for_each(|sibling| cores.remove(sibling));
            }
            self.tell_no_idle_core(target);
        }
        self.bounded_scan(target, &mask, self.budget_of_time()).or_else(|| {
            let mut siblings = self.around(target)[0].clone();
            siblings.intersect(&all);
            siblings.iter().find(|&sibling| self.is_available(sibling))
        })
    }

    /// v5.12's, and v6.0's.
    fn one_pass(&self, prev: CpuId, target: CpuId, mut mask: CpuSet) -> Option<CpuId> {
        if self.may_have_idle_core(target) {
            let mut candidate = None;
            while let Some(cpu) = mask.first_from(target) {
                let core = self.around(cpu)[0];
                let mut is_idle = true;
                for sibling in core.iter() {
                    if !self.is_available(sibling) {
                        is_idle = false;
                        if candidate.is_some() {
                            break;
                        }
                    } else if candidate.is_none() && mask.contains(sibling) {
                        candidate = Some(sibling);
                    }
                }
                if is_idle {
                    return Some(cpu);
                }
                core.iter().for_each(|sibling| mask.remove(sibling));
            }
            self.tell_no_idle_core(target);
            return candidate;
        }
        if self.share_cache(prev, target) {
            let siblings = self.around(prev)[0].iter().filter(|&cpu| cpu != prev && mask.contains(cpu));
            if let Some(sibling) = siblings.into_iter().find(|&sibling| self.is_available(sibling)) {
                return Some(sibling);
            }
        }
        let budget = match self.rd.config.idle {
            IdleSearch::Util => {
                // Relaxed: a hint.
                let scan = self.places().shared_of(target).nr_idle_scan.load(Ordering::Relaxed);
                u64::from(scan).saturating_add(1)
            }
            _ => self.budget_of_time(),
        };
        if budget == 1 { None } else { self.bounded_scan(target, &mask, budget) }
    }

    /// Looks at fewer than `budget` CPUs from `target` on. What a scan costs that was not cut short is averaged.
    fn bounded_scan(&self, target: CpuId, mask: &CpuSet, budget: u64) -> Option<CpuId> {
        let start = P::now();
        let mut left = budget;
        let mut found = None;
        for cpu in mask.common_from(mask, target) {
            left -= 1;
            if left == 0 {
                return None;
            }
            if self.is_available(cpu) {
                found = Some(cpu);
                break;
            }
        }
        let cost = P::now().since(start).as_picos() / 1_000;
        let average = &self.places().domains[P::current_cpu()].avg_scan_cost;
        // Peek: a hint of the CPU's own, which threads outside the CPUs may share.
        let before = average.peek();
        average.set(averaged(before, cost));
        found
    }

    /// How many CPUs the time that the searcher idles on average allows.
    fn budget_of_time(&self) -> u64 {
        let domain = &self.places().domains[P::current_cpu()];
        let (idle, cost) = (domain.avg_idle.peek() / IDLE_FUZZ, domain.avg_scan_cost.peek() + 1);
        let span = u64::from(domain.span_weight.peek()) * idle;
        if span > SCAN_LEAST * cost { span / cost } else { SCAN_LEAST }
    }

    /// The calling CPU, that of `rq`, leaves `prev` for `next`.
    pub(crate) fn note_idleness(&self, rq: &RqGuard<'_, P>, prev: Option<TaskId>, next: Option<TaskId>) {
        match &self.fair.get() {
            Some(fair) if next.is_none() => self.begin_idle(fair, rq.cpu, P::now()),
            Some(fair) if prev.is_none() => Self::end_idle(fair, rq.cpu, P::now()),
            _ => {}
        }
    }

    fn begin_idle(&self, fair: &Fair<P>, cpu: CpuId, now: Time) {
        fair.places.domains[cpu].idles_from.set(now.as_picos());
        if !fair.places.has_siblings {
            return;
        }
        let shared = fair.places.shared_of(cpu);
        // Relaxed: a hint, as what is stored.
        if shared.has_idle_cores.load(Ordering::Relaxed) != 0 {
            return;
        }
        let siblings = self.around(cpu)[0];
        if siblings.iter().filter(|&sibling| sibling != cpu).all(|sibling| self.idles(sibling)) {
            // Relaxed: as above.
            shared.has_idle_cores.store(1, Ordering::Relaxed);
        }
    }

    fn end_idle(fair: &Fair<P>, cpu: CpuId, now: Time) {
        let domain = &fair.places.domains[cpu];
        let since = domain.idles_from.get();
        if since == 0 {
            return;
        }
        domain.idles_from.set(0);
        let idled = (now.since(Time::from_picos(since)).as_picos() / 1_000).min(2 * IDLE_MOST);
        domain.avg_idle.set(averaged(domain.avg_idle.get(), idled).min(IDLE_MOST));
    }

    /// Whether a CPU idles for less than a migration costs, as a rule.
    pub(crate) fn idles_briefly(&self, cpu: CpuId) -> bool {
        self.places().domains[cpu].avg_idle.get() < IDLE_MOST / 2
    }

    /// Works out how many CPUs a search of the LLC of `cpu` is worth: the more of it is busy, the fewer.
    pub(crate) fn refresh_idle_scan(&self, cpu: CpuId) {
        if self.rd.config.idle != IdleSearch::Util {
            return;
        }
        let llc = self.around(cpu)[1];
        let weight = llc.len() as u64;
        let busy = llc.iter().filter(|&cpu| self.rqs[cpu].nr_running.peek() > 0).count() as u64;
        let used = busy * SCALE / weight;
        let less = used * used * IMBALANCE_PCT * IMBALANCE_PCT / (10_000 * SCALE);
        let scan = (weight * (SCALE - less.min(SCALE)) / SCALE) as u32;
        let word = &self.places().shared_of(cpu).nr_idle_scan;
        // Relaxed: a hint. Stored only if new, so that the line stays shared.
        if word.load(Ordering::Relaxed) != scan {
            // Relaxed: as above.
            word.store(scan, Ordering::Relaxed);
        }
    }
}

/// An average that was `before`, with `newest`.
fn averaged(before: u64, newest: u64) -> u64 {
    (before as i64 + (newest as i64 - before as i64) / AVERAGED_OVER) as u64
}

/// What stands for "all of it" in utilisation: Linux's.
const SCALE: u64 = 1_024;

/// A CPU, counted from 1.
fn link(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

/// The CPU of a link; none of 0.
fn cpu_of(link: u32) -> Option<CpuId> {
    link.checked_sub(1).map(CpuId)
}

impl<M: Memory> fmt::Debug for Places<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("llcs", &self.shared.len()).finish_non_exhaustive()
    }
}
