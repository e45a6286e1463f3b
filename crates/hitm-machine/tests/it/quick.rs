//! The fast path of programs: with it and without it every result has the same bytes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hitm_machine::program::{self, Seen, Stored};
use hitm_machine::{Config, CostSet, Costs, Machine, Random, Simulated, Site};
use hitm_memory::{Mode, Platform, Span, Time};

use crate::TARGET;
use crate::pages::{PAGE, Pages, read, write};

/// What the program of a test uses: a page that all CPUs share, and one for each CPU.
struct Data(Pages);

impl Data {
    fn new(cpus: usize) -> Self {
        Self(Pages::new(cpus + 1))
    }

    fn shared(&self, byte: usize) -> usize {
        self.0.at(byte)
    }

    fn own(&self, cpu: u32, byte: usize) -> usize {
        self.shared((cpu as usize + 1) * PAGE + byte)
    }
}

/// One CPU's way to its accesses, as a compiled program's calls are.
struct Code {
    machine: Rc<Machine>,
    /// Instructions that the machine has not been told of.
    owed: Cell<u64>,
    /// Accesses that took the fast path: of lines that the CPU had alone, and behind own stores.
    quick: Rc<Cell<u64>>,
    stored: Rc<Cell<u64>>,
}

/// Calls a method of the machine for so many bytes.
macro_rules! of_size {
    ($size:ident, $machine:ident.$method:ident [$($store:literal,)?] ($($argument:expr),*)) => {
        match $size {
            1 => $machine.$method::<$($store,)? 1>($($argument),*),
            2 => $machine.$method::<$($store,)? 2>($($argument),*),
            4 => $machine.$method::<$($store,)? 4>($($argument),*),
            _ => $machine.$method::<$($store,)? 8>($($argument),*),
        }
    };
}

impl Code {
    /// An access has taken the fast path, if it has: then the machine knows the instructions before
    /// it.
    fn has_passed(&self, count: &Cell<u64>, passed: bool) -> bool {
        if passed {
            self.owed.set(0);
            count.set(count.get() + 1);
        }
        passed
    }

    fn load(&self, address: usize, size: usize, code: usize) -> u128 {
        let (machine, owed) = (&self.machine, self.owed.get());
        if self.has_passed(&self.quick, of_size!(size, machine.pass_quickly [false,] (owed, address, code))) {
            return read(address, size);
        }
        let stored = of_size!(size, machine.load_stored [] (owed, address, code));
        if self.has_passed(&self.stored, stored.is_some()) {
            return stored.expect("it has passed");
        }
        program::execute(self.owed.take());
        program::load(address, size, Site::Code(code)).unwrap_or_else(|| read(address, size))
    }

    /// A plain store, or one that others may watch.
    fn store_as(&self, is_late: bool, address: usize, size: usize, bits: u128, code: usize) {
        let (machine, owed) = (&self.machine, self.owed.get());
        if self.has_passed(&self.quick, of_size!(size, machine.pass_quickly [true,] (owed, address, code))) {
            return write(address, size, bits);
        }
        let passed = of_size!(size, machine.store_stored [] (owed, address, code, is_late));
        let is_kept = if self.has_passed(&self.stored, passed) {
            true
        } else {
            program::execute(self.owed.take());
            let value = if is_late { Stored::Later } else { Stored::ByProgram };
            program::store(address, size, value, Site::Code(code))
        };
        if is_late && is_kept { machine.value_came(bits) } else { write(address, size, bits) }
    }

    fn store(&self, address: usize, size: usize, bits: u128, code: usize) {
        self.store_as(false, address, size, bits, code);
    }

    fn store_atomically(&self, address: usize, bits: u128, code: usize) {
        program::execute(self.owed.take());
        if !program::store(address, 8, Stored::Bits(bits), Site::Code(code)) {
            write(address, 8, bits);
        }
    }

    fn add(&self, address: usize, value: u128, code: usize) -> u128 {
        program::execute(self.owed.take());
        program::read_modify_write(address, 8, Site::Code(code));
        let before = read(address, 8);
        write(address, 8, u128::from((before as u64).wrapping_add(value as u64)));
        before
    }
}

