//! `cid-bursts`: pinned threads wake one after the other, and each increments the 16 KiB of memory
//! that belong to its index.
//!
//! **Origin.** Desnoyers, LKML 2024-10-09: librseq's `basic_percpu_benchmark` of August 2024 on 2 x
//! EPYC 9654. Each thread is pinned to the next CPU of a list. All threads wait until all of them
//! run. Places are drawn in random order. The thread at place k sleeps for k delays and passes
//! 20,000 times over its area. Then it does the following five times: it reads its index,
//! increments each byte of the area once (this burst is measured), and sleeps for as many delays as
//! there are threads. No two threads are therefore awake at the same time, and a thread's bursts
//! are a whole round apart.
//!
//! **Index.** The CPU number or the concurrency id. Areas are as in librseq: each index has its own
//! memory, which is allocated at the first touch.
//!
//! **Metric.** The mean time of a burst over all threads and all five bursts. The first burst
//! directly follows the warm-up, so its lines are cached.
//!
//! **What is left out.** At the end, the original's threads wait for each other actively; here they
//! end. No burst happens after the first thread gets there. librseq's memory is a private copy of a
//! block of initial values: its pages are read-faulted and then copied. Both faults are charged at
//! once, before the burst's first access ([`Mapping::PrivateFile`]).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hitm::{CpuSet, Handle, Priority, SpawnOptions, Tenant};
use hitm_memory::{AtomicWord, Field, Mapping, Placed, PlacedSlice, PlainWord, Platform, Span, described};
use hitm_topology::CpuId;

use crate::bursts::Bursts;

/// The bytes per area.
pub const AREA: usize = 16_384;

/// The measured bursts per thread.
pub const BURSTS: usize = 5;

/// The warm-up passes before the first burst.
pub const WARM_UP_PASSES: u64 = 20_000;

/// The kind of index that selects an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// The CPU number.
    Cpu,
    /// The concurrency id.
    Id,
}

/// How a pass over an area is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// One byte in every `stride` bytes is incremented.
    pub stride: usize,
    /// The number of warm-up passes that are executed, at least two. Each of the remaining passes
    /// is charged the time of the last but one.
    pub carried_out: u64,
}

impl Pass {
    /// Every byte and every pass: for a real machine.
    pub const WHOLE: Self = Self { stride: 1, carried_out: WARM_UP_PASSES };
    /// One byte per line, and three passes: for a simulated machine. There, a cached line costs a
    /// load and a store, which is also the cost of a line's 64 bytes with vector instructions.
    pub const BY_LINE: Self = Self { stride: 64, carried_out: 3 };
}

/// The configuration of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The CPUs; each has one thread.
    pub cpus: Vec<CpuId>,
    /// The delay between two threads.
    pub delay: Span,
    /// The kind of index that selects an area.
    pub index: Index,
    /// How a pass is executed.
    pub pass: Pass,
    /// The random seed for the order.
    pub seed: u64,
}

impl Config {
    /// Returns the time that a thread waits between two bursts.
    #[must_use]
    pub fn period(&self) -> Span {
        self.delay * self.cpus.len() as u64
    }

    /// Returns the duration of a run without the warm-up.
    #[must_use]
    pub fn duration(&self) -> Span {
        self.period() * (BURSTS as u64 + 1)
    }

    /// Returns the thread at each place of the order.
    fn order(&self) -> Vec<usize> {
        let threads = self.cpus.len();
        let mut random = Bursts::new(self.seed, 0, 1.0);
        let mut order: Vec<usize> = (0..threads).collect();
        // As in the original; this shuffle does not make all orders equally likely.
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
    /// The number of the burst among the thread's bursts.
    pub number: usize,
    /// The index of its area.
    pub index: u32,
    /// Whether the area's memory was allocated in this burst.
    pub is_first_touch: bool,
    /// The length of the burst.
    pub span: Span,
}

described! {
    /// The counter for which the threads wait at the start.
    struct RendezvousWords<M: Memory> as "rendezvous" {
        /// The number of threads that run. Each thread writes it once.
        arrived: M::Atomic<u32>,
    }
}

/// The areas, by index.
struct Areas<P: Platform> {
    areas: Vec<PlacedSlice<P, P::Plain<u8>>>,
    /// Whether an area was touched. Only the thread that has the index reads it.
    touched: Vec<Mutex<bool>>,
}

impl<P: Platform> Areas<P> {
    fn new(count: usize) -> Self {
        let fields =
            || vec![Field { count: AREA, ..Field::word("byte", 0, 1, "incremented by the owner of the index") }];
        let area = |index| PlacedSlice::new("area", Some(index), None, AREA, &fields, |_| P::Plain::new(0));
        Self { areas: (0..count).map(area).collect(), touched: (0..count).map(|_| Mutex::new(false)).collect() }
    }

    /// Increments the bytes of area `index`; returns whether this was the first touch.
    fn pass(&self, index: u32, stride: usize) -> bool {
        let area = &self.areas[index as usize];
        let is_first = {
            P::settle();
            let mut touched = self.touched[index as usize].lock().unwrap_or_else(PoisonError::into_inner);
            !std::mem::replace(&mut *touched, true)
        };
        if is_first {
            P::first_touch(area, Mapping::PrivateFile);
        }
        for byte in area.iter().step_by(stride) {
            byte.set(byte.get().wrapping_add(1));
        }
        is_first
    }
}

/// State that the threads of a run share.
struct Crew<P: Platform> {
    config: Config,
    areas: Areas<P>,
    rendezvous: Placed<P, RendezvousWords<P>>,
    log: Mutex<Vec<Burst>>,
}

/// Threads are real-time tasks; the priority is irrelevant, since each thread has its own CPU.
const PRIORITY: Priority = Priority::fifo(50);

/// The threads, from their start to their end.
#[derive(Clone, Debug, Default)]
pub struct CidBursts(Arc<Mutex<Option<Vec<Burst>>>>);

impl CidBursts {
    /// Starts a task that runs the threads to their ends and then shuts the runtime down.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let (own, ended) = (runtime.clone(), Self::default());
        let slot = ended.clone();
        drop(runtime.spawn((), async move {
            let bursts = run(&own, config).await;
            *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bursts);
            own.shutdown();
        }));
        ended
    }

    /// Returns all bursts, in the order in which they ended; `None` until the last thread has
    /// ended.
    #[must_use]
    pub fn ended(&self) -> Option<Vec<Burst>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs the threads to their ends. Returns all bursts, in the order in which they ended.
///
/// # Panics
/// When there are no threads, when a CPU is not on the machine, or when a thread panics.
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
        tenant: Some(tenant.clone()),
        ..SpawnOptions::default()
    }
}

/// Runs the thread at place `place`, on `cpu`.
async fn live<P: Platform>(runtime: &Handle<P>, crew: &Crew<P>, place: usize, cpu: CpuId) {
    /// The interval at which a thread checks whether the other threads have arrived.
    const LOOK: Span = Span::from_micros(20);
    let Config { delay, pass, .. } = crew.config;
    let arrived = &crew.rendezvous.arrived;
    // Relaxed, as below: the counter publishes nothing.
    arrived.fetch_add(1, Ordering::Relaxed);
    // Relaxed: as above.
    while arrived.load(Ordering::Relaxed) < crew.config.cpus.len() as u32 {
        runtime.compute(LOOK).await;
    }
    runtime.sleep(delay * place as u64).await;
    let mut last = Span::ZERO;
    for passes_left in (0..pass.carried_out).rev() {
        if passes_left == 0 {
            // This is before the last pass: events in between, such as a tick, may evict lines, and
            // every pass brings them back.
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
