//! State that the tasks of a run share, and their actions on each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as HostMutex, MutexGuard as HostGuard, PoisonError};

use hitm::sync::{Barrier, Futex, Mutex, PiMutex, Queue};
use hitm::{Handle, JoinError, JoinHandle};
use hitm_machine::Random;
use hitm_memory::{AtomicWord, Platform, Span, Time};
use hitm_sched::TaskId;

use crate::counted::{Counted, Place};
use crate::fair::Groups;
use crate::ledger::{Books, Check, Doing, Ledger};
use crate::plan::{MUTEXES, PARTIES, Plan, QUEUES, ROOM, STRETCH};
use crate::tally::Fault;
use crate::tenants::Tenants;

/// The signal that all tasks read between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Signal {
    /// Tasks go on.
    Go,
    /// Tasks rest asleep.
    Sleep,
    /// Tasks rest while computing.
    Hold,
    /// Tasks end.
    End,
}

/// The message of a planned panic.
pub(crate) struct Planned;

/// A reachable task: its number in the ledger, and its handle.
pub(crate) type Reached<P> = Arc<(u32, JoinHandle<P, u32>)>;

pub(crate) struct World<P: Platform> {
    pub(crate) handle: Handle<P>,
    pub(crate) sched: Arc<Counted<P>>,
    pub(crate) plan: Plan,
    pub(crate) ledger: Ledger,
    pub(crate) mutexes: [Mutex<P, u64>; MUTEXES],
    pub(crate) pi_mutexes: [PiMutex<P, u64>; MUTEXES],
    pub(crate) queues: [Queue<P, u32>; QUEUES],
    pub(crate) barrier: Barrier<P>,
    pub(crate) tenants: Tenants,
    pub(crate) groups: Groups,
    signal: Futex<P>,
    reachable: HostMutex<Vec<Reached<P>>>,
    faults: [AtomicU64; Fault::COUNT],
    /// The times that a task at rest had a lent priority, and that it then waited for a mutex
    /// itself.
    pub(crate) lent: AtomicU64,
    pub(crate) chains: AtomicU64,
    /// The locks that were refused as deadlocks, and the owners that learned of a death.
    pub(crate) deadlocks: AtomicU64,
    pub(crate) deaths_told: AtomicU64,
}

/// Relaxed: one host thread runs a machine.
const HOST: Ordering = Ordering::Relaxed;

/// A wait that the ledger records; dropping this ends it.
pub(crate) struct Wait<'a, P: Platform> {
    world: &'a World<P>,
    serial: u32,
}

impl<P: Platform> Drop for Wait<'_, P> {
    fn drop(&mut self) {
        self.world.note(self.serial, Doing::Runs, Time::NEVER);
    }
}