/// A program with private data, shared data, waits and a measured stretch, of `rounds` for each
/// CPU.
fn main(code: &Code, pages: &Data, cpu: u32, seed: u64, rounds: u64) -> u64 {
    Simulated::enter(Mode::User);
    let mut random = Random::new(seed, cpu.into());
    let mut seen = 0_u64;
    for round in 0..rounds {
        if cpu == 0 && round == rounds / 4 {
            Simulated::measure_from_now();
        }
        if cpu == 0 && round == 3 * rounds / 4 {
            Simulated::measure_until_now();
        }
        code.owed.set(code.owed.get() + random.below(900));
        let size = 1 << random.below(4);
        let own = pages.own(cpu, random.below((PAGE / size) as u64) as usize * size);
        let shared = pages.shared(8 * random.below(64) as usize);
        let value = match random.below(40) {
            0 => code.add(shared, 1, 0x10),
            1 => code.load(shared, 8, 0x11),
            2 => {
                code.store_atomically(shared, seen.into(), 0x12);
                0
            }
            // The first CPU's page.
            3 => code.load(pages.own(0, 0), 8, 0x13),
            4 => code.add(pages.own(cpu, 8), 3, 0x14),
            5 if random.below(4) == 0 => {
                Simulated::delay(Span::from_nanos(random.below(2_000)));
                0
            }
            6 if random.below(4) == 0 => {
                let mode = Simulated::enter(Mode::Kernel);
                let value = code.load(own, size, 0x15);
                Simulated::enter(mode);
                value
            }
            // Its own words of lines that others write too: what its stores wait for.
            7..13 => {
                let word = pages.shared(1_024 + 128 * random.below(2) as usize + 8 * cpu as usize);
                for _ in 0..random.below(12) {
                    code.owed.set(code.owed.get() + random.below(300));
                    let part = word + random.below(8 / size as u64) as usize * size;
                    match random.below(4) {
                        0 => code.store(part, size, u128::from(seen) & (u128::MAX >> (128 - 8 * size)), 0x1a),
                        1 => code.store_as(true, word, 8, seen.into(), 0x1b),
                        _ => seen = seen.rotate_left(3) ^ code.load(part, size, 0x1c) as u64,
                    }
                }
                0
            }
            // One word of two places, often.
            13..18 => code.load(pages.own(cpu, 64), 8, 0x16 + random.below(2) as usize),
            18..29 => {
                code.store(own, size, u128::from(seen) & (u128::MAX >> (128 - 8 * size)), 0x18);
                0
            }
            _ => code.load(own, size, 0x19),
        };
        seen = seen.rotate_left(9) ^ value as u64;
    }
    program::execute(code.owed.take());
    program::fence();
    seen
}

/// Everything that a run tells.
type Told = (String, Vec<(u32, Time, u64)>);

/// Runs the program. Also returns how many accesses took the fast path: of lines that their CPU had
/// alone, and behind own stores.
fn run(shape: &str, config: Config, issue: Span, rounds: u64) -> (Told, [u64; 2]) {
    let seed = config.seed;
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let cpus = topology.cpus();
    let machine = Rc::new(Machine::new(topology.clone(), Costs::of(&topology, CostSet::Linux), config));
    machine.open_to_program(issue);
    let (ends, pages) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Data::new(cpus)));
    let [quick, stored] = [Rc::new(Cell::new(0)), Rc::new(Cell::new(0))];
    let (told, own, memory) = (ends.clone(), machine.clone(), pages.clone());
    let counts = (quick.clone(), stored.clone());
    let ended = machine.run(move |cpu| {
        let (quick, stored) = counts.clone();
        let code = Code { machine: own.clone(), owed: Cell::new(0), quick, stored };
        let seen = main(&code, &memory, cpu.0, seed, rounds);
        told.borrow_mut().push((cpu.0, Simulated::now(), seen));
    });
    ended.expect("it ends");
    machine.check();
    let mut results = machine.results();
    // Lines of a program have the addresses of the host.
    let base = pages.shared(0) as u64;
    results.lines.iter_mut().for_each(|line| line.address = line.address.wrapping_sub(base));
    let ends = ends.borrow().clone();
    ((format!("{results:#?}"), ends), [quick.get(), stored.get()])
}

