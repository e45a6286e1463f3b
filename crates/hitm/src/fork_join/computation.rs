//! A computation: the jobs of the joins and scopes that one task begins, and the workers that run
//! them.
//!
//! **Roles.** A *participant* is a worker that runs jobs of the computation now. It has a *seat*: a
//! deque, whose other end all participants steal from. The task that began is a participant for the
//! time of its outermost join. *Helpers* are tasks that were spawned for the computation, with the
//! options of the task that began. So the scheduler decides when and where they run, by the same
//! priority, group and workers, and a stolen job runs on behalf of a task with these.
//!
//! **Protocol.** (1) A participant that puts a job into its deque looks whether another
//! [helper](super::helpers) is wanted: if none searches and there may be more of them, it counts
//! one in that searches, and spawns it. (2) A helper that finds a job does not search while it runs
//! the job; before, it does as in (1), since there may be more jobs. (3) A helper that has found
//! nothing for [`PATIENCE`] counts itself out, (4) looks once more, and ends.
//!
//! **No lost jobs.** The thread that puts a job into its deque takes it out again itself, unless it
//! was stolen. So a helper that does not come costs time, never a result, and (1) needs no fence
//! between the deque and the answer: a helper that (4) has just missed the job is replaced at the
//! next job.

use std::cell::Cell;
use std::hint::spin_loop;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{park_timeout, yield_now};
use std::time::{Duration, Instant};

use crossbeam_deque::{Steal, Stealer, Worker};
use hitm_memory::Native;

use super::helpers::Helpers;
use super::job::{Job, Waiter};

/// How long a helper searches in vain before it ends: about what spawning it and waking a worker
/// costs, so that it loses no more time than it would have saved.
pub(super) const PATIENCE: Duration = Duration::from_micros(50);

/// A participant looks at its worker's interrupts once per so many jobs: a look may read the clock,
/// which takes longer than a small job.
const JOBS_PER_LOOK: u32 = 64;

/// A waiter looks so often in a row.
const SPINS: u32 = 64;
/// Until so many looks, it offers the thread's time to other threads in between.
const LOOKS_AWAKE: u32 = SPINS + 16;
/// Then it sleeps, and looks for jobs to steal once per so long. The end of its wait wakes it.
const SLEEP: Duration = Duration::from_micros(500);

/// What the participants do to the runtime. Tests do without one.
pub(super) trait Crew {
    /// Spawns a helper, which the computation has counted in.
    fn call_helper(&self);
    /// Handles the interrupts of the worker, and lets other workers have the tasks that wait here.
    fn look_around(&self);
}

/// A computation. It may serve several outermost joins of one task, one after the other.
#[derive(Debug)]
pub(super) struct Computation {
    pub(super) helpers: Helpers<Native>,
    /// By seat. The first `made` are set. Whoever steals reads them.
    stealers: Box<[OnceLock<Stealer<Job>>]>,
    made: AtomicUsize,
    free: Free,
}

/// Seats that no participant has. Their deques are empty. Written when a helper comes or goes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Free(Mutex<Vec<Seat>>);

/// A deque.
#[derive(Debug)]
struct Seat {
    index: usize,
    deque: Worker<Job>,
}

impl Computation {
    /// Makes a computation on `workers` workers, with up to `most_helpers` helpers.
    pub(super) fn new(workers: usize, most_helpers: u32) -> Self {
        Self {
            helpers: Helpers::new(most_helpers),
            stealers: (0..workers).map(|_| OnceLock::new()).collect(),
            made: AtomicUsize::new(0),
            free: Free::default(),
        }
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> usize {
        self.stealers.len()
    }

    fn free(&self) -> MutexGuard<'_, Vec<Seat>> {
        // The lock covers a move, so the list is right even if a thread panicked meanwhile.
        self.free.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sit(&self) -> Seat {
        if let Some(seat) = self.free().pop() {
            return seat;
        }
        let deque = Worker::new_lifo();
        // Relaxed: the `OnceLock` publishes the stealer; a number whose stealer is not there yet is
        // skipped.
        let index = self.made.fetch_add(1, Ordering::Relaxed);
        let place = self.stealers.get(index).expect("a worker has one seat at a time");
        place.set(deque.stealer()).expect("a seat is made once");
        Seat { index, deque }
    }

    fn steal(&self, but: usize, start: usize) -> Option<Job> {
        // Relaxed: as in `sit`.
        let made = self.made.load(Ordering::Relaxed);
        let (before, after) = self.stealers[..made].split_at(start % made.max(1));
        let is_other = |stealer: &&Stealer<Job>| !std::ptr::eq(*stealer, self.stealer(but));
        after.iter().chain(before).filter_map(OnceLock::get).filter(is_other).find_map(|stealer| {
            loop {
                match stealer.steal() {
                    Steal::Success(job) => return Some(job),
                    Steal::Empty => return None,
                    Steal::Retry => spin_loop(),
                }
            }
        })
    }

    fn stealer(&self, index: usize) -> &Stealer<Job> {
        self.stealers[index].get().expect("whoever sits has made it")
    }

    /// Searches for a job for a moment, and runs it. Returns whether there was one. A helper that
    /// is counted in calls.
    pub(super) fn help(&self, crew: &dyn Crew) -> bool {
        participate(self, crew, |participant| {
            let Some(job) = (0..SPINS).find_map(|_| {
                spin_loop();
                participant.steal()
            }) else {
                return false;
            };
            self.helpers.find();
            participant.call_if_wanted();
            job.execute();
            // Jobs of scopes, which the job has left.
            while let Some(job) = participant.pop() {
                job.execute();
            }
            self.helpers.search();
            true
        })
    }

    /// Returns whether there is a job to steal.
    pub(super) fn has_jobs(&self) -> bool {
        // Relaxed: as in `sit`.
        let made = self.made.load(Ordering::Relaxed);
        self.stealers[..made].iter().filter_map(OnceLock::get).any(|stealer| !stealer.is_empty())
    }
}

/// A worker that runs jobs, on this thread.
pub(super) struct Participant<'a> {
    computation: &'a Computation,
    crew: &'a dyn Crew,
    seat: &'a Seat,
    /// Counts down to the next look at the worker's interrupts.
    until_look: Cell<u32>,
    /// The seat to steal from first next time.
    start: Cell<usize>,
}

