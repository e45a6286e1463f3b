//! Programs with their own memory: the same accesses have the same results whether the words are
//! the machine's or the program's, and values arrive.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::program::{self, Seen, Stored};
use hitm_machine::{Config, CostSet, Costs, Machine, Random, Results, Simulated, Site};
use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice, Platform, Span, Time};

use crate::pages::{PAGE, Pages, read, write};

/// More than any hit takes: accesses take their latency, as placed words do.
pub(crate) const LATENCY: Span = Span::from_micros(1);

/// In three pages.
pub(crate) const WORDS: usize = 3 * PAGE / 8;

#[track_caller]
fn here() -> Site {
    Site::Source(Location::caller())
}

/// Words that a random program uses.
pub(crate) trait Words: 'static {
    fn load(&self, word: usize) -> u64;
    fn store(&self, word: usize, value: u64);
    fn add(&self, word: usize, value: u64) -> u64;
}

pub(crate) struct Foreign(pub(crate) Pages);

impl Words for Foreign {
    fn load(&self, word: usize) -> u64 {
        let address = self.0.at(8 * word);
        program::load(address, 8, here()).unwrap_or_else(|| read(address, 8)) as u64
    }

    fn store(&self, word: usize, value: u64) {
        let address = self.0.at(8 * word);
        if !program::store(address, 8, Stored::Bits(value.into()), here()) {
            write(address, 8, value.into());
        }
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        let address = self.0.at(8 * word);
        program::read_modify_write(address, 8, here());
        let before = read(address, 8) as u64;
        write(address, 8, before.wrapping_add(value).into());
        before
    }
}

pub(crate) struct Placed(pub(crate) PlacedSlice<Simulated, <Simulated as Memory>::Atomic<u64>>);

impl Words for Placed {
    fn load(&self, word: usize) -> u64 {
        // Relaxed, here and below: the machine orders.
        self.0[word].load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        self.0[word].fetch_add(value, Ordering::Relaxed)
    }
}