/// Fails with the first line that differs.
#[track_caller]
fn assert_same(one: &Told, other: &Told, shape: &str) {
    let lines = one.0.lines().zip(other.0.lines()).enumerate();
    if let Some((number, (one, other))) = lines.into_iter().find(|(_, (one, other))| one != other) {
        panic!("{shape}: line {number} of the results: `{}` and `{}`", one.trim(), other.trim());
    }
    assert_eq!(one.1, other.1, "{shape}: when CPUs ended, and what they saw");
    assert!(one == other, "{shape}: the results differ");
}

#[test]
fn the_fast_path_changes_no_result() {
    let shapes =
        ["core:1 pu:1", "core:2 pu:1", "core:1 pu:2", "core:3 pu:2", "l3:2 core:4 pu:1", "package:2 l3:2 core:4 pu:2"];
    let behind = Cell::new(0);
    crate::seeds::each(TARGET, "quick::the_fast_path_changes_no_result", shapes.len() as u64, &[], |seed| {
        let shape = shapes[(seed - 1) as usize % shapes.len()];
        for issue in [Span::from_picos(250), Span::from_micros(1)] {
            for look_ahead in [true, false] {
                let config = |fast_path| Config { seed, look_ahead, fast_path, ..Config::default() };
                let (without, none) = run(shape, config(false), issue, 1_500);
                let (with, [quick, stored]) = run(shape, config(true), issue, 1_500);
                assert_same(&without, &with, shape);
                // Without look-ahead a CPU often waits for its turn.
                let least = if look_ahead { 100 * with.1.len() as u64 } else { 1 };
                assert!(none == [0; 2] && quick > least, "{shape}: {quick} accesses took the fast path");
                behind.set(behind.get() + stored);
            }
        }
    });
    let (behind, is_one) = (behind.get(), crate::seeds::number("HITM_SEED").is_some());
    assert!(is_one || behind > 1_000, "{behind} accesses took it behind own stores");
}

#[test]
fn who_spins_is_woken_by_a_store_of_the_fast_path() {
    for fast_path in [false, true] {
        let shape = Arc::new(hitm_topology::parse("core:2 pu:2").expect("a machine"));
        let config = Config { fast_path, ..Config::default() };
        let machine = Rc::new(Machine::new(shape.clone(), Costs::of(&shape, CostSet::Linux), config));
        machine.open_to_program(Span::from_picos(250));
        let (pages, own) = (Rc::new(Data::new(4)), machine.clone());
        let ended = machine.run(move |cpu| {
            Simulated::enter(Mode::User);
            let (quick, stored) = (Rc::default(), Rc::default());
            let code = Code { machine: own.clone(), owed: Cell::new(0), quick, stored };
            let (flag, count) = (pages.shared(0), pages.own(cpu.0, 0));
            if cpu.0 == 0 {
                for round in 0..2_000 {
                    code.owed.set(700);
                    code.store(count, 8, round, 0x21);
                }
                return code.store(flag, 8, 1, 0x22);
            }
            while code.load(flag, 8, 0x23) == 0 {
                program::spin(&[Seen { address: flag, size: 8, bits: 0, site: Site::Code(0x23) }]);
            }
        });
        ended.expect("it ends");
    }
}

#[test]
fn an_access_of_two_lines_is_not_quick() {
    let shape = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let machine = Rc::new(Machine::new(shape.clone(), Costs::of(&shape, CostSet::Linux), Config::default()));
    machine.open_to_program(Span::from_picos(250));
    let (pages, own) = (Rc::new(Data::new(2)), machine.clone());
    let ended = machine.run(move |cpu| {
        Simulated::enter(Mode::User);
        if cpu.0 > 0 {
            return;
        }
        let word = pages.shared(64);
        program::store(word, 8, Stored::ByProgram, Site::Code(0x31));
        write(word, 8, 5);
        assert_eq!(own.load_stored::<8>(0, word, 0x32), Some(5), "its line is on the way");
        assert_eq!(own.load_stored::<8>(0, pages.shared(60), 0x33), None);
        assert!(!own.store_stored::<8>(0, pages.shared(124), 0x34, false));
    });
    ended.expect("it ends");
}
