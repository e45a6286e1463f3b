//! The bridge between running code and the engine: which machine this thread runs, and the switch
//! to its main loop.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::panic::Location;
use std::ptr::{NonNull, null};
use std::sync::atomic::Ordering;

use corosensei::Yielder;
use hitm_memory::{Mapping, PathCost, Span, Time};

use crate::cpu::Waits;
use crate::engine::{Engine, Issue, Step, Touch};
use crate::program::NO_CPU;
use crate::race::Races;
use crate::site::Site;

/// A place in the source of code that is generic over the memory.
pub(crate) type SourcePlace = &'static Location<'static>;

/// The way from a CPU's coroutine back to the main loop.
type WayBack = NonNull<Yielder<(), ()>>;

/// The engine. Whoever asks it for anything but the fast path ends the permit of that.
#[derive(Debug)]
pub(crate) struct EngineCell(RefCell<Engine>);

impl EngineCell {
    // Always: the common case is one comparison more.
    #[inline(always)]
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Engine> {
        let mut engine = self.0.borrow_mut();
        engine.end_permit();
        engine
    }

    #[inline(always)]
    pub(crate) fn borrow(&self) -> Ref<'_, Engine> {
        let engine = self.0.borrow();
        if !engine.quick.is_open {
            return engine;
        }
        drop(engine);
        drop(self.borrow_mut());
        self.0.borrow()
    }

    /// While no code of a CPU runs. Then there is no permit: what a turn ends with has ended it.
    #[inline(always)]
    pub(crate) fn between_turns(&self) -> RefMut<'_, Engine> {
        let engine = self.0.borrow_mut();
        debug_assert!(!engine.quick.is_open, "a permit ends with its turn");
        engine
    }

    /// For the fast path; none while other code borrows the engine.
    #[inline(always)]
    pub(crate) fn quick(&self) -> Option<RefMut<'_, Engine>> {
        self.0.try_borrow_mut().ok()
    }
}

/// One machine, as the code that runs on it sees it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) engine: EngineCell,
    /// Whether the race detector is at work.
    checks_races: bool,
    /// The CPU whose code runs; none while the machine is being set up or looked at, when accesses
    /// cost nothing.
    pub(crate) current: Cell<Option<u32>>,
    /// By CPU: the way back to the main loop. Valid while that CPU's coroutine is alive.
    yielders: Box<[Cell<Option<WayBack>>]>,
    /// The place that stands for all accesses of the current CPU at present. While a CPU is not
    /// current, its own is on its stack.
    site: Cell<Option<SourcePlace>>,
}

thread_local! {
    static WORLD: Cell<*const World> = const { Cell::new(null()) };
}

impl World {
    pub(crate) fn new(engine: Engine) -> Self {
        let cpus = engine.cpus.len();
        Self {
            checks_races: engine.races.is_some(),
            engine: EngineCell(RefCell::new(engine)),
            current: Cell::new(None),
            yielders: vec![Cell::new(None); cpus].into(),
            site: Cell::new(None),
        }
    }

