//! Counters of accesses, found by line and key.
//!
//! The lines of one type are touched by the same places: all first lines of all tasks, say. So a
//! line belongs to a *class*, its object's name and its number within the object. A class has a
//! dictionary from keys to small numbers, and a line has a counter for each number. The class
//! decides how much memory a line takes, and nothing else. So a line whose object is replaced by
//! one of another type keeps its class, and a line of which nothing is known has its own.

use rustc_hash::FxHashMap;

use super::Key;
use super::blocks::{Block, Blocks};

/// A key and its number within a class.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    number: u32,
}

/// The dictionary of a class: a table with open addresses, at most three quarters full.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// Its length is a power of two.
    table: Block,
    /// Where the table begins, and its length less one: what each access needs.
    start: u32,
    mask: u32,
    /// The number of keys.
    keys: u32,
}

/// The counters of an access: how often it hit.
pub(super) const HITS: usize = 0;

/// The number of its record, from 1; 0 while it has never missed.
pub(super) const RECORD: usize = 1;

/// A line.
#[derive(Clone, Copy, Debug)]
struct Line {
    class: u32,
    /// For each kind of counter, the counters of the line's accesses, at the numbers of their keys.
    counters: [Block; 2],
}

impl Line {
    fn of_class(class: u32) -> Self {
        Self { class, counters: [Block::EMPTY; 2] }
    }
}

/// The counters of all accesses.
#[derive(Clone, Debug)]
pub(super) struct Table {
    lines: Vec<Line>,
    classes: Vec<Class>,
    dictionaries: Blocks<Entry>,
    counters: Blocks<u32>,
    /// The classes of the lines of an object, by its name.
    known: FxHashMap<Box<str>, Vec<u32>>,
}

/// One access with its counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) key: Key,
    pub(super) hits: u32,
    /// The number of its record, from 1; 0 for none.
    pub(super) record: u32,
}

/// The first length of a dictionary.
const FIRST: usize = 4;

impl Table {
    pub(super) fn new() -> Self {
        Self {
            lines: Vec::new(),
            classes: Vec::new(),
            dictionaries: Blocks::new(Entry { key: Key::EMPTY, number: 0 }),
            counters: Blocks::new(0),
            known: FxHashMap::default(),
        }
    }

    fn new_class(classes: &mut Vec<Class>) -> u32 {
        classes.push(Class::default());
        classes.len() as u32 - 1
    }

    /// An object called `name` stands on `lines` from `first` on.
    pub(super) fn place(&mut self, name: &str, first: u32, lines: u32) {
        self.know_lines(first as usize);
        if !self.known.contains_key(name) {
            self.known.insert(name.into(), Vec::new());
        }
        let Some(known) = self.known.get_mut(name) else { return };
        while known.len() < lines as usize {
            known.push(Self::new_class(&mut self.classes));
        }
        for (line, &class) in (first as usize..).zip(&known[..lines as usize]) {
            match self.lines.get_mut(line) {
                // Its counters are where the keys of its class say.
                Some(Line { counters: [Block::EMPTY, Block::EMPTY], class: own }) => *own = class,
                Some(_) => {}
                None => self.lines.push(Line::of_class(class)),
            }
        }
    }

    /// From now on there are lines up to `end`.
    fn know_lines(&mut self, end: usize) {
        while self.lines.len() < end {
            let class = Self::new_class(&mut self.classes);
            self.lines.push(Line::of_class(class));
        }
    }

