//! Compares the queue with a model that keeps a list and searches all of it, and the time of tasks
//! with their shares.

use hitm_machine::Random;
use hitm_memory::{Native, Span};

use crate::base::fair_words::Kind;
use crate::base::numbers::{GroupId, TaskId};
use crate::base::timeline::*;
use crate::base::weight::Nice;
use crate::fair::group::GroupWeight;

/// The slice of a machine with eight CPUs or more.
const SLICE: i64 = 2_800_000;

/// Returns the place of a member's words.
fn at(id: Member) -> usize {
    match id.kind() {
        Kind::Task(TaskId(number)) | Kind::Group(GroupId(number)) => number as usize,
    }
}

/// A queue of several members, and the time.
struct Bench {
    queue: FairQueue<Native>,
    tasks: Vec<FairTask<Native>>,
    now: Time,
    order: TaskOrder,
    slices: Slices,
    has_list: bool,
}

impl Bench {
    fn new(nices: impl Iterator<Item = i8>) -> Self {
        let tasks = nices.map(|nice| FairTask::new(Nice::new(nice))).collect();
        Self {
            queue: FairQueue::new(),
            tasks,
            now: Time::START,
            order: TaskOrder::Weight,
            slices: Slices { default: SLICE, has_own: false },
            has_list: false,
        }
    }

    fn line<'a>(&'a self) -> Timeline<'a, Native, impl Fn(Member) -> &'a FairTask<Native>> {
        Timeline::new(&self.queue, |id| &self.tasks[at(id)], self.slices, self.order, self.has_list)
    }

    fn queued(&self) -> Vec<Member> {
        self.line().members().collect().into_iter().chain(self.line().curr()).collect()
    }

    /// These members come, and one of them runs.
    fn begin(&self, members: &[Member]) {
        for &id in members {
            self.line().enqueue(id, Arrival::Waits, self.now);
        }
        self.switch();
    }

    /// Two members of nice 0 come. The first one runs for 1 ms and leaves: half of that was the
    /// other's.
    fn leaves_in_debt(&mut self, [one, other]: [Member; 2]) {
        self.begin(&[one, other]);
        assert_eq!(self.line().curr(), Some(one));
        self.now += Span::from_micros(1_000);
        self.line().dequeue(one, true, self.now);
        assert_eq!(self.tasks[at(one)].lag.get(), -500_000);
        self.switch();
    }

    /// Switches to the next task.
    fn switch(&self) {
        let line = self.line();
        let next = line.pick(None);
        if next != line.curr() {
            line.put(self.now);
            if let Some(next) = next {
                line.begin(next, self.now);
            }
        }
    }

    /// Returns the sum of the lags, each times its weight, and the weights.
    fn lags(&self) -> (i128, i128) {
        let average = self.line().average();
        let lag = |id: Member| {
            let words = &self.tasks[at(id)];
            i128::from(average - words.vruntime.get()) * i128::from(words.weight.get())
        };
        let weight = |id: Member| i128::from(self.tasks[at(id)].weight.get());
        let queued = self.queued();
        (queued.iter().copied().map(lag).sum(), queued.into_iter().map(weight).sum())
    }

    /// Returns the task that should run, by a search of all tasks.
    fn model_pick(&self) -> Option<Member> {
        let line = self.line();
        let (load, sum) = self.queued().into_iter().fold((0_i128, 0_i128), |(load, sum), id| {
            let words = &self.tasks[at(id)];
            let weight = i128::from(words.weight.get());
            (load + weight, sum + weight * i128::from(words.vruntime.get()))
        });
        let of = |id: Member| &self.tasks[at(id)];
        let eligible = |id: &Member| i128::from(of(*id).vruntime.get() - self.grain()) * load <= sum;
        if self.queued().len() == 1 {
            return line.curr().or_else(|| self.queued().first().copied());
        }
        if let Some(curr) = line.curr().filter(eligible)
            && of(curr).deadline.get() == self.queue.chosen_deadline.get()
        {
            return Some(curr);
        }
        self.queued().into_iter().filter(eligible).min_by_key(|&id| (of(id).deadline.get(), id))
    }

    /// Returns how far ahead of the average an eligible member may be.
    fn grain(&self) -> i64 {
        let has_one_weight = self.queued().into_iter().all(|id| self.tasks[at(id)].weight.get() == FINE_NICE_0_WEIGHT);
        if self.has_list && has_one_weight { GRAIN } else { 0 }
    }

    /// Returns the deadline of an eligible member: the first one should run.
    fn order_of(&self, id: Member) -> i64 {
        let words = &self.tasks[at(id)];
        if words.vruntime.get() <= self.line().average() + self.grain() { words.deadline.get() } else { i64::MAX }
    }

    /// Returns whether a waiting member ends the turn of the running one, by a search of all.
    fn model_cuts(&self) -> bool {
        let Some(curr) = self.line().curr().filter(|_| self.slices.has_own) else { return false };
        let (average, deadline) = (self.line().average(), |id| self.tasks[at(id)].deadline.get());
        self.line().members().collect().into_iter().any(|id| {
            let is_shorter = self.slice_of(id) < self.slice_of(curr);
            is_shorter && deadline(id) < deadline(curr) && self.tasks[at(id)].vruntime.get() <= average + self.grain()
        })
    }

    /// Returns the slice of a member.
    fn slice_of(&self, id: Member) -> i64 {
        match self.tasks[at(id)].slice.get() {
            0 => SLICE,
            own => i64::from(own),
        }
    }

    /// Gives members slices of their own.
    fn with_slices(mut self, slices: impl Iterator<Item = u32>) -> Self {
        self.slices.has_own = true;
        self.tasks.iter().zip(slices).for_each(|(words, slice)| words.slice.set(slice));
        self
    }
}

