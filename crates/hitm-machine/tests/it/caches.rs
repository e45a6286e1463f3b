//! Caches that have sizes: what each way of a line costs, computed by hand.
//!
//! Times are nanoseconds. A machine of Genoa's costs without anything that varies: a load that
//! level 1 serves 1.1, level 2 3.8, level 3 14.0, memory 107.0 and 200.0, a read-modify-write 2.5
//! more than its line's way, a transfer over 0.85: in a CCX 27.1 / 0.85 = 31.9, between CCXs 99.3 /
//! 0.85 = 116.8, between packages 191.6 / 0.85 = 225.4.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hitm_machine::{CacheSize, Capacity, Config, CostSet, Costs, Levels, Machine, Simulated};
use hitm_memory::{AtomicWord, Field, Mapping, Memory, PlacedSlice, Platform, Span, Time};
use hitm_topology::{CpuId, Topology};

/// A word a line.
#[repr(C, align(64))]
struct Line(<Simulated as Memory>::Atomic<u32>);

type Lines = PlacedSlice<Simulated, Line>;

/// Relaxed throughout: nothing is published, the words are there to be touched.
const ORDER: Ordering = Ordering::Relaxed;

/// After every CPU has started.
const BEGIN: u64 = 1_000;

/// Genoa's costs on another shape, without what varies.
fn costs(shape: &Topology) -> Costs {
    let genoa = hitm_topology::parse("epyc-9654-2x96").expect("a preset");
    let mut costs = Costs::of(shape, CostSet::Linux);
    costs.family = Costs::of(&genoa, CostSet::Linux).family;
    costs.structure.transfer_spread.value = 0.0;
    costs
}

/// Two lines in level 1, four in level 2, eight in level 3, each in one set; a core that idles for
/// 10 us has flushed.
const SMALL: Capacity = Capacity {
    level_1: CacheSize { sets: 1, ways: 2 },
    level_2: CacheSize { sets: 1, ways: 4 },
    level_3: CacheSize { sets: 1, ways: 8 },
    level_2_hit: Span::from_picos(3_800),
    flushed_after: Some(Span::from_micros(10)),
};

/// What a CPU does: from when on, and what; it idles before. Nanoseconds.
type Step = (u32, u64, fn(&Lines));

/// Two packages of two CCXs of two cores of so many threads.
fn shape(threads: usize) -> Arc<Topology> {
    Arc::new(hitm_topology::parse(&format!("pack:2 l3:2 core:2 pu:{threads}")).expect("a machine"))
}

fn lines(machine: &Machine, count: usize) -> Arc<Lines> {
    let fields = || vec![Field::word("word", 0, 4, "touched by the test")];
    let make = |_| Line(<Simulated as Memory>::Atomic::<u32>::new(0));
    Arc::new(machine.enter(|| Lines::new("lines", None, None, count, &fields, make)))
}

fn machine(topology: &Arc<Topology>, costs: Costs, capacity: Capacity) -> Machine {
    let measure_from = Span::from_nanos(BEGIN / 2);
    let config =
        Config { jitter: 0.0, start_spread: Span::ZERO, capacity: Some(capacity), measure_from, ..Config::default() };
    Machine::new(topology.clone(), costs, config)
}

/// Idles until `nanos` after the start.
fn idle_until(nanos: u64) {
    let until = Time::START + Span::from_nanos(nanos);
    Simulated::set_timer(until);
    while Simulated::now() < until {
        Simulated::wait_for_interrupt();
        Simulated::take_interrupts();
    }
}

/// Runs `steps`; how long each took.
fn run(machine: &Machine, lines: &Arc<Lines>, steps: &[Step]) -> Vec<f64> {
    let took = Arc::new(Mutex::new(vec![0.0; steps.len()]));
    let (log, own, lines) = (took.clone(), steps.to_vec(), lines.clone());
    let main = move |cpu: CpuId| {
        for (index, &(_, from, step)) in own.iter().enumerate().filter(|(_, step)| step.0 == cpu.0) {
            idle_until(from);
            let begin = Simulated::now();
            step(&lines);
            // SeqCst: what was stored counts until it has taken effect.
            Simulated::fence(Ordering::SeqCst);
            log.lock().expect("no panic holds it")[index] = Simulated::now().since(begin).as_nanos_f64();
        }
    };
    machine.run(main).expect("it ends");
    machine.check();
    std::mem::take(&mut *took.lock().expect("no panic holds it"))
}

