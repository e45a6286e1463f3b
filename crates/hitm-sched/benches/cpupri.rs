//! What the seam costs natively: cpupri generic over [`Native`] memory beside a copy of it written by hand over the standard
//! library's atomics, in one run: `cargo bench -p hitm-sched --bench cpupri`.
//!
//! Both have 480 CPUs, the baseline's placement, one bitmap a level, and the same orderings. Rounds of the two alternate, and the
//! median of the rounds' ratios is what counts; 1.00 means that the seam is free.
//!
//! | operation | what is done |
//! |---|---|
//! | `set` | a CPU goes from normal to priority 99 and back: two `set`s |
//! | `set_same` | a CPU is set to the level that it has |
//! | `find_normal` | priority 99 looks for a CPU anywhere; level 0 has all |
//! | `find_pinned` | priority 99 may run on eight CPUs, which run priority 99; level 0 has all others |
//! | `find_none` | priority 99 looks for a CPU; all run priority 99 |
//!
//! **What it does not show.** Contention: one thread runs. What that costs is the simulated machine's to say.
#![allow(missing_docs, reason = "a benchmark is its own documentation")]

use std::hint::black_box;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use hitm_memory::{CpuMask, CpuSet, Encoding, Native};
use hitm_sched::cpupri::{Cpupri, Search};
use hitm_sched::cpupri_vecs::Packed;
use hitm_sched::prio::{Level, Prio};
use hitm_topology::{CpuId, Scope, Topology};

const CPUS: usize = 480;
const WORDS: usize = CPUS.div_ceil(u64::BITS as usize);
/// The most urgent that a task can be.
const URGENT: Prio = Prio::from_rt_priority(99);

/// What both can do.
trait Subject {
    fn new(topology: &Topology, allowed: &CpuSet) -> Self;
    fn set(&self, cpu: CpuId, prio: Prio);
    fn find(&self) -> Option<CpuSet>;
}

/// Ours.
struct Generic {
    cpupri: Cpupri<Native>,
    vecs: Box<Packed<Native>>,
    allowed: CpuMask<Native>,
    active: CpuMask<Native>,
}

impl Subject for Generic {
    fn new(topology: &Topology, allowed: &CpuSet) -> Self {
        let (cpupri, vecs) = Cpupri::new(topology, Scope::Machine, Encoding::Zeros);
        Self {
            cpupri,
            vecs: Box::new(vecs),
            allowed: CpuMask::new("allowed", None, topology, allowed),
            active: CpuMask::new("active", None, topology, &topology.cpu_ids().collect()),
        }
    }

    #[inline(never)]
    fn set(&self, cpu: CpuId, prio: Prio) {
        self.cpupri.set(&*self.vecs, cpu, Some(prio));
    }

    #[inline(never)]
    fn find(&self) -> Option<CpuSet> {
        let search = Search { prio: URGENT, allowed: &self.allowed, here: CpuId(0) };
        self.cpupri.find(&*self.vecs, &search, &self.active)
    }
}

/// A level of the copy: four a line.
#[repr(C)]
struct Vector {
    count: AtomicI32,
    mask: AtomicU64,
}

/// The copy: no type parameter, no trait, no accessor. A pointer is an index, as in ours.
struct ByHand {
    pri_to_cpu: Box<[Vector; Level::COUNT]>,
    cpu_to_pri: Box<[AtomicI32]>,
    masks: Box<[AtomicU64]>,
    allowed: Box<[AtomicU64]>,
    active: Box<[AtomicU64]>,
}

impl Subject for ByHand {
    fn new(topology: &Topology, allowed: &CpuSet) -> Self {
        let active: CpuSet = topology.cpu_ids().collect();
        let vector = |level| Vector { count: AtomicI32::new(0), mask: AtomicU64::new((level * WORDS) as u64) };
        Self {
            pri_to_cpu: Box::new(std::array::from_fn(vector)),
            cpu_to_pri: (0..CPUS).map(|_| AtomicI32::new(-1)).collect(),
            masks: (0..Level::COUNT * WORDS).map(|_| AtomicU64::new(0)).collect(),
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
        let (word, bit) = (cpu.index() / 64, 1 << (cpu.index() % 64));
        let vector = &self.pri_to_cpu[new as usize];
        let row = vector.mask.load(Ordering::Relaxed) as usize;
        self.masks[row + word].fetch_or(bit, Ordering::Relaxed);
        vector.count.fetch_add(1, Ordering::Release);
        if old >= 0 {
            let vector = &self.pri_to_cpu[old as usize];
            vector.count.fetch_sub(1, Ordering::Release);
            let row = vector.mask.load(Ordering::Relaxed) as usize;
            self.masks[row + word].fetch_and(!bit, Ordering::Release);
        }
        own.store(new, Ordering::Relaxed);
    }

    #[inline(never)]
    fn find(&self) -> Option<CpuSet> {
        for vector in &self.pri_to_cpu[..URGENT.level().index()] {
            if vector.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let row = vector.mask.load(Ordering::Relaxed) as usize;
            let words = &self.masks[row..row + WORDS];
            let allowed = |word: usize| self.allowed[word].load(Ordering::Relaxed);
            if (0..WORDS).all(|word| allowed(word) & words[word].load(Ordering::Acquire) == 0) {
                continue;
            }
            let mut found = CpuSet::new();
            for word in 0..WORDS {
                found.set_word(word, words[word].load(Ordering::Acquire) & allowed(word));
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

/// An operation: which CPUs are allowed, which run priority 99 before it, and what is done.
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

    /// Nanoseconds of one.
    fn time<S: Subject>(&self, subject: &S, times: u32) -> f64 {
        let start = Instant::now();
        for index in 0..times {
            let cpu = CpuId(black_box(index % ALL));
            match self.does {
                Does::Set => {
                    subject.set(cpu, URGENT);
                    subject.set(cpu, Prio::NONE);
                }
                Does::SetSame => subject.set(cpu, Prio::NONE),
                Does::Find => drop(black_box(subject.find())),
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // Cargo says `--bench` when it measures; in `cargo test` it does not, and everything runs tiny.
    let (rounds, times) = if std::env::args().any(|argument| argument == "--bench") { (51, 50_000) } else { (1, 500) };
    let topology = hitm_topology::parse("pack:2 l3:3 core:40 pu:2").expect("a machine");
    assert_eq!(topology.cpus(), CPUS);
    println!("cpupri, {CPUS} CPUs, {rounds} rounds of {times}; measured, this machine, this run");
    println!("{:<14} {:>14} {:>14} {:>8}", "operation", "generic (ns)", "by hand (ns)", "ratio");
    for operation in &OPERATIONS {
        let ours: Generic = operation.prepare(&topology);
        let copy: ByHand = operation.prepare(&topology);
        let found = |set: Option<CpuSet>| set.map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(found(ours.find()), found(copy.find()), "{}: the copy does the same", operation.name);
        let (mut generic, mut by_hand, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (one, other) = (operation.time(&ours, times), operation.time(&copy, times));
            generic.push(one);
            by_hand.push(other);
            ratios.push(one / other);
        }
        let (generic, by_hand, ratio) = (median(&mut generic), median(&mut by_hand), median(&mut ratios));
        println!("{:<14} {generic:>14.1} {by_hand:>14.1} {ratio:>8.2}", operation.name);
    }
}
