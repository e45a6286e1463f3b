//! Compares a queue in the order of deadlines with a model that searches all of its members.

use super::*;

/// What a model knows of a task on a queue in the order of deadlines.
#[derive(Clone, Copy, Default)]
struct Due {
    deadline: Option<Time>,
    /// When it came, or its last turn ended.
    since: u64,
}

/// Random tasks that come, go, yield and change their deadlines, among few deadlines.
#[test]
fn the_earliest_deadline_of_all_is_picked() {
    for seed in 0..30 {
        let mut chance = Random::new(seed, 0);
        let mut bench = Bench { order: TaskOrder::Deadline, ..Bench::new((0..40).map(|task| task - 20)) };
        let mut dues = [Due::default(); 40];
        bench.tasks.iter().for_each(|words| words.set_given_deadline(None));
        // Whether the running task goes before its equals: it has not yielded, no slice has ended,
        // and its deadline is the same since it began.
        let mut has_turn = false;
        for step in 0..3_000 {
            bench.now += Span::from_nanos(chance.below(4_000_000));
            let now = nanos(bench.now);
            let id = Member(chance.below(40) as u32);
            let new = (chance.below(4) > 0).then(|| Time::START + Span::from_micros(500 + chance.below(4)));
            let is_queued = bench.queued().contains(&id);
            let line = bench.line();
            let mut ends_turn = line.charge(bench.now);
            match chance.below(6) {
                0 | 1 if !is_queued => {
                    line.enqueue(id, Arrival::Waits, bench.now);
                    dues[at(id)].since = now;
                }
                2 if is_queued => line.dequeue(id, chance.below(2) == 0, bench.now),
                3 => {
                    line.let_go(bench.now);
                    ends_turn = true;
                }
                4 => {
                    let due = &mut dues[at(id)];
                    has_turn &= line.curr() != Some(id) || due.deadline == new;
                    due.deadline = new;
                    if is_queued {
                        line.set_deadline(id, new);
                    } else {
                        bench.tasks[at(id)].set_given_deadline(new);
                    }
                }
                _ => {}
            }
            if let Some(curr) = line.curr().filter(|_| ends_turn) {
                dues[at(curr)].since = now;
                has_turn = false;
            }
            let key = |id: Member| {
                let (due, runs) = (dues[at(id)], line.curr() == Some(id));
                (due.deadline.is_none(), due.deadline, !(runs && has_turn), runs, due.since, id)
            };
            let first = bench.queued().into_iter().min_by_key(|&id| key(id));
            assert_eq!(line.pick(None), first, "seed {seed}, step {step}");
            if let Some(curr) = line.curr() {
                let others = bench.queued().into_iter().filter(|&other| other != curr);
                assert_eq!(line.pick(Some(curr)), others.min_by_key(|&id| key(id)), "seed {seed}, step {step}");
                let left = line.slice_ends().expect("it runs").since(bench.now);
                assert!(!left.is_zero() && left <= Span::from_nanos(SLICE as u64), "a slice of {left:?} is left");
            }
            for id in bench.queued() {
                let given = bench.tasks[at(id)].given_deadline();
                assert_eq!(given, dues[at(id)].deadline, "seed {seed}, step {step}");
            }
            if chance.below(3) > 0 {
                let before = line.curr();
                bench.switch();
                has_turn |= line.curr() != before;
            }
            let words = |id: Member| &bench.tasks[at(id)];
            assert_eq!(bench.line().members().broken(), None);
            let load: u64 = bench.line().members().collect().iter().map(|&id| u64::from(words(id).weight.get())).sum();
            assert_eq!((bench.queue.load.get(), bench.queue.sum.get()), (load, 0));
        }
    }
}

/// Tasks that never wait take turns of a slice, whatever they weigh.
#[test]
fn equal_deadlines_take_turns() {
    let mut bench = Bench { order: TaskOrder::Deadline, ..Bench::new([0, -20, 19].into_iter()) };
    for id in 0..3 {
        bench.tasks[id].set_given_deadline(Some(Time::START + Span::from_micros(1)));
        bench.line().enqueue(Member(id as u32), Arrival::Waits, bench.now);
    }
    for turn in 0..30 {
        bench.switch();
        assert_eq!(bench.line().curr(), Some(Member(turn % 3)));
        let ends = bench.line().slice_ends().expect("it runs");
        assert_eq!(ends.since(bench.now), Span::from_nanos(SLICE as u64));
        bench.now = ends;
        assert!(bench.line().charge(bench.now), "the slice has ended");
    }
}

/// What a task has had by an earlier deadline does not count among its later equals: neither for
/// itself nor for tasks that come later. For hours of that, no word overflows.
#[test]
fn time_by_an_earlier_deadline_is_no_debt() {
    let mut bench = Bench { order: TaskOrder::Deadline, ..Bench::new([0, -20, 0].into_iter()) };
    let [first, waits, late] = [0, 1, 2].map(Member);
    bench.tasks.iter().for_each(|words| words.set_given_deadline(None));
    bench.tasks[0].set_given_deadline(Some(Time::START));
    bench.begin(&[first, waits]);
    for _ in 0..10 {
        bench.now += Span::from_micros(3_600 * 1_000_000);
        bench.line().charge(bench.now);
        assert_eq!(bench.line().pick(None), Some(first));
    }
    bench.line().set_deadline(first, None);
    bench.line().enqueue(late, Arrival::Waits, bench.now);
    let mut order = Vec::new();
    for _ in 0..6 {
        bench.switch();
        order.push(bench.line().curr().expect("one runs"));
        bench.now += Span::from_micros(1);
        bench.line().let_go(bench.now);
    }
    assert_eq!(order, [waits, first, late, waits, first, late]);
}