fn assert_close(took: &[f64], expect: &[f64]) {
    let close = took.iter().zip(expect).all(|(took, expect)| (took - expect).abs() < 0.0015);
    assert!(close && took.len() == expect.len(), "{took:?} instead of {expect:?}");
}

fn check(threads: usize, steps: &[Step], expect: &[f64]) -> Levels {
    let topology = shape(threads);
    let machine = machine(&topology, costs(&topology), SMALL);
    let lines = lines(&machine, 64);
    assert_close(&run(&machine, &lines, steps), expect);
    machine.results().totals.levels.expect("caches have sizes")
}

fn load(lines: &Lines, line: usize) {
    _ = lines[line].0.load(ORDER);
}

fn add(lines: &Lines, line: usize) {
    lines[line].0.fetch_add(1, ORDER);
}

/// Each on its own: what an earlier load fetched must not serve it.
fn apart(lines: &Lines, all: impl IntoIterator<Item = usize>, access: fn(&Lines, usize)) {
    for line in all {
        Simulated::fence(Ordering::SeqCst);
        access(lines, line);
    }
}

#[test]
fn a_core_finds_its_own_lines_level_by_level() {
    let levels = check(
        1,
        &[
            (0, BEGIN, |lines| load(lines, 0)),
            (0, 2_000, |lines| load(lines, 0)),
            // Two more push it out of level 1.
            (0, 3_000, |lines| apart(lines, 1..3, load)),
            (0, 4_000, |lines| load(lines, 0)),
            (0, 5_000, |lines| apart(lines, 1..3, load)),
            (0, 6_000, |lines| add(lines, 0)),
            // Four more push it out of level 2.
            (0, 7_000, |lines| apart(lines, 3..7, load)),
            (0, 8_000, |lines| load(lines, 0)),
            (0, 9_000, |lines| apart(lines, 3..7, load)),
            (0, 10_000, |lines| add(lines, 0)),
        ],
        &[
            107.0,
            1.1,
            2.0 * 107.0,
            3.8,
            2.0 * 3.8,
            3.8 + 2.5,
            4.0 * 107.0,
            14.0,
            // Line 0 pushed the oldest of the four out of level 2, and so did each after it.
            4.0 * 14.0,
            14.0 + 2.5,
        ],
    );
    let Levels { level_1, level_2, level_3, cores, memory, moves, .. } = levels;
    assert_eq!((level_1, level_2, level_3, cores, memory, moves.lost), (1, 4, 6, 0, 7, 0));
}

#[test]
fn what_level_3_has_no_room_for_is_in_memory() {
    // Four lines in level 2 and eight in level 3: of fourteen, the two used longest ago are in
    // memory.
    let levels = check(
        1,
        &[
            (0, BEGIN, |lines| apart(lines, 0..14, add)),
            (0, 10_000, |lines| add(lines, 2)),
            (0, 11_000, |lines| add(lines, 1)),
            (1, 12_000, |lines| add(lines, 0)),
        ],
        &[14.0 * 109.5, 16.5, 109.5, 109.5],
    );
    assert_eq!((levels.level_3, levels.memory), (1, 16));
    assert!(levels.moves.lost >= 2, "{levels:?}");
}

#[test]
fn a_copy_in_level_3_is_near_for_its_domain_and_a_hand_off_for_others() {
    // CPU 0 owns four lines that have fallen: four newer ones are in its level 2.
    let levels = check(
        1,
        &[
            (0, BEGIN, |lines| apart(lines, 0..8, add)),
            (1, 5_000, |lines| load(lines, 0)),
            (1, 6_000, |lines| add(lines, 1)),
            (2, 7_000, |lines| add(lines, 2)),
            (4, 8_000, |lines| add(lines, 3)),
            // In the core: transfers.
            (1, 9_000, |lines| add(lines, 5)),
            (2, 9_500, |lines| add(lines, 6)),
        ],
        &[8.0 * 109.5, 14.0, 14.0 + 2.5, 116.823 + 2.5, 225.411 + 2.5, 31.882 + 2.5, 116.823 + 2.5],
    );
    assert_eq!((levels.level_3, levels.other_level_3, levels.cores, levels.memory), (2, 2, 2, 8));
}