    /// Where the search for a key begins in a dictionary.
    #[inline]
    fn start(key: Key, mask: usize) -> usize {
        // Fibonacci hashing: the upper half of a product with 2^64 over the golden ratio.
        (u64::from(key.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask
    }

    /// The number of a key within a class.
    #[inline]
    fn number(&mut self, class: u32, key: Key) -> usize {
        let Class { start, mask, .. } = self.classes[class as usize];
        let (start, mask) = (start as usize, mask as usize);
        let mut place = Self::start(key, mask);
        loop {
            let entry = self.dictionaries.entry(start + place);
            if entry.key == key {
                return entry.number as usize;
            }
            if entry.key == Key::EMPTY {
                return self.new_number(class, key);
            }
            place = (place + 1) & mask;
        }
    }

    #[cold]
    fn new_number(&mut self, class: u32, key: Key) -> usize {
        let Class { table, keys, .. } = self.classes[class as usize];
        let has_room = (keys as usize + 1) * 4 <= table.len() * 3;
        let table = if has_room { table } else { self.enlarge(table) };
        self.enter(table, Entry { key, number: keys });
        let (start, mask) = (table.start() as u32, table.len() as u32 - 1);
        self.classes[class as usize] = Class { table, start, mask, keys: keys + 1 };
        keys as usize
    }

    fn enlarge(&mut self, table: Block) -> Block {
        let larger = self.dictionaries.take((table.len() * 2).max(FIRST));
        for index in 0..table.len() {
            let entry = self.dictionaries.of(table)[index];
            if entry.key != Key::EMPTY {
                self.enter(larger, entry);
            }
        }
        self.dictionaries.give_back(table);
        larger
    }

    fn enter(&mut self, table: Block, entry: Entry) {
        let entries = self.dictionaries.of_mut(table);
        let mask = entries.len() - 1;
        let mut place = Self::start(entry.key, mask);
        while entries[place].key != Key::EMPTY {
            place = (place + 1) & mask;
        }
        entries[place] = entry;
    }

    /// A counter of an access: one of [`HITS`] and [`RECORD`].
    #[inline]
    pub(super) fn counter<const COUNTER: usize>(&mut self, line: u32, key: Key) -> &mut u32 {
        if line as usize >= self.lines.len() {
            self.know_lines(line as usize + 1);
        }
        let number = self.number(self.lines[line as usize].class, key);
        let Line { class, counters } = &mut self.lines[line as usize];
        let block = &mut counters[COUNTER];
        if number >= block.len() {
            let keys = self.classes[*class as usize].keys as usize;
            *block = self.counters.grow(*block, keys);
        }
        self.counters.at(*block, number)
    }

    /// Forgets what was counted.
    pub(super) fn forget(&mut self) {
        self.lines.iter_mut().for_each(|line| line.counters = [Block::EMPTY; 2]);
        self.counters = Blocks::new(0);
    }

    /// The keys of all classes, by number.
    pub(super) fn keys(&self) -> Vec<Box<[Key]>> {
        let keys_of = |class: &Class| {
            let mut keys = vec![Key::EMPTY; class.keys as usize];
            for entry in self.dictionaries.of(class.table).iter().filter(|entry| entry.key != Key::EMPTY) {
                keys[entry.number as usize] = entry.key;
            }
            keys.into()
        };
        self.classes.iter().map(keys_of).collect()
    }

    /// The number of lines.
    pub(super) fn lines(&self) -> u32 {
        self.lines.len() as u32
    }

    /// The accesses of a line that were counted; `keys` is what [`keys`](Self::keys) returned.
    pub(super) fn of_line<'a>(&'a self, line: u32, keys: &'a [Box<[Key]>]) -> impl Iterator<Item = Counted> + 'a {
        let Line { class, counters } = self.lines[line as usize];
        let [hits, records] = counters.map(|block| self.counters.of(block));
        let counted = move |(number, &key): (usize, &Key)| {
            let of = |counters: &[u32]| counters.get(number).copied().unwrap_or(0);
            Counted { key, hits: of(hits), record: of(records) }
        };
        keys[class as usize].iter().enumerate().map(counted).filter(|counted| counted.hits > 0 || counted.record > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hits of all accesses of a line, by key.
    fn hits(table: &Table, line: u32) -> Vec<(u32, u32)> {
        let mut hits: Vec<_> =
            table.of_line(line, &table.keys()).map(|counted| (counted.key.0, counted.hits)).collect();
        hits.sort_unstable();
        hits
    }

    #[test]
    fn lines_of_a_class_share_numbers_and_no_counters() {
        let mut table = Table::new();
        table.place("task", 0, 2);
        table.place("task", 5, 2);
        for key in 0..40 {
            *table.counter::<HITS>(key % 2, Key(key)) += 1;
            *table.counter::<HITS>(5 + key % 2, Key(key)) += 2;
        }
        *table.counter::<RECORD>(6, Key(1)) = 7;
        *table.counter::<RECORD>(6, Key(99)) = 8;
        let expect = |odd, times| (0..20_u32).map(|key| (2 * key + odd, times)).collect::<Vec<_>>();
        assert_eq!((hits(&table, 0), hits(&table, 1)), (expect(0, 1), expect(1, 1)));
        assert_eq!(hits(&table, 5), expect(0, 2));
        assert_eq!(hits(&table, 6), [expect(1, 2), vec![(99, 0)]].concat());
        assert_eq!(table.classes.iter().map(|class| class.keys).collect::<Vec<_>>(), [20, 21, 0, 0, 0]);
        assert_eq!(hits(&table, 3), []);
    }

    #[test]
    fn what_is_forgotten_is_counted_from_nothing() {
        let mut table = Table::new();
        table.place("task", 0, 2);
        for key in 0..40 {
            *table.counter::<HITS>(key % 2, Key(key)) += 1;
            *table.counter::<RECORD>(key % 2, Key(key)) = key;
        }
        table.forget();
        assert_eq!((hits(&table, 0), hits(&table, 1)), (vec![], vec![]));
        *table.counter::<HITS>(1, Key(7)) += 1;
        assert_eq!(hits(&table, 1), [(7, 1)]);
    }

    #[test]
    fn a_line_that_has_counters_keeps_its_class() {
        let mut table = Table::new();
        table.place("one", 0, 1);
        *table.counter::<HITS>(0, Key(5)) += 1;
        table.place("other", 0, 1);
        *table.counter::<HITS>(0, Key(6)) += 1;
        *table.counter::<HITS>(2, Key(6)) += 1;
        assert_eq!(hits(&table, 0), [(5, 1), (6, 1)]);
        assert_eq!((hits(&table, 1), hits(&table, 2)), (vec![], vec![(6, 1)]));
    }
}
