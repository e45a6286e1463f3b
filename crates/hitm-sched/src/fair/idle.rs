//! Where a waking fair task should run: the search for an idle CPU.
//!
//! **Origin.** Linux's. Wake-affine chooses between the CPU that wakes the task and the CPU where
//! the task ran last. From this *target* the search tries, in this order: the target, the previous
//! CPU, the CPU before that, an idle core, an idle CPU and an idle sibling of the target, all in
//! the target's LLC. [`IdleSearch`] says how the last three are found.
//!
//! **What is left out.** The count of wakees of a waker, above which the original skips
//! wake-affine; load averages, in whose place wake-affine compares the weights that are queued now;
//! per-CPU kernel threads; capacities; clusters; the count of busy CPUs, since ticks do not stop
//! here. The budget of a scan follows from the present utilisation, not from an average.
//!
//! **Layout.** That of [`sched_domains`](super::sched_domains). A probe reads the lines of a queue
//! with its running task and its task count. The CPUs that a search has yet to examine are in
//! [masks](super::scan) of the searcher.
//!
//! **Cost.** Counted: [`Count::Probe`] is one examined CPU.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, PlainWord, Platform, Time};
use hitm_topology::{CpuId, Scope};

use super::class::Fair;
use super::idle_mask::IdleMasks;
use super::scan::{Mask, Masks, Scan};
use super::sched_domains::{IDLE_MOST, Kept, MOVE_COSTS, SchedDomains, WAKE_COSTS};
use super::timeline::PICOS;
use crate::rq::RqGuard;
use crate::scheduler::{Scheduler, WakeHint};
use crate::stats::Count;
use crate::task::TaskId;

/// The search for an idle CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdleSearch {
    /// v5.10's two passes: first for an idle core, then for an idle CPU, over as many CPUs as the
    /// searcher's idle time allows.
    #[default]
    Baseline,
    /// As the baseline, but an idle CPU that the first pass meets is taken when no core idles, and
    /// a task remembers the CPU before its last one. `SinglePass` was posted on top of it (Mel
    /// Gorman, "altrecent-v2", December 2020).
    Candidate,
    /// As `Candidate`, but the second pass skips the CPUs of the first (the same author,
    /// "singlepass-v2", not merged).
    SinglePass,
    /// v5.12's: one pass, over cores if one may idle, else over CPUs.
    Merged,
    /// v6.0's: as `Merged`, with the number of CPUs taken from the utilisation of the LLC.
    Util,
    /// hitm's: one hint per LLC of the CPUs that may idle, which searches correct, and no search
    /// where the LLC is busy. See [`idle_mask`](super::idle_mask).
    Shipped,
    /// sched_ext's: masks of idle CPUs, one per part of this scope, from which a search claims a
    /// CPU.
    Masks(Scope),
}

/// The least budget of a bounded scan, in CPUs: Linux's.
const SCAN_LEAST: u64 = 4;

/// The part of a CPU's average idle time that a scan may take: a 512th, as in Linux.
const IDLE_FUZZ: u64 = 512;

/// Averages move by an eighth: Linux's.
const AVERAGED_OVER: i64 = 8;

/// By how much, in hundredths, a queue may be fuller than another within an LLC: Linux's.
const IMBALANCE_PCT: u64 = 117;

impl<P: Platform> Scheduler<P> {
    /// Returns the CPU for the waking task `id`, which ran on `prev` last.
    pub(crate) fn select_fair(&self, id: TaskId, prev: CpuId, hint: WakeHint) -> CpuId {
        self.stats.add(Count::Place);
        let may = self.tasks.allowed(id).intersection(&self.rd.active);
        let here = P::current_cpu();
        let target = if may.contains(here) { self.affine(id, here, prev, hint) } else { prev };
        let chosen = self.idle_sibling(id, prev, target, &may);
        if target == here && self.rd.config.idle == IdleSearch::Baseline {
            // This CPU will probably wake the waker too: its partner was here.
            if let Some(waker) = self.fair_curr(here) {
                self.tasks.fair(waker).recent_cpu.set(link(here));
            }
        }
        chosen
    }