/// A slice of a group, or none of its own.
fn random_slice(chance: &mut Random) -> u32 {
    [0, 100_000, 700_000, 10_000_000, 100_000_000][chance.below(5) as usize]
}

/// Checks random members that come and go, with weights of `weigh`, on a queue that is charged at
/// least every `apart` nanoseconds. In every second seed the members have slices of their own,
/// which change; in half of these they are groups.
fn check_picks(weigh: fn(&mut Random) -> u32, apart: u64) {
    for seed in 0..30 {
        let mut chance = Random::new(seed, 0);
        let mut bench = Bench::new([0; 40].into_iter());
        bench.has_list = seed % 3 > 0;
        let are_groups = seed % 4 == 3;
        if seed % 2 == 1 {
            bench = bench.with_slices((0..40).map(|_| random_slice(&mut chance)));
        }
        bench.tasks.iter().for_each(|words| words.set_weight(weigh(&mut chance)));
        for step in 0..3_000 {
            bench.now += Span::from_nanos(chance.below(apart));
            let number = chance.below(40) as u32;
            let id = if are_groups { Member::group(GroupId(number)) } else { Member::task(TaskId(number)) };
            let is_queued = bench.queued().contains(&id);
            let line = bench.line();
            match chance.below(7) {
                0 | 1 if !is_queued => _ = line.enqueue(id, Arrival::Waits, bench.now),
                2 if is_queued => line.dequeue(id, chance.below(2) == 0, bench.now),
                3 => line.let_go(bench.now),
                5 if bench.slices.has_own => bench.tasks[at(id)].slice.set(random_slice(&mut chance)),
                4 if !is_queued => bench.tasks[at(id)].set_weight(weigh(&mut chance)),
                4 => line.reweigh(id, weigh(&mut chance), bench.now),
                _ => _ = line.charge(bench.now),
            }
            if chance.below(4) == 0 {
                assert_eq!(line.cut_turn(), bench.model_cuts(), "seed {seed}, step {step}");
                assert!(!bench.model_cuts() || line.is_cut() && line.pick(None) != line.curr());
            }
            let (picked, expected) = (line.pick(None), bench.model_pick());
            if picked != expected {
                // In a list, equals are in the order in which they came.
                let is_equal = |id: Member| bench.order_of(id) == expected.map_or(i64::MIN, |id| bench.order_of(id));
                assert!(bench.has_list && picked.is_some_and(is_equal), "seed {seed}, step {step}: {picked:?}");
            }
            assert_eq!(line.pick(None).is_none(), bench.queue.nr_queued.get() == 0, "one member is always eligible");
            if let Some(curr) = line.curr() {
                let other = line.pick(Some(curr));
                assert_eq!(other.is_none(), bench.queue.nr_queued.get() == 1, "a skipped member holds no other back");
                assert_ne!(other, Some(curr));
            }
            if chance.below(3) > 0 {
                bench.switch();
            }
            let (lags, weights) = bench.lags();
            assert!((-weights..=0).contains(&lags), "seed {seed}, step {step}: lags {lags} of weights {weights}");
            let words = |id: Member| &bench.tasks[at(id)];
            assert_eq!(bench.line().members().broken(), None);
            assert_eq!(bench.queue.nr_queued.get() as usize, bench.queued().len());
            let load: u64 = bench.line().members().collect().iter().map(|&id| u64::from(words(id).weight.get())).sum();
            assert_eq!(bench.queue.load.get(), load);
        }
    }
}

