//! The simulated machine with some interrupts lost: they are sent and never come.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use hitm_machine::Simulated;
use hitm_memory::{Interrupts, Memory, Mode, PathCost, Placement, Platform, Span, Time, Word};
use hitm_topology::CpuId;

thread_local! {
    /// Interrupts of the scheduler that were sent on this thread's machine.
    static SENT: Cell<u64> = const { Cell::new(0) };
}

/// Of so many interrupts that ask a CPU to look or to push, one is lost.
const ONE_IN: u64 = 40;

/// The world that loses them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lossy;

impl Memory for Lossy {
    const EXACT: bool = Simulated::EXACT;

    type Atomic<T: Word> = <Simulated as Memory>::Atomic<T>;
    type Plain<T: Word> = <Simulated as Memory>::Plain<T>;
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
    fn spin_while<T: Word>(word: &Self::Atomic<T>, again: impl FnMut(T) -> bool) -> T {
        Simulated::spin_while(word, again)
    }

    fn allocate(layout: Layout, placement: &Placement<'_>) -> NonNull<u8> {
        Simulated::allocate(layout, placement)
    }

    unsafe fn deallocate(memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's duty is the same.
        unsafe { Simulated::deallocate(memory, layout) };
    }
}

impl Platform for Lossy {
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
        // Those by which the runtime ends its CPUs' lives come.
        if interrupts != Interrupts::CONTROL {
            SENT.set(SENT.get() + 1);
            if SENT.get().is_multiple_of(ONE_IN) {
                return;
            }
        }
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
    fn park(word: &Self::Atomic<u32>, expected: u32) {
        Simulated::park(word, expected);
    }

    fn unpark(word: &Self::Atomic<u32>, count: usize) -> usize {
        Simulated::unpark(word, count)
    }
}
