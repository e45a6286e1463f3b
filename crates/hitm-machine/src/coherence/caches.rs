//! What each core and each LLC domain has room for, and which line goes when there is none.
//!
//! A cache is sets of ways; of a full set the line goes that was used longest ago (LRU). Level 2
//! holds what level 1 holds. Level 2 does not see what level 1 serves, as in hardware: there a line
//! is used when level 1 lacks it. A line that is taken away leaves its place empty.
//!
//! Here is only what stands where. What a place means for a line's copies is the directory's: see
//! `directory/capacity.rs`.

use crate::costs::{CacheSize, Capacity};

/// One cache. A set is the lines in it, the one used longest ago first; it has memory once a line
/// came.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    size: CacheSize,
    sets: Vec<Vec<u32>>,
    lines: usize,
}

impl Cache {
    fn new(size: CacheSize) -> Self {
        assert!(size.sets > 0 && size.ways > 0, "a cache of {} sets of {} ways", size.sets, size.ways);
        Self { size, sets: Vec::new(), lines: 0 }
    }

    #[inline]
    fn set_of(&self, line: u32) -> usize {
        line as usize % self.size.sets
    }

    /// Whether it has `line`.
    #[inline]
    pub(super) fn has(&self, line: u32) -> bool {
        self.sets.get(self.set_of(line)).is_some_and(|set| set.contains(&line))
    }

    /// `line` is used now; whether it is here.
    #[inline]
    pub(super) fn touch(&mut self, line: u32) -> bool {
        let index = self.set_of(line);
        let Some(set) = self.sets.get_mut(index) else { return false };
        // Most uses are of a line that was used a moment ago.
        let Some(place) = set.iter().rposition(|&known| known == line) else { return false };
        if place + 1 < set.len() {
            set[place..].rotate_left(1);
        }
        true
    }

    /// `line`, which is not here, comes; who has to go for it. A line stays that `must_stay`: a set
    /// of nothing else grows.
    pub(super) fn insert(&mut self, line: u32, must_stay: impl Fn(u32) -> bool) -> Option<u32> {
        if self.sets.is_empty() {
            self.sets.resize(self.size.sets, Vec::new());
        }
        let (index, ways) = (self.set_of(line), self.size.ways);
        let set = &mut self.sets[index];
        debug_assert!(!set.contains(&line), "line {line} came twice");
        let full = set.len() >= ways;
        let goes = if full { set.iter().position(|&known| !must_stay(known)) } else { None };
        let goes = goes.map(|place| set.remove(place));
        set.push(line);
        self.lines += usize::from(goes.is_none());
        goes
    }

    /// `line` goes; whether it was here.
    pub(super) fn remove(&mut self, line: u32) -> bool {
        let index = self.set_of(line);
        let Some(set) = self.sets.get_mut(index) else { return false };
        let place = set.iter().position(|&known| known == line);
        let was_here = place.map(|place| set.remove(place)).is_some();
        self.lines -= usize::from(was_here);
        was_here
    }

    /// What it has: set by set, the lines used longest ago first.
    pub(super) fn lines(&self) -> impl Iterator<Item = u32> {
        let sets = if self.lines == 0 { &[] } else { self.sets.as_slice() };
        sets.iter().flatten().copied()
    }
}

/// Which of a core's own caches has a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The first.
    One,
    /// The second and not the first.
    Two,
}

/// The caches of a core, and whether it idles.
#[derive(Clone, Debug)]
struct Core {
    level_1: Cache,
    level_2: Cache,
    threads: u32,
    /// How many of them idle.
    idle: u32,
    /// When the last of them began to.
    idle_since: u64,
    /// When it last ended an idle time that flushed it; `None` before the first.
    cold_from: Option<u64>,
}

/// How long a core that was flushed counts as cold for the kernel's paths, in picoseconds. The
/// measured faults are the first of a core that wakes, and end within 30 us.
const COLD_FOR: u64 = 100_000_000;

/// What caches evicted, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Lines that a core evicted to its L3.
    pub fallen: u64,
    /// Lines that an L3 evicted to memory.
    pub lost: u64,
    /// Flushes of a core's L1 and L2 into the L3 after a long idle time.
    pub flushes: u64,
}

/// All caches of a machine.
#[derive(Clone, Debug)]
pub(super) struct Caches {
    cores: Box<[Core]>,
    /// By LLC domain.
    level_3: Box<[Cache]>,
    /// Picoseconds.
    pub(super) level_2_hit: u64,
    /// Picoseconds; never when none.
    flushed_after: Option<u64>,
    pub(super) moves: Moves,
}

