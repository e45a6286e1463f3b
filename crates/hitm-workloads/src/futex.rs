//! `futex`: pairs of a task that waits on a word for a very short time and a task that wakes it.
//!
//! **Origin.** stress-ng's `futex` stressor, as its manual describes it: each instance has a waiter
//! and a waker, and the waiter's timeout is very small, to stress timeouts and polled waiting.
//!
//! **Metric.** Waits per second that a wake ended, summed over all instances. Waits that ended
//! by their timeout are counted apart.
//!
//! **Assumptions.** The manual states neither the timeout nor the waker's time between two wakes.
//! [`Config::TIMEOUT`] is 5 us; between two wakes the waker does nothing but the call itself.
//!
//! **What is left out.** Processes: the two tasks share their memory.

use std::sync::Arc;

use hitm::sync::Futex;
use hitm::{Elapsed, Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{Platform, Span};

use crate::meter::{BATCHES, Meter, Window};

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The number of instances; `None` for one per CPU.
    pub instances: Option<usize>,
    /// The longest time of a wait.
    pub timeout: Span,
    /// The random seed of the machine. The workload itself draws nothing.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

impl Config {
    /// The default timeout: an assumption.
    pub const TIMEOUT: Span = Span::from_micros(5);
}

/// All tasks are fair tasks of nice 0; the task that ends the run is more urgent.
const PRIORITY: Priority = Priority::fair(0);
const ENDS: Priority = Priority::fifo(99);

/// The names of the tasks' roles.
pub const ROLES: [&str; 2] = ["waiter", "waker"];

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

/// A running workload.
#[derive(Debug)]
pub struct FutexPairs {
    meter: Arc<Meter>,
    timed_out: Arc<Meter>,
}

/// Waits until a wake or until `timeout` has passed, again and again.
async fn wait<P: Platform>(runtime: Handle<P>, futex: Arc<Futex<P>>, timeout: Span, meters: [Arc<Meter>; 2]) {
    let [woken, timed_out] = meters;
    loop {
        let meter = match runtime.timeout(timeout, futex.wait(0)).await {
            Ok(()) => &woken,
            Err(Elapsed) => &timed_out,
        };
        meter.add(&runtime, 1);
        // A wait whose time has passed at once does not suspend the task, so it could not be
        // preempted.
        runtime.checkpoint().await;
    }
}

/// Wakes the waiter again and again, whether it waits or not.
async fn wake<P: Platform>(runtime: Handle<P>, futex: Arc<Futex<P>>) {
    loop {
        futex.wake(1);
        // Here the task can be preempted.
        runtime.checkpoint().await;
    }
}

impl FutexPairs {
    /// Starts all instances. They run until the runtime shuts down at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let [meter, timed_out] = [(); 2].map(|()| Arc::new(Meter::new(config.window)));
        config.window.open(runtime, ENDS);
        let instances = config.instances.unwrap_or_else(|| runtime.topology().cpus());
        for _ in 0..instances {
            let futex = Arc::new(Futex::new(runtime, 0));
            let options = |role| SpawnOptions { role: Some(Role(role)), ..PRIORITY.into() };
            let meters = [meter.clone(), timed_out.clone()];
            runtime.spawn(options(0), wait(runtime.clone(), futex.clone(), config.timeout, meters));
            runtime.spawn(options(1), wake(runtime.clone(), futex));
        }
        Self { meter, timed_out }
    }

    /// Returns the waits per second that a wake ended, per batch.
    #[must_use]
    pub fn wakes_per_second(&self) -> [f64; BATCHES] {
        self.meter.rates()
    }

    /// Returns the waits per second that ended by their timeout, per batch.
    #[must_use]
    pub fn timeouts_per_second(&self) -> [f64; BATCHES] {
        self.timed_out.rates()
    }
}