#[test]
fn picks_are_those_of_a_list() {
    check_picks(|chance| Nice::new(chance.below(40) as i8 - 20).fine_weight(), 4_000_000);
}

/// Runs tasks of these nice levels, which always want to run, to the ends of their slices. Returns
/// the time of each within `millis`, and the longest wait of each.
fn shares(nices: &[i8], millis: u64) -> (Vec<u64>, Vec<u64>) {
    shares_of(nices, Bench::new(nices.iter().copied()), millis)
}

/// As [`shares`], on a queue of the caller.
fn shares_of(nices: &[i8], mut bench: Bench, millis: u64) -> (Vec<u64>, Vec<u64>) {
    let longest = (0..nices.len()).map(|id| bench.slice_of(Member(id as u32))).max().expect("a task") as u64;
    for id in 0..nices.len() {
        bench.line().enqueue(Member(id as u32), Arrival::Waits, bench.now);
    }
    let (mut got, mut waited, mut since) = (vec![0; nices.len()], vec![0; nices.len()], vec![0; nices.len()]);
    let end = Time::START + Span::from_micros(millis * 1_000);
    let weights: u64 = nices.iter().map(|&nice| u64::from(Nice::new(nice).weight())).sum();
    while bench.now < end {
        bench.switch();
        let curr = bench.line().curr().expect("one task runs").0 as usize;
        let mut until = bench.line().slice_ends().expect("one task runs").min(end);
        if bench.slices.has_own {
            until = until.min(bench.now + Span::from_micros(1_000));
        }
        waited[curr] = waited[curr].max(bench.now.as_picos() - since[curr]);
        got[curr] += until.since(bench.now).as_picos();
        since[curr] = until.as_picos();
        bench.now = until;
        bench.line().charge(bench.now);
        bench.line().cut_turn();
        // Whenever a slice ends, each task is within the longest slice of its share.
        for (id, &had) in got.iter().enumerate() {
            let due = bench.now.as_picos() as u128 * u128::from(Nice::new(nices[id]).weight()) / u128::from(weights);
            let off = had.abs_diff(due as u64);
            assert!(off <= (longest + 2) * PICOS, "{nices:?}: task {id} is {off} ps from its share at {:?}", bench.now);
        }
    }
    (got, waited)
}

#[test]
fn nobody_is_further_from_its_share_than_a_slice() {
    shares(&[0; 2], 1_000);
    shares(&[0, 5], 1_000);
    shares(&[-20, 19], 1_000);
    shares(&[-5, 0, 0, 3, 10], 1_000);
    let many: Vec<i8> = (0..200).map(|task| (task % 40) as i8 - 20).collect();
    shares(&many, 4_000);
}