#[test]
fn a_load_from_another_domain_leaves_the_copy_where_it_fell() {
    let levels = check(
        1,
        &[
            (0, BEGIN, |lines| apart(lines, 0..8, add)),
            (2, 5_000, |lines| load(lines, 0)),
            // Shared now: its first owner reads it from level 3, and has it.
            (0, 6_000, |lines| load(lines, 0)),
            (0, 7_000, |lines| load(lines, 0)),
            // It takes the other's copy away.
            (0, 8_000, |lines| add(lines, 0)),
        ],
        &[8.0 * 109.5, 116.823, 14.0, 1.1, 116.823 + 2.5],
    );
    assert_eq!((levels.other_level_3, levels.level_3), (1, 1));
}

#[test]
fn a_core_that_idled_for_long_has_put_all_into_level_3() {
    let levels = check(
        1,
        &[
            (0, BEGIN, |lines| apart(lines, 0..2, add)),
            // 8 us are not long.
            (0, 9_000, |lines| apart(lines, 0..2, load)),
            (0, 30_000, |lines| apart(lines, 0..2, load)),
            // Asked for while it idles: before and after.
            (1, 35_000, |lines| add(lines, 0)),
            (2, 45_000, |lines| load(lines, 1)),
            (1, 46_000, |lines| add(lines, 1)),
        ],
        &[2.0 * 109.5, 2.0 * 1.1, 2.0 * 14.0, 31.882 + 2.5, 116.823, 116.941 + 2.5],
    );
    assert_eq!((levels.other_level_3, levels.level_3), (1, 2));
    assert!(levels.moves.flushes >= 2, "{levels:?}");
}

#[test]
fn a_thread_at_work_keeps_its_cores_caches() {
    let levels = check(
        2,
        &[
            (0, BEGIN, |lines| add(lines, 0)),
            // The other thread of the core.
            (1, 2_000, |_| _ = Simulated::compute(Span::from_micros(40))),
            (0, 30_000, |lines| load(lines, 0)),
            (0, 80_000, |lines| load(lines, 0)),
        ],
        &[109.5, 40_000.0, 1.1, 14.0],
    );
    assert_eq!(levels.moves.flushes, 1, "{levels:?}");
}

#[test]
fn loads_that_level_2_and_3_serve_overlap_as_misses_do() {
    let steps: [Step; 3] = [
        (0, BEGIN, |lines| apart(lines, 0..4, load)),
        // Lines 0 and 1 are in level 2; the first load leaves 1.1 to the second, which was under
        // way meanwhile.
        (0, 3_000, |lines| (0..2).for_each(|line| load(lines, line))),
        // Idle: all in level 3. The second was issued with the first; its request has 5.15 of way
        // left.
        (0, 30_000, |lines| (0..2).for_each(|line| load(lines, line))),
    ];
    let topology = shape(1);
    for (overlapped, level_2, level_3) in [(1.0, 3.8 + 3.8, 14.0 + 14.0), (8.0, 3.8 + 1.1, 14.0 + 5.15)] {
        let mut costs = costs(&topology);
        costs.structure.overlapped_misses.value = overlapped;
        let machine = machine(&topology, costs, SMALL);
        let lines = lines(&machine, 64);
        assert_close(&run(&machine, &lines, &steps), &[4.0 * 107.0, level_2, level_3]);
    }
}

#[test]
fn memory_that_is_used_anew_is_in_no_cache() {
    let topology = shape(1);
    let machine = machine(&topology, costs(&topology), SMALL);
    for round in 0..3_u64 {
        let lines = lines(&machine, 8);
        let steps: [Step; 2] = [(0, 0, |lines| apart(lines, 0..8, add)), (1, 0, |_| ())];
        let steps = steps.map(|(cpu, _, step)| (cpu, (100 * round + 1) * BEGIN, step));
        assert_close(&run(&machine, &lines, &steps), &[8.0 * 109.5, 0.0]);
        machine.enter(|| drop(lines));
    }
    let levels = machine.results().totals.levels.expect("caches have sizes");
    assert_eq!((levels.memory, levels.level_3, levels.moves.lost), (24, 0, 0));
}

