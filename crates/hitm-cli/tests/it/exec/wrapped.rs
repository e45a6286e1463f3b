//! Threads that add to one word, through wrappers of the word and of its memory.

mod words;

use std::thread;

use words::{Word, place};

struct Visits {
    _name: [u8; 8],
    doors: [Word; 3],
    _rest: [u8; 40],
}

#[inline(never)]
fn visit(visits: &Visits) {
    for _ in 0..5_000 {
        visits.doors[1].add();
    }
}

fn main() {
    let doors = [Word::new(), Word::new(), Word::new()];
    let visits: &'static Visits = place(Visits { _name: [0; 8], doors, _rest: [0; 40] });
    let threads: Vec<_> = (0..8).map(|_| thread::spawn(move || visit(visits))).collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    println!("{}", visits.doors[1].value());
}
