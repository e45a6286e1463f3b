//! A barrier: all tasks arrive before any of them goes on.
//!
//! **Cancellation.** A task arrives when its wait has taken the barrier's mutex. An arrival is
//! final: the other tasks go on when the rest have arrived, even if the arrived task's wait was
//! dropped. A wait that is dropped earlier has not arrived.

use std::fmt;

use hitm_memory::Platform;

use crate::runtime::Handle;
use crate::sync::{Condvar, Mutex};

/// A reusable meeting point for a fixed number of tasks.
///
/// ```
/// use std::sync::Arc;
/// # use hitm::{NativeRuntime, sync::Barrier};
/// # let runtime = NativeRuntime::with_cpus(2).unwrap();
/// # runtime.run(|handle| async move {
/// let barrier = Arc::new(Barrier::new(&handle, 2));
/// let other = barrier.clone();
/// let task = handle.spawn((), async move { other.wait().await });
/// let led = barrier.wait().await;
/// assert_ne!(led, task.await.unwrap(), "one of the two was the last to arrive");
/// # }).unwrap();
/// ```
pub struct Barrier<P: Platform> {
    state: Mutex<P, State>,
    complete: Condvar<P>,
    parties: usize,
}

struct State {
    arrived: usize,
    round: u64,
}

impl<P: Platform> Barrier<P> {
    /// Makes a barrier for `parties` tasks.
    ///
    /// # Panics
    /// When `parties` is 0.
    #[must_use]
    pub fn new(runtime: &Handle<P>, parties: usize) -> Self {
        assert_ne!(parties, 0, "a barrier needs at least one party");
        let state = Mutex::new(runtime, State { arrived: 0, round: 0 });
        Self { state, complete: Condvar::new(runtime), parties }
    }

    /// Waits until all parties have arrived. Returns true for one party per round: the last to
    /// arrive.
    pub async fn wait(&self) -> bool {
        let mut state = self.state.lock().await;
        state.arrived += 1;
        if state.arrived == self.parties {
            state.arrived = 0;
            state.round += 1;
            self.complete.notify_all();
            return true;
        }
        let round = state.round;
        while state.round == round {
            state = self.complete.wait(state).await;
        }
        false
    }
}

impl<P: Platform> fmt::Debug for Barrier<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("parties", &self.parties).finish_non_exhaustive()
    }
}
