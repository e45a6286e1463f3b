//! What a list of waiting members must not change: how long others wait, the rest of a slice, and
//! the time of a pick.

use super::*;

/// Returns how long a task of nice `light` waits that comes beside one of nice `heavy`.
fn waits_beside([heavy, light]: [i8; 2], has_list: bool) -> Span {
    let mut bench = Bench { has_list, ..Bench::new([heavy, light].into_iter()) };
    bench.begin(&[Member(0)]);
    bench.now += Span::from_micros(10_000);
    bench.line().charge(bench.now);
    bench.line().enqueue(Member(1), Arrival::Waits, bench.now);
    let from = bench.now;
    while bench.line().curr() == Some(Member(0)) {
        let ends = bench.line().slice_ends().expect("it runs");
        bench.now = ends;
        if bench.line().charge(bench.now) {
            bench.switch();
        }
    }
    bench.now.since(from)
}

#[test]
fn a_light_task_waits_no_longer_where_there_is_a_list() {
    for nices in [[-20, 0], [-20, 19], [-10, 0], [-5, 0], [0, 19], [0, 0]] {
        let [exact, coarse] = [false, true].map(|has_list| waits_beside(nices, has_list));
        assert!(coarse <= exact + Span::from_nanos(2 * GRAIN as u64), "nice {nices:?}: {coarse:?}, and not {exact:?}");
    }
}

/// A member that leaves and comes back in the middle of its slice keeps its deadline.
#[test]
fn the_rest_of_a_slice_does_not_grow() {
    for runs in [false, true] {
        let mut bench = Bench { has_list: true, ..Bench::new([0; 3].into_iter()) };
        bench.begin(&[0, 1, 2].map(Member));
        let id = if runs { Member(0) } else { Member(1) };
        let before = bench.tasks[at(id)].deadline.get();
        for step in 0..1_000 {
            bench.now += Span::from_nanos(500);
            bench.line().charge(bench.now);
            bench.line().reweigh(id, FINE_NICE_0_WEIGHT + step % 2 * 1_000, bench.now);
        }
        let grown = bench.tasks[at(id)].deadline.get() - before;
        assert!(grown.abs() < GRAIN, "it runs: {runs}; the deadline is {grown} ns later");
    }
}

/// Few that come with a large claim make all others wait for their time. The next pick moves only
/// what is in the list.
#[test]
fn a_pick_moves_a_bounded_number_of_members() {
    let bench = Bench { has_list: true, ..Bench::new([0; 3_000].into_iter()) };
    bench.tasks.iter().for_each(|words| words.is_new.set(0));
    bench.begin(&(0..2_900).map(Member).collect::<Vec<_>>());
    for late in 2_900..3_000 {
        bench.tasks[late].lag.set(2 * SLICE);
        bench.line().enqueue(Member(late as u32), Arrival::Waits, bench.now);
    }
    let in_tree = || bench.tasks.iter().filter(|words| (1..u32::MAX).contains(&words.height.get())).count();
    let before = in_tree();
    assert!(bench.line().pick(None).is_some_and(|id| at(id) >= 2_900));
    assert!(in_tree() - before <= 512, "{before} were in the tree, then {}", in_tree());
    assert_eq!(bench.line().members().broken(), None);
}
