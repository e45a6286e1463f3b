//! [`Simulated`]: the simulated implementation of the memory interface. Its words are ordinary
//! words that report each access to the machine beforehand.

use std::alloc::Layout;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, Interrupts, LINE, Mapping, Memory, Mode, Operation, PathCost, Placement, PlainWord, Platform, Rmw,
    Span, Time, Word,
};
use hitm_topology::CpuId;

use crate::arena;
use crate::coherence::Kind;
use crate::engine::{Engine, Issue, Touch};
use crate::moved::Arrangement;
use crate::race::Races;
use crate::site::Site;
use crate::store_buffer::ValueIs;
use crate::world::{SourcePlace, on_cpu, with_world};

/// The simulated machine that this thread runs.
///
/// The memory order is that of x86: total store order. A plain store takes effect when its CPU has
/// the line and all earlier stores have taken effect; later loads of other words may come before
/// it. A program may run correctly here although its orderings do not guarantee what it relies on;
/// the model checker is the tool for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl Simulated {
    /// What is counted from now on belongs to the results only if [`end_tail`](Self::end_tail)
    /// follows: where a program's measured stretch ends is known when the program has ended.
    pub fn begin_tail() {
        at_its_turn(Engine::begin_tail);
    }

    /// What was counted since [`begin_tail`](Self::begin_tail) belongs to the results.
    pub fn end_tail() {
        at_its_turn(Engine::end_tail);
    }

    /// Runs `f` aside: its accesses cost no time, are not counted, and are not watched by the race
    /// detector. This is for a checker that runs on a CPU and reads, when nothing is in flight,
    /// words under other CPUs' locks.
    ///
    /// # Panics
    /// When `f` waits: no time passes in it.
    pub fn aside<R>(f: impl FnOnce() -> R) -> R {
        let mut f = Some(f);
        let inside = with_world(|world| world.aside(f.take().expect("not run yet")));
        inside.unwrap_or_else(|| (f.take().expect("not run yet"))())
    }
}

/// Runs `act` when the calling CPU is the earliest; does nothing outside a CPU.
fn at_its_turn(act: impl Fn(&mut Engine)) {
    on_cpu(|world, _| {
        world.settle();
        act(&mut world.engine.borrow_mut());
    });
}

/// An atomic word of the simulated world, of the size and alignment of `T`.
///
/// One host thread runs a machine, so a standard atomic with Relaxed accesses holds the value: it
/// is there to make the word `Sync` without unsafe code.
#[repr(transparent)]
pub struct SimulatedAtomic<T: Word>(T::Std);

/// A plain word of the simulated world.
#[repr(transparent)]
pub struct SimulatedPlain<T: Word>(T::Std);

/// The value operation: on one host thread Relaxed is enough.
const VALUE: Ordering = Ordering::Relaxed;

#[inline]
fn touch_of<T: Word, W>(word: &W, kind: Kind, value: Option<T>, site: SourcePlace) -> Touch {
    let value = value.map_or(0, T::to_bits);
    Touch {
        word: NonNull::from(word).cast(),
        size: size_of::<T>(),
        kind,
        value,
        value_is: ValueIs::Held,
        site: Site::Source(site),
    }
}

/// Reports an access to the machine, and then to the race detector, if there is one, by `watch`.
/// Returns what the machine says of the value: `Now` outside a machine, where accesses cost
/// nothing.
#[inline]
fn touch<T: Word, W>(
    word: &W,
    kind: Kind,
    value: Option<T>,
    site: SourcePlace,
    watch: impl FnOnce(&mut Races, u32),
) -> Issue {
    let issued = on_cpu(|world, cpu| {
        let issued = world.touch(&touch_of(word, kind, value, world.site(site)));
        world.watch(|races| watch(races, cpu));
        issued
    });
    issued.unwrap_or(Issue::Now)
}

fn acquires(order: Ordering) -> Ordering {
    match order {
        Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst => Ordering::Acquire,
        _ => Ordering::Relaxed,
    }
}

impl<T: Word> SimulatedAtomic<T> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// A read-modify-write is about to take effect.
    #[inline]
    fn touch_rmw(&self, order: Ordering, site: SourcePlace) {
        let _now = touch::<T, _>(self, Kind::Rmw, None, site, |races, cpu| {
            races.load(cpu, self.address(), acquires(order));
            races.store(cpu, self.address(), order, true);
        });
    }

    #[inline]
    fn load_at(&self, order: Ordering, site: SourcePlace) -> T {
        let watch = |races: &mut Races, cpu| races.load(cpu, self.address(), acquires(order));
        let issued = touch::<T, _>(self, Kind::Load, None, site, watch);
        value_of(&self.0, issued)
    }
}

