//! `runtime`: the runtime's own operations, as many of them as there are CPUs.
//!
//! **Purpose.** Tasks that share nothing do one operation again and again. So what they wait for
//! are words of the runtime alone, and the rate per CPU shows how the runtime scales.
//!
//! **Metric.** Operations per second, summed over all CPUs. A round trip counts as one. A yield
//! counts if another task ran on the CPU since the task's last yield: that of a task that is alone
//! does nothing.
//!
//! **Assumptions.** The tasks may run on all CPUs, as a program's tasks do that sets nothing. There
//! are enough for each CPU; where they run is the scheduler's choice.
//!
//! **What is left out.** Words of the runtime that are not in the simulated memory:
//! `docs/runtime-words.md` lists them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm::sync::Queue;
use hitm::{Handle, JoinHandle, Priority};
use hitm_memory::{Platform, Span};

use crate::meter::{BATCHES, Meter, Window};

/// What the tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// One task per CPU spawns a task that does nothing, and joins it.
    Spawn,
    /// One pair per CPU: each task unparks the other one and parks.
    Wakeup,
    /// Four tasks per CPU yield to each other.
    Yield,
    /// One pair per CPU: a number goes back and forth through two queues of capacity one.
    PingPong,
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// What the tasks do.
    pub operation: Operation,
    /// Whether the tasks are fair ones, of nice 0. Otherwise they have the runtime's default
    /// priority.
    pub fair: bool,
    /// The random seed of the machine. The workload itself draws nothing.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

impl Config {
    /// Returns the number of tasks on `cpus` CPUs.
    #[must_use]
    pub fn tasks(&self, cpus: usize) -> usize {
        cpus * match self.operation {
            Operation::Spawn | Operation::Wakeup | Operation::PingPong => 2,
            Operation::Yield => YIELDING,
        }
    }

    fn priority(&self) -> Priority {
        if self.fair { Priority::fair(0) } else { Priority::default() }
    }
}

/// The tasks per CPU that yield to each other.
const YIELDING: usize = 4;

/// The task that ends the run is more urgent than all others.
const ENDS: Priority = Priority::fifo(99);

/// A number that is checked on its way back.
const SENT: u32 = 7;

/// A running workload.
#[derive(Debug)]
pub struct Operations {
    meter: Arc<Meter>,
}

async fn spawn<P: Platform>(runtime: Handle<P>, priority: Priority, meter: Arc<Meter>) {
    // An error is the end of the run.
    while runtime.spawn(priority, async {}).await.is_ok() {
        meter.add(&runtime, 1);
    }
}

async fn unpark<P: Platform>(runtime: Handle<P>, other: JoinHandle<P, ()>, meter: Arc<Meter>) {
    loop {
        other.unpark();
        runtime.park().await;
        meter.add(&runtime, 1);
    }
}

/// Answers the task that it gets.
async fn answer<P: Platform>(runtime: Handle<P>, asker: Arc<Queue<P, Arc<JoinHandle<P, ()>>>>) {
    let Some(asker) = asker.recv().await else { return };
    loop {
        runtime.park().await;
        asker.unpark();
    }
}

/// The task that ran last, by CPU. Like the meter these words are the workload's own: they are not
/// in the simulated memory and cost nothing there.
type Last = Arc<[AtomicUsize]>;

async fn yields<P: Platform>(runtime: Handle<P>, me: usize, last: Last, meter: Arc<Meter>) {
    loop {
        // Relaxed: only the CPU itself uses its word.
        let alone = last[P::current_cpu().index()].swap(me, Ordering::Relaxed) == me;
        meter.add(&runtime, u64::from(!alone));
        runtime.yield_now().await;
    }
}

/// Sends a number through the first queue and gets it back through the second one.
async fn ping<P: Platform>(runtime: Handle<P>, [there, back]: [Arc<Queue<P, u32>>; 2], meter: Arc<Meter>) {
    while there.send(SENT).await.is_ok() && back.recv().await == Some(SENT) {
        meter.add(&runtime, 1);
    }
}

async fn pong<P: Platform>([there, back]: [Arc<Queue<P, u32>>; 2]) {
    while let Some(number) = there.recv().await {
        if back.send(number).await.is_err() {
            return;
        }
    }
}

impl Operations {
    /// Starts all tasks. They run until the runtime shuts down at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let meter = Arc::new(Meter::new(config.window));
        config.window.open(runtime, ENDS);
        let priority = config.priority();
        let cpus = runtime.topology().cpus();
        let last: Last = (0..cpus).map(|_| AtomicUsize::new(0)).collect();
        for cpu in 0..cpus {
            let (handle, counts) = (runtime.clone(), meter.clone());
            match config.operation {
                Operation::Spawn => drop(runtime.spawn(priority, spawn(handle, priority, counts))),
                Operation::Wakeup => {
                    let asker = Arc::new(Queue::new(runtime, 1));
                    let answers = runtime.spawn(priority, answer(handle.clone(), asker.clone()));
                    let asks = Arc::new(runtime.spawn(priority, unpark(handle, answers, counts)));
                    runtime.spawn(priority, async move { drop(asker.send(asks).await) });
                }
                Operation::Yield => {
                    for index in 0..YIELDING {
                        let me = cpu * YIELDING + index + 1;
                        runtime.spawn(priority, yields(handle.clone(), me, last.clone(), counts.clone()));
                    }
                }
                Operation::PingPong => {
                    let queues = [(); 2].map(|()| Arc::new(Queue::new(runtime, 1)));
                    runtime.spawn(priority, pong(queues.clone()));
                    runtime.spawn(priority, ping(handle, queues, counts));
                }
            }
        }
        Self { meter }
    }

    /// Returns the operations per second, per batch.
    #[must_use]
    pub fn per_second(&self) -> [f64; BATCHES] {
        self.meter.rates()
    }
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Spawn, Self::Wakeup, Self::Yield, Self::PingPong];
}

/// The default measured window of a simulated run.
pub const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(500), measured: Span::from_micros(1_000) };