    /// Runs `f` with this as the thread's machine.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Restores what was before, also when `f` panics.
        struct Restore(*const World);
        impl Drop for Restore {
            fn drop(&mut self) {
                WORLD.set(self.0);
            }
        }
        let _restore = Restore(WORLD.replace(self));
        f()
    }

    /// The code of `cpu` begins to run on the stack that `yielder` leads away from, or has ended.
    pub(crate) fn set_yielder(&self, cpu: u32, yielder: Option<&Yielder<(), ()>>) {
        self.yielders[cpu as usize].set(yielder.map(NonNull::from));
        self.site.set(None);
    }

    /// Switches to the main loop; returns when the current CPU has its turn again.
    fn suspend(&self) {
        let cpu = self.current.get().expect("only code on a CPU waits");
        let yielder = self.yielders[cpu as usize].get().expect("the CPU's coroutine is alive");
        // SAFETY: `set_yielder` was given the yielder of this CPU's coroutine, which is the one
        // that runs now, and which outlives this call because the call is on its stack.
        let yielder = unsafe { yielder.as_ref() };
        let site = self.site.take();
        yielder.suspend(());
        self.site.set(site);
    }

    /// Waits until everything before the current CPU's clock has happened.
    pub(crate) fn settle(&self) {
        let step = self.engine.borrow_mut().may_act();
        if step == Step::Suspend {
            self.suspend();
        }
    }

    /// Waits until it is known which interrupts have reached the current CPU.
    pub(crate) fn await_interrupts(&self) {
        let step = self.engine.borrow_mut().may_see_interrupts();
        if step == Step::Suspend {
            self.suspend();
        }
    }

    /// The place that an access at `caller` is counted for.
    #[inline]
    pub(crate) fn site(&self, caller: SourcePlace) -> SourcePlace {
        self.site.get().unwrap_or(caller)
    }

    /// An access: returns when its value may be read or written. For a store, whether that is left
    /// to the machine; for a load, its value when it is one that only this CPU knows yet.
    #[inline]
    pub(crate) fn touch(&self, touch: &Touch) -> Issue {
        match self.issue(touch) {
            issued @ (Issue::Now | Issue::Forwarded(_) | Issue::Buffered) => issued,
            issued => self.wait_to_touch(touch, issued),
        }
    }

    // One copy, and no loop round it, from which the compiler would lift what no hit needs.
    #[inline(never)]
    fn issue(&self, touch: &Touch) -> Issue {
        self.engine.borrow_mut().issue(touch)
    }

    /// The same for an access that is not done, as `issued` says: does what that asks for and
    /// issues it again, as often as it takes.
    #[inline(never)]
    fn wait_to_touch(&self, touch: &Touch, mut issued: Issue) -> Issue {
        loop {
            match issued {
                Issue::Now | Issue::Forwarded(_) | Issue::Buffered => return issued,
                Issue::Again => {}
                Issue::Later => self.suspend(),
                Issue::Wait => {
                    self.suspend();
                    self.engine.borrow_mut().granted(touch);
                    return issued;
                }
                Issue::Drain => self.drain(),
                Issue::Unknown => self.know_page(touch),
            }
            issued = self.issue(touch);
        }
    }

    /// The value of the current CPU's last store, which was not known, is `bits`.
    pub(crate) fn value_came(&self, bits: u128) {
        let cpu = self.current.get().expect(NO_CPU);
        self.engine.borrow_mut().cpus[cpu as usize].stores.value_came(bits);
    }

    /// Waits until the current CPU's stores have taken effect.
    #[inline(never)]
    fn drain(&self) {
        self.suspend();
        self.engine.borrow_mut().stores_drained();
    }

    /// Tells the race detector, if there is one, of what has been done.
    #[inline]
    pub(crate) fn watch(&self, f: impl FnOnce(&mut Races)) {
        if self.checks_races
            && let Some(races) = &mut self.engine.borrow_mut().races
        {
            f(races);
        }
    }

    /// The page of an access that is no object's is touched for the first time: it gets its lines.
    #[inline(never)]
    fn know_page(&self, touch: &Touch) {
        let is_programs = self.engine.borrow_mut().pages.are_open;
        assert!(is_programs, "{}: a word of the simulated world is outside the machine's memory", touch.site);
        // Pages get their lines in the order of simulated time.
        self.settle();
        let mut engine = self.engine.borrow_mut();
        let address = engine.moved.at(touch.address(), engine.current);
        if engine.pages.line_of(address).is_none() {
            engine.adopt_page(touch.address());
        }
    }

    /// A full fence: the store buffer drains.
    pub(crate) fn fence(&self, order: Ordering) {
        let Some(cpu) = self.current.get() else { return };
        let mut engine = self.engine.borrow_mut();
        if let Some(races) = &mut engine.races {
            races.fence(cpu, order);
        }
        drop(engine);
        // On x86 only a full fence is an instruction.
        if order == Ordering::SeqCst {
            self.serialize();
        }
    }

    /// What the current CPU has stored takes effect before it goes on, and no later load was under
    /// way before.
    pub(crate) fn serialize(&self) {
        let step = self.engine.borrow_mut().serialize();
        if step == Step::Suspend {
            self.drain();
        }
    }

    /// The current CPU enters the kernel to park or unpark, which both serialise there: returns
    /// when it comes before everybody else, so that whoever parks because of what a word holds has
    /// parked before that word is written and he is sought.
    pub(crate) fn enter_parking(&self) {
        self.serialize();
        self.settle();
    }

    /// The memory in `start..end` is touched for the first time, by the current CPU. A fault
    /// serialises.
    pub(crate) fn first_touch(&self, start: usize, end: usize, mapping: Mapping) {
        self.serialize();
        self.settle();
        self.engine.borrow_mut().first_touch(start, end, mapping);
    }

    /// Waits until the line of a word is written that was looked at.
    pub(crate) fn spin_on(&self, looked: &Touch) {
        let issued = loop {
            let issued = self.engine.borrow_mut().spin_on(looked);
            if issued != Issue::Later {
                break issued;
            }
            self.suspend();
        };
        if issued == Issue::Wait {
            self.suspend();
            self.engine.borrow_mut().spun();
        }
    }

    /// Waits until the line of one of several words is written that were looked at.
    pub(crate) fn spin_on_any(&self, looked: &[Touch]) {
        let issued = loop {
            let issued = self.engine.borrow_mut().spin_on_any(looked);
            if issued != Issue::Later {
                break issued;
            }
            self.suspend();
        };
        if issued == Issue::Wait {
            self.suspend();
            self.engine.borrow_mut().spun();
        }
    }

    /// Books what the current CPU waits for as waiting for a lock, or not.
    pub(crate) fn set_spinning(&self, cpu: u32, spinning: bool) {
        self.engine.borrow_mut().cpus[cpu as usize].spinning = spinning;
    }

    /// A path of the kernel.
    pub(crate) fn charge(&self, path: PathCost) {
        self.know_other_threads();
        self.engine.borrow_mut().charge(path);
    }

    /// Waits until it is known what the other threads of the current CPU's core do at its clock, if
    /// that matters. Whether everything before its clock has happened then.
    fn know_other_threads(&self) -> bool {
        let engine = self.engine.borrow();
        if !engine.shares_core() || engine.knows_other_threads() {
            return false;
        }
        drop(engine);
        self.settle();
        true
    }

    /// Work: what is left of it when an interrupt ends it.
    pub(crate) fn compute(&self, work: Span) -> Span {
        // Whoever knows all that has happened knows the interrupts.
        if !self.know_other_threads() {
            self.await_interrupts();
        }
        let takes = self.engine.borrow().in_shared_core(work.as_picos());
        self.occupy(work, takes)
    }

    /// A time, whoever shares the core: what is left of it when an interrupt ends it.
    pub(crate) fn delay(&self, span: Span) -> Span {
        self.await_interrupts();
        self.occupy(span, span.as_picos())
    }

    /// The current CPU has `work` that takes so many picoseconds; what is left of it when an
    /// interrupt ends it.
    fn occupy(&self, work: Span, takes: u64) -> Span {
        let step = self.engine.borrow_mut().begin_compute(takes);
        if step == Step::Suspend {
            self.suspend();
        }
        self.engine.borrow_mut().end_compute(work)
    }

    pub(crate) fn idle(&self) {
        self.await_interrupts();
        let step = self.engine.borrow_mut().begin_idle();
        if step == Step::Suspend {
            self.suspend();
        }
        self.engine.borrow_mut().end_idle();
    }

    pub(crate) fn park(&self, address: usize, caller: SourcePlace) {
        self.engine.borrow_mut().begin_park(address, Site::Source(caller));
        self.suspend();
        self.engine.borrow_mut().end_park();
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_picos(self.engine.borrow().clock())
    }

    /// Runs `f` with `site` as the place of every access of the current CPU.
    pub(crate) fn at<R>(&self, site: SourcePlace, f: impl FnOnce() -> R) -> R {
        if self.current.get().is_none() {
            return f();
        }
        let before = self.site.replace(Some(site));
        let result = f();
        self.site.set(before);
        result
    }

    /// Runs `f` as if no CPU ran: what it touches costs nothing and is not recorded.
    pub(crate) fn aside<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Goes on with the CPU, also when `f` panics.
        struct Back<'a>(&'a Cell<Option<u32>>, Option<u32>);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        if self.current.get().is_some() {
            // What the CPU itself has stored is to be seen too, and what others did before now.
            self.serialize();
            self.settle();
        }
        let _back = Back(&self.current, self.current.take());
        f()
    }

    /// What a CPU waits for, in words.
    pub(crate) fn describe_wait(&self, cpu: u32) -> String {
        let engine = self.engine.borrow();
        let micros = |since: u64| since as f64 * 1e-6;
        match engine.cpus[cpu as usize].waits {
            _ if engine.cpus[cpu as usize].finished => "finished".to_owned(),
            Waits::Nothing => "runs".to_owned(),
            Waits::Line { line, site, since } => {
                format!("waits for {} at {} since {:.3} us", engine.arena.name(line, 0), site, micros(since))
            }
            Waits::Spin { line, offset, site, since } => {
                let word = engine.arena.name(line, offset);
                format!("spins on {word} at {} since {:.3} us", site, micros(since))
            }
            Waits::StoreBuffer { since } => format!("waits for its stores since {:.3} us", micros(since)),
            Waits::Compute { until, .. } => format!("computes until {:.3} us", micros(until)),
            Waits::Interrupt { since } => format!("idles since {:.3} us", micros(since)),
            Waits::Park { address, site, since } => {
                let line = engine.arena.line_of(address).unwrap_or(0);
                let word = engine.arena.name(line, address % hitm_memory::LINE);
                format!("is parked on {word} at {} since {:.3} us: nobody unparked it", site, micros(since))
            }
        }
    }
}

/// Runs `f` with this thread's machine and the CPU that runs, if there are such.
#[inline]
pub(crate) fn on_cpu<R>(f: impl FnOnce(&World, u32) -> R) -> Option<R> {
    let world = WORLD.get();
    if world.is_null() {
        return None;
    }
    // SAFETY: `World::enter` set the pointer from a reference that lives as long as its call, and
    // clears it before it returns; this call is inside that one.
    let world = unsafe { &*world };
    world.current.get().map(|cpu| f(world, cpu))
}

/// Runs `f` with this thread's machine, if it has one.
pub(crate) fn with_world<R>(f: impl FnOnce(&World) -> R) -> Option<R> {
    let world = WORLD.get();
    if world.is_null() {
        return None;
    }
    // SAFETY: as in `on_cpu`.
    Some(f(unsafe { &*world }))
}