/// Returns the value that a load reads.
#[inline]
fn value_of<T: Word>(word: &T::Std, issued: Issue) -> T {
    match issued {
        Issue::Forwarded(bits) => T::from_bits(bits),
        // Through bits: a pointer that the machine wrote from its store buffer loses its
        // provenance.
        _ => T::from_bits(word.load(VALUE).to_bits()),
    }
}

/// Performs a store, unless the machine performs it later.
#[inline]
fn store_value<T: Word>(word: &T::Std, value: T, issued: Issue) {
    if issued != Issue::Buffered {
        word.store(value, VALUE);
    }
}

impl<T: Word> AtomicWord<T> for SimulatedAtomic<T> {
    fn new(value: T) -> Self {
        Self(T::Std::new(value))
    }

    #[track_caller]
    fn load(&self, order: Ordering) -> T {
        self.load_at(order, Location::caller())
    }

    #[track_caller]
    fn store(&self, value: T, order: Ordering) {
        let watch = |races: &mut Races, cpu| races.store(cpu, self.address(), order, false);
        let issued = touch(self, Kind::Store, Some(value), Location::caller(), watch);
        store_value(&self.0, value, issued);
    }

    #[track_caller]
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        // A failed compare-exchange takes the line too.
        let watch = |races: &mut Races, cpu| {
            let same = self.0.load(VALUE) == current;
            races.load(cpu, self.address(), acquires(if same { success } else { failure }));
            if same {
                races.store(cpu, self.address(), success, true);
            }
        };
        let _now = touch::<T, _>(self, Kind::Rmw, None, Location::caller(), watch);
        self.0.compare_exchange(current, new, VALUE, VALUE)
    }

    #[track_caller]
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        self.compare_exchange(current, new, success, failure)
    }

    #[track_caller]
    fn read_modify_write(&self, operation: Rmw, value: T, order: Ordering) -> T {
        self.touch_rmw(order, Location::caller());
        self.0.read_modify_write(operation, value, VALUE)
    }
}

impl<T: Word> PlainWord<T> for SimulatedPlain<T> {
    fn new(value: T) -> Self {
        Self(T::Std::new(value))
    }

    #[track_caller]
    fn get(&self) -> T {
        let site = Location::caller();
        let watch = |races: &mut Races, cpu| races.get(cpu, std::ptr::from_ref(self).addr(), site);
        let issued = touch::<T, _>(self, Kind::Load, None, site, watch);
        value_of(&self.0, issued)
    }

    #[track_caller]
    fn set(&self, value: T) {
        let site = Location::caller();
        let watch = |races: &mut Races, cpu| races.set(cpu, std::ptr::from_ref(self).addr(), site);
        let issued = touch(self, Kind::Store, Some(value), site, watch);
        store_value(&self.0, value, issued);
    }

