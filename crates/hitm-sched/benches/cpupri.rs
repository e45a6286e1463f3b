//! The native cost of the seam: cpupri generic over [`Native`] memory, compared with two copies
//! written by hand over the standard library's atomics, in one run: `cargo bench -p hitm-sched
//! --bench cpupri`.
//!
//! - *by hand* is the same algorithm: bitmaps that may be split over parts of the machine, in
//!   either encoding, both chosen at run time. It differs from ours only by the seam.
//! - *whole* can only have one bitmap for the machine, as the baseline has. It differs from *by
//!   hand* by the cost of that choice.
//!
//! All have 480 CPUs, the baseline's placement, one bitmap per level, and the same orderings. Many
//! short rounds of them alternate, and the fastest round of each counts. One thread that only
//! computes cannot be faster than its minimum, and other users of the machine make it slower. A
//! ratio of 1.00 means that the seam is free.
//!
//! | operation | what is done |
//! |---|---|
//! | `set` | a CPU goes from normal to priority 99 and back: two `set`s |
//! | `set_same` | a CPU is set to the level that it has |
//! | `find_normal` | priority 99 looks for a CPU anywhere; level 0 has all |
//! | `find_pinned` | priority 99 may run on eight CPUs, which run priority 99; level 0 has all others |
//! | `find_none` | priority 99 looks for a CPU; all run priority 99 |
//!
//! **Limits.** It does not show contention, as one thread runs. The simulated machine shows the
//! cost of contention. It does not show small differences of the searches either. Their loops have
//! a few instructions per level, and the address that the linker gives a loop changes its time by a
//! quarter. `set` is steady.
#![allow(missing_docs, reason = "a benchmark is its own documentation")]

use std::hint::black_box;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use hitm_memory::{CpuMask, CpuSet, Encoding, Native};
use hitm_sched::Prio;
use hitm_sched::internals::{Cpupri, CpupriForm, Level, PACKED, Search};
use hitm_topology::{CpuId, Topology};

const CPUS: usize = 480;
const WORDS: usize = CPUS.div_ceil(u64::BITS as usize);
/// The most urgent priority.
const URGENT: Prio = Prio::from_rt_priority(99);

/// The operations of all subjects.
trait Subject {
    fn new(topology: &Topology, allowed: &CpuSet) -> Self;
    fn set(&self, cpu: CpuId, prio: Prio);
    fn find(&self, prio: Prio) -> Option<CpuSet>;
}

/// Our cpupri.
struct Generic {
    cpupri: Cpupri<Native>,
    allowed: CpuMask<Native>,
    active: CpuMask<Native>,
}

impl Subject for Generic {
    fn new(topology: &Topology, allowed: &CpuSet) -> Self {
        Self {
            cpupri: Cpupri::new(topology, &PACKED, CpupriForm::WHOLE, Level::COUNT),
            allowed: CpuMask::new("allowed", None, topology, allowed),
            active: CpuMask::new("active", None, topology, &topology.cpu_ids().collect()),
        }
    }

    #[inline(never)]
    fn set(&self, cpu: CpuId, prio: Prio) {
        self.cpupri.set(cpu, Some(prio));
    }

    #[inline(never)]
    fn find(&self, prio: Prio) -> Option<CpuSet> {
        let search = Search { prio, allowed: &self.allowed, here: CpuId(0) };
        self.cpupri.find(&search, &self.active)
    }
}

/// A level of the copy: four per line.
#[repr(C)]
struct Vector {
    count: AtomicI32,
    mask: AtomicU64,
}

/// A copy without the seam's words, locks and placement. A pointer is an index, as in ours.
struct Copied<B> {
    pri_to_cpu: Box<[Vector; Level::COUNT]>,
    cpu_to_pri: Box<[AtomicI32]>,
    masks: B,
    allowed: Box<[AtomicU64]>,
    active: Box<[AtomicU64]>,
}

type ByHand = Copied<SplitMasks>;
type Whole = Copied<WholeMasks>;

/// The bitmaps of a copy.
trait Masks {
    fn new(topology: &Topology) -> Self;
    fn word_of(&self, row: usize, cpu: CpuId) -> &AtomicU64;
    fn intersects(&self, row: usize, allowed: &[AtomicU64], here: CpuId) -> bool;
    fn word(&self, row: usize, index: usize) -> u64;
}

/// One bitmap per level.
struct WholeMasks(Box<[AtomicU64]>);