impl<P: Platform> World<P> {
    pub(crate) fn new(handle: Handle<P>, sched: Arc<Counted<P>>, plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            sched,
            ledger: Ledger::default(),
            mutexes: std::array::from_fn(|_| Mutex::new(&handle, 0)),
            pi_mutexes: std::array::from_fn(|_| PiMutex::new(&handle, 0)),
            queues: std::array::from_fn(|_| Queue::new(&handle, ROOM)),
            barrier: Barrier::new(&handle, PARTIES),
            tenants: Tenants::new(&handle, plan.tenants, plan.cpus),
            groups: Groups::new(&handle, plan.groups),
            signal: Futex::new(&handle, Signal::Go as u32),
            reachable: HostMutex::default(),
            faults: std::array::from_fn(|_| AtomicU64::new(0)),
            lent: AtomicU64::new(0),
            chains: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            deaths_told: AtomicU64::new(0),
            plan,
            handle,
        })
    }

    /// Locks the ledger as it is at the caller's time.
    pub(crate) fn books(&self) -> HostGuard<'_, Books> {
        P::settle();
        self.ledger.books()
    }

    /// Records a task's activity, which counts as an action.
    pub(crate) fn note(&self, serial: u32, doing: Doing, until: Time) {
        let mut books = self.books();
        let entry = books.entry(serial);
        (entry.doing, entry.until) = (doing, until);
        books.stirred = books.stirred.max(P::now());
    }

    /// Records that a task waits until the result is dropped.
    pub(crate) fn wait(&self, serial: u32, doing: Doing, patience: Option<Span>) -> Wait<'_, P> {
        self.note(serial, doing, patience.map_or(Time::NEVER, |patience| self.handle.now() + patience));
        Wait { world: self, serial }
    }

    pub(crate) fn came(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, HOST);
    }

    /// Counts a fault.
    pub(crate) fn count(&self, fault: Fault) -> u64 {
        self.faults[fault as usize].load(HOST)
    }

    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, HOST);
    }

    /// Returns whether a task waits in a queue of the scheduler, as far as known.
    pub(crate) fn is_queued(&self, task: TaskId) -> bool {
        P::settle();
        self.sched.place(task) == Some(Place::Queued)
    }

    // ---- rest ----

    /// Returns the signal to all tasks.
    pub(crate) fn signal(&self) -> u32 {
        // Acquire: pairs with the Release in `set_signal`.
        self.signal.word().load(Ordering::Acquire)
    }

    /// Sets the signal to all tasks.
    pub(crate) fn set_signal(&self, signal: Signal) {
        // Release: pairs with the Acquire in `signal`.
        self.signal.word().store(signal as u32, Ordering::Release);
        self.signal.wake(usize::MAX);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.signal() == Signal::End as u32
    }

    /// Rests while the signal asks for it.
    pub(crate) async fn pause(&self, serial: u32) {
        let [sleep, hold] = [Signal::Sleep, Signal::Hold].map(|signal| signal as u32);
        loop {
            let signal = self.signal();
            if signal == sleep {
                let _rests = self.wait(serial, Doing::Rests, None);
                self.signal.wait(sleep).await;
            } else if signal == hold {
                let _holds = self.wait(serial, Doing::Holds, None);
                while self.signal() == hold {
                    self.handle.compute(STRETCH).await;
                }
            } else {
                return;
            }
        }
    }

    // ---- tasks that can be reached ----

    fn reachable(&self) -> HostGuard<'_, Vec<Reached<P>>> {
        P::settle();
        self.reachable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, serial: u32, task: JoinHandle<P, u32>) {
        self.reachable().push(Arc::new((serial, task)));
    }

    /// Removes and returns the ended tasks, which other tasks cannot reach any more.
    pub(crate) fn take_ended(&self) -> Vec<Reached<P>> {
        let ended: Vec<bool> = self.books().entries.iter().map(|entry| entry.drops > 0).collect();
        self.reachable().extract_if(.., |task| ended[task.0 as usize]).collect()
    }

    /// Returns one of the reachable tasks.
    pub(crate) fn any(&self, random: &mut Random) -> Option<Reached<P>> {
        let reachable = self.reachable();
        let count = reachable.len() as u64;
        (count > 0).then(|| reachable[random.below(count) as usize].clone())
    }

    /// Removes and returns one of the reachable tasks.
    pub(crate) fn take_any(&self, random: &mut Random) -> Option<Reached<P>> {
        let mut reachable = self.reachable();
        let count = reachable.len() as u64;
        (count > 0).then(|| reachable.swap_remove(random.below(count) as usize))
    }

    /// Removes an ended task from the reachable tasks; returns false when another task has done so.
    pub(crate) fn take(&self, task: &Reached<P>) -> bool {
        let mut reachable = self.reachable();
        let place = reachable.iter().position(|other| Arc::ptr_eq(other, task));
        let found = place.map(|place| reachable.swap_remove(place));
        drop(reachable);
        found.is_some()
    }

    /// Compares the result in an ended task's handle with the ledger.
    pub(crate) fn check_result(&self, serial: u32, result: Result<u32, JoinError>) {
        let wrong = {
            let mut books = self.books();
            let entry = books.entry(serial).clone();
            if entry.drops == 0 {
                books.find(Check::Joined, format!("task {serial} is joined before its future is dropped"));
            }
            match &result {
                Ok(value) if *value == serial && entry.done => None,
                Ok(value) => Some(format!("gives {value}, its end was reached: {}", entry.done)),
                Err(error) if error.is_aborted() => (!entry.aborted).then(|| "was aborted by nobody".to_owned()),
                Err(_) => (!entry.panics).then(|| "panicked without a plan".to_owned()),
            }
        };
        let mut wrong = wrong;
        if let Err(error) = result
            && error.is_panic()
            && let Ok(payload) = error.into_panic()
            && !payload.is::<Planned>()
        {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            wrong = Some(format!("panicked: {text}"));
        }
        if let Some(wrong) = wrong {
            self.ledger.find(Check::Joined, format!("task {serial} {wrong}"));
        }
    }
}
