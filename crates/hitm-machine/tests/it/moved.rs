//! Layouts that are tried have the results of the same layouts made: to the byte, in both kinds of
//! memory.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use hitm_machine::{Arrangement, Config, Machine, Piece, Random, Simulated, program};
use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice, Time};

use crate::pages::Pages;
use crate::program::{Foreign, LATENCY, Placed, WORDS, Words, machine, run};

/// Words that lie at other places: the layout that is made.
struct Permuted<W>(W, Vec<usize>);

impl<W: Words> Words for Permuted<W> {
    fn load(&self, word: usize) -> u64 {
        self.0.load(self.1[word])
    }

    fn store(&self, word: usize, value: u64) {
        self.0.store(self.1[word], value);
    }

    fn add(&self, word: usize, value: u64) -> u64 {
        self.0.add(self.1[word], value)
    }
}

/// Where each word goes: nowhere, every second place, or any place.
fn orders() -> [Vec<usize>; 3] {
    let mut shuffled: Vec<usize> = (0..WORDS).collect();
    let mut random = Random::new(7, 7);
    for last in (1..WORDS).rev() {
        shuffled.swap(last, random.below(last as u64 + 1) as usize);
    }
    [(0..WORDS).collect(), (0..WORDS).map(|word| 2 * word).collect(), shuffled]
}

fn arrangement(order: &[usize]) -> Arc<Arrangement> {
    let piece = |(word, &to): (usize, &usize)| Piece { from: 8 * word, bytes: 8, to: 8 * to };
    Arc::new(Arrangement::new(order.iter().enumerate().map(piece).collect()).expect("each word has a place"))
}

fn placed(machine: &Machine, words: usize) -> Placed {
    let fields = || (0..words).map(|word| Field::word("word", 8 * word, 8, "")).collect();
    let make = |_| <Simulated as Memory>::Atomic::<u64>::new(0);
    Placed(machine.enter(|| PlacedSlice::<Simulated, _>::new("words", None, None, words, &fields, make)))
}

/// What a run of random accesses counts, and what each CPU sees.
type Ran = (String, Vec<(u32, Time, u64)>);

/// Runs on the machine's own words: the layout that is made, and the one that is tried.
fn in_the_arena(cpus: &str, seed: u64, order: &[usize]) -> (Ran, Ran) {
    let slots = order.iter().max().expect("there are words") + 1;
    let made = machine(cpus, Config { seed, ..Config::default() });
    let words = Permuted(placed(&made, slots), order.to_vec());
    let arrangements = BTreeMap::from([("words".to_owned(), arrangement(order))]);
    let tried = machine(cpus, Config { seed, arrangements, ..Config::default() });
    let arranged = placed(&tried, WORDS);
    (run(&made, Rc::new(words), seed), run(&tried, Rc::new(arranged), seed))
}

/// The same in a program's memory.
fn in_a_program(cpus: &str, seed: u64, order: &[usize]) -> (Ran, Ran) {
    let config = || Config { seed, ..Config::default() };
    let made = machine(cpus, config());
    made.open_to_program(LATENCY);
    let words = Permuted(Foreign(Pages::new(6)), order.to_vec());
    let tried = machine(cpus, config());
    tried.open_to_program(LATENCY);
    let pages = Pages::new(3);
    tried.enter(|| program::arrange(pages.at(0), &arrangement(order)));
    (run(&made, Rc::new(words), seed), run(&tried, Rc::new(Foreign(pages)), seed))
}

#[test]
fn a_layout_that_is_tried_has_the_results_of_one_that_is_made() {
    for (cpus, seed) in [("core:2 pu:2", 2), ("l3:2 core:4 pu:1", 3), ("l3:4 core:4 pu:2", 4)] {
        for (index, order) in orders().iter().enumerate() {
            let (made, tried) = in_the_arena(cpus, seed, order);
            assert!(made == tried, "{cpus}, order {index}, the machine's words");
            let (made, tried) = in_a_program(cpus, seed, order);
            assert!(made == tried, "{cpus}, order {index}, a program's words");
        }
    }
}

/// The names of the fields are those of the source.
#[test]
fn an_object_that_is_arranged_keeps_its_names() {
    let order: Vec<usize> = (0..WORDS).map(|word| 2 * word).collect();
    let arrangements = BTreeMap::from([("words".to_owned(), arrangement(&order))]);
    let machine = machine("core:2 pu:1", Config { arrangements, ..Config::default() });
    let fields =
        || (0..WORDS).map(|word| Field::word(if word == 5 { "fifth" } else { "word" }, 8 * word, 8, "")).collect();
    let words = machine.enter(|| {
        let make = |_| <Simulated as Memory>::Atomic::<u64>::new(0);
        Placed(PlacedSlice::<Simulated, _>::new("words", None, None, WORDS, &fields, make))
    });
    let ended = machine.run(move |_| words.store(5, 1));
    ended.expect("it ends");
    let results = machine.results();
    let accesses: Vec<(u32, u32, String)> = results
        .lines
        .iter()
        .flat_map(|line| line.accesses.iter().map(|access| (line.line, access.offset, access.field.to_string())))
        .collect();
    assert_eq!(accesses, [(1, 16, "fifth".to_owned())]);
}
