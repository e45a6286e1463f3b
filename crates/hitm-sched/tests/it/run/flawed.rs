//! The simulated machine with one flaw: some operations of the code under test do not happen, or
//! lose their ordering.
//!
//! The words know their call sites. A machine runs on one thread of the operating system, so the
//! active flaw is a thread-local variable. Tests that run in parallel do not see each other's
//! flaws.

use std::alloc::Layout;
use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use hitm_loom::Op;
use hitm_machine::Simulated;
use hitm_memory::{
    AtomicWord, Interrupts, Memory, Mode, PathCost, Placement, PlainWord, Platform, Rmw, Span, Time, Word,
};
use hitm_topology::CpuId;

/// The flaw's effect on the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// They do not happen. A read-modify-write only reads, and a compare-exchange claims that it
    /// succeeded.
    Lost,
    /// They are Relaxed.
    Relaxed,
}

/// Operations in one file, of one kind, and on words of one type. Line numbers are no part of it,
/// so it survives edits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flaw {
    file: &'static str,
    op: Op,
    /// The ordering, or `None` for plain words.
    order: Option<Ordering>,
    word: Option<TypeId>,
    change: Change,
}

impl Flaw {
    /// The operations of atomic words with `order` do not happen. For a compare-exchange, `order`
    /// is the one of success.
    pub(crate) const fn lose(file: &'static str, op: Op, order: Ordering) -> Self {
        Self { file, op, order: Some(order), word: None, change: Change::Lost }
    }

    /// The operations happen, but Relaxed.
    pub(crate) const fn relax(file: &'static str, op: Op, order: Ordering) -> Self {
        Self { change: Change::Relaxed, ..Self::lose(file, op, order) }
    }

    /// Stores to plain words of type `T` do not happen.
    pub(crate) const fn lose_plain<T: 'static>(file: &'static str) -> Self {
        Self { order: None, ..Self::lose(file, Op::Store, Ordering::Relaxed) }.on::<T>()
    }

    /// Restricts the flaw to words of type `T`.
    pub(crate) const fn on<T: 'static>(self) -> Self {
        Self { word: Some(TypeId::of::<T>()), ..self }
    }
}

thread_local! {
    static ACTIVE: Cell<Option<Flaw>> = const { Cell::new(None) };
}

/// Runs `f` with this flaw.
pub(crate) fn with<R>(flaw: Flaw, f: impl FnOnce() -> R) -> R {
    ACTIVE.set(Some(flaw));
    let result = f();
    ACTIVE.set(None);
    result
}

/// Returns the active flaw's effect on an operation of the caller, if the flaw covers it.
#[track_caller]
fn change<T: 'static>(op: Op, order: Option<Ordering>) -> Option<Change> {
    let location = Location::caller();
    let meant = |flaw: &Flaw| {
        flaw.op == op
            && flaw.order == order
            && flaw.word.is_none_or(|word| word == TypeId::of::<T>())
            && Path::new(location.file()).ends_with(flaw.file)
    };
    ACTIVE.get().filter(meant).map(|flaw| flaw.change)
}

/// The flawed memory and platform.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flawed;

/// An atomic word with the flaw.
#[repr(transparent)]
pub(crate) struct FlawedAtomic<T: Word>(<Simulated as Memory>::Atomic<T>);

/// A plain word with the flaw.
#[repr(transparent)]
pub(crate) struct FlawedPlain<T: Word>(<Simulated as Memory>::Plain<T>);

impl<T: Word> AtomicWord<T> for FlawedAtomic<T> {
    fn new(value: T) -> Self {
        Self(AtomicWord::new(value))
    }

    #[track_caller]
    fn load(&self, order: Ordering) -> T {
        let relaxed = change::<T>(Op::Load, Some(order)).is_some();
        self.0.load(if relaxed { Ordering::Relaxed } else { order })
    }

    #[track_caller]
    fn store(&self, value: T, order: Ordering) {
        match change::<T>(Op::Store, Some(order)) {
            None => self.0.store(value, order),
            Some(Change::Relaxed) => self.0.store(value, Ordering::Relaxed),
            Some(Change::Lost) => {}
        }
    }