    #[track_caller]
    fn peek(&self) -> T {
        let issued = touch::<T, _>(self, Kind::Load, None, Location::caller(), |_, _| {});
        value_of(&self.0, issued)
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
    type Site = SourcePlace;

    #[track_caller]
    fn site() -> SourcePlace {
        Location::caller()
    }

    fn at<R>(site: SourcePlace, f: impl FnOnce() -> R) -> R {
        // `f` must run once, inside or outside.
        let mut f = Some(f);
        let inside = with_world(|world| world.at(site, f.take().expect("not run yet")));
        inside.unwrap_or_else(|| (f.take().expect("not run yet"))())
    }

    fn set_operation(operation: Option<Operation>) -> Option<Operation> {
        on_cpu(|world, _| world.engine.borrow_mut().set_operation(operation)).flatten()
    }

    fn fence(order: Ordering) {
        with_world(|world| world.fence(order));
    }

    #[track_caller]
    fn spin_while<T: Word>(word: &SimulatedAtomic<T>, mut again: impl FnMut(T) -> bool) -> T {
        let site = Location::caller();
        on_cpu(|world, cpu| world.set_spinning(cpu, true));
        let value = loop {
            // Acquire: the waiter of a word goes on to use what its writer has published.
            let value = word.load_at(Ordering::Acquire, site);
            if !again(value) {
                break value;
            }
            if on_cpu(|world, _| world.spin_on(&touch_of(word, Kind::Load, Some(value), world.site(site)))).is_none() {
                panic!("{site}: spins outside a machine, where nobody else can end it");
            }
        };
        on_cpu(|world, cpu| world.set_spinning(cpu, false));
        value
    }

    fn allocate(layout: Layout, placement: &Placement<'_>) -> NonNull<u8> {
        let object = placement.object;
        // CPUs share the arena: memory is allocated and freed in the order of simulated time.
        on_cpu(|world, _| world.settle());
        with_world(|world| {
            let mut engine = world.engine.borrow_mut();
            let arrangement = engine.config.arrangements.get(object).map(|own| {
                let (size, bytes) = (own.size(), layout.size());
                assert!(size <= bytes, "`{object}` has {bytes} bytes, and its arrangement is of {size}");
                Arc::new(own.extended(bytes))
            });
            let layout = arranged(layout, arrangement.as_deref());
            let (memory, first, used) = engine.arena.allocate(layout, placement, arrangement.clone());
            if let Some(arrangement) = arrangement {
                let start = memory.addr().get();
                engine.moved.add(start, start, arrangement);
            }
            let lines = layout.size().div_ceil(LINE) as u32;
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
        let start = memory.addr().get();
        // As in `allocate`.
        on_cpu(|world, _| world.settle());
        let end = start + layout.size();
        let arrangement = with_world(|world| {
            let mut engine = world.engine.borrow_mut();
            engine.forget_stores(start, end);
            engine.moved.remove(start, end)
        });
        arena::deallocate(memory, arranged(layout, arrangement.flatten().as_deref()));
    }
}

/// Returns the layout of an object with the room that its arrangement needs.
fn arranged(layout: Layout, arrangement: Option<&Arrangement>) -> Layout {
    let Some(arrangement) = arrangement else { return layout };
    let size = arrangement.placed_size().max(layout.size());
    Layout::from_size_align(size, layout.align()).expect("less than the address space")
}

/// The message of a platform function that is called outside a CPU.
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

    fn delay(span: Span) -> Span {
        on_cpu(|world, _| world.delay(span)).expect(NO_CPU)
    }

    fn charge(path: PathCost) {
        on_cpu(|world, _| world.charge(path));
    }

    fn progress() {
        on_cpu(|world, _| world.engine.borrow_mut().accesses_without_progress = 0);
    }

    fn measure_from_now() {
        at_its_turn(Engine::measure_from_now);
    }

    fn measure_until_now() {
        at_its_turn(Engine::measure_until_now);
    }

    fn first_touch<T>(range: &[T], mapping: Mapping) {
        let start = range.as_ptr().addr();
        on_cpu(|world, _| world.first_touch(start, start + size_of_val(range), mapping));
    }

    fn runs(task: Option<(u32, Option<&str>)>) {
        on_cpu(|world, cpu| {
            if let Some(timeline) = &mut world.engine.borrow_mut().timeline {
                timeline.run(cpu, task);
            }
        });
    }

    fn wakes(task: (u32, Option<&str>)) {
        on_cpu(|world, cpu| {
            let mut engine = world.engine.borrow_mut();
            let now = engine.clock();
            if let Some(timeline) = &mut engine.timeline {
                timeline.wake(cpu, now, task);
            }
        });
    }

    fn enter(mode: Mode) -> Mode {
        on_cpu(|world, cpu| std::mem::replace(&mut world.engine.borrow_mut().cpus[cpu as usize].mode, mode))
            .unwrap_or(mode)
    }

    /// Outside a CPU no CPU is interrupted: values that are dropped after the end of a machine have
    /// no waiter to wake.
    fn interrupt(target: CpuId, interrupts: Interrupts) {
        on_cpu(|world, cpu| {
            if world.engine.borrow().idle_cpus_notice() {
                // The send depends on whether the target idles.
                world.settle();
            }
            let mut engine = world.engine.borrow_mut();
            engine.send(target.0, interrupts);
            if let Some(races) = &mut engine.races {
                races.signal(cpu, target.0);
            }
        });
    }

    fn interrupt_pending() -> bool {
        on_cpu(|world, _| world.await_interrupts());
        on_cpu(|world, cpu| !world.engine.borrow().cpus[cpu as usize].pending.is_empty()).unwrap_or(false)
    }

    fn settle() {
        on_cpu(|world, _| world.settle());
    }

    fn take_interrupts() -> Interrupts {
        on_cpu(|world, _| world.await_interrupts());
        on_cpu(|world, _| world.engine.borrow_mut().take_interrupts()).expect(NO_CPU)
    }

    fn wait_for_interrupt() {
        on_cpu(|world, _| world.idle()).expect(NO_CPU);
    }

    fn set_timer(at: Time) {
        // The timer that was set before may have expired by now.
        on_cpu(|world, _| world.await_interrupts());
        on_cpu(|world, _| world.engine.borrow_mut().set_timer(at)).expect(NO_CPU);
    }

    #[track_caller]
    fn park(word: &SimulatedAtomic<u32>, expected: u32) {
        let site = Location::caller();
        on_cpu(|world, _| world.enter_parking());
        // Relaxed: a futex orders nothing; a CPU that parks reads the word again.
        if word.load(Ordering::Relaxed) == expected {
            on_cpu(|world, _| world.park(std::ptr::from_ref(word).addr(), site)).expect(NO_CPU);
        }
    }

    fn unpark(word: &SimulatedAtomic<u32>, count: usize) -> usize {
        let address = std::ptr::from_ref(word).addr();
        on_cpu(|world, _| world.enter_parking());
        on_cpu(|world, _| world.engine.borrow_mut().unpark(address, count)).expect(NO_CPU)
    }
}
