//! Finds accesses to plain words that nothing orders, by happens-before.
//!
//! **Claim.** Reports two [`PlainWord`](hitm_memory::PlainWord) accesses, one of them a `set`, by
//! different CPUs, that no chain of acquire and release orders in this run. A `peek` may race with
//! anything.
//!
//! **Origin.** Flanagan and Freund, "FastTrack", 2009, without its compressed read sets: machines
//! under test have few CPUs.
//!
//! **Limits.** Finds races of the run at hand, not of other interleavings. The memory itself is
//! sequentially consistent here: whether a weaker ordering would be enough is for the model checker
//! to say.

use std::panic::Location;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

/// How many events of each CPU are known to have happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Clock(Vec<u32>);

impl Clock {
    fn new(cpus: usize) -> Self {
        Self(vec![0; cpus])
    }

    fn join(&mut self, other: &Self) {
        for (own, seen) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*seen);
        }
    }

    fn has_seen(&self, cpu: u32, event: u32) -> bool {
        self.0[cpu as usize] >= event
    }
}

type Site = &'static Location<'static>;

#[derive(Clone, Debug, Default)]
struct Plain {
    /// CPU, its event, and place of the last `set`.
    written: Option<(u32, u32, Site)>,
    /// The same of the `get`s since.
    read: Vec<(u32, u32, Site)>,
}

