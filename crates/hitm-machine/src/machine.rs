//! [`Machine`]: sets up the CPUs, runs them until they return, and reports how that ended.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corosensei::{Coroutine, CoroutineResult};
use hitm_memory::{Span, Time};
use hitm_topology::{CpuId, Topology};

use crate::account::Account;
use crate::clock::Clock;
use crate::coherence::Kind;
use crate::config::Config;
use crate::costs::Costs;
use crate::engine::Engine;
use crate::event_queue::{TIME_END, Turn};
use crate::faults::FaultCounts;
use crate::permit::Permit;
use crate::program;
use crate::results::Results;
use crate::site::Site;
use crate::stack::ColouredStack;
use crate::store_buffer::ValueIs;
use crate::timeline::Timeline;
use crate::world::World;

/// A simulated machine. It belongs to one host thread.
#[derive(Debug)]
pub struct Machine {
    // Boxed: running code finds it by its address.
    world: Box<World>,
    clock: Arc<Clock>,
}

/// The reason why a machine ended before its CPUs returned.
#[derive(Debug)]
pub struct Stalled {
    /// The kind of stall.
    pub kind: StallKind,
    /// The simulated time.
    pub at: Time,
    /// What each CPU waited for.
    pub waits: Vec<String>,
}

/// The kinds of stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// No CPU can go on, and no event will happen.
    Deadlock,
    /// CPUs go on, but none has computed, idled or made progress for long.
    Livelock,
    /// The machine's time is over: see [`TIME_END`](crate::TIME_END).
    OutOfTime,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StallKind::Deadlock => "deadlock: no CPU can go on and nothing will happen",
            StallKind::OutOfTime => "the end of a machine's time, 37 minutes: ask for less time",
            StallKind::Livelock => "livelock: CPUs go on, but for long none has computed, idled or got something done",
        };
        write!(f, "{kind} (simulated time {:.6} s)", self.at.as_secs_f64())?;
        // CPUs with the same wait are one line: hundreds of idle CPUs would hide the one that
        // matters.
        let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
        for (cpu, wait) in self.waits.iter().enumerate() {
            let what = wait.split(" since ").next().unwrap_or(wait).to_owned();
            match groups.iter_mut().find(|(known, _)| *known == what) {
                Some((_, cpus)) => cpus.push(cpu),
                None => groups.push((what, vec![cpu])),
            }
        }
        for (what, cpus) in groups {
            match cpus.as_slice() {
                [cpu] => write!(f, "\n  cpu {cpu}: {}", self.waits[*cpu])?,
                [first, .., last] => write!(f, "\n  {} cpus ({first} to {last}): {what}", cpus.len())?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl std::error::Error for Stalled {}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// When `main` has returned on every CPU.
    Returned,
    /// When the measurement is over.
    Measured,
}

type Payload = Box<dyn Any + Send>;
type VirtualCpu = Coroutine<(), (), Result<(), Payload>, ColouredStack>;

impl Machine {
    /// Makes a machine whose CPUs have not started.
    #[must_use]
    pub fn new(topology: Arc<Topology>, costs: Costs, config: Config) -> Self {
        Self { world: Box::new(World::new(Engine::new(topology, costs, config))), clock: Arc::default() }
    }

    /// Returns the same machine, which keeps `clock` at its time while it runs.
    #[must_use]
    pub fn with_clock(self, clock: Arc<Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Keeps what each CPU does when, from `from` to `until`: see [`timeline`](Self::timeline). No
    /// result changes.
    pub fn keep_timeline(&self, from: Time, until: Time) {
        let mut engine = self.world.engine.borrow_mut();
        let cpus = engine.cpus.len();
        engine.timeline = Some(Box::new(Timeline::new((from.as_picos(), until.as_picos()), cpus)));
    }

    /// Returns what each CPU did when, if that was kept, and keeps it no longer.
    #[must_use]
    pub fn timeline(&self) -> Option<Timeline> {
        let mut engine = self.world.engine.borrow_mut();
        let mut timeline = *engine.timeline.take()?;
        timeline.finish(|line, byte| {
            let address = engine.pages.address_of(line).map(|address| (address + byte) as u64);
            (engine.arena.name(line, byte), address)
        });
        Some(timeline)
    }

    /// Lets a program run here with its own memory: every address that no placed object has is the
    /// program's. A load or store of the program that finds its line takes `issue`, or its latency
    /// if that is less. See [`program`](crate::program). Returns the permit of the CPU that runs.
    pub fn open_to_program(&self, issue: Span) -> Rc<Permit> {
        let mut engine = self.world.engine.borrow_mut();
        engine.pages.are_open = true;
        engine.pages.issue_cost = issue.as_picos();
        let is_on = engine.config.fast_path;
        engine.quick.open(is_on)
    }

    /// The running CPU executes instructions of the program for `executed` picoseconds, and then
    /// loads or stores `SIZE` bytes, at `code`, if it has the line alone and nothing else is to be
    /// considered. Returns whether it did. If not, the access has not happened: the caller does the
    /// same by [`program`](crate::program), with the same result.
    ///
    /// The next accesses may be made by the [permit](Permit) that the CPU has from then on, until
    /// anything else asks the machine: see [`end_permit`](Self::end_permit).
    ///
    /// A store's value is as with [`Stored::ByProgram`](crate::program::Stored::ByProgram): the
    /// program writes it before anything else happens. This uses no thread-local storage and no
    /// allocator, so it may be called from a program's own code.
    #[must_use]
    pub fn pass_quickly<const IS_STORE: bool, const SIZE: usize>(
        &self,
        executed: u64,
        address: usize,
        code: usize,
    ) -> bool {
        let Some(mut engine) = self.world.engine.quick() else { return false };
        self.world.current.get().is_some() && engine.pass_quickly::<IS_STORE, SIZE>(executed, address, code)
    }

    /// The running CPU executes instructions of the program for `executed` picoseconds, and then
    /// loads `SIZE` bytes, at `code`, if they are those of an own store that waits for its line,
    /// and nothing else is to be considered. Returns what the load reads; `None` if it has not
    /// happened, as with [`pass_quickly`](Self::pass_quickly).
    #[must_use]
    pub fn load_stored<const SIZE: usize>(&self, executed: u64, address: usize, code: usize) -> Option<u128> {
        let mut engine = self.world.engine.quick()?;
        self.world.current.get().filter(|_| program::is_in_line(address, SIZE))?;
        let touch = program::touch(address, SIZE, Kind::Load, program::NO_VALUE, Site::Code(code));
        engine.load_stored(executed, &touch)
    }

    /// The same for a store to a line that an own store waits for. Returns whether it has happened.
    /// The value is one that [the program writes](program::Stored::ByProgram) now; with `is_late`
    /// one that it [writes later](program::Stored::Later) and then
    /// [tells](Self::value_came).
    #[must_use]
    pub fn store_stored<const SIZE: usize>(&self, executed: u64, address: usize, code: usize, is_late: bool) -> bool {
        let Some(mut engine) = self.world.engine.quick() else { return false };
        if self.world.current.get().is_none() || !program::is_in_line(address, SIZE) {
            return false;
        }
        let value_is = if is_late { ValueIs::Late } else { ValueIs::Written };
        let touch = program::touch(address, SIZE, Kind::Store, (0, value_is), Site::Code(code));
        engine.store_stored(executed, &touch)
    }

    /// As [`program::value_came`], and may be called from a program's own code.
    ///
    /// # Panics
    /// Outside a machine's CPU.
    pub fn value_came(&self, bits: u128) {
        // No other code borrows the engine while the program's own code runs.
        self.world.value_came(bits);
    }

    /// Ends the permit of the running CPU, if it has one. Whoever keeps a part of its state learns
    /// by this when to take it back; the machine itself ends it when it must. It may be called from
    /// a program's own code.
    pub fn end_permit(&self) {
        if let Some(mut engine) = self.world.engine.quick() {
            engine.end_permit();
        }
    }

    /// Returns the address of a line of the results, if it is a line of a program.
    #[must_use]
    pub fn address_of(&self, line: u32) -> Option<usize> {
        self.world.engine.borrow().pages.address_of(line)
    }

    /// Runs `f` with this as the thread's machine: the objects that it makes are placed here, and
    /// accesses cost nothing.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        self.world.enter(f)
    }

    /// Runs `main` on every CPU until all have returned. CPUs start within [`Config::start_spread`]
    /// of each other; in a further run, after the last CPU of the previous run has ended.
    ///
    /// # Errors
    /// When the machine stalls: with what each CPU waited for. The stacks of CPUs that have not
    /// returned are leaked, here and when a CPU panics: other stacks may refer to them, and nothing
    /// can finish them.
    ///
    /// # Panics
    /// When `main` panics on a CPU, with the same payload. When the host has no memory for the
    /// stacks.
    pub fn run(&self, main: impl Fn(CpuId) + 'static) -> Result<(), Stalled> {
        self.run_until(End::Returned, Rc::new(main))
    }

    /// Runs `main` on every CPU to the end of the measurement, [`Config::measure_until`], and no
    /// further: what was measured is as after [`run`](Self::run), and nothing is waited for that
    /// comes later. Only [`Totals::resumes`](crate::Totals::resumes) and what else counts the whole
    /// run are less.
    ///
    /// The machine must not run again. What stands on the CPUs' stacks is never dropped, and the
    /// stacks are given back. So whatever `main` shares with them, tasks above all, must not be
    /// dropped either: forget it. Locks of the host are free: all CPUs are on one host thread, so
    /// one that were held while its CPU waits would have stopped the others.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_measurement(&self, main: impl Fn(CpuId) + 'static) -> Result<(), Stalled> {
        self.run_until(End::Measured, Rc::new(main))
    }

    fn run_until(&self, end: End, main: Rc<dyn Fn(CpuId)>) -> Result<(), Stalled> {
        let cpus = self.world.engine.borrow().cpus.len() as u32;
        // SAFETY of the yielder's address: see `World::suspend`; the world outlives the coroutines,
        // which end below.
        let mut coroutines: Vec<VirtualCpu> = (0..cpus).map(|cpu| self.start(cpu, main.clone())).collect();
        let result = self.enter(|| self.main_loop(end, &mut coroutines));
        self.world.engine.borrow_mut().end_run();
        if end == End::Measured && matches!(result, Ok(Ok(()))) {
            for coroutine in &mut coroutines {
                // SAFETY: its code never goes on, and what stands on its stack is not dropped: all
                // that has references to it is forgotten with it, as the caller was told.
                unsafe { coroutine.force_reset() };
            }
        }
        // A suspended coroutine is never dropped: see the errors above.
        for coroutine in coroutines {
            if coroutine.done() {
                coroutine.into_stack().keep();
            } else {
                std::mem::forget(coroutine);
            }
        }
        match result {
            Ok(ended) => ended,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn start(&self, cpu: u32, main: Rc<dyn Fn(CpuId)>) -> VirtualCpu {
        let mut engine = self.world.engine.borrow_mut();
        engine.start(cpu);
        let world: *const World = &raw const *self.world;
        let stack = ColouredStack::new(cpu).expect("memory for a CPU's stack");
        Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: `Machine::run` borrows the machine until every coroutine has ended.
            let world = unsafe { &*world };
            world.set_yielder(cpu, Some(yielder));
            let result = catch_unwind(AssertUnwindSafe(|| {
                main(CpuId(cpu));
                // SeqCst: the one fence that waits for stores. The CPU's last stores take effect,
                // so they are seen after the run.
                world.fence(Ordering::SeqCst);
            }));
            world.set_yielder(cpu, None);
            result
        })
    }

    /// Gives each CPU its turns. `Err` is a panic on a CPU.
    fn main_loop(&self, end: End, coroutines: &mut [VirtualCpu]) -> Result<Result<(), Stalled>, Payload> {
        let mut alive = coroutines.len();
        while alive > 0 {
            let mut engine = self.world.engine.between_turns();
            if engine.accesses_without_progress > engine.config.livelock_after {
                drop(engine);
                return Ok(Err(self.stalled(StallKind::Livelock)));
            }
            let turn = engine.next_turn(end == End::Measured);
            if end == End::Measured && engine.is_measured_until(turn) {
                engine.book_waits();
                return Ok(Ok(()));
            }
            let Turn::Cpu(cpu, time) = turn else {
                drop(engine);
                return Ok(Err(self.stalled(StallKind::Deadlock)));
            };
            if time >= TIME_END.as_picos() {
                drop(engine);
                return Ok(Err(self.stalled(StallKind::OutOfTime)));
            }
            engine.begin_turn(cpu, time);
            drop(engine);
            if let Some(result) = self.resume(cpu, time, &mut coroutines[cpu as usize]) {
                result?;
                alive -= 1;
            }
        }
        Ok(Ok(()))
    }

    /// Runs `cpu`, whose turn it is at `time`, until it waits. Returns its result, if it has ended.
    fn resume(&self, cpu: u32, time: u64, coroutine: &mut VirtualCpu) -> Option<Result<(), Payload>> {
        self.clock.set(time);
        self.world.current.set(Some(cpu));
        let result = coroutine.resume(());
        self.world.current.set(None);
        let mut engine = self.world.engine.borrow_mut();
        engine.end_turn();
        match result {
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(result) => {
                engine.finish();
                Some(result)
            }
        }
    }

    fn stalled(&self, kind: StallKind) -> Stalled {
        let cpus = self.world.engine.borrow().cpus.len() as u32;
        let at = self.world.engine.borrow().cpus.iter().map(|cpu| cpu.clock).max().unwrap_or(0);
        let waits = (0..cpus).map(|cpu| self.world.describe_wait(cpu)).collect();
        Stalled { kind, at: Time::from_picos(at), waits }
    }

    /// Returns the counts: without those since
    /// [`Simulated::begin_tail`](crate::Simulated::begin_tail), if that came last.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut engine = self.world.engine.borrow_mut();
        engine.conclude();
        Results::of(&engine)
    }

    /// Returns where the CPUs' time went, without the lines and names of [`results`](Self::results).
    #[must_use]
    pub fn account(&self) -> Account {
        self.world.engine.borrow().account()
    }

    /// Returns the faults so far. None unless [`Config::faults`] is set.
    #[must_use]
    pub fn faults(&self) -> FaultCounts {
        self.world.engine.borrow().faults.as_ref().map_or_else(FaultCounts::default, |faults| faults.counts)
    }

    /// Returns the bytes of the table of lines: see
    /// [`Directory::table_bytes`](crate::coherence::Directory::table_bytes).
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.world.engine.borrow().directory.table_bytes()
    }

    /// Checks the invariants of the directory, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.world.engine.borrow().directory.check();
    }

    /// Returns the races found so far, in words. None unless [`Config::check_races`] is set.
    #[must_use]
    pub fn races(&self) -> Vec<String> {
        self.world.engine.borrow().describe_races()
    }
}

