//! `context1`: pairs of tasks that pass a number back and forth over two pipes.
//!
//! **Origin.** UnixBench 5's "Pipe-based Context Switching", as in Deng Pan, LKML 2023-08-14:
//! several pairs run side by side in one session, which the kernel's autogroups make one group. A
//! parent writes 8 bytes to one pipe and reads 8 bytes from the other; its child does the reverse.
//! The parent counts.
//!
//! **Metric.** Loops per second, summed over all pairs. A loop has two writes, two reads and two
//! wakeups.
//!
//! **Work.** [`Config::work`] is the time that the two ends of a loop take beside calls, wakeups,
//! switches and pipes. The two ends share it equally. No publication states it. Lengths are drawn
//! with a spread.
//!
//! **What is left out.** Processes, and with them page tables; the start-up of the copies, and the
//! ten seconds that each copy runs. The check that the received number is the expected one is left
//! out: a message's place in the pipe identifies it.

use std::sync::Arc;

use hitm::{Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{Platform, Span};

use crate::bursts::{Burst, Bursts};
use crate::hackbench::pipe::Pipe;
use crate::meter::{BATCHES, Meter, Window};
use crate::nested::nested;

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The number of pairs.
    pub pairs: usize,
    /// The depth of the group of all tasks: 0 for no group, 1 for a group, 2 for a group in a
    /// group.
    pub depth: usize,
    /// The work per loop beside calls, wakeups and pipes.
    pub work: Span,
    /// The random seed for lengths.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

/// The bytes per message.
const BYTES: usize = size_of::<u64>();

/// The spread of lengths divided by their mean: an assumption.
const SPREAD: f64 = 0.5;

/// All tasks are fair tasks of nice 0; the task that ends the run is more urgent.
const PRIORITY: Priority = Priority::fair(0);
const ENDS: Priority = Priority::fifo(99);

/// The names of the tasks' roles.
pub const ROLES: [&str; 2] = ["parent", "child"];

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

/// A running workload.
#[derive(Debug)]
pub struct Context1 {
    meter: Arc<Meter>,
}

/// One task of a pair.
struct End<P: Platform> {
    runtime: Handle<P>,
    pipes: Arc<[Pipe<P>; 2]>,
    lengths: Bursts,
    work: Option<Burst>,
}

impl<P: Platform> End<P> {
    async fn work(&mut self) {
        match self.work {
            Some(work) => self.runtime.compute(self.lengths.draw(work)).await,
            // A task without work can be preempted here.
            None => self.runtime.checkpoint().await,
        }
    }

    async fn begin(mut self, meter: Arc<Meter>) {
        loop {
            self.work().await;
            self.pipes[0].write(BYTES).await;
            self.pipes[1].read(BYTES).await;
            meter.add(&self.runtime, 1);
        }
    }

    async fn answer(mut self) {
        loop {
            self.pipes[0].read(BYTES).await;
            self.work().await;
            self.pipes[1].write(BYTES).await;
        }
    }
}

impl Context1 {
    /// Starts all pairs. They run until the runtime shuts down at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let meter = Arc::new(Meter::new(config.window));
        config.window.open(runtime, ENDS);
        let half = config.work.as_nanos_f64() / 2e3;
        let work = (half > 0.0).then_some(Burst { mean_micros: half, spread: SPREAD });
        let group = nested(runtime, "context1", config.depth);
        for pair in 0..config.pairs {
            let pipes = Arc::new([2 * pair, 2 * pair + 1].map(|index| Pipe::new(runtime, index)));
            let end = |end: usize| End {
                runtime: runtime.clone(),
                pipes: pipes.clone(),
                lengths: Bursts::new(config.seed, (2 * pair + end) as u64, 1.0),
                work,
            };
            let options = |role| SpawnOptions {
                priority: PRIORITY,
                role: Some(Role(role)),
                group: group.clone(),
                ..SpawnOptions::default()
            };
            runtime.spawn(options(1), end(1).answer());
            runtime.spawn(options(0), end(0).begin(meter.clone()));
        }
        Self { meter }
    }

    /// Returns the loops per second of all pairs, per batch.
    #[must_use]
    pub fn loops_per_second(&self) -> [f64; BATCHES] {
        self.meter.rates()
    }
}