thread_local! {
    /// What this thread participates in; null elsewhere. Set by [`set`] alone.
    static PARTICIPANT: Cell<*const ()> = const { Cell::new(null()) };
}

/// Runs `f` while this thread's participant is the one at this address, or none for null.
///
/// # Safety
/// The address is that of a [`Participant`] that lives during the call, or null.
unsafe fn set<R>(participant: *const (), f: impl FnOnce() -> R) -> R {
    /// Restores what was before, also when `f` panics.
    struct Back(*const ());
    impl Drop for Back {
        fn drop(&mut self) {
            PARTICIPANT.set(self.0);
        }
    }
    let _back = Back(PARTICIPANT.replace(participant));
    f()
}

/// Runs `f` with this thread's participant, if there is one.
#[inline]
pub(super) fn current<R>(f: impl FnOnce(Option<&Participant<'_>>) -> R) -> R {
    // SAFETY: null, or the address of a participant that lives until `set`, of which this call is a
    // part, restores what was before. The reference does not leave `f`.
    f(unsafe { PARTICIPANT.get().cast::<Participant<'_>>().as_ref() })
}

/// Runs `f` with this thread as a participant. When `f` returns, it has taken all out of its deque
/// that it put there.
pub(super) fn participate<R>(computation: &Computation, crew: &dyn Crew, f: impl FnOnce(&Participant<'_>) -> R) -> R {
    /// Gives the seat back, also when `f` panics.
    struct Back<'a>(&'a Computation, Option<Seat>);
    impl Drop for Back<'_> {
        fn drop(&mut self) {
            self.0.free().extend(self.1.take());
        }
    }
    let seat = Back(computation, Some(computation.sit()));
    let own = seat.1.as_ref().expect("it was put there");
    let participant = Participant {
        computation,
        crew,
        seat: own,
        until_look: Cell::new(JOBS_PER_LOOK),
        start: Cell::new(own.index + 1),
    };
    // SAFETY: the participant lives during the call.
    unsafe { set((&raw const participant).cast(), || f(&participant)) }
}

impl Participant<'_> {
    /// Returns whether it participates in `computation`.
    pub(super) fn is_in(&self, computation: *const ()) -> bool {
        std::ptr::from_ref(self.computation).cast() == computation
    }

    /// The computation's address, which [`is_in`](Self::is_in) compares.
    pub(super) fn computation(&self) -> *const () {
        std::ptr::from_ref(self.computation).cast()
    }

    /// Puts a job into the deque, and calls a helper if one is wanted.
    #[inline]
    pub(super) fn push(&self, job: Job) {
        self.seat.deque.push(job);
        self.call_if_wanted();
        match self.until_look.get() {
            0 => self.look_around(),
            left => self.until_look.set(left - 1),
        }
    }

    #[inline]
    fn call_if_wanted(&self) {
        if self.computation.helpers.are_wanted() {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        if self.computation.helpers.call() {
            self.crew.call_helper();
        }
    }

    #[cold]
    fn look_around(&self) {
        self.until_look.set(JOBS_PER_LOOK);
        self.crew.look_around();
    }

    /// Takes the newest job out of the own deque.
    #[inline]
    pub(super) fn pop(&self) -> Option<Job> {
        self.seat.deque.pop()
    }

    fn steal(&self) -> Option<Job> {
        let start = self.start.get();
        self.start.set(start.wrapping_add(1));
        self.computation.steal(self.seat.index, start)
    }

    /// Waits, and runs jobs of the computation meanwhile.
    #[cold]
    pub(super) fn wait(&self, waiter: &Waiter) {
        let mut looks = 0;
        let mut sleeps = false;
        while !waiter.is_done() {
            if let Some(job) = self.pop().or_else(|| self.steal()) {
                job.execute();
                looks = 0;
                continue;
            }
            looks += 1;
            if looks <= SPINS {
                spin_loop();
                continue;
            }
            self.look_around();
            if looks <= LOOKS_AWAKE {
                yield_now();
                continue;
            }
            if !sleeps {
                sleeps = true;
                if !waiter.sleeps() {
                    return;
                }
            }
            // An interrupt of the worker unparks it too.
            park_timeout(SLEEP);
        }
    }
}

/// Measures how long a helper has found nothing.
#[derive(Debug, Default)]
pub(super) struct Patience(Option<Instant>);

impl Patience {
    /// Notes whether there was a job. Returns whether to go on.
    pub(super) fn goes_on(&mut self, found: bool) -> bool {
        if found {
            self.0 = None;
            return true;
        }
        self.0.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }
}
