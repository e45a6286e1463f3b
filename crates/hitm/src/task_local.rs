//! Values of a task: [`task_local!`](macro@crate::task_local), [`TaskLocal`].
//!
//! A value is a thread-local value while its future is polled, and is inside the future otherwise.
//! So a task may migrate, and one value never reaches another task. It works on every executor of
//! threads.
//!
//! **Limits.** On a simulated machine all CPUs are coroutines of one thread, and a poll can be
//! interrupted by another CPU's poll. A value of a task is therefore for native programs.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::LocalKey;

/// Declares values of tasks, in the form of `thread_local!` without initial values.
///
/// ```
/// hitm::task_local! {
///     /// The request that the task serves.
///     pub static REQUEST: u64;
/// }
///
/// let runtime = hitm::NativeRuntime::with_cpus(2).unwrap();
/// let seen = runtime.block_on(async {
///     let serve = async { hitm::yield_now().await; REQUEST.with(|request| *request) };
///     hitm::spawn(REQUEST.scope(7, serve)).await.unwrap()
/// });
/// assert_eq!(seen, 7);
/// assert!(REQUEST.try_with(|_| ()).is_none(), "outside the scope there is no value");
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty);+ $(;)?) => {
        $(
            $(#[$attribute])*
            $visible static $name: $crate::TaskLocal<$type> = {
                ::std::thread_local! {
                    static VALUE: ::std::cell::RefCell<::std::option::Option<$type>> =
                        const { ::std::cell::RefCell::new(::std::option::Option::None) };
                }
                $crate::TaskLocal::__new(&VALUE)
            };
        )+
    };
}

/// A value that a task has: made by [`task_local!`](macro@crate::task_local).
pub struct TaskLocal<T: 'static>(&'static LocalKey<RefCell<Option<T>>>);

impl<T: 'static> TaskLocal<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn __new(value: &'static LocalKey<RefCell<Option<T>>>) -> Self {
        Self(value)
    }

    /// Runs `future` with `value`. An inner scope hides the value of the outer one.
    ///
    /// The destructor of `future` sees the value too.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> Scoped<T, F> {
        Scoped { local: self, value: Some(value), future: Some(future) }
    }

    /// Calls `f` with the value.
    ///
    /// # Panics
    /// Outside a scope.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).expect("a task-local value is there in its scope only")
    }

    /// Calls `f` with the value; returns `None` outside a scope.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_with(|value| value.borrow().as_ref().map(f)).ok().flatten()
    }

    /// Exchanges the thread's value with `value` while `f` runs, also when `f` panics.
    fn during<R>(&'static self, value: &mut Option<T>, f: impl FnOnce() -> R) -> R {
        struct Back<'a, T: 'static>(&'static TaskLocal<T>, &'a mut Option<T>);
        impl<T: 'static> Drop for Back<'_, T> {
            fn drop(&mut self) {
                self.0.0.with(|thread| std::mem::swap(&mut *thread.borrow_mut(), self.1));
            }
        }
        self.0.with(|thread| std::mem::swap(&mut *thread.borrow_mut(), value));
        let _back = Back(self, value);
        f()
    }
}

impl<T: 'static> fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocal").finish_non_exhaustive()
    }
}

/// A future with a value: made by [`TaskLocal::scope`].
#[must_use = "nothing runs until it is awaited"]
pub struct Scoped<T: 'static, F> {
    local: &'static TaskLocal<T>,
    value: Option<T>,
    /// Pinned with `self`. `None` once it has been dropped.
    future: Option<F>,
}

// The value is never pinned.
impl<T: 'static, F: Unpin> Unpin for Scoped<T, F> {}

impl<T: 'static, F: Future> Future for Scoped<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is not moved out of `this`: it is polled in place, and dropped in place
        // by `Drop`. `Scoped` is `Unpin` only where `F` is.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `future` is pinned as long as `self` is, by the sentence above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let poll = || future.as_pin_mut().expect("it is dropped with `self` only").poll(context);
        this.local.during(&mut this.value, poll)
    }
}

impl<T: 'static, F> Drop for Scoped<T, F> {
    fn drop(&mut self) {
        let future = &mut self.future;
        // `None` drops the future in place.
        self.local.during(&mut self.value, || *future = None);
    }
}

impl<T: 'static, F> fmt::Debug for Scoped<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").finish_non_exhaustive()
    }
}