/// Slices of their own change how long the turns are and how long tasks wait for them, but not the
/// shares.
#[test]
fn tasks_of_other_slices_have_their_shares_in_other_turns() {
    for slices in [[100_000, 0], [100_000, 100_000_000], [0, 20_000_000]] {
        let bench = Bench::new([0; 2].into_iter()).with_slices(slices.into_iter());
        let turns = [0, 1].map(|id| bench.slice_of(Member(id)) as u64 * PICOS);
        let (got, waited) = shares_of(&[0; 2], bench, 4_000);
        let part = got[0] as f64 / (got[0] + got[1]) as f64;
        assert!((part - 0.5).abs() < 0.03, "{slices:?}: {part}");
        // After its turn, the one with short turns waits until both have had as much.
        assert!(waited[0] <= turns[0].max(1_000 * 1_000 * PICOS) + 1_000 * PICOS, "{slices:?}: {waited:?}");
    }
    let many: Vec<i8> = (0..60).map(|task| (task % 20) as i8 - 10).collect();
    let slices = (0..60).map(|task| [0, 100_000, 5_000_000][task % 3]);
    let bench = Bench::new(many.iter().copied()).with_slices(slices);
    shares_of(&many, bench, 4_000);
}

/// What wakes with a shorter slice runs before what runs with a longer one, and what has had more
/// than its share does not.
#[test]
fn a_shorter_slice_preempts_within_its_share() {
    for (slice, preempts) in [(100_000, true), (0, false), (100_000_000, false)] {
        let mut bench = Bench::new([0; 2].into_iter()).with_slices([0, slice].into_iter());
        let (runs, wakes) = (Member(0), Member(1));
        bench.line().enqueue(runs, Arrival::Waits, bench.now);
        bench.switch();
        bench.now += Span::from_micros(200);
        bench.line().enqueue(wakes, Arrival::Waits, bench.now);
        assert_eq!(bench.line().pick(None), Some(if preempts { wakes } else { runs }), "{slice}");
        // It runs for 1 ms alone, sleeps, and comes back: half of that was the other's.
        bench.line().put(bench.now);
        bench.line().begin(wakes, bench.now);
        bench.now += Span::from_micros(1_000);
        bench.line().dequeue(wakes, true, bench.now);
        bench.switch();
        bench.line().enqueue(wakes, Arrival::Waits, bench.now);
        assert_eq!(bench.line().pick(None), Some(runs), "{slice}");
        bench.now += Span::from_micros(1_000);
        bench.line().charge(bench.now);
        assert_eq!(bench.line().cut_turn(), preempts, "{slice}");
        assert_eq!(bench.line().pick(None), Some(if preempts { wakes } else { runs }), "{slice}");
    }
}

/// Where members have slices of their own, a group pays its debt while it sleeps, by the time that
/// the others have. It does not save.
#[test]
fn a_group_pays_its_debt_asleep() {
    for (others_have, lag) in [(0, -500_000), (200, -400_000), (1_000, 0), (9_000, 0)] {
        let mut bench = Bench::new([0; 3].into_iter()).with_slices([0; 3].into_iter());
        let [one, other, third] = [0, 1, 2].map(|number| Member::group(GroupId(number)));
        // The sleep itself changes no debt.
        bench.leaves_in_debt([one, other]);
        bench.now += Span::from_micros(others_have);
        bench.line().enqueue(third, Arrival::Waits, bench.now);
        bench.line().dequeue(third, true, bench.now);
        bench.line().enqueue(one, Arrival::Waits, bench.now);
        assert_eq!(bench.line().average() - bench.tasks[0].vruntime.get(), lag, "{others_have} us");
        // Again at once: nothing has passed.
        bench.line().dequeue(one, true, bench.now);
        bench.line().enqueue(one, Arrival::Waits, bench.now);
        assert_eq!(bench.line().average() - bench.tasks[0].vruntime.get(), lag, "{others_have} us");
    }
}