    #[track_caller]
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        match change::<T>(Op::CompareExchange, Some(success)) {
            None => self.0.compare_exchange(current, new, success, failure),
            Some(Change::Relaxed) => self.0.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed),
            Some(Change::Lost) => Ok(current),
        }
    }

    #[track_caller]
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        self.compare_exchange(current, new, success, failure)
    }

    /// Does a read-modify-write, with the flaw's effect.
    #[track_caller]
    fn read_modify_write(&self, operation: Rmw, value: T, order: Ordering) -> T {
        match change::<T>(operation.into(), Some(order)) {
            None => self.0.read_modify_write(operation, value, order),
            Some(Change::Relaxed) => self.0.read_modify_write(operation, value, Ordering::Relaxed),
            Some(Change::Lost) => self.0.load(Ordering::Relaxed),
        }
    }
}

impl<T: Word> PlainWord<T> for FlawedPlain<T> {
    fn new(value: T) -> Self {
        Self(PlainWord::new(value))
    }

    #[track_caller]
    fn get(&self) -> T {
        self.0.get()
    }

    #[track_caller]
    fn set(&self, value: T) {
        if change::<T>(Op::Store, None).is_none() {
            self.0.set(value);
        }
    }

    #[track_caller]
    fn peek(&self) -> T {
        self.0.peek()
    }
}

impl<T: Word> fmt::Debug for FlawedAtomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Word> fmt::Debug for FlawedPlain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Memory for Flawed {
    const EXACT: bool = Simulated::EXACT;

    type Atomic<T: Word> = FlawedAtomic<T>;
    type Plain<T: Word> = FlawedPlain<T>;
    type Site = <Simulated as Memory>::Site;

    #[track_caller]
    fn site() -> Self::Site {
        Simulated::site()
    }

    fn at<R>(site: Self::Site, f: impl FnOnce() -> R) -> R {
        Simulated::at(site, f)
    }

    fn fence(order: Ordering) {
        Simulated::fence(order);
    }

    #[track_caller]
    fn spin_while<T: Word>(word: &FlawedAtomic<T>, again: impl FnMut(T) -> bool) -> T {
        // Its loads are Acquire: see `Memory::spin_while`. To lose them means not to wait.
        if let Some(Change::Lost) = change::<T>(Op::Load, Some(Ordering::Acquire)) {
            return word.0.load(Ordering::Relaxed);
        }
        Simulated::spin_while(&word.0, again)
    }

    fn allocate(layout: Layout, placement: &Placement<'_>) -> NonNull<u8> {
        Simulated::allocate(layout, placement)
    }

    unsafe fn deallocate(memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's duty is the same.
        unsafe { Simulated::deallocate(memory, layout) };
    }
}

impl Platform for Flawed {
    fn current_cpu() -> CpuId {
        Simulated::current_cpu()
    }

    fn now() -> Time {
        Simulated::now()
    }

    fn compute(work: Span) -> Span {
        Simulated::compute(work)
    }

    fn settle() {
        Simulated::settle();
    }

    fn charge(path: PathCost) {
        Simulated::charge(path);
    }

    fn enter(mode: Mode) -> Mode {
        <Simulated as Platform>::enter(mode)
    }

    fn interrupt(target: CpuId, interrupts: Interrupts) {
        Simulated::interrupt(target, interrupts);
    }

    fn interrupt_pending() -> bool {
        Simulated::interrupt_pending()
    }

    fn take_interrupts() -> Interrupts {
        Simulated::take_interrupts()
    }

    fn wait_for_interrupt() {
        Simulated::wait_for_interrupt();
    }

    fn set_timer(at: Time) {
        Simulated::set_timer(at);
    }

    #[track_caller]
    fn park(word: &FlawedAtomic<u32>, expected: u32) {
        Simulated::park(&word.0, expected);
    }

    fn unpark(word: &FlawedAtomic<u32>, count: usize) -> usize {
        Simulated::unpark(&word.0, count)
    }
}
