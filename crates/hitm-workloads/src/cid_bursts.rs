//! `cid-bursts`: threads that wake one after the other, each on a CPU of its own, and increment the 16 KiB that belong to its index.
//!
//! **Origin.** Seed 003: librseq's `basic_percpu_benchmark` of August 2024 on 2 x EPYC 9654. A thread is pinned to the next CPU of a
//! list. All wait until all run. In an order that is drawn, the thread of place k sleeps for k times the delay, passes 20,000 times
//! over its area, and then five times: reads its index, and increments each of the area's bytes once, which is what is measured; sleeps
//! for as many delays as there are threads. So no two threads are awake at once, and a thread's bursts are that long apart.
//!
//! **Index.** The number of the CPU, or the concurrency id. Areas are as librseq's: memory of its own for each, which is given to the
//! index when it is touched first.
//!
//! **Metric.** The mean time of a burst, over all threads and all five. The first follows the warm-up at once: it finds what it needs.
//!
//! **What is left out.** At the end the original's threads wait for each other at work; here they end. No burst comes after the first of
//! them gets there. Librseq's memory is a private copy of a block of initial values, whose pages are read-faulted and then copied;
//! here a page is given once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hitm::{CpuSet, Handle, Priority, SpawnOptions, Tenant};
use hitm_memory::{AtomicWord, Field, Placed, PlacedSlice, PlainWord, Platform, Span, described};
use hitm_topology::CpuId;

use crate::bursts::Bursts;

/// Bytes of an area.
pub const AREA: usize = 16_384;

/// Measured bursts of a thread.
pub const BURSTS: usize = 5;

/// Passes before the first.
pub const WARM_UP_PASSES: u64 = 20_000;

/// What an area is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// The number of the CPU.
    Cpu,
    /// The concurrency id.
    Id,
}

/// How a pass over an area is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Every so many bytes one is incremented.
    pub stride: usize,
    /// So many passes of the warm-up are carried out, at least two; the others take as long as the last but one of them.
    pub carried_out: u64,
}

impl Pass {
    /// Every byte, every pass: for a machine.
    pub const WHOLE: Self = Self { stride: 1, carried_out: WARM_UP_PASSES };
    /// A byte a line, and three passes: for a simulated machine, where a line that is there takes a load and a store, which is what the
    /// 64 bytes of one take in vector instructions.
    pub const BY_LINE: Self = Self { stride: 64, carried_out: 3 };
}

/// What a run of the workload is.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// A thread for each of these.
    pub cpus: Vec<CpuId>,
    /// How far threads are apart.
    pub delay: Span,
    /// What areas are looked up by.
    pub index: Index,
    /// How a pass is carried out.
    pub pass: Pass,
    /// Seeds the order.
    pub seed: u64,
}

impl Config {
    /// How long a thread waits between two bursts.
    #[must_use]
    pub fn period(&self) -> Span {
        self.delay * self.cpus.len() as u64
    }

    /// How long the whole takes, without the warm-up.
    #[must_use]
    pub fn duration(&self) -> Span {
        self.period() * (BURSTS as u64 + 1)
    }

    /// The thread at each place of the order.
    fn order(&self) -> Vec<usize> {
        let threads = self.cpus.len();
        let mut random = Bursts::new(self.seed, 0, 1.0);
        let mut order: Vec<usize> = (0..threads).collect();
        // As the original does it, though not all orders are as likely then.
        for place in 0..threads {
            order.swap(place, random.below(threads as u64) as usize);
        }
        order
    }
}

/// One burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The thread's CPU.
    pub cpu: CpuId,
    /// Which of its bursts.
    pub number: usize,
    /// The index of its area.
    pub index: u32,
    /// Whether the area's memory was given in it.
    pub is_first_touch: bool,
    /// How long it took.
    pub span: Span,
}

described! {
    /// What the threads wait for at the start.
    struct RendezvousWords<M: Memory> as "rendezvous" {
        /// Threads that run. Written by each once.
        arrived: M::Atomic<u32>,
    }
}

/// The areas, by index.
struct Areas<P: Platform> {
    areas: Vec<PlacedSlice<P, P::Plain<u8>>>,
    /// Whether an area was touched. Only whoever has the index looks.
    touched: Vec<Mutex<bool>>,
}

impl<P: Platform> Areas<P> {
    fn new(count: usize) -> Self {
        let fields =
            || vec![Field { count: AREA, ..Field::word("byte", 0, 1, "incremented by whoever has the index") }];
        let area = |index| PlacedSlice::new("area", Some(index), None, AREA, &fields, |_| P::Plain::new(0));
        Self { areas: (0..count).map(area).collect(), touched: (0..count).map(|_| Mutex::new(false)).collect() }
    }