impl Caches {
    /// Empty caches for cores of so many threads each. All idle.
    pub(super) fn new(capacity: &Capacity, threads: &[u32], domains: usize) -> Self {
        let core = |&threads: &u32| Core {
            level_1: Cache::new(capacity.level_1),
            level_2: Cache::new(capacity.level_2),
            threads,
            idle: threads,
            idle_since: 0,
            cold_from: None,
        };
        Self {
            cores: threads.iter().map(core).collect(),
            level_3: vec![Cache::new(capacity.level_3); domains].into(),
            level_2_hit: capacity.level_2_hit.as_picos(),
            flushed_after: capacity.flushed_after.map(|after| after.as_picos()),
            moves: Moves::default(),
        }
    }

    /// Which of the core's own caches has `line`.
    #[inline]
    pub(super) fn level(&self, core: u32, line: u32) -> Option<Level> {
        let core = &self.cores[core as usize];
        if core.level_1.has(line) {
            return Some(Level::One);
        }
        core.level_2.has(line).then_some(Level::Two)
    }

    /// The core uses `line`, which its level 1 or 2 has; afterwards level 1 has it.
    #[inline]
    pub(super) fn touch(&mut self, core: u32, line: u32) {
        let core = &mut self.cores[core as usize];
        if !core.level_1.touch(line) {
            core.level_2.touch(line);
            // Who goes from level 1 stays in level 2.
            core.level_1.insert(line, |_| false);
        }
    }

    /// `line` comes to the core, which may have it already; who has to go for it.
    pub(super) fn fill(&mut self, core: u32, line: u32) -> Option<u32> {
        let own = &mut self.cores[core as usize];
        let goes = if own.level_2.has(line) { None } else { own.level_2.insert(line, |_| false) };
        if let Some(goes) = goes {
            own.level_1.remove(goes);
        }
        self.touch(core, line);
        goes
    }

    /// The core loses `line`, if it has it.
    pub(super) fn take(&mut self, core: u32, line: u32) {
        let core = &mut self.cores[core as usize];
        core.level_1.remove(line);
        core.level_2.remove(line);
    }

    /// What the core has, the lines used longest ago first in each set.
    pub(super) fn of_core(&self, core: u32) -> &Cache {
        &self.cores[core as usize].level_2
    }

    /// Level 3 of a domain.
    pub(super) fn level_3(&self, domain: usize) -> &Cache {
        &self.level_3[domain]
    }

    /// The same.
    pub(super) fn level_3_mut(&mut self, domain: usize) -> &mut Cache {
        &mut self.level_3[domain]
    }

    /// A thread of the core idles from `since` on.
    pub(super) fn idles(&mut self, core: u32, since: u64) {
        let core = &mut self.cores[core as usize];
        core.idle += 1;
        core.idle_since = core.idle_since.max(since);
    }

    /// A thread of the core idles no more from `now` on.
    pub(super) fn wakes(&mut self, core: u32, now: u64) {
        if self.has_flushed(core, now) {
            self.cores[core as usize].cold_from = Some(now);
        }
        let core = &mut self.cores[core as usize];
        core.idle = core.idle.saturating_sub(1);
    }

    /// Whether the core was flushed shortly before `now`.
    pub(super) fn is_cold(&self, core: u32, now: u64) -> bool {
        self.cores[core as usize].cold_from.is_some_and(|from| now.saturating_sub(from) <= COLD_FOR)
    }

    /// Whether the core has idled until `now` for so long that it has put away what it had.
    fn has_flushed(&self, core: u32, now: u64) -> bool {
        let own = &self.cores[core as usize];
        let since = now.saturating_sub(own.idle_since);
        own.idle == own.threads && self.flushed_after.is_some_and(|after| since > after)
    }

    /// If the core has idled until `now` for so long that it has put away what it had: what the
    /// caller has to [`take`](Self::take) from it.
    pub(super) fn flushed(&mut self, core: u32, now: u64) -> Vec<u32> {
        if !self.has_flushed(core, now) {
            return Vec::new();
        }
        let has: Vec<u32> = self.cores[core as usize].level_2.lines().collect();
        self.moves.flushes += u64::from(!has.is_empty());
        has
    }