pub(crate) fn machine(cpus: &str, config: Config) -> Machine {
    let topology = Arc::new(hitm_topology::parse(cpus).expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    Machine::new(topology, costs, config)
}

/// What was counted, without what tells the two kinds of words apart: names, places, and lines as
/// pages are numbered.
fn counts(results: &Results) -> String {
    let line = |line: &hitm_machine::LineResult| {
        let access = |access: &hitm_machine::AccessResult| {
            let missed = access.missed.clone().unwrap_or_default();
            let by: Vec<u64> = missed.invalidated_by.iter().map(|by| by.times).collect();
            (access.offset, access.kind, access.hits, missed.misses, missed.cpus, by)
        };
        format!("{:?}", line.accesses.iter().map(access).collect::<Vec<_>>())
    };
    let lines: Vec<String> = results.lines.iter().map(line).collect();
    let mut totals = results.totals;
    totals.resumes = 0;
    format!("{totals:?} {:?} {lines:#?}", results.account)
}

/// Runs a random program on `words`; returns what was counted, when each CPU ended, and all values
/// that it saw.
pub(crate) fn run(machine: &Machine, words: Rc<dyn Words>, seed: u64) -> (String, Vec<(u32, Time, u64)>) {
    let ends = Rc::new(RefCell::new(Vec::new()));
    let (told, own) = (ends.clone(), words);
    let ended = machine.run(move |cpu| {
        if cpu.0 == 0 {
            // Pages get their lines in this order, as the object's are.
            for page in 0..3 {
                own.load(page * PAGE / 8);
            }
        }
        Simulated::delay(Span::from_micros(40));
        let mut random = Random::new(seed, cpu.0.into());
        let mut seen = 0_u64;
        for _ in 0..400 {
            // Half of the accesses go to one line.
            let word = if random.below(2) == 0 { random.below(8) } else { random.below(WORDS as u64) } as usize;
            let value = match random.below(6) {
                0 | 1 => own.load(word),
                2 | 3 => {
                    own.store(word, seen ^ random.below(1 << 40));
                    own.load(word)
                }
                4 => own.add(word, seen | 1),
                _ => {
                    Simulated::delay(Span::from_nanos(random.below(300)));
                    0
                }
            };
            seen = seen.rotate_left(7) ^ value;
        }
        told.borrow_mut().push((cpu.0, Simulated::now(), seen));
    });
    ended.expect("it ends");
    machine.check();
    let mut ends = ends.borrow().clone();
    ends.sort_by_key(|end| end.0);
    (counts(&machine.results()), ends)
}

#[test]
fn a_programs_memory_and_placed_words_give_the_same_results() {
    for (cpus, seed) in [("core:2 pu:1", 1), ("core:2 pu:2", 2), ("l3:2 core:4 pu:1", 3), ("l3:4 core:4 pu:2", 4)] {
        let config = || Config { seed, ..Config::default() };
        let fields = || (0..WORDS).map(|word| Field::word("word", 8 * word, 8, "")).collect();
        let placed = machine(cpus, config());
        let words = placed.enter(|| {
            let make = |_| <Simulated as Memory>::Atomic::<u64>::new(0);
            PlacedSlice::<Simulated, _>::new("words", None, None, WORDS, &fields, make)
        });
        let through_the_seam = run(&placed, Rc::new(Placed(words)), seed);
        for look_ahead in [true, false] {
            let own = machine(cpus, Config { look_ahead, ..config() });
            own.open_to_program(LATENCY);
            let from_outside = run(&own, Rc::new(Foreign(Pages::new(3))), seed);
            assert!(through_the_seam == from_outside, "{cpus}, look-ahead {look_ahead}");
        }
    }
}

/// Loads as a program does.
fn load(address: usize, size: usize) -> u128 {
    program::load(address, size, here()).unwrap_or_else(|| read(address, size))
}

/// A plain store: its value is in memory at once.
fn store_plain(address: usize, size: usize, bits: u128) {
    program::store(address, size, Stored::ByProgram, here());
    write(address, size, bits);
}

/// An atomic store: the machine has its value.
fn store_atomic(address: usize, size: usize, bits: u128) {
    if !program::store(address, size, Stored::Bits(bits), here()) {
        write(address, size, bits);
    }
}

/// A volatile store: the program writes, and at its next call the machine takes the value out.
fn store_volatile(address: usize, size: usize, bits: u128) {
    let is_kept = program::store(address, size, Stored::Later, here());
    let before = read(address, size);
    write(address, size, bits);
    if is_kept {
        let bits = read(address, size);
        write(address, size, before);
        program::value_came(bits);
    }
}

/// Runs `main` on two CPUs of different packages, with 40 random seeds; what it pushes, sorted,
/// each once.
fn outcomes(main: fn(u32, &Pages) -> Option<[u128; 2]>) -> Vec<[u128; 2]> {
    let mut all = Vec::new();
    for seed in 1..=40 {
        let machine = machine("package:2 core:1 pu:1", Config { seed, ..Config::default() });
        machine.open_to_program(LATENCY);
        let pages = Rc::new(Pages::new(3));
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (own, told) = (pages.clone(), seen.clone());
        let ended = machine.run(move |cpu| {
            // Both have touched both lines, and begin within the time that a line takes.
            load(own.at(0), 8);
            load(own.at(64), 8);
            let mut random = Random::new(seed, cpu.0.into());
            Simulated::delay(Time::from_picos(50_000_000).since(Simulated::now()));
            Simulated::delay(Span::from_nanos(random.below(400)));
            let end = main(cpu.0, &own);
            told.borrow_mut().extend(end);
        });
        ended.expect("it ends");
        all.extend(seen.borrow().iter().copied());
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn what_was_stored_before_a_flag_is_there_when_the_flag_is() {
    for store_flag in [store_atomic, store_volatile] as [fn(usize, usize, u128); 2] {
        for seed in 1..=40 {
            let machine = machine("package:2 core:2 pu:1", Config { seed, ..Config::default() });
            machine.open_to_program(LATENCY);
            let pages = Rc::new(Pages::new(3));
            let own = pages.clone();
            let ended = machine.run(move |cpu| {
                let (data, flag) = (own.at(0), own.at(64));
                let mut random = Random::new(seed, cpu.0.into());
                for round in 1..50 {
                    Simulated::delay(Span::from_nanos(random.below(300)));
                    if cpu.0 == 0 {
                        // Every reader has seen the round before.
                        while load(own.at(128), 8) < 3 * (round - 1) {
                            let seen = load(own.at(128), 8);
                            program::spin(&[Seen { address: own.at(128), size: 8, bits: seen, site: here() }]);
                        }
                        store_plain(data, 4, round);
                        store_plain(data + 4, 4, !round & 0xffff_ffff);
                        store_flag(flag, 8, round);
                    } else {
                        loop {
                            let bits = load(flag, 8);
                            if bits == round {
                                break;
                            }
                            program::spin(&[Seen { address: flag, size: 8, bits, site: here() }]);
                        }
                        assert_eq!(load(data, 8), round | (!round & 0xffff_ffff) << 32, "seed {seed}");
                        program::read_modify_write(own.at(128), 8, here());
                        let count = read(own.at(128), 8);
                        write(own.at(128), 8, count + 1);
                    }
                }
            });
            ended.expect("it ends");
        }
    }
}

#[test]
fn stores_wait_in_the_store_buffer_whoever_has_their_values() {
    fn buffering(store: fn(usize, usize, u128), cpu: u32, pages: &Pages) -> Option<[u128; 2]> {
        let (own, other) = (pages.at(64 * cpu as usize), pages.at(64 * (1 - cpu as usize)));
        store(own, 8, 1);
        let seen = load(other, 8);
        assert_eq!(load(own, 8), 1, "a CPU sees its own store");
        Some([cpu.into(), seen])
    }
    let both = vec![[0, 0], [0, 1], [1, 0], [1, 1]];
    assert_eq!(outcomes(|cpu, pages| buffering(store_atomic, cpu, pages)), both);
    assert_eq!(outcomes(|cpu, pages| buffering(store_volatile, cpu, pages)), both);
}

#[test]
fn loads_see_the_parts_of_their_own_stores() {
    let seen = outcomes(|cpu, pages| {
        if cpu == 1 {
            return None;
        }
        let word = pages.at(0);
        store_atomic(word, 8, 0x1111_2222_3333_4444);
        let high = load(word + 4, 4);
        store_atomic(word, 2, 0x5555);
        // Two stores have its bytes: it waits for them.
        let whole = load(word, 8);
        // A plain store after an atomic one is the later one.
        store_atomic(word, 8, 7);
        store_plain(word, 8, 8);
        program::fence();
        assert_eq!(read(word, 8), 8);
        Some([high, whole])
    });
    assert_eq!(seen, [[0x1111_2222, 0x1111_2222_3333_5555]]);
}

#[test]
fn a_cpu_that_spins_on_two_words_is_woken_by_either() {
    for which in [0, 8] {
        let machine = machine("core:2 pu:1", Config::default());
        machine.open_to_program(LATENCY);
        let own = Rc::new(Pages::new(3));
        let ended = machine.run(move |cpu| {
            let words = [own.at(0), own.at(64)];
            if cpu.0 == 0 {
                Simulated::delay(Span::from_micros(100));
                return store_atomic(words[usize::from(which == 8)], 8, 1);
            }
            loop {
                let seen = words.map(|address| Seen { address, size: 8, bits: load(address, 8), site: here() });
                if seen.iter().any(|seen| seen.bits != 0) {
                    break;
                }
                program::spin(&seen);
            }
            assert!(Simulated::now() > Time::START);
        });
        ended.expect("it ends");
        // Few accesses: it waited.
        assert!(machine.results().totals.accesses() < 20);
    }
}
