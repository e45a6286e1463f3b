//! Looking ahead changes the speed and nothing else: random programs see the same values at the
//! same times, and the machine counts the same, whether its CPUs look ahead or take turns.
//!
//! Every program runs on a machine without faults or with them, and with caches that hold all or
//! hardly anything.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hitm_machine::{
    Arbitration, CacheSize, Capacity, Config, CostSet, Costs, FaultCounts, Faults, Levels, Machine, Moves, Random,
    Simulated,
};
use hitm_memory::{AtomicWord, Field, Interrupts, Memory, PlacedSlice, Platform, Span, Time};
use hitm_topology::CpuId;

use crate::TARGET;

/// Four words stand on one line.
const WORDS: usize = 4;

/// Lines of the programs, few enough that CPUs meet on them.
const LINES: usize = 6;

/// What each CPU does before it ends.
const OPERATIONS: usize = 300;

type Line = [<Simulated as Memory>::Atomic<u32>; WORDS];

/// What one CPU saw: the operation, its time before and after, and what it read.
type Seen = Vec<(u64, Time, Time, u64)>;

/// The words that all CPUs touch.
struct Shared {
    lines: Vec<PlacedSlice<Simulated, Line>>,
    /// The last CPU writes its first word again and again, until the second says that all others
    /// have ended.
    clock: PlacedSlice<Simulated, Line>,
}

impl Shared {
    fn new() -> Self {
        let field = |(place, name)| Field::word(name, 4 * place, 4, "touched by the test");
        let fields = || ["first", "second", "third", "fourth"].into_iter().enumerate().map(field).collect();
        let make = |_| std::array::from_fn(|_| <Simulated as Memory>::Atomic::<u32>::new(0));
        let line = |name| PlacedSlice::new(name, None, None, 1, &fields, make);
        Self { lines: (0..LINES).map(|_| line("line")).collect(), clock: line("clock") }
    }

    fn word(&self, line: usize, word: usize) -> &<Simulated as Memory>::Atomic<u32> {
        &self.lines[line][0][word]
    }

    /// One operation of the program. CPUs favour one line each, which makes it theirs now and then.
    fn operate(&self, cpu: usize, cpus: usize, random: &mut Random) -> (u64, u64) {
        let line = if random.below(2) == 0 { cpu % LINES } else { random.below(LINES as u64) as usize };
        let word = self.word(line, random.below(WORDS as u64) as usize);
        let drawn = random.below(100);
        let read = match drawn {
            // Relaxed throughout: the machine's order is that of x86 whatever is asked, and nothing
            // is concluded from a value.
            0..45 => u64::from(word.load(Ordering::Relaxed)),
            45..70 => {
                word.store(random.below(1 << 20) as u32 * cpus as u32 + cpu as u32, Ordering::Relaxed);
                0
            }
            70..80 => u64::from(word.fetch_add(1, Ordering::Relaxed)),
            80..88 => Simulated::compute(Span::from_nanos(random.below(300))).as_picos(),
            88..90 => {
                Simulated::fence(Ordering::SeqCst);
                0
            }
            90..93 => {
                // A CPU of another number: who works is interrupted.
                let target = (cpu + 1 + random.below(cpus as u64 - 1) as usize) % cpus;
                Simulated::interrupt(CpuId(target as u32), Interrupts::RESCHEDULE);
                0
            }
            93..95 => u64::from(Simulated::take_interrupts().bits()),
            95..97 => {
                let ticks = &self.clock[0][0];
                let before = ticks.load(Ordering::Relaxed);
                u64::from(Simulated::spin_while(ticks, |now| now == before))
            }
            97..98 => {
                let ticks = &self.clock[0][0];
                Simulated::park(ticks, ticks.load(Ordering::Relaxed));
                0
            }
            98 => {
                Simulated::set_timer(Simulated::now() + Span::from_nanos(random.below(400)));
                Simulated::wait_for_interrupt();
                0
            }
            _ => {
                Simulated::set_timer(Simulated::now() + Span::from_nanos(random.below(400)));
                0
            }
        };
        (drawn, read)
    }