    /// Wake-affine: returns the target of the search, the waker's CPU `here` or the task's previous
    /// CPU `prev`.
    fn affine(&self, id: TaskId, here: CpuId, prev: CpuId, hint: WakeHint) -> CpuId {
        if here == prev {
            return prev;
        }
        if self.is_available(here) && self.share_cache(here, prev) {
            return if self.is_available(prev) { prev } else { here };
        }
        let makes_room = hint == WakeHint::WakerSleeps;
        if makes_room && self.rqs[here].nr_running.peek() == 1 {
            return here;
        }
        if self.is_available(prev) {
            return prev;
        }
        let weight = u64::from(self.tasks.fair(id).weight.peek());
        let [mut here_load, prev_load] = [here, prev].map(|cpu| self.load_of(cpu));
        if makes_room {
            let waker = self.fair_curr(here);
            here_load -= waker.map_or(0, |waker| u64::from(self.tasks.fair(waker).weight.peek())).min(here_load);
        }
        // The task goes to one of the two CPUs: the one with less load, with a small preference for
        // its previous one.
        if (here_load + weight) * 100 < (prev_load + weight) * (100 + (IMBALANCE_PCT - 100) / 2) { here } else { prev }
    }

    /// Returns the fair task that runs on a CPU: a hint.
    #[track_caller]
    fn fair_curr(&self, cpu: CpuId) -> Option<TaskId> {
        // No closure: its accesses would be counted here, and not at the caller's place.
        let curr = self.rqs[cpu].curr()?;
        self.is_fair(curr).then_some(curr)
    }

    /// Returns the weight that is queued on a CPU: a hint.
    pub(crate) fn load_of(&self, cpu: CpuId) -> u64 {
        let queue = self.fair_queue(cpu);
        let curr = super::words::member(queue.curr.peek());
        queue.load.peek() + curr.map_or(0, |curr| u64::from(self.words_of(curr, cpu).weight.peek()))
    }

    fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        self.topology.part_of(Scope::Llc, one) == self.topology.part_of(Scope::Llc, other)
    }

    /// Returns whether nothing runs or is queued on a CPU: a hint.
    fn is_available(&self, cpu: CpuId) -> bool {
        self.stats.add(Count::Probe);
        self.idles(cpu)
    }

    /// As [`is_available`](Self::is_available), without counting.
    #[track_caller]
    fn idles(&self, cpu: CpuId) -> bool {
        self.rqs[cpu].curr().is_none() && self.rqs[cpu].nr_running.peek() == 0
    }

    /// Returns the sets around `cpu`: its core and its LLC.
    fn around(&self, cpu: CpuId) -> [&CpuSet; 2] {
        let [core, llc, ..] = &self.neighbourhoods[cpu.index()];
        [core, llc]
    }

    /// Returns the state of idle CPUs that the chosen search keeps.
    pub(crate) fn keep_idleness(&self) -> Kept<P> {
        let core = |cpu| CpuSet::clone(self.around(cpu)[0]);
        let masks = |scope| IdleMasks::new(&self.topology, scope, |cpu| self.idles(cpu), core);
        match self.rd.config.idle {
            IdleSearch::Baseline
            | IdleSearch::Candidate
            | IdleSearch::SinglePass
            | IdleSearch::Merged
            | IdleSearch::Util => Kept::Nothing,
            IdleSearch::Shipped => Kept::Hints(masks(Scope::Llc)),
            IdleSearch::Masks(scope) => Kept::Claims(masks(scope)),
        }
    }

    /// sched_ext's: an idle core, then an idle CPU, with a preference for the task's previous one.
    fn by_masks(&self, masks: &IdleMasks<P>, prev: CpuId, target: CpuId, may: &CpuSet) -> Option<CpuId> {
        let claim = |cpu: CpuId| {
            self.stats.add(Count::Probe);
            masks.claim(cpu, self.around(cpu)[0])
        };
        let goes_back = self.share_cache(prev, target) && may.contains(prev);
        if goes_back && masks.has_idle_core(prev) && claim(prev) {
            return Some(prev);
        }
        // The LLC first; then the rest of the masks, if they cover more.
        let llc = self.around(target)[1];
        let nearest = |found: CpuSet| {
            let (mut inside, mut outside) = (found.clone(), found);
            inside.intersect(llc);
            outside.subtract(llc);
            [inside, outside]
        };
        let first = |sets: [CpuSet; 2]| {
            let cpus = sets.iter().flat_map(|set| set.common_from(may, target));
            cpus.into_iter().find(|&cpu| claim(cpu))
        };
        if self.sched_domains().has_siblings
            && let Some(cpu) = first(nearest(masks.idle_cores_near(target)))
        {
            return Some(cpu);
        }
        if goes_back && claim(prev) {
            return Some(prev);
        }
        first(nearest(masks.idle_cpus_near(target)))
    }

    /// hitm's: examines the CPUs that may idle, an idle core first where there may be one.
    fn by_hints(&self, masks: &IdleMasks<P>, target: CpuId, in_llc: &CpuSet) -> Option<CpuId> {
        let wants_core = self.may_have_idle_core(target);
        // Where a core may be wholly idle, the LLC is less busy than balance last found it.
        let mut budget = if wants_core { u32::MAX } else { self.looks_worth_while(target) };
        if budget == 0 {
            return None;
        }
        let hinted = masks.idle_cpus_near(target);
        let mut left = hinted.clone();
        left.intersect(in_llc);
        let (mut candidate, mut in_vain) = (None, CpuSet::new());
        while let Some(cpu) = left.first_from(target) {
            let core = self.around(cpu)[0];
            let mut idles_whole = true;
            for sibling in core.iter() {
                let looks = hinted.contains(sibling) && budget > 0;
                budget -= u32::from(looks);
                if looks && self.is_available(sibling) {
                    candidate = candidate.or_else(|| left.contains(sibling).then_some(sibling));
                    continue;
                }
                idles_whole = false;
                if looks {
                    in_vain.insert(sibling);
                }
                if candidate.is_some() {
                    // The other siblings could only show whether the core is wholly idle.
                    break;
                }
            }
            if idles_whole {
                candidate = Some(cpu);
            }
            if idles_whole || (candidate.is_some() && !wants_core) || budget == 0 {
                break;
            }
            left.subtract(core);
        }
        if left.is_empty() && wants_core {
            self.tell_no_idle_core(target);
        }
        // Where tasks run briefly, a stale bit is right again before the next search. To clear it
        // would transfer the line twice, away from all its readers.
        if in_vain.len() as u64 > SCAN_LEAST && self.run_of(target) >= MOVE_COSTS {
            masks.forget(target, &in_vain);
        }
        candidate
    }

    fn idle_sibling(&self, id: TaskId, prev: CpuId, target: CpuId, may: &CpuSet) -> CpuId {
        let kept = &self.sched_domains().kept;
        if let Kept::Claims(masks) = kept {
            return self.by_masks(masks, prev, target, may).unwrap_or(target);
        }
        if may.contains(target) && self.is_available(target) {
            return target;
        }
        if prev != target && self.share_cache(prev, target) && may.contains(prev) && self.is_available(prev) {
            return prev;
        }
        let recent_word = &self.tasks.fair(id).recent_cpu;
        let recent = cpu_of(recent_word.peek());
        let recent = recent.filter(|&cpu| cpu != prev && cpu != target && self.share_cache(cpu, target));
        let recent = recent.filter(|&cpu| may.contains(cpu) && self.is_available(cpu));
        if recent.is_some() || self.rd.config.idle != IdleSearch::Baseline {
            recent_word.set(link(prev));
        }
        if let Some(recent) = recent {
            return recent;
        }
        let mut in_llc = self.around(target)[1].clone();
        in_llc.intersect(may);
        let found = match (kept, self.rd.config.idle) {
            (Kept::Hints(masks), _) => self.by_hints(masks, target, &in_llc),
            (_, IdleSearch::Baseline | IdleSearch::Candidate | IdleSearch::SinglePass) => {
                self.two_passes(target, &in_llc)
            }
            _ => self.one_pass(prev, target, &in_llc),
        };
        found.unwrap_or(target)
    }

    fn sched_domains(&self) -> &SchedDomains<P> {
        &self.fair().sched_domains
    }

    /// Returns whether a core of the LLC of `target` may be wholly idle.
    fn may_have_idle_core(&self, target: CpuId) -> bool {
        // Relaxed: a hint.
        self.sched_domains().has_siblings
            && self.sched_domains().shared_of(target).has_idle_cores.load(Ordering::Relaxed) != 0
    }

    fn tell_no_idle_core(&self, target: CpuId) {
        // Relaxed: a hint. A core that falls idle just now may be missed until the next one does.
        self.sched_domains().shared_of(target).has_idle_cores.store(0, Ordering::Relaxed);
    }

    /// Returns the calling CPU's masks.
    fn masks(&self) -> &Masks<P> {
        &self.sched_domains().masks[P::current_cpu().index()]
    }

    /// Fills `mask` with the allowed CPUs of the LLC of `target`: `in_llc`.
    fn begin_scan<'a>(&self, mask: &'a Mask<P>, target: CpuId, in_llc: &CpuSet) -> Scan<'a, P> {
        // Peek: written at construction; its line also has the CPUs of the LLC.
        _ = self.sched_domains().domains[target].span_weight.peek();
        Scan::begin(mask, in_llc.clone())
    }

    /// v5.10's search, and those posted for it.
    fn two_passes(&self, target: CpuId, in_llc: &CpuSet) -> Option<CpuId> {
        let Masks { select, balance } = self.masks();
        let single = self.rd.config.idle == IdleSearch::SinglePass;
        let mut unseen = single.then(|| self.begin_scan(select, target, in_llc));
        if self.may_have_idle_core(target) {
            let cores = match &unseen {
                Some(unseen) => unseen.copy(balance),
                None => self.begin_scan(select, target, in_llc),
            };
            let found = self.scan_cores(target, cores, in_llc, |cpu| {
                unseen.iter_mut().for_each(|unseen| unseen.remove(cpu));
            });
            if found.is_some() {
                return found;
            }
        }
        let left = unseen.unwrap_or_else(|| self.begin_scan(select, target, in_llc));
        self.bounded_scan(target, &left, self.budget_of_time()).or_else(|| {
            let siblings = self.around(target)[0].iter().filter(|&cpu| in_llc.contains(cpu));
            siblings.into_iter().find(|&sibling| self.is_available(sibling))
        })
    }

    /// Searches `cores` for an idle core, and gives each examined CPU to `see`. If none idles, an
    /// idle CPU is taken, but not by the baseline.
    fn scan_cores(
        &self,
        target: CpuId,
        mut cores: Scan<'_, P>,
        in_llc: &CpuSet,
        mut see: impl FnMut(CpuId),
    ) -> Option<CpuId> {
        let mut candidate = None;
        while let Some(cpu) = cores.first_from(target) {
            let core = self.around(cpu)[0];
            let mut is_idle = true;
            for sibling in core.iter() {
                see(sibling);
                if !self.is_available(sibling) {
                    is_idle = false;
                    break;
                }
                if candidate.is_none() && in_llc.contains(sibling) {
                    candidate = Some(sibling);
                }
            }
            if is_idle {
                return Some(cpu);
            }
            cores.remove_all(core);
        }
        self.tell_no_idle_core(target);
        candidate.filter(|_| self.rd.config.idle != IdleSearch::Baseline)
    }

    /// v5.12's search, and v6.0's.
    fn one_pass(&self, prev: CpuId, target: CpuId, in_llc: &CpuSet) -> Option<CpuId> {
        if self.may_have_idle_core(target) {
            let mut left = self.begin_scan(&self.masks().select, target, in_llc);
            let mut candidate = None;
            while let Some(cpu) = left.first_from(target) {
                let core = self.around(cpu)[0];
                let mut is_idle = true;
                for sibling in core.iter() {
                    if !self.is_available(sibling) {
                        is_idle = false;
                        if candidate.is_some() {
                            break;
                        }
                    } else if candidate.is_none() && left.contains(sibling) {
                        candidate = Some(sibling);
                    }
                }
                if is_idle {
                    return Some(cpu);
                }
                left.remove_all(core);
            }
            self.tell_no_idle_core(target);
            return candidate;
        }
        if self.share_cache(prev, target) {
            let siblings = self.around(prev)[0].iter().filter(|&cpu| cpu != prev && in_llc.contains(cpu));
            if let Some(sibling) = siblings.into_iter().find(|&sibling| self.is_available(sibling)) {
                return Some(sibling);
            }
        }
        let budget = match self.rd.config.idle {
            IdleSearch::Util => {
                // Relaxed: a hint.
                let scan = self.sched_domains().shared_of(target).nr_idle_scan.load(Ordering::Relaxed);
                u64::from(scan).saturating_add(1)
            }
            _ => self.budget_of_time(),
        };
        if budget == 1 {
            return None;
        }
        let left = self.begin_scan(&self.masks().select, target, in_llc);
        self.bounded_scan(target, &left, budget)
    }

    /// Examines fewer than `budget` CPUs from `target` on. The cost of a scan that the budget did
    /// not cut short goes into the average.
    fn bounded_scan(&self, target: CpuId, left: &Scan<'_, P>, budget: u64) -> Option<CpuId> {
        let start = P::now();
        let mut budget = budget;
        let mut found = None;
        for cpu in left.all_from(target) {
            budget -= 1;
            if budget == 0 {
                return None;
            }
            if self.is_available(cpu) {
                found = Some(cpu);
                break;
            }
        }
        let cost = P::now().since(start).as_picos() / PICOS;
        let average = &self.sched_domains().domains[P::current_cpu()].avg_scan_cost;
        // Peek: a hint of the CPU's own, which threads outside the CPUs may share.
        let before = average.peek();
        average.set(averaged(before, cost));
        found
    }

    /// Returns the number of CPUs that the searcher's average idle time allows.
    fn budget_of_time(&self) -> u64 {
        let domain = &self.sched_domains().domains[P::current_cpu()];
        let (idle, cost) = (domain.avg_idle.peek() / IDLE_FUZZ, domain.avg_scan_cost.peek() + 1);
        let span = u64::from(domain.span_weight.peek()) * idle;
        if span > SCAN_LEAST * cost { span / cost } else { SCAN_LEAST }
    }

    /// The calling CPU, that of `rq`, switches from `prev` to `next`.
    pub(crate) fn note_idleness(&self, rq: &RqGuard<'_, P>, prev: Option<TaskId>, next: Option<TaskId>) {
        let Some(fair) = self.fair.get() else { return };
        let keeps_stretches = matches!(fair.sched_domains.kept, Kept::Hints(_));
        if !keeps_stretches && prev.is_some() && next.is_some() {
            return;
        }
        let now = P::now();
        if keeps_stretches {
            self.note_stretch(fair, rq.cpu, prev.is_some(), now);
        }
        if next.is_none() {
            self.begin_idle(fair, rq.cpu, now);
        } else if prev.is_none() {
            self.end_idle(fair, rq.cpu, now);
        }
    }

    /// Ends a stretch of `cpu`, in which it ran a task or idled.
    fn note_stretch(&self, fair: &Fair<P>, cpu: CpuId, ran: bool, now: Time) {
        let domain = &fair.sched_domains.domains[cpu];
        if ran {
            let span = now.since(Time::from_picos(domain.runs_from.get())).as_picos() / PICOS;
            domain.avg_run.set(averaged(domain.avg_run.get(), span.min(2 * IDLE_MOST)));
        }
        domain.runs_from.set(now.as_picos());
    }

    /// Returns the number of CPUs in the LLC of `target` that are worth examining. All of them, if
    /// a task queued at `target` would wait there longer than an idle CPU takes to wake; else
    /// fewer, the busier the LLC was at the last balance.
    fn looks_worth_while(&self, target: CpuId) -> u32 {
        // Relaxed: a hint.
        let scan = self.sched_domains().shared_of(target).nr_idle_scan.load(Ordering::Relaxed);
        if self.run_of(target) >= WAKE_COSTS { u32::MAX } else { scan }
    }

    /// Returns how long a task runs on `cpu` on average, in nanoseconds: a hint.
    fn run_of(&self, cpu: CpuId) -> u64 {
        self.sched_domains().domains[cpu].avg_run.peek()
    }

    fn begin_idle(&self, fair: &Fair<P>, cpu: CpuId, now: Time) {
        fair.sched_domains.domains[cpu].idles_from.set(now.as_picos());
        match &fair.sched_domains.kept {
            Kept::Nothing => {}
            Kept::Claims(masks) => return masks.begin_idle(cpu, self.around(cpu)[0]),
            Kept::Hints(masks) => masks.hint(cpu),
        }
        if !fair.sched_domains.has_siblings {
            return;
        }
        let shared = fair.sched_domains.shared_of(cpu);
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

    fn end_idle(&self, fair: &Fair<P>, cpu: CpuId, now: Time) {
        if let Kept::Claims(masks) = &fair.sched_domains.kept {
            masks.end_idle(cpu, self.around(cpu)[0]);
        }
        let domain = &fair.sched_domains.domains[cpu];
        let since = domain.idles_from.get();
        if since == 0 {
            return;
        }
        domain.idles_from.set(0);
        let idled = (now.since(Time::from_picos(since)).as_picos() / PICOS).min(2 * IDLE_MOST);
        domain.avg_idle.set(averaged(domain.avg_idle.get(), idled).min(IDLE_MOST));
    }

    /// Returns whether a CPU usually idles for less time than a migration costs.
    pub(crate) fn idles_briefly(&self, cpu: CpuId) -> bool {
        self.sched_domains().domains[cpu].avg_idle.get() < MOVE_COSTS
    }

    /// Computes the number of CPUs that a search of the LLC of `cpu` examines: the busier, the
    /// fewer.
    pub(crate) fn refresh_idle_scan(&self, cpu: CpuId) {
        if !matches!(self.rd.config.idle, IdleSearch::Util | IdleSearch::Shipped) {
            return;
        }
        let llc = self.around(cpu)[1];
        let weight = llc.len() as u64;
        let busy = llc.iter().filter(|&cpu| self.rqs[cpu].nr_running.peek() > 0).count() as u64;
        let used = busy * SCALE / weight;
        let less = used * used * IMBALANCE_PCT * IMBALANCE_PCT / (10_000 * SCALE);
        let scan = (weight * (SCALE - less.min(SCALE)) / SCALE) as u32;
        let word = &self.sched_domains().shared_of(cpu).nr_idle_scan;
        // Relaxed: a hint. Stored only if it differs, so that the line stays shared.
        if word.load(Ordering::Relaxed) != scan {
            // Relaxed: as above.
            word.store(scan, Ordering::Relaxed);
        }
    }
}

/// Returns the average `before`, updated with `newest`.
fn averaged(before: u64, newest: u64) -> u64 {
    (before as i64 + (newest as i64 - before as i64) / AVERAGED_OVER) as u64
}

/// The value of full utilisation: Linux's.
const SCALE: u64 = 1_024;

/// Returns the link of a CPU: its number counted from 1.
fn link(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

/// Returns the CPU of a link; `None` for 0.
fn cpu_of(link: u32) -> Option<CpuId> {
    link.checked_sub(1).map(CpuId)
}