/// Returns the part of the time that a group of this weight has beside one of weight 100 that
/// always wants to run. It runs for a while without a stop, and sleeps for a while.
fn share_of_a_sleeper(weight: u32, runs: u64, sleeps: u64) -> f64 {
    let mut bench = Bench::new([0; 2].into_iter()).with_slices([0; 2].into_iter());
    let [hog, sleeper] = [0, 1].map(|number| Member::group(GroupId(number)));
    bench.tasks[1].set_weight(GroupWeight::new(weight).expect("a weight").shares());
    bench.line().enqueue(hog, Arrival::Waits, bench.now);
    let (mut wakes, mut had, end) = (bench.now, 0, Time::START + Span::from_micros(2_000_000));
    while bench.now < end {
        if wakes <= bench.now && !bench.queued().contains(&sleeper) {
            bench.line().enqueue(sleeper, Arrival::Waits, bench.now);
        }
        bench.line().cut_turn();
        bench.switch();
        if bench.line().curr() == Some(sleeper) {
            bench.now += Span::from_micros(runs);
            bench.line().dequeue(sleeper, true, bench.now);
            had += runs;
            wakes = bench.now + Span::from_micros(sleeps);
        } else {
            bench.now += Span::from_micros(10);
            bench.line().charge(bench.now);
        }
    }
    had as f64 / 2_000_000.0
}

#[test]
fn a_group_that_sleeps_has_no_more_than_its_share() {
    for (weight, runs, sleeps) in [(100, 1_000, 500), (500, 1_000, 50), (1_000, 1_000, 20), (1_000, 2_000, 20)] {
        let (is, due) = (share_of_a_sleeper(weight, runs, sleeps), f64::from(weight) / f64::from(weight + 100));
        assert!((due - 0.03..due + 0.01).contains(&is), "{weight}, {runs}, {sleeps}: {is}, not {due}");
    }
}

#[test]
fn nice_levels_have_their_ratios_within_a_hundredth_over_a_second() {
    for nices in [[0, 1], [0, 5], [-5, 0], [3, 7]] {
        let (got, _) = shares(&nices, 1_000);
        let weight = |at: usize| f64::from(Nice::new(nices[at]).weight());
        let (is, should) = (got[0] as f64 / got[1] as f64, weight(0) / weight(1));
        assert!((is / should - 1.0).abs() < 0.01, "{nices:?}: {is}, not {should}");
    }
}

#[test]
fn with_a_thousand_equals_none_waits_longer_than_all_their_slices() {
    let (_, waited) = shares(&[0; 1_001], 12_000);
    let bound = 1_001 * SLICE as u64 * PICOS;
    assert!(waited.iter().all(|&waited| waited <= bound), "{:?} of {bound}", waited.iter().max());
}

#[test]
fn a_sleep_earns_nothing_and_costs_nothing() {
    let mut bench = Bench::new([0; 2].into_iter());
    let (one, other) = (Member(0), Member(1));
    bench.leaves_in_debt([one, other]);
    bench.now += Span::from_micros(500_000);
    bench.line().enqueue(one, Arrival::Waits, bench.now);
    assert_eq!(bench.line().average() - bench.tasks[0].vruntime.get(), -500_000);
}

#[test]
fn what_one_is_owed_is_bounded() {
    let mut bench = Bench::new([0; 2].into_iter());
    bench.begin(&[Member(0), Member(1)]);
    // The queue is not charged for a second: the other task is owed half of it, and leaves.
    bench.now += Span::from_micros(1_000_000);
    bench.line().dequeue(Member(1), true, bench.now);
    assert_eq!(bench.tasks[1].lag.get(), 2 * SLICE);
}

