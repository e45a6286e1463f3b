//! A barrier of a mutex and a condition variable, as the standard library's.

use std::fmt;
use std::sync::PoisonError;

use crate::condvar::Condvar;
use crate::mutex::Mutex;

/// The standard library's, which the machine sees.
pub struct Barrier {
    state: Mutex<State>,
    all_are_here: Condvar,
    threads: usize,
}

struct State {
    waiting: usize,
    round: usize,
}

/// Which thread is the leader.
#[derive(Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// See the standard library's.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// Makes one for this many threads.
    #[must_use]
    pub const fn new(threads: usize) -> Self {
        let state = Mutex::new(State { waiting: 0, round: 0 });
        Self { state, all_are_here: Condvar::new(), threads }
    }

    /// See the standard library's.
    #[inline(always)]
    pub fn wait(&self) -> BarrierWaitResult {
        // No code runs under the lock that could panic.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        if state.waiting >= self.threads {
            state.waiting = 0;
            state.round = state.round.wrapping_add(1);
            self.all_are_here.notify_all();
            return BarrierWaitResult(true);
        }
        let round = state.round;
        let waits = |state: &mut State| state.round == round;
        drop(self.all_are_here.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner));
        BarrierWaitResult(false)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}
