//! Threads that add to words, through wrappers of the words and of their memory.

mod words;

use std::thread;

use words::{Word, make, place};

/// In lines of its own it has more bytes, which are no second element.
struct Visits {
    _name: [u8; 8],
    doors: [Word; 3],
    _rest: [u8; 40],
}

/// Its size divides that of its line.
struct Exits {
    doors: [Word; 4],
}

/// Threads are made here: its words have names, though its file may be looked through.
struct Visitors {
    visits: &'static Visits,
    exits: &'static Exits,
}

impl Visitors {
    #[inline(never)]
    fn visit(&self) {
        for _ in 0..5_000 {
            self.visits.doors[1].add();
            self.exits.doors[2].add();
        }
    }
}

fn main() {
    let doors = [Word::new(), Word::new(), Word::new()];
    let visits = place(Visits { _name: [0; 8], doors, _rest: [0; 40] });
    let count = std::hint::black_box(0);
    let exits = make(|| Exits { doors: [0, 1, 2, 3].map(|more| Word::from(count + more)) });
    let threads: Vec<_> = (0..8).map(|_| thread::spawn(move || Visitors { visits, exits }.visit())).collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    println!("{} {}", visits.doors[1].value(), exits.doors[2].value());
}