/// Two accesses that nothing orders.
#[derive(Clone, Debug)]
pub(crate) struct Race {
    pub(crate) address: usize,
    /// CPU, place and what it did, of the earlier and the later.
    pub(crate) earlier: (u32, Site, &'static str),
    pub(crate) later: (u32, Site, &'static str),
}

/// What is known of who saw what.
#[derive(Debug)]
pub(crate) struct Races {
    cpus: Vec<Clock>,
    /// What a Relaxed load saw, for an Acquire fence to come.
    to_acquire: Vec<Clock>,
    /// What a Release fence published, for a Relaxed store to come.
    released: Vec<Clock>,
    words: FxHashMap<usize, Clock>,
    plain: FxHashMap<usize, Plain>,
    found: Vec<Race>,
}

/// Races kept; the first explains the rest.
const KEPT: usize = 20;

impl Races {
    pub(crate) fn new(cpus: usize) -> Self {
        let clocks = || vec![Clock::new(cpus); cpus];
        let mut races = Self {
            cpus: clocks(),
            to_acquire: clocks(),
            released: clocks(),
            words: FxHashMap::default(),
            plain: FxHashMap::default(),
            found: Vec::new(),
        };
        // Event 0 is what was set up before the CPUs started; everybody has seen it.
        for cpu in 0..cpus {
            races.cpus[cpu].0[cpu] = 1;
        }
        races
    }

    /// An atomic load.
    pub(crate) fn load(&mut self, cpu: u32, address: usize, order: Ordering) {
        let Some(word) = self.words.get(&address) else { return };
        match order {
            Ordering::Relaxed => self.to_acquire[cpu as usize].join(word),
            _ => self.cpus[cpu as usize].join(word),
        }
    }

    /// An atomic store. `rmw` continues the word's release sequence, a plain store ends it.
    pub(crate) fn store(&mut self, cpu: u32, address: usize, order: Ordering, rmw: bool) {
        let released = match order {
            Ordering::Relaxed | Ordering::Acquire => &self.released[cpu as usize],
            _ => &self.cpus[cpu as usize],
        };
        let nothing = Clock::new(self.cpus.len());
        let word = self.words.entry(address).or_insert(nothing);
        if rmw {
            word.join(released);
        } else {
            word.clone_from(released);
        }
        self.step(cpu);
    }

    /// A fence.
    pub(crate) fn fence(&mut self, cpu: u32, order: Ordering) {
        let index = cpu as usize;
        if order != Ordering::Release {
            let seen = self.to_acquire[index].clone();
            self.cpus[index].join(&seen);
        }
        if order != Ordering::Acquire {
            self.released[index] = self.cpus[index].clone();
            self.step(cpu);
        }
    }

    /// `from` did something that `to` waits for by other means: an interrupt, an unpark.
    pub(crate) fn signal(&mut self, from: u32, to: u32) {
        let seen = self.cpus[from as usize].clone();
        self.cpus[to as usize].join(&seen);
        self.step(from);
    }

    fn step(&mut self, cpu: u32) {
        self.cpus[cpu as usize].0[cpu as usize] += 1;
    }

    /// A `get` of a plain word.
    pub(crate) fn get(&mut self, cpu: u32, address: usize, site: Site) {
        let clock = &self.cpus[cpu as usize];
        let plain = self.plain.entry(address).or_default();
        if let Some((writer, event, place)) = plain.written
            && !clock.has_seen(writer, event)
        {
            Self::report(&mut self.found, address, (writer, place, "set"), (cpu, site, "get"));
        }
        plain.read.retain(|&(reader, ..)| reader != cpu);
        plain.read.push((cpu, clock.0[cpu as usize], site));
    }

    /// A `set` of a plain word.
    pub(crate) fn set(&mut self, cpu: u32, address: usize, site: Site) {
        let clock = &self.cpus[cpu as usize];
        let plain = self.plain.entry(address).or_default();
        let written = plain.written.into_iter().map(|(writer, event, place)| (writer, event, place, "set"));
        let read = plain.read.iter().map(|&(reader, event, place)| (reader, event, place, "get"));
        for (other, event, place, what) in written.chain(read) {
            if !clock.has_seen(other, event) {
                Self::report(&mut self.found, address, (other, place, what), (cpu, site, "set"));
            }
        }
        plain.written = Some((cpu, clock.0[cpu as usize], site));
        plain.read.clear();
    }

    /// The memory at `address` belongs to a new object.
    pub(crate) fn forget(&mut self, start: usize, end: usize) {
        self.words.retain(|address, _| !(start..end).contains(address));
        self.plain.retain(|address, _| !(start..end).contains(address));
    }

    fn report(
        found: &mut Vec<Race>,
        address: usize,
        earlier: (u32, Site, &'static str),
        later: (u32, Site, &'static str),
    ) {
        if found.len() < KEPT {
            found.push(Race { address, earlier, later });
        }
    }

    pub(crate) fn found(&self) -> &[Race] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: usize = 64;
    const PLAIN: usize = 128;

    fn races(run: impl FnOnce(&mut Races)) -> usize {
        let mut races = Races::new(2);
        run(&mut races);
        races.found().len()
    }

    fn here() -> Site {
        Location::caller()
    }

    #[test]
    fn release_and_acquire_order() {
        let message_passing = |store, load| {
            races(|races| {
                races.set(0, PLAIN, here());
                races.store(0, WORD, store, false);
                races.load(1, WORD, load);
                races.get(1, PLAIN, here());
            })
        };
        assert_eq!(message_passing(Ordering::Release, Ordering::Acquire), 0);
        assert_eq!(message_passing(Ordering::Relaxed, Ordering::Acquire), 1);
        assert_eq!(message_passing(Ordering::Release, Ordering::Relaxed), 1);
    }

    #[test]
    fn fences_order_relaxed_accesses() {
        let fenced = |release: bool, acquire: bool| {
            races(|races| {
                races.set(0, PLAIN, here());
                if release {
                    races.fence(0, Ordering::Release);
                }
                races.store(0, WORD, Ordering::Relaxed, false);
                races.load(1, WORD, Ordering::Relaxed);
                if acquire {
                    races.fence(1, Ordering::Acquire);
                }
                races.set(1, PLAIN, here());
            })
        };
        assert_eq!(fenced(true, true), 0);
        assert_eq!(fenced(false, true), 1);
        assert_eq!(fenced(true, false), 1);
    }

    #[test]
    fn an_rmw_continues_a_release_sequence_and_a_store_ends_it() {
        let between = |rmw| {
            races(|races| {
                races.set(0, PLAIN, here());
                races.store(0, WORD, Ordering::Release, false);
                races.store(1, WORD, Ordering::Relaxed, rmw);
                races.load(1, WORD, Ordering::Acquire);
                races.get(1, PLAIN, here());
            })
        };
        assert_eq!(between(true), 0);
        assert_eq!(between(false), 1);
    }

    #[test]
    fn reads_race_with_writes_but_not_with_each_other() {
        assert_eq!(races(|races| (0..2).for_each(|cpu| races.get(cpu, PLAIN, here()))), 0);
        assert_eq!(
            races(|races| {
                races.get(0, PLAIN, here());
                races.set(1, PLAIN, here());
            }),
            1
        );
    }
}