    /// The last CPU's program: every tick ends what others wait for.
    fn tick(&self, others: u32, random: &mut Random) {
        let [ticks, ended, ..] = &self.clock[0];
        while ended.load(Ordering::Relaxed) != others {
            Simulated::compute(Span::from_nanos(100 + random.below(500)));
            ticks.store(ticks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            Simulated::fence(Ordering::SeqCst);
            Simulated::unpark(ticks, usize::MAX);
            Simulated::take_interrupts();
        }
    }
}

/// Faults that come often beside the programs' few hundred operations.
const FAULTS: Faults = Faults {
    late: 0.3,
    late_by: Span::from_micros(3),
    taken_after_rmw: 0.1,
    taken_on_path: 0.1,
    taken_for: Span::from_micros(2),
    lost: 0.02,
};

/// Caches for one to four lines in level 1 and 2 and one to six in level 3, of cores that have
/// flushed after as little as a CPU idles.
fn small(seed: u64) -> Capacity {
    let mut random = Random::new(seed, 1 << 20);
    let mut size =
        |sets, ways| CacheSize { sets: 1 + random.below(sets) as usize, ways: 1 + random.below(ways) as usize };
    let (level_1, level_2, level_3) = (size(2, 1), size(2, 2), size(2, 3));
    let flushed_after = [None, Some(Span::ZERO), Some(Span::from_nanos(600))][random.below(3) as usize];
    Capacity { level_1, level_2, level_3, level_2_hit: Span::from_nanos(4), flushed_after }
}

/// A machine to run a program on.
#[derive(Clone, Copy, Debug)]
struct Setting {
    shape: &'static str,
    faults: Option<Faults>,
    capacity: Option<Capacity>,
}

impl Setting {
    /// On this shape, without anything else.
    fn of(shape: &'static str) -> Self {
        Self { shape, faults: None, capacity: None }
    }
}

/// What a program did.
struct Ran {
    /// By CPU.
    seen: Vec<Seen>,
    /// All that the machine counted.
    results: String,
    faults: FaultCounts,
    levels: Option<Levels>,
    resumes: u64,
}

const FOREVER: Span = Span::from_picos(u64::MAX);

/// Until when program `seed` is measured.
fn measure_until(seed: u64) -> Span {
    [FOREVER, Span::from_micros(15)][seed as usize / 4 % 2]
}

/// Runs program `seed`.
fn run(setting: Setting, seed: u64, look_ahead: bool) -> Ran {
    let Setting { shape, faults, capacity } = setting;
    let arbitration = [Arbitration::LocalFirst, Arbitration::Fifo, Arbitration::Bounded(2)][seed as usize % 3];
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let cpus = topology.cpus();
    let mut costs = Costs::of(&topology, CostSet::Linux);
    if capacity.is_some() {
        costs.structure.overlapped_misses.value = [1.0, 10.0][seed as usize / 8 % 2];
    }
    // Idle CPUs are woken by interrupts, or notice.
    costs.set("idle_notice_ns", [0.0, 150.0][seed as usize / 3 % 2]).expect("a parameter");
    let measure_until = measure_until(seed);
    let start_spread = Span::from_nanos(200);
    let config =
        Config { seed, arbitration, faults, capacity, look_ahead, start_spread, measure_until, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let shared = machine.enter(Shared::new);
    let seen = Arc::new(Mutex::new(vec![Seen::new(); cpus]));
    let log = seen.clone();
    let main = move |cpu: CpuId| {
        let mut random = Random::new(seed, u64::from(cpu.0));
        if cpu.index() + 1 == cpus {
            return shared.tick(cpu.0, &mut random);
        }
        let mut own = Seen::new();
        for _ in 0..OPERATIONS {
            let before = Simulated::now();
            let (drawn, read) = shared.operate(cpu.index(), cpus, &mut random);
            own.push((drawn, before, Simulated::now(), read));
        }
        log.lock().expect("no panic holds it")[cpu.index()] = own;
        shared.clock[0][1].fetch_add(1, Ordering::Relaxed);
    };
    machine.run(main).expect("it ends");
    machine.check();
    let mut results = machine.results();
    // How often the host switched is no result of the model.
    let resumes = std::mem::take(&mut results.totals.resumes);
    let levels = results.totals.levels;
    let mut seen = std::mem::take(&mut *seen.lock().expect("no panic holds it"));
    // Nothing is said of what comes after the measurement.
    seen.iter_mut().for_each(|seen| seen.retain(|&(_, _, after, _)| after <= Time::START + measure_until));
    Ran { seen, results: format!("{results:?}"), faults: machine.faults(), levels, resumes }
}

/// What one program did, the same with and without look-ahead.
fn check(setting: Setting, seed: u64) -> [Ran; 2] {
    let ran = [true, false].map(|look_ahead| run(setting, seed, look_ahead));
    assert_same(&ran, setting, seed, "looking ahead and not");
    ran
}

/// Both saw the same at the same times, and counted the same.
fn assert_same([ahead, in_turn]: &[Ran; 2], setting: Setting, seed: u64, what: &str) {
    let first = ahead.seen.iter().zip(&in_turn.seen).enumerate().filter_map(|(cpu, (ahead, in_turn))| {
        let (index, pair) = ahead.iter().zip(in_turn).enumerate().find(|(_, (ahead, in_turn))| ahead != in_turn)?;
        Some((pair.1.1, format!("cpu {cpu}, operation {index}: {pair:?}")))
    });
    if let Some((_, first)) = first.min() {
        panic!("seed {seed}, {setting:?}: {what}, {first}");
    }
    assert!(ahead.results == in_turn.results, "seed {seed}, {setting:?}: the counts differ");
    // Nothing is said of what goes wrong after the measurement either.
    if measure_until(seed) == FOREVER {
        assert_eq!(ahead.faults, in_turn.faults, "seed {seed}, {setting:?}: the faults");
    }
}

fn shape(seed: u64) -> &'static str {
    let shapes = ["pack:2 l3:1 core:2 pu:2", "pack:1 l3:2 core:2 pu:1", "core:1 pu:4", "pack:2 l3:2 core:2 pu:2"];
    shapes[seed as usize % shapes.len()]
}

#[test]
fn random_programs_see_the_same_at_the_same_times() {
    let came = RefCell::new([0; 4]);
    crate::seeds::each(TARGET, "ahead::random_programs_see_the_same_at_the_same_times", 600, &[], |seed| {
        let setting = |faults| Setting { faults, ..Setting::of(shape(seed)) };
        assert_eq!(check(setting(None), seed)[0].faults, FaultCounts::default());
        let FaultCounts { late_interrupts, late_timers, taken_after_rmw, taken_on_path, .. } =
            check(setting(Some(FAULTS)), seed)[0].faults;
        let counts = [late_interrupts, late_timers, taken_after_rmw, taken_on_path];
        for (total, count) in came.borrow_mut().iter_mut().zip(counts) {
            *total += count;
        }
    });
    // A program has 300 operations a CPU; few of them set a timer.
    let is_one = crate::seeds::number("HITM_SEED").is_some();
    assert!(is_one || came.borrow().iter().all(|&total| total > 500), "faults that came: {came:?}");
}

#[test]
fn random_programs_see_the_same_from_small_caches() {
    let came = RefCell::new([0; 7]);
    crate::seeds::each(TARGET, "ahead::random_programs_see_the_same_from_small_caches", 600, &[], |seed| {
        let shape = [shape(seed), "pack:2 l3:2 core:2 pu:1"][seed as usize / 2 % 2];
        let faults = [None, Some(FAULTS)][seed as usize / 5 % 2];
        let [ahead, in_turn] = check(Setting { faults, capacity: Some(small(seed)), ..Setting::of(shape) }, seed);
        let levels = ahead.levels.expect("caches have sizes");
        let saved = in_turn.resumes - ahead.resumes.min(in_turn.resumes);
        let Levels { level_2, level_3, other_level_3, moves, .. } = levels;
        let Moves { fallen, lost, flushes } = moves;
        for (total, count) in
            came.borrow_mut().iter_mut().zip([level_2, level_3, other_level_3, fallen, lost, flushes, saved])
        {
            *total += count;
        }
    });
    // It is no test if lines stay where they are, or if no CPU looks ahead.
    let is_one = crate::seeds::number("HITM_SEED").is_some();
    assert!(is_one || came.borrow().iter().all(|&total| total > 1_000), "what came: {came:?}");
}

/// Whoever waits for a word when the measurement ends, and lines are not followed any more, still
/// sees it written.
#[test]
fn a_turn_is_passed_on_after_the_measurement() {
    let shapes = ["core:1 pu:3", "core:3 pu:1", "pack:3 l3:1 core:1 pu:1"];
    for (seed, shape) in (1..=60).flat_map(|seed| shapes.map(|shape| (seed, shape))) {
        let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
        let cpus = topology.cpus() as u32;
        let costs = Costs::of(&topology, CostSet::Linux);
        let measure_until = Span::from_nanos(20_000 + 37 * seed);
        let machine = Machine::new(topology, costs, Config { seed, measure_until, ..Config::default() });
        let shared = machine.enter(Shared::new);
        let main = move |cpu: CpuId| {
            let turns = shared.word(0, 0);
            for _ in 0..60 {
                // Relaxed: nothing is published.
                let turn = Simulated::spin_while(turns, |turn| turn % cpus != cpu.0);
                turns.store(turn + 1, Ordering::Relaxed);
            }
        };
        machine.run(main).unwrap_or_else(|stalled| panic!("seed {seed}, {shape}: {stalled}"));
    }
}