#[test]
fn a_page_belongs_to_who_touches_it_first() {
    let topology = shape(1);
    // CPUs 4 and 6 are in the CCXs of the second package; lines are of the first until a CPU
    // there touches their page.
    let far: [Step; 2] = [(4, BEGIN, |lines| apart(lines, 0..2, add)), (6, 5_000, |lines| add(lines, 0))];
    let near: [Step; 3] = [
        (4, BEGIN, |lines| Simulated::first_touch(lines, Mapping::Anonymous)),
        // The kernel has just written the page.
        (4, 5_000, |lines| apart(lines, 62..64, add)),
        (6, 7_000, |lines| add(lines, 63)),
    ];
    let costs = costs(&topology);
    let expect_far = [2.0 * 202.5, 235.411 + 2.5];
    let expect_near = [1_000.0, 2.0 * 2.5, 116.823 + 2.5];
    let machine_of = |costs: &Costs| machine(&topology, costs.clone(), SMALL);
    let machine = machine_of(&costs);
    assert_close(&run(&machine, &lines(&machine, 64), &far), &expect_far);
    let machine = machine_of(&costs);
    assert_close(&run(&machine, &lines(&machine, 64), &near), &expect_near);
}

/// Increments a word of each of the 256 lines of an area of 16 KiB.
fn burst(lines: &Lines) {
    for line in &lines[..256] {
        line.0.store(line.0.load(ORDER) + 1, ORDER);
    }
}

/// What a burst costs on 2 x EPYC 9654 by where its lines are; `cargo test -p hitm-machine --test
/// it -- --nocapture burst` prints it.
#[test]
fn a_burst_costs_by_where_its_lines_are() {
    let topology = Arc::new(hitm_topology::parse("epyc-9654-2x96").expect("a preset"));
    let costs = costs(&topology);
    let capacity = costs.capacity(&topology).expect("a table with sizes");
    let cpu = |core: usize| topology.cpu_ids().find(|&cpu| topology.cpu(cpu).core.index() == core).expect("a core").0;
    let [own, same_ccx, other_ccx, other_package] = [0, 1, 8, 96].map(cpu);
    const MILLI: u64 = 1_000_000;
    let steps: [(&str, Step); 10] = [
        ("first, from memory of the package", (own, MILLI, burst)),
        ("hot", (own, 1, burst)),
        ("after 0.1 ms of idling", (own, MILLI + 100_000, burst)),
        ("after 10 ms of idling", (own, 11 * MILLI, burst)),
        ("after a core of the CCX", (same_ccx, 11 * MILLI + 100_000, burst)),
        ("10 ms after a core of the CCX", (own, 21 * MILLI, burst)),
        ("after a core of another CCX", (other_ccx, 21 * MILLI + 100_000, burst)),
        ("10 ms after a core of another CCX", (own, 31 * MILLI, burst)),
        ("after a core of another package", (other_package, 31 * MILLI + 100_000, burst)),
        ("10 ms after a core of another package", (own, 41 * MILLI, burst)),
    ];
    let machine = machine(&topology, costs, capacity);
    let took = run(&machine, &lines(&machine, 256), &steps.map(|(_, step)| step));
    for ((what, _), took) in steps.iter().zip(&took) {
        println!("{what:38} {took:9.1} ns, {:6.2} ns a line", took / 256.0);
    }
    println!("{:?}", machine.results().totals.levels);
    let a_line: Vec<f64> = took.iter().map(|took| (took / 256.0 * 100.0).round() / 100.0).collect();
    // A load and a store take 2.2 where level 1 has the line, 14 + 1.1 where level 3 has. Out of a
    // core or another level 3 the load is a transfer, 31.9, 116.8 or 225.4, and makes the line
    // shared, so the store asks for it beside the next loads: only the last one is waited for.
    let out_of = |handoff: f64| (((handoff + 1.1) * 256.0 + handoff - 1.1) / 256.0 * 100.0).round() / 100.0;
    let [same_ccx, other_ccx, other_package] = [31.882, 116.823, 225.411].map(out_of);
    let expect = [2.2, 2.2, 15.1, same_ccx, 15.1, other_ccx, other_ccx, other_package, other_package];
    assert_eq!((a_line[1..].to_vec(), [same_ccx, other_ccx, other_package]), (expect.to_vec(), [33.1, 118.38, 227.39]));
}
