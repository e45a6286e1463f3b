//! [`Simulated`]: the seam's other side. Its words are ordinary words that tell the machine before they are touched.

use std::alloc::Layout;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Interrupts, Memory, Mode, PathCost, Placement, PlainWord, Platform, Span, Time, Word};
use hitm_topology::CpuId;

use crate::arena;
use crate::coherence::Kind;
use crate::world::{Site, on_cpu, with_world};

/// The simulated machine that this thread runs.
///
/// Memory is sequentially consistent, with one exception that cannot be observed: a plain store takes effect when it is
/// issued, its line's transaction follows. A program that relies on an order which its orderings do not give runs
/// here all the same; the model checker is the tool for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

/// An atomic word of the simulated world, of the size and alignment of `T`.
///
/// One host thread runs a machine, so a standard atomic with Relaxed accesses holds the value: it is there to make the word
/// `Sync` without unsafe code.
#[repr(transparent)]
pub struct SimulatedAtomic<T: Word>(T::Std);

/// A plain word of the simulated world.
#[repr(transparent)]
pub struct SimulatedPlain<T: Word>(T::Std);

/// The value operation: one host thread, so Relaxed says it all.
const VALUE: Ordering = Ordering::Relaxed;

impl<T: Word> SimulatedAtomic<T> {
    /// Tells the machine of an access, and the race detector of its ordering.
    #[inline]
    fn touch(&self, kind: Kind, order: Ordering, site: Site) {
        on_cpu(|world, cpu| {
            let address = std::ptr::from_ref(self).addr();
            world.touch(cpu, address, size_of::<T>(), kind, site);
            if let Some(races) = &mut world.engine.borrow_mut().races {
                if kind != Kind::Store {
                    let acquires = matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst);
                    races.load(cpu, address, if acquires { Ordering::Acquire } else { Ordering::Relaxed });
                }
                if kind != Kind::Load {
                    races.store(cpu, address, order, kind == Kind::Rmw);
                }
            }
        });
    }
}

impl<T: Word> AtomicWord<T> for SimulatedAtomic<T> {
    fn new(value: T) -> Self {
        Self(T::Std::new(value))
    }

    #[track_caller]
    fn load(&self, order: Ordering) -> T {
        self.touch(Kind::Load, order, Location::caller());
        self.0.load(VALUE)
    }

    #[track_caller]
    fn store(&self, value: T, order: Ordering) {
        self.touch(Kind::Store, order, Location::caller());
        self.0.store(value, VALUE);
    }

    #[track_caller]
    fn swap(&self, value: T, order: Ordering) -> T {
        self.touch(Kind::Rmw, order, Location::caller());
        self.0.swap(value, VALUE)
    }

    #[track_caller]
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        // A compare-exchange that fails takes the line all the same. Which of the two orderings holds is known only when the
        // line is here, and nothing runs between that moment and the operation below.
        let site = Location::caller();
        on_cpu(|world, cpu| {
            let address = std::ptr::from_ref(self).addr();
            world.touch(cpu, address, size_of::<T>(), Kind::Rmw, site);
            if let Some(races) = &mut world.engine.borrow_mut().races {
                let succeeds = self.0.load(VALUE) == current;
                let order = if succeeds { success } else { failure };
                let acquires = matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst);
                races.load(cpu, address, if acquires { Ordering::Acquire } else { Ordering::Relaxed });
                if succeeds {
                    races.store(cpu, address, order, true);
                }
            }
        });
        self.0.compare_exchange(current, new, VALUE, VALUE)
    }

    #[track_caller]
    fn fetch_add(&self, value: T, order: Ordering) -> T {
        self.touch(Kind::Rmw, order, Location::caller());
        self.0.fetch_add(value, VALUE)
    }

    #[track_caller]
    fn fetch_sub(&self, value: T, order: Ordering) -> T {
        self.touch(Kind::Rmw, order, Location::caller());
        self.0.fetch_sub(value, VALUE)
    }

    #[track_caller]
    fn fetch_or(&self, value: T, order: Ordering) -> T {
        self.touch(Kind::Rmw, order, Location::caller());
        self.0.fetch_or(value, VALUE)
    }

    #[track_caller]
    fn fetch_and(&self, value: T, order: Ordering) -> T {
        self.touch(Kind::Rmw, order, Location::caller());
        self.0.fetch_and(value, VALUE)
    }
}

impl<T: Word> PlainWord<T> for SimulatedPlain<T> {
    fn new(value: T) -> Self {
        Self(T::Std::new(value))
    }

    #[track_caller]
    fn get(&self) -> T {
        let site = Location::caller();
        on_cpu(|world, cpu| {
            let address = std::ptr::from_ref(self).addr();
            world.touch(cpu, address, size_of::<T>(), Kind::Load, site);
            if let Some(races) = &mut world.engine.borrow_mut().races {
                races.get(cpu, address, site);
            }
        });
        self.0.load(VALUE)
    }

    #[track_caller]
    fn set(&self, value: T) {
        let site = Location::caller();
        on_cpu(|world, cpu| {
            let address = std::ptr::from_ref(self).addr();
            world.touch(cpu, address, size_of::<T>(), Kind::Store, site);
            if let Some(races) = &mut world.engine.borrow_mut().races {
                races.set(cpu, address, site);
            }
        });
        self.0.store(value, VALUE);
    }

