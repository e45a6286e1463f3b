//! [`scope`]: any number of closures that may borrow from the caller's stack.
//!
//! **Claim.** `scope` returns, or goes on with a panic, only after all closures that were spawned
//! in it have ended. So they may borrow what outlives the call.
//!
//! **Protocol.** The scope counts its own closure and those that were spawned. The last one to end
//! ends the wait of the caller.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::begin;
use super::computation::{Participant, current};
use super::job::{Job, Waiter};
use crate::contain::contain;

/// Spawns closures that may borrow what outlives `'scope`: see [`scope`].
pub struct Scope<'scope> {
    /// The computation, of which only participants push jobs. Null where there is none.
    computation: *const (),
    /// The closures that have not ended, and the scope's own.
    left: AtomicUsize,
    waiter: Waiter,
    /// The first panic of a spawned closure.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Closures get the scope with this lifetime, so it must not be shortened or lengthened.
    lifetime: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

// SAFETY: `computation` is compared, never dereferenced. All else is `Sync`.
unsafe impl Sync for Scope<'_> {}
// SAFETY: as above; all else is `Send`.
unsafe impl Send for Scope<'_> {}

/// A closure that was spawned.
struct HeapJob<'scope, F> {
    scope: *const Scope<'scope>,
    body: F,
}

/// Runs `f`, whose scope spawns closures that may borrow from the caller, and returns its value
/// after all of them have ended. Spawned closures may spawn others.
///
/// ```
/// fn quicksort(numbers: &mut [u32]) {
///     fn sort<'a>(scope: &hitm::fork_join::Scope<'a>, numbers: &'a mut [u32]) {
///         let Some((&mut pivot, _)) = numbers.split_first_mut() else { return };
///         let below = numbers.iter().filter(|&&number| number < pivot).count();
///         numbers.select_nth_unstable(below);
///         let (left, right) = numbers.split_at_mut(below);
///         scope.spawn(move |scope| sort(scope, left));
///         sort(scope, &mut right[1..]);
///     }
///     hitm::fork_join::scope(|scope| sort(scope, numbers));
/// }
///
/// let runtime = hitm::NativeRuntime::with_cpus(2).unwrap();
/// let sorted = runtime.run(|_| async {
///     let mut numbers = [5, 3, 9, 1, 3];
///     quicksort(&mut numbers);
///     numbers
/// });
/// assert_eq!(sorted.unwrap(), [1, 3, 3, 5, 9]);
/// ```
///
/// A closure cannot borrow what the scope's own closure has:
///
/// ```compile_fail,E0373
/// hitm::fork_join::scope(|scope| {
///     let number = 1;
///     scope.spawn(|_| println!("{number}"));
/// });
/// ```
///
/// [`Handle::scope`](crate::Handle::scope) is for tasks that borrow.
///
/// # Panics
/// When `f` or a spawned closure panics: resumes that panic after all closures have ended. If
/// several panic, resumes that of `f`, or else the first one.
pub fn scope<'scope, R: Send>(f: impl FnOnce(&Scope<'scope>) -> R + Send) -> R {
    current(|participant| match participant {
        Some(participant) => scope_as(Some(participant), f),
        None => begin(|participant| scope_as(participant, f)),
    })
}

fn scope_as<'scope, R>(participant: Option<&Participant<'_>>, f: impl FnOnce(&Scope<'scope>) -> R) -> R {
    let scope = Scope {
        computation: participant.map_or(null(), Participant::computation),
        left: AtomicUsize::new(1),
        waiter: Waiter::new(),
        panic: Mutex::new(None),
        lifetime: PhantomData,
    };
    // Unwind safety: the panic is resumed below.
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    // SAFETY: the scope's own count is given back, once.
    unsafe { Scope::ended(&raw const scope) };
    if let Some(participant) = participant {
        participant.wait(&scope.waiter);
    }
    let panic = scope.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (result, panic) {
        (Ok(value), None) => value,
        (Ok(value), Some(payload)) => {
            contain(|| drop(value));
            resume_unwind(payload)
        }
        (Err(payload), _) => resume_unwind(payload),
    }
}

impl<'scope> Scope<'scope> {
    /// Spawns a closure. It runs on this worker or on another one, before [`scope`] returns. Called
    /// on a thread that runs no closure of the scope's computation, runs the closure at once.
    pub fn spawn(&self, body: impl FnOnce(&Scope<'scope>) + Send + 'scope) {
        current(|participant| match participant.filter(|participant| participant.is_in(self.computation)) {
            Some(participant) => {
                // Relaxed: the caller is counted, so the count does not reach zero meanwhile.
                self.left.fetch_add(1, Ordering::Relaxed);
                participant.push(HeapJob { scope: self, body }.into_job());
            }
            None => self.run(body),
        });
    }

    fn run(&self, body: impl FnOnce(&Scope<'scope>)) {
        // Unwind safety: the closure is consumed, and the scope resumes the panic.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(self))) {
            let mut panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            if panic.is_none() {
                *panic = Some(payload);
            } else {
                // A payload's destructor may panic, so all but the first are leaked.
                std::mem::forget(payload);
            }
        }
    }

    /// Counts a closure out.
    ///
    /// # Safety
    /// The closure was counted in, and `this` is the scope's address. The scope may be gone after.
    unsafe fn ended(this: *const Self) {
        // SAFETY: the scope waits for this closure. The reference is not used after the count.
        let scope = unsafe { &*this };
        let waiter = &raw const scope.waiter;
        // AcqRel: the caller of `scope` sees what all closures did: each publishes it here, and the
        // last one passes it on by the waiter.
        if scope.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the scope waits for this call, and the count reaches zero once.
            unsafe { Waiter::done(waiter) };
        }
    }
}

impl<'scope, F: FnOnce(&Scope<'scope>) + Send + 'scope> HeapJob<'scope, F> {
    fn into_job(self) -> Job {
        // SAFETY: the box is the job's, whatever thread runs it. What `F` borrows lives until the
        // scope has ended, which waits for the job.
        unsafe { Job::new(Box::into_raw(Box::new(self)).cast_const().cast(), Self::execute) }
    }

    unsafe fn execute(this: *const ()) {
        // SAFETY: the address is that of `into_job`, and is used once.
        let Self { scope, body } = *unsafe { Box::from_raw(this.cast_mut().cast::<Self>()) };
        // SAFETY: the scope waits for this closure.
        unsafe { &*scope }.run(body);
        // SAFETY: `spawn` has counted it in.
        unsafe { Scope::ended(scope) };
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a count to look at.
        let left = self.left.load(Ordering::Relaxed);
        f.debug_struct("Scope").field("left", &left).finish_non_exhaustive()
    }
}