/// Of a member's own slice: what a yield gives up, and what bounds its lag.
#[test]
fn a_slice_of_its_own_counts_at_a_yield_and_when_it_leaves() {
    let mut bench = Bench::new([0; 2].into_iter()).with_slices([100_000, 100_000_000].into_iter());
    bench.begin(&[Member(0), Member(1)]);
    assert_eq!(bench.line().curr(), Some(Member(0)));
    let deadline = bench.tasks[0].deadline.get();
    bench.line().let_go(bench.now);
    assert_eq!(bench.tasks[0].deadline.get() - deadline, 100_000);
    // The queue is not charged for a second: the other task is owed half of it, and leaves.
    bench.now += Span::from_micros(1_000_000);
    bench.line().dequeue(Member(1), true, bench.now);
    assert_eq!(bench.tasks[1].lag.get(), 200_000_000);
}

/// A task that yields again and again has a deadline that is far away.
#[test]
fn many_yields_leave_an_end_of_the_slice() {
    let mut bench = Bench::new([0].into_iter()).with_slices([100_000_000].into_iter());
    bench.line().enqueue(Member(0), Arrival::Waits, bench.now);
    bench.switch();
    bench.now += Span::from_micros(1);
    for _ in 0..200_000 {
        bench.line().let_go(bench.now);
    }
    assert!(bench.line().slice_ends().expect("it runs").since(bench.now) > Span::from_micros(1_000_000));
}

#[test]
fn what_one_is_owed_beside_what_weighs_next_to_nothing_is_bounded() {
    let mut bench = Bench::new([0; 2].into_iter());
    let (light, heavy) = (Member(0), Member(1));
    bench.tasks[0].set_weight(2);
    bench.tasks[1].set_weight(GroupWeight::new(GroupWeight::MAX).expect("a weight").shares());
    bench.line().enqueue(light, Arrival::Waits, bench.now);
    bench.switch();
    bench.line().enqueue(heavy, Arrival::Waits, bench.now);
    // The queue is not charged for half a second, which was the other task's: that task leaves, and
    // comes back.
    bench.now += Span::from_micros(500_000);
    bench.line().dequeue(heavy, true, bench.now);
    assert!(bench.tasks[1].lag.get() > 0);
    bench.line().enqueue(heavy, Arrival::Waits, bench.now);
    bench.switch();
    assert_eq!(bench.line().curr(), Some(heavy));
    let (lags, weights) = bench.lags();
    assert!((-weights..=0).contains(&lags), "lags {lags} of weights {weights}");
}

/// The divisions of 64 bits give what those of 128 bits do.
#[test]
fn short_divisions_are_as_long_ones() {
    let mut chance = Random::new(7, 0);
    for _ in 0..20_000 {
        // Numbers of all lengths.
        let mut number = |bits: u64| {
            let length = 1 + chance.below(bits);
            chance.below(1 << length) as i64
        };
        let (load, weight) = (1 + number(37), 1 + number(27));
        let sum = i128::from(number(62) - number(62)) << number(6);
        assert_eq!(i128::from(quotient(sum, load)), i128::from(sum.div_euclid(i128::from(load)) as i64));
        let lag = number(50) - number(50);
        let (total, most) = (i128::from(load + weight), i128::from(LAG_MOST));
        let expect = (i128::from(lag) * total / i128::from(load)).clamp(-(most / total), most / total);
        assert_eq!(i128::from(before_arrival(lag, load, weight)), expect, "{lag} before {load} and {weight}");
    }
    assert_eq!(quotient(5, 0), 0);
}

mod deadlines;
mod lists;

/// A queue with three members of these nice levels, the first of which has run for so long, and a
/// fourth one that comes with this lag.
fn before_a_fourth(nices: [i8; 3], micros: u64, lag: i64) -> Bench {
    let mut bench = Bench::new(nices.into_iter().chain([0]));
    bench.has_list = true;
    bench.begin(&[0, 1, 2].map(Member));
    bench.now += Span::from_micros(micros);
    bench.line().charge(bench.now);
    bench.tasks[3].lag.set(lag);
    bench
}