impl Masks for WholeMasks {
    fn new(_: &Topology) -> Self {
        Self((0..Level::COUNT * WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn word_of(&self, row: usize, cpu: CpuId) -> &AtomicU64 {
        &self.0[row + cpu.index() / 64]
    }

    #[inline]
    fn intersects(&self, row: usize, allowed: &[AtomicU64], _: CpuId) -> bool {
        let words = &self.0[row..row + WORDS];
        let both = |index: usize| allowed[index].load(Ordering::Relaxed) & words[index].load(Ordering::Acquire);
        (0..WORDS).any(|index| both(index) != 0)
    }

    #[inline]
    fn word(&self, row: usize, index: usize) -> u64 {
        self.0[row + index].load(Ordering::Acquire)
    }
}

/// As [`hitm_memory::ScopedBitmaps`].
struct SplitMasks {
    parts: Box<[Box<[AtomicU64]>]>,
    pointers: Option<Box<[AtomicU64]>>,
    part_of: Box<[u32]>,
    members: Box<[CpuSet]>,
    encoding: Encoding,
    words: usize,
}

impl SplitMasks {
    #[inline]
    fn part(&self, row: usize, part: usize) -> &[AtomicU64] {
        let first = match &self.pointers {
            None => row,
            Some(pointers) => pointers[row + part].load(Ordering::Relaxed) as usize,
        };
        &self.parts[part][first..]
    }

    #[inline]
    fn bits_of_machine(&self, index: usize) -> u64 {
        let bits = self.part_of.len().saturating_sub(index * 64);
        if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
    }
}

impl Masks for SplitMasks {
    fn new(topology: &Topology) -> Self {
        let words = topology.cpus().div_ceil(64);
        // Chosen at run time: the compiler must not know that there is one part.
        let (parts, encoding) = black_box((1, Encoding::Zeros));
        let part = |_| (0..Level::COUNT * words).map(|_| AtomicU64::new(0)).collect();
        Self {
            parts: (0..parts).map(part).collect(),
            pointers: (parts > 1).then(|| (0..Level::COUNT * parts).map(|_| AtomicU64::new(0)).collect()),
            part_of: topology.cpu_ids().map(|_| 0).collect(),
            members: (0..parts).map(|_| topology.cpu_ids().collect()).collect(),
            encoding,
            words,
        }
    }

    #[inline]
    fn word_of(&self, row: usize, cpu: CpuId) -> &AtomicU64 {
        &self.part(row, self.part_of[cpu.index()] as usize)[cpu.index() / 64]
    }

    #[inline]
    fn intersects(&self, row: usize, allowed: &[AtomicU64], here: CpuId) -> bool {
        let parts = self.parts.len();
        let first_part = self.part_of[here.index()] as usize;
        for step in 0..parts {
            let part = (first_part + step) % parts;
            let words = self.part(row, part);
            for index in 0..self.words {
                let foreign = match self.encoding {
                    Encoding::Zeros => u64::MAX,
                    Encoding::ForeignOnes => self.members[part].word(index),
                };
                if allowed[index].load(Ordering::Relaxed) & words[index].load(Ordering::Acquire) & foreign != 0 {
                    return true;
                }
            }
        }
        false
    }

    #[inline]
    fn word(&self, row: usize, index: usize) -> u64 {
        let mut word = match self.encoding {
            Encoding::Zeros => 0,
            Encoding::ForeignOnes => u64::MAX,
        };
        for part in 0..self.parts.len() {
            let bits = self.part(row, part)[index].load(Ordering::Acquire);
            match self.encoding {
                Encoding::Zeros => word |= bits,
                Encoding::ForeignOnes => word &= bits,
            }
        }
        word & self.bits_of_machine(index)
    }
}

impl<B: Masks> Subject for Copied<B> {
    fn new(topology: &Topology, allowed: &CpuSet) -> Self {
        let active: CpuSet = topology.cpu_ids().collect();
        let vector = |level| Vector { count: AtomicI32::new(0), mask: AtomicU64::new((level * WORDS) as u64) };
        Self {
            pri_to_cpu: Box::new(std::array::from_fn(vector)),
            cpu_to_pri: (0..CPUS).map(|_| AtomicI32::new(-1)).collect(),
            masks: B::new(topology),
            allowed: (0..WORDS).map(|word| AtomicU64::new(allowed.word(word))).collect(),
            active: (0..WORDS).map(|word| AtomicU64::new(active.word(word))).collect(),
        }
    }

    // The orderings and their reasons are those of `hitm_sched::cpupri`.
    #[inline(never)]
    fn set(&self, cpu: CpuId, prio: Prio) {
        let new = prio.level().0 as i32;
        let own = &self.cpu_to_pri[cpu.index()];
        let old = own.load(Ordering::Relaxed);
        if new == old {
            return;
        }
        let bit = 1 << (cpu.index() % 64);
        let vector = &self.pri_to_cpu[new as usize];
        let row = vector.mask.load(Ordering::Relaxed) as usize;
        self.masks.word_of(row, cpu).fetch_or(bit, Ordering::Relaxed);
        vector.count.fetch_add(1, Ordering::Release);
        if old >= 0 {
            let vector = &self.pri_to_cpu[old as usize];
            vector.count.fetch_sub(1, Ordering::Release);
            let row = vector.mask.load(Ordering::Relaxed) as usize;
            self.masks.word_of(row, cpu).fetch_and(!bit, Ordering::Release);
        }
        own.store(new, Ordering::Relaxed);
    }

    #[inline(never)]
    fn find(&self, prio: Prio) -> Option<CpuSet> {
        for level in 0..prio.level().index() {
            let vector = &self.pri_to_cpu[level];
            if vector.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let row = vector.mask.load(Ordering::Relaxed) as usize;
            if !self.masks.intersects(row, &self.allowed, CpuId(0)) {
                continue;
            }
            let mut found = CpuSet::new();
            for index in 0..WORDS {
                found.set_word(index, self.masks.word(row, index) & self.allowed[index].load(Ordering::Relaxed));
            }
            for word in 0..found.words() {
                found.set_word(word, found.word(word) & self.active[word].load(Ordering::Relaxed));
            }
            if !found.is_empty() {
                return Some(found);
            }
        }
        None
    }
}

/// An operation: the allowed CPUs, the CPUs that run priority 99 before it, and the action.
struct Operation {
    name: &'static str,
    allowed: std::ops::Range<u32>,
    urgent: std::ops::Range<u32>,
    does: Does,
}

#[derive(Clone, Copy)]
enum Does {
    Set,
    SetSame,
    Find,
}

const ALL: u32 = CPUS as u32;

const OPERATIONS: [Operation; 5] = [
    Operation { name: "set", allowed: 0..ALL, urgent: 0..0, does: Does::Set },
    Operation { name: "set_same", allowed: 0..ALL, urgent: 0..0, does: Does::SetSame },
    Operation { name: "find_normal", allowed: 0..ALL, urgent: 0..0, does: Does::Find },
    Operation { name: "find_pinned", allowed: 200..208, urgent: 200..208, does: Does::Find },
    Operation { name: "find_none", allowed: 0..ALL, urgent: 0..ALL, does: Does::Find },
];

impl Operation {
    fn prepare<S: Subject>(&self, topology: &Topology) -> S {
        let subject = S::new(topology, &self.allowed.clone().map(CpuId).collect());
        for cpu in topology.cpu_ids() {
            subject.set(cpu, if self.urgent.contains(&cpu.0) { URGENT } else { Prio::NONE });
        }
        subject
    }

    /// Returns the nanoseconds per operation.
    fn time<S: Subject>(&self, subject: &S, times: u32) -> f64 {
        let start = Instant::now();
        for index in 0..times {
            // The compiler must not know these values, as in a scheduler.
            let (cpu, normal, urgent) = (CpuId(black_box(index % ALL)), black_box(Prio::NONE), black_box(URGENT));
            match self.does {
                Does::Set => {
                    subject.set(cpu, urgent);
                    subject.set(cpu, normal);
                }
                Does::SetSame => subject.set(cpu, normal),
                Does::Find => drop(black_box(subject.find(urgent))),
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
    }
}

fn main() {
    // Cargo passes `--bench` to measure. `cargo test` does not, and then everything runs with tiny
    // sizes.
    let (rounds, times) =
        if std::env::args().any(|argument| argument == "--bench") { (1_001, 4_000) } else { (1, 500) };
    let topology = hitm_topology::parse("pack:2 l3:3 core:40 pu:2").expect("a machine");
    assert_eq!(topology.cpus(), CPUS);
    println!("cpupri, {CPUS} CPUs, {rounds} rounds of {times}; measured, this machine, this run");
    println!("{:<14} {:>14} {:>14} {:>8} {:>14}", "operation", "generic (ns)", "by hand (ns)", "ratio", "whole (ns)");
    for operation in &OPERATIONS {
        let ours: Generic = operation.prepare(&topology);
        let copy: ByHand = operation.prepare(&topology);
        let whole: Whole = operation.prepare(&topology);
        let found = |set: Option<CpuSet>| set.map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(found(ours.find(URGENT)), found(copy.find(URGENT)), "{}: the copy differs", operation.name);
        assert_eq!(found(ours.find(URGENT)), found(whole.find(URGENT)), "{}: the whole copy differs", operation.name);
        let mut nanos = [f64::INFINITY; 3];
        for _ in 0..rounds {
            let round = [operation.time(&ours, times), operation.time(&copy, times), operation.time(&whole, times)];
            nanos = std::array::from_fn(|subject| nanos[subject].min(round[subject]));
        }
        let [generic, by_hand, whole] = nanos;
        let ratio = generic / by_hand;
        println!("{:<14} {generic:>14.1} {by_hand:>14.1} {ratio:>8.2} {whole:>14.1}", operation.name);
    }
}
