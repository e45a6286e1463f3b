//! Looking ahead changes the speed and nothing else: random programs see the same values at the same times, and the machine counts
//! the same, whether its CPUs look ahead or take turns.
//!
//! Every program runs on a machine without faults or with them.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hitm_machine::{Arbitration, Config, CostSet, Costs, FaultCounts, Faults, Machine, Random, Simulated};
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
    /// The last CPU writes its first word again and again, until the second says that all others have ended.
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
            // Relaxed throughout: the machine's order is that of x86 whatever is asked, and nothing is concluded from a value.
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

/// Runs program `seed`; what each CPU saw, all that the machine counted, and what went wrong.
fn run(
    shape: &str,
    seed: u64,
    arbitration: Arbitration,
    faults: Option<Faults>,
    look_ahead: bool,
) -> (Vec<Seen>, String, FaultCounts) {
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let cpus = topology.cpus();
    let costs = Costs::of(&topology, CostSet::Linux);
    let measure_until = [Span::from_picos(u64::MAX), Span::from_micros(15)][seed as usize / 4 % 2];
    let start_spread = Span::from_nanos(200);
    let config = Config { seed, arbitration, faults, look_ahead, start_spread, measure_until, ..Config::default() };
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
    results.totals.resumes = 0;
    let mut seen = std::mem::take(&mut *seen.lock().expect("no panic holds it"));
    // Nothing is said of what comes after the measurement.
    seen.iter_mut().for_each(|seen| seen.retain(|&(_, _, after, _)| after <= Time::START + measure_until));
    (seen, format!("{results:?}"), machine.faults())
}

fn check(shape: &str, seed: u64, faults: Option<Faults>) -> FaultCounts {
    let arbitration = [Arbitration::LocalFirst, Arbitration::Fifo, Arbitration::Bounded(2)][seed as usize % 3];
    let [ahead, in_turn] = [true, false].map(|look_ahead| run(shape, seed, arbitration, faults, look_ahead));
    let first = ahead.0.iter().zip(&in_turn.0).enumerate().filter_map(|(cpu, (ahead, in_turn))| {
        let (index, pair) = ahead.iter().zip(in_turn).enumerate().find(|(_, (ahead, in_turn))| ahead != in_turn)?;
        Some((pair.1.1, format!("cpu {cpu}, operation {index}: {pair:?}")))
    });
    if let Some((_, first)) = first.min() {
        panic!("on {shape}, {faults:?}: looking ahead and not, {first}");
    }
    assert!(ahead.1 == in_turn.1, "on {shape}, {faults:?}: the counts differ");
    assert_eq!(ahead.2, in_turn.2, "on {shape}: the faults");
    ahead.2
}

#[test]
fn random_programs_see_the_same_at_the_same_times() {
    let came = RefCell::new([0; 4]);
    hitm_seeds::each(TARGET, "ahead::random_programs_see_the_same_at_the_same_times", 600, &[], |seed| {
        let shapes = ["pack:2 l3:1 core:2 pu:2", "pack:1 l3:2 core:2 pu:1", "core:1 pu:4", "pack:2 l3:2 core:2 pu:2"];
        let shape = shapes[seed as usize % shapes.len()];
        assert_eq!(check(shape, seed, None), FaultCounts::default());
        let FaultCounts { late_interrupts, late_timers, taken_after_rmw, taken_on_path, .. } =
            check(shape, seed, Some(FAULTS));
        let counts = [late_interrupts, late_timers, taken_after_rmw, taken_on_path];
        for (total, count) in came.borrow_mut().iter_mut().zip(counts) {
            *total += count;
        }
    });
    // A program has 300 operations a CPU; few of them set a timer.
    let is_one = hitm_seeds::number("HITM_SEED").is_some();
    assert!(is_one || came.borrow().iter().all(|&total| total > 500), "faults that came: {came:?}");
}

/// Whoever waits for a word when the measurement ends, and lines are not followed any more, still sees it written.
#[test]
fn a_turn_is_passed_on_after_the_measurement() {
    for (seed, shape) in
        (1..=60).flat_map(|seed| ["core:1 pu:3", "core:3 pu:1", "pack:3 l3:1 core:1 pu:1"].map(|shape| (seed, shape)))
    {
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