    /// Increments the bytes of area `index`; whether it was the first time.
    fn pass(&self, index: u32, stride: usize) -> bool {
        let area = &self.areas[index as usize];
        let is_first = {
            P::settle();
            let mut touched = self.touched[index as usize].lock().unwrap_or_else(PoisonError::into_inner);
            !std::mem::replace(&mut *touched, true)
        };
        if is_first {
            P::first_touch(area);
        }
        for byte in area.iter().step_by(stride) {
            byte.set(byte.get().wrapping_add(1));
        }
        is_first
    }
}

/// What the threads of a run have in common.
struct Crew<P: Platform> {
    config: Config,
    areas: Areas<P>,
    rendezvous: Placed<P, RendezvousWords<P>>,
    log: Mutex<Vec<Burst>>,
}

/// Threads are real-time tasks; which priority does not matter, since each has its CPU for itself.
const PRIORITY: Priority = Priority::fifo(50);

/// Runs the threads to their ends; all bursts, in the order in which they ended.
///
/// # Panics
/// When there is no thread, a CPU is not one of the machine's, or a thread panics.
pub async fn run<P: Platform>(runtime: &Handle<P>, config: Config) -> Vec<Burst> {
    let crew = Arc::new(Crew {
        areas: Areas::new(runtime.topology().cpus()),
        rendezvous: Placed::new(RendezvousWords { arrived: P::Atomic::new(0) }, None, None),
        log: Mutex::default(),
        config,
    });
    let tenant = runtime.tenant();
    let thread = |(place, thread): (usize, usize)| {
        let cpu = crew.config.cpus[thread];
        let (handle, crew) = (runtime.clone(), crew.clone());
        runtime.spawn(options(&tenant, cpu), async move { live(&handle, &crew, place, cpu).await })
    };
    let threads: Vec<_> = crew.config.order().into_iter().enumerate().map(thread).collect();
    for thread in threads {
        if let Err(error) = thread.await {
            panic!("a thread of the workload: {error}");
        }
    }
    std::mem::take(&mut *crew.log())
}

fn options(tenant: &Tenant, cpu: CpuId) -> SpawnOptions {
    SpawnOptions {
        priority: PRIORITY,
        cpus: Some(CpuSet::from_iter([cpu])),
        role: None,
        tenant: Some(tenant.clone()),
        group: None,
    }
}

/// The life of the thread at place `place`, which is `cpu`'s.
async fn live<P: Platform>(runtime: &Handle<P>, crew: &Crew<P>, place: usize, cpu: CpuId) {
    /// How often who waits for the others looks.
    const LOOK: Span = Span::from_micros(20);
    let Config { delay, pass, .. } = crew.config;
    let arrived = &crew.rendezvous.arrived;
    // Relaxed, as below: nothing is published by it.
    arrived.fetch_add(1, Ordering::Relaxed);
    // Relaxed: as above.
    while arrived.load(Ordering::Relaxed) < crew.config.cpus.len() as u32 {
        runtime.compute(LOOK).await;
    }
    runtime.sleep(delay * place as u64).await;
    let mut last = Span::ZERO;
    for passes_left in (0..pass.carried_out).rev() {
        if passes_left == 0 {
            // Before the last one: what comes between, a tick say, may have taken lines away, and every pass brings them back.
            runtime.compute(last * (WARM_UP_PASSES - pass.carried_out)).await;
        }
        let begin = runtime.now();
        crew.areas.pass(crew.index(runtime), pass.stride);
        last = runtime.now().since(begin);
        runtime.checkpoint().await;
    }
    for number in 0..BURSTS {
        let index = crew.index(runtime);
        let begin = runtime.now();
        let is_first_touch = crew.areas.pass(index, pass.stride);
        let span = runtime.now().since(begin);
        crew.log().push(Burst { cpu, number, index, is_first_touch, span });
        runtime.sleep(crew.config.period()).await;
    }
}

impl<P: Platform> Crew<P> {
    fn log(&self) -> MutexGuard<'_, Vec<Burst>> {
        P::settle();
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self, runtime: &Handle<P>) -> u32 {
        match self.config.index {
            Index::Cpu => P::current_cpu().0,
            Index::Id => runtime.concurrency_id().expect("a thread of a tenant has an id"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_seeds() {
        let cpus = (0..24).map(CpuId).collect();
        let config = |seed| Config {
            cpus: Vec::clone(&cpus),
            delay: Span::from_micros(10_000),
            index: Index::Id,
            pass: Pass::BY_LINE,
            seed,
        };
        let mut order = config(1).order();
        assert_eq!(order, config(1).order());
        assert_ne!(order, config(2).order());
        order.sort_unstable();
        assert!(order.into_iter().eq(0..24));
        assert_eq!(config(1).period(), Span::from_micros(240_000));
    }
}