#[cfg(test)]
mod tests {
    use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice, Platform, Span};

    use super::*;
    use crate::costs::CostSet;
    use crate::simulated::Simulated;

    #[test]
    fn time_ends() {
        let topology = Arc::new(hitm_topology::parse("core:1").unwrap());
        let costs = Costs::of(&topology, crate::CostSet::Linux);
        let machine = Machine::new(topology, costs, Config::default());
        let stalled = machine.run(|_| {
            for _ in 0..3 {
                Simulated::compute(Span::from_micros(1_000_000_000));
            }
        });
        assert_eq!(stalled.expect_err("fifty minutes").kind, StallKind::OutOfTime);
    }

    #[test]
    fn a_cpu_that_gets_something_done_is_no_livelock() {
        let topology = Arc::new(hitm_topology::parse("core:1").unwrap());
        let costs = Costs::of(&topology, crate::CostSet::Linux);
        let machine = Machine::new(topology, costs, Config { livelock_after: 100, ..Config::default() });
        let fields = || vec![Field::word("word", 0, 4, "a count")];
        let make = |_| <Simulated as Memory>::Atomic::<u32>::new(0);
        let word = machine.enter(|| PlacedSlice::<Simulated, _>::new("word", None, None, 1, &fields, make));
        let ended = machine.run(move |_| {
            for _ in 0..1_000 {
                // Relaxed: one CPU.
                word[0].fetch_add(1, Ordering::Relaxed);
                Simulated::progress();
            }
        });
        assert!(ended.is_ok());
    }

    #[test]
    fn a_cpu_that_only_finds_what_it_has_is_a_livelock_too() {
        let topology = Arc::new(hitm_topology::parse("core:1 pu:1").expect("a machine of one CPU"));
        let costs = Costs::of(&topology, CostSet::Linux);
        let machine = Machine::new(topology, costs, Config { livelock_after: 1_000, ..Config::default() });
        let fields = || vec![Field::word("word", 0, 4, "never changes")];
        let make = |_| <Simulated as Memory>::Atomic::<u32>::new(0);
        let word = machine.enter(|| PlacedSlice::<Simulated, _>::new("word", None, None, 1, &fields, make));
        // Relaxed: one CPU.
        let stalled = machine.run(move |_| while word[0].load(Ordering::Relaxed) == 0 {}).expect_err("it never ends");
        assert_eq!(stalled.kind, StallKind::Livelock);
    }
}