#[test]
fn who_counts_has_the_same_times_as_who_waits() {
    let words = |bench: &Bench| {
        let own = &bench.tasks[3];
        let of_queue = [bench.queue.load.get() as i64, bench.queue.sum.get(), bench.line().average()];
        (of_queue, [own.vruntime.get(), own.deadline.get()])
    };
    for nices in [[0, 0, 0], [5, 0, 0], [-10, 19, 3]] {
        for lag in [0, 10_000, -10_000, 2 * SLICE, -SLICE] {
            let [waits, mut counts] = [(); 2].map(|()| before_a_fourth(nices, 700, lag));
            waits.line().enqueue(Member(3), Arrival::Waits, waits.now);
            counts.line().count_in(Member(3));
            assert_eq!(words(&counts), words(&waits), "{nices:?}, {lag}");
            // It leaves later as one that waits does.
            counts.now += Span::from_micros(50);
            waits.line().dequeue(Member(3), false, counts.now);
            counts.line().count_out(Member(3), counts.now);
            let left = |bench: &Bench| [&bench.tasks[3].lag, &bench.tasks[3].left_of_slice].map(PlainWord::get);
            assert_eq!((left(&counts), words(&counts)), (left(&waits), words(&waits)), "{nices:?}, {lag}");
        }
    }
}

#[test]
fn who_counts_runs_if_it_is_eligible_and_its_deadline_is_earlier() {
    let next = |lag| {
        let bench = before_a_fourth([0; 3], 1, lag);
        bench.line().count_in(Member(3));
        bench.line().dequeue(Member(0), true, bench.now);
        let waiting = bench.line().pick(None);
        (bench.line().is_before(Member(3), waiting), bench.line().is_before(Member(3), None))
    };
    // The others are new, and have deadlines of half a slice.
    assert_eq!(next(0), (Some(false), Some(true)));
    assert_eq!(next(SLICE), (Some(true), Some(true)));
    assert_eq!(next(-10 * GRAIN), (None, None));
}

/// The two have equal weights, or others.
#[test]
fn who_follows_a_single_one_is_as_far_ahead_as_before() {
    for (nice, owed) in [(0, 20_000), (5, 20_000), (-5, -20_000)] {
        let mut bench = Bench::new([0, nice].into_iter());
        bench.line().enqueue(Member(0), Arrival::Runs, bench.now);
        bench.now += Span::from_micros(100);
        bench.tasks[1].lag.set(owed);
        bench.line().charge(bench.now);
        bench.line().succeed(Member(1), bench.now);
        assert_eq!((bench.line().curr(), bench.queue.load.get()), (Some(Member(1)), 0));
        let [lag, weight] = [bench.tasks[0].lag.get(), bench.tasks[0].weight.get().into()];
        let sum = lag * weight + owed * i64::from(bench.tasks[1].weight.get());
        assert!(sum.abs() <= weight, "{nice}: {lag}");
    }
}

#[test]
fn who_yields_goes_behind_its_equals_and_not_further() {
    let mut bench = Bench::new([0; 4].into_iter());
    bench.has_list = true;
    bench.begin(&[0, 1, 2].map(Member));
    let deadline = |bench: &Bench, id: Member| bench.tasks[at(id)].deadline.get();
    for turn in 0..300 {
        let curr = bench.line().curr().expect("one runs");
        assert_eq!(curr, Member(turn % 3));
        bench.now += Span::from_micros(1);
        bench.line().let_go(bench.now);
        bench.switch();
    }
    let first = bench.line().curr().expect("one runs");
    assert!([0, 1, 2].map(Member).iter().all(|&id| deadline(&bench, id) == deadline(&bench, first)));
    assert!(deadline(&bench, first) <= SLICE, "a hundred yields each moved no deadline");
}