    #[track_caller]
    fn peek(&self) -> T {
        let site = Location::caller();
        on_cpu(|world, cpu| {
            world.touch(cpu, std::ptr::from_ref(self).addr(), size_of::<T>(), Kind::Load, site);
        });
        self.0.load(VALUE)
    }
}

impl<T: Word> fmt::Debug for SimulatedAtomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.load(VALUE).fmt(f)
    }
}

impl<T: Word> fmt::Debug for SimulatedPlain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.load(VALUE).fmt(f)
    }
}

impl Memory for Simulated {
    const EXACT: bool = true;

    type Atomic<T: Word> = SimulatedAtomic<T>;
    type Plain<T: Word> = SimulatedPlain<T>;
    type Site = Site;

    #[track_caller]
    fn site() -> Site {
        Location::caller()
    }

    fn at<R>(site: Site, f: impl FnOnce() -> R) -> R {
        // `f` must run once, inside or outside.
        let mut f = Some(f);
        let inside = with_world(|world| world.at(site, f.take().expect("not run yet")));
        inside.unwrap_or_else(|| (f.take().expect("not run yet"))())
    }

    fn fence(order: Ordering) {
        with_world(|world| world.fence(order));
    }

    #[track_caller]
    fn spin_while<T: Word>(word: &SimulatedAtomic<T>, mut again: impl FnMut(T) -> bool) -> T {
        let site = Location::caller();
        let address = std::ptr::from_ref(word).addr();
        on_cpu(|world, cpu| world.set_spinning(cpu, true));
        let value = loop {
            word.touch(Kind::Load, Ordering::Acquire, site);
            let value = word.0.load(VALUE);
            if !again(value) {
                break value;
            }
            if on_cpu(|world, cpu| world.spin_on(cpu, address, site)).is_none() {
                panic!("{site}: spins outside a machine, where nobody else can end it");
            }
        };
        on_cpu(|world, cpu| world.set_spinning(cpu, false));
        value
    }

    fn allocate(layout: Layout, placement: &Placement<'_>) -> NonNull<u8> {
        let object = placement.object;
        with_world(|world| {
            let mut engine = world.engine.borrow_mut();
            let (memory, first, used) = engine.arena.allocate(layout, placement);
            let lines = layout.size().div_ceil(hitm_memory::LINE) as u32;
            let package = placement.node.map_or(0, |node| engine.package_of_node(node));
            engine.place(object, first, lines, used, package);
            if let Some(races) = &mut engine.races {
                let start = memory.addr().get();
                races.forget(start, start + layout.size());
            }
            memory
        })
        .unwrap_or_else(|| panic!("`{object}` is made outside a machine: see `Machine::enter`"))
    }

    unsafe fn deallocate(memory: NonNull<u8>, layout: Layout) {
        arena::deallocate(memory, layout);
    }
}

/// What a function of the platform says when no CPU runs.
const NO_CPU: &str = "only code that runs on a CPU of the machine may do this";

impl Platform for Simulated {
    fn current_cpu() -> CpuId {
        CpuId(on_cpu(|_, cpu| cpu).unwrap_or(0))
    }

    fn now() -> Time {
        on_cpu(|world, _| world.now()).unwrap_or(Time::START)
    }

    fn compute(work: Span) -> Span {
        on_cpu(|world, _| world.compute(work)).expect(NO_CPU)
    }

    fn charge(path: PathCost) {
        on_cpu(|world, _| world.engine.borrow_mut().charge(path));
    }

    fn enter(mode: Mode) -> Mode {
        on_cpu(|world, cpu| std::mem::replace(&mut world.engine.borrow_mut().cpus[cpu as usize].mode, mode))
            .unwrap_or(mode)
    }

    fn interrupt(target: CpuId, interrupts: Interrupts) {
        on_cpu(|world, cpu| {
            let mut engine = world.engine.borrow_mut();
            engine.send(target.0, interrupts);
            if let Some(races) = &mut engine.races {
                races.signal(cpu, target.0);
            }
        })
        .expect(NO_CPU);
    }

    fn interrupt_pending() -> bool {
        on_cpu(|world, cpu| !world.engine.borrow().cpus[cpu as usize].pending.is_empty()).unwrap_or(false)
    }

    fn take_interrupts() -> Interrupts {
        on_cpu(|world, _| world.engine.borrow_mut().take_interrupts()).expect(NO_CPU)
    }

    fn wait_for_interrupt() {
        on_cpu(|world, _| world.idle()).expect(NO_CPU);
    }

    fn set_timer(at: Time) {
        on_cpu(|world, _| world.engine.borrow_mut().set_timer(at)).expect(NO_CPU);
    }

    #[track_caller]
    fn park(word: &SimulatedAtomic<u32>, expected: u32) {
        let site = Location::caller();
        if word.load(Ordering::Relaxed) == expected {
            on_cpu(|world, _| world.park(std::ptr::from_ref(word).addr(), site)).expect(NO_CPU);
        }
    }

    fn unpark(word: &SimulatedAtomic<u32>, count: usize) -> usize {
        let address = std::ptr::from_ref(word).addr();
        on_cpu(|world, _| world.engine.borrow_mut().unpark(address, count)).expect(NO_CPU)
    }
}