    /// Panics when level 1 of a core has what its level 2 lacks.
    pub(super) fn check(&self) {
        for (number, core) in self.cores.iter().enumerate() {
            for line in core.level_1.lines() {
                assert!(core.level_2.has(line), "core {number} has line {line} in level 1 and not in level 2");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A set-associative cache with LRU, as simply as can be: every line with the time of its last
    /// use.
    #[derive(Default)]
    struct Naive(Vec<(u32, u64)>);

    impl Naive {
        fn touch(&mut self, line: u32, now: u64) -> bool {
            let known = self.0.iter_mut().find(|(known, _)| *known == line);
            known.map(|known| known.1 = now).is_some()
        }

        fn insert(&mut self, line: u32, now: u64, size: CacheSize, stays: impl Fn(u32) -> bool) -> Option<u32> {
            let same = |known: u32| known as usize % size.sets == line as usize % size.sets;
            let full = self.0.iter().filter(|&&(known, _)| same(known)).count() >= size.ways;
            let may_go = self.0.iter().filter(|&&(known, _)| same(known) && !stays(known));
            let goes = if full { may_go.min_by_key(|&&(_, used)| used).map(|&(known, _)| known) } else { None };
            self.0.retain(|&(known, _)| Some(known) != goes);
            self.0.push((line, now));
            goes
        }
    }

    #[test]
    fn a_cache_evicts_as_the_naive_one() {
        for seed in 1..=200 {
            let mut random = Random::new(seed, 0);
            let size = CacheSize { sets: 1 + random.below(5) as usize, ways: 1 + random.below(4) as usize };
            let (mut cache, mut naive) = (Cache::new(size), Naive::default());
            // Now and then a line must stay.
            let stays = |line: u32| line % 7 == 3 && seed % 3 == 0;
            let mut evictions = 0;
            for now in 0..600 {
                let line = random.below(24) as u32;
                match random.below(8) {
                    0 => {
                        let had = naive.0.iter().any(|&(known, _)| known == line);
                        naive.0.retain(|&(known, _)| known != line);
                        assert_eq!(cache.remove(line), had, "seed {seed}, step {now}");
                    }
                    _ => {
                        let here = naive.touch(line, now);
                        assert_eq!(cache.has(line), here, "seed {seed}, step {now}");
                        assert_eq!(cache.touch(line), here, "seed {seed}, step {now}");
                        if !here {
                            let goes = naive.insert(line, now, size, stays);
                            assert_eq!(cache.insert(line, stays), goes, "seed {seed}, step {now}");
                            evictions += u32::from(goes.is_some());
                        }
                    }
                }
                let mut lines: Vec<u32> = cache.lines().collect();
                let mut expect: Vec<u32> = naive.0.iter().map(|&(line, _)| line).collect();
                lines.sort_unstable();
                expect.sort_unstable();
                assert_eq!((lines.len(), &lines), (cache.lines, &expect), "seed {seed}, step {now}");
            }
            assert!(evictions > 0, "seed {seed}: a cache of {size:?} is never full");
        }
    }

    fn caches(threads: u32, flushed_after: Option<u64>) -> Caches {
        let size = |sets, ways| CacheSize { sets, ways };
        let capacity = Capacity {
            level_1: size(1, 1),
            level_2: size(1, 2),
            level_3: size(1, 4),
            level_2_hit: hitm_memory::Span::from_nanos(4),
            flushed_after: flushed_after.map(hitm_memory::Span::from_picos),
        };
        Caches::new(&capacity, &[threads], 1)
    }

    #[test]
    fn level_2_keeps_what_level_1_has_no_room_for() {
        let mut caches = caches(1, None);
        assert_eq!((caches.fill(0, 7), caches.fill(0, 8)), (None, None));
        assert_eq!([7, 8].map(|line| caches.level(0, line)), [Some(Level::Two), Some(Level::One)]);
        caches.touch(0, 7);
        assert_eq!([7, 8].map(|line| caches.level(0, line)), [Some(Level::One), Some(Level::Two)]);
        assert_eq!(caches.fill(0, 9), Some(8), "8 was used before 7");
        caches.check();
        assert_eq!([7, 8, 9].map(|line| caches.level(0, line)), [Some(Level::Two), None, Some(Level::One)]);
    }

    #[test]
    fn a_core_is_empty_once_all_its_threads_have_idled_for_long() {
        let mut caches = caches(2, Some(100));
        caches.wakes(0, 0);
        caches.wakes(0, 0);
        assert!(!caches.is_cold(0, 0), "it has not idled");
        caches.fill(0, 7);
        caches.idles(0, 10);
        assert_eq!(caches.flushed(0, 1_000), [0; 0], "the other thread is at work");
        caches.idles(0, 50);
        assert_eq!(caches.flushed(0, 150), [0; 0]);
        assert_eq!(caches.flushed(0, 151), [7]);
        caches.take(0, 7);
        assert_eq!((caches.level(0, 7), caches.flushed(0, 152).len(), caches.moves.flushes), (None, 0, 1));
        caches.wakes(0, 152);
        assert!(caches.is_cold(0, 152) && caches.is_cold(0, 152 + COLD_FOR) && !caches.is_cold(0, 153 + COLD_FOR));
    }
}
