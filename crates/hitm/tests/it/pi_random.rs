//! PI mutexes at random: tasks nest them, time out, close cycles and die with them, while
//! priorities change.
//!
//! A ledger that is independent of the queues records the owner and the waiters of each mutex. At
//! rest it yields each task's expected priority: the most urgent of the task itself, of the waiters
//! for its mutexes, and so on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use hitm::sync::{Futex, PiLockError, PiMutex, PiMutexGuard};
use hitm::{Handle, JoinHandle, Priority, Span};
use hitm_machine::Random;
use hitm_memory::{AtomicWord, Platform};

use crate::stage::joined;

/// The number of working tasks.
const TASKS: usize = 8;
/// The number of mutexes: few, so that chains are long.
const MUTEXES: usize = 5;
/// How often a task takes mutexes.
const ROUNDS: usize = 40;
/// The lowest own priority of the working tasks; the checking task is less urgent.
const LEAST: u8 = 2;
const MOST: u8 = 60;

fn any_priority(random: &mut Random) -> u8 {
    LEAST + random.below(u64::from(MOST - LEAST)) as u8
}

/// The owner and the waiters of each mutex, as the tasks report them.
#[derive(Clone, Debug, Default)]
struct Facts {
    owner: [Option<usize>; MUTEXES],
    died: [bool; MUTEXES],
    wants: [Option<usize>; TASKS],
    own: [u8; TASKS],
    at_rest: [bool; TASKS],
    gone: [bool; TASKS],
    seen: Seen,
}

/// Counts of events, so that a run without events is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    lent: u32,
    chains: u32,
    deadlocks: u32,
    given_up: u32,
    deaths: u32,
}

impl Facts {
    /// Returns the expected priority of each task.
    fn urgency(&self) -> [u8; TASKS] {
        let mut urgency = self.own;
        // A chain has at most as many links as there are tasks.
        for _ in 0..TASKS {
            for (task, mutex) in self.wants.iter().enumerate() {
                if let Some(owner) = mutex.and_then(|mutex| self.owner[mutex]) {
                    urgency[owner] = urgency[owner].max(urgency[task]);
                }
            }
        }
        urgency
    }
}

struct World<P: Platform> {
    handle: Handle<P>,
    mutexes: [PiMutex<P, u32>; MUTEXES],
    /// 1 while all tasks must come to rest.
    rest: Futex<P>,
    facts: Mutex<Facts>,
}

/// The guard of a mutex whose owner the ledger records too.
struct Owned<'a, P: Platform> {
    world: &'a World<P>,
    mutex: usize,
    guard: Option<PiMutexGuard<'a, P, u32>>,
    dies: bool,
}

impl<P: Platform> Drop for Owned<'_, P> {
    fn drop(&mut self) {
        {
            let mut facts = self.world.facts();
            facts.owner[self.mutex] = None;
            facts.died[self.mutex] = self.dies;
        }
        drop(self.guard.take());
    }
}

impl<P: Platform> World<P> {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        // State outside the simulated memory is accessed in the order of simulated time.
        P::settle();
        self.facts.lock().expect("no holder panics")
    }

    /// Waits while all tasks must be at rest.
    async fn pause(&self, task: usize) {
        // Acquire: pairs with the Release of the checking task.
        while self.rest.word().load(Ordering::Acquire) == 1 {
            self.facts().at_rest[task] = true;
            self.rest.wait(1).await;
        }
        self.facts().at_rest[task] = false;
    }

    /// Takes a mutex for a task; returns `None` when the lock timed out or was refused.
    async fn take(&self, task: usize, mutex: usize, patience: Option<Span>) -> Option<Owned<'_, P>> {
        self.facts().wants[task] = Some(mutex);
        let lock = self.mutexes[mutex].lock();
        let taken = match patience {
            Some(patience) => self.handle.timeout(patience, lock).await.ok(),
            None => Some(lock.await),
        };
        let mut facts = self.facts();
        facts.wants[task] = None;
        let (guard, died) = match taken {
            None => {
                facts.seen.given_up += 1;
                return None;
            }
            Some(Err(PiLockError::Deadlock)) => {
                facts.seen.deadlocks += 1;
                return None;
            }
            Some(Err(PiLockError::TooDeep)) => panic!("{TASKS} tasks are no deep chain"),
            Some(Err(PiLockError::OwnerDied(guard))) => (guard, true),
            Some(Ok(guard)) => (guard, false),
        };
        assert_eq!(facts.owner[mutex], None, "task {task} takes mutex {mutex}, which is owned");
        assert_eq!(facts.died[mutex], died, "the report to task {task} on the last owner of mutex {mutex}");
        facts.owner[mutex] = Some(task);
        Some(Owned { world: self, mutex, guard: Some(guard), dies: false })
    }
}

/// The life of a working task.
async fn work<P: Platform>(world: Arc<World<P>>, task: usize, seed: u64) {
    struct Gone<P: Platform>(Arc<World<P>>, usize);
    impl<P: Platform> Drop for Gone<P> {
        fn drop(&mut self) {
            self.0.facts().gone[self.1] = true;
        }
    }
    let _gone = Gone(world.clone(), task);
    let mut random = Random::new(seed, 0);
    for _ in 0..ROUNDS {
        let mut owned: Vec<Owned<'_, P>> = Vec::new();
        for _ in 0..1 + random.below(3) {
            let mutex = random.below(MUTEXES as u64) as usize;
            // Mostly in one order, so that cycles are rare.
            let in_order = owned.iter().all(|own| own.mutex < mutex);
            if owned.iter().any(|own| own.mutex == mutex) || !in_order && random.below(4) > 0 {
                continue;
            }
            let patience = (random.below(4) == 0).then(|| Span::from_nanos(random.below(5_000)));
            match world.take(task, mutex, patience).await {
                Some(mut own) => {
                    **own.guard.as_mut().expect("just taken") += 1;
                    owned.push(own);
                }
                None => break,
            }
            world.handle.compute(Span::from_nanos(random.below(4_000))).await;
            world.pause(task).await;
        }
        if random.below(50) == 0 && !owned.is_empty() {
            world.facts().seen.deaths += 1;
            owned.iter_mut().for_each(|own| own.dies = true);
            std::panic::resume_unwind(Box::new("as planned"));
        }
        if random.below(8) == 0 {
            let priority = any_priority(&mut random);
            world.facts().own[task] = priority;
            world.handle.set_priority(Priority::fifo(priority));
        }
        while !owned.is_empty() {
            drop(owned.swap_remove(random.below(owned.len() as u64) as usize));
            world.handle.checkpoint().await;
        }
        world.handle.compute(Span::from_nanos(random.below(3_000))).await;
        world.pause(task).await;
    }
}

/// In a quiescent state: compares the actual state with the expected state.
fn check<P: Platform>(world: &World<P>, tasks: &[JoinHandle<P, ()>]) {
    let mut facts = world.facts().clone();
    let expect = facts.urgency();
    for (task, handle) in tasks.iter().enumerate().filter(|&(task, _)| !facts.gone[task]) {
        assert!(facts.at_rest[task] || facts.wants[task].is_some(), "task {task} is not at rest: {facts:?}");
        if let Some(mutex) = facts.wants[task] {
            assert!(facts.owner[mutex].is_some(), "task {task} waits for mutex {mutex}, which has no owner: {facts:?}");
        }
        let is = world.handle.diagnostics().priority_of(handle.id()).rt_priority();
        assert_eq!(is, Some(expect[task]), "task {task} of {expect:?}: {facts:?}");
        facts.seen.lent += u32::from(expect[task] > facts.own[task]);
        facts.seen.chains += u32::from(expect[task] > facts.own[task] && facts.wants[task].is_some());
    }
    for (number, mutex) in world.mutexes.iter().enumerate() {
        let look = mutex.look();
        let stand: Vec<_> = look.waiters.iter().map(|(prio, _)| *prio).collect();
        assert!(stand.is_sorted(), "the queue of mutex {number}: {look:?}");
        for (prio, id) in look.waiters {
            assert_eq!(prio, world.handle.diagnostics().priority_of(id), "a place in the queue of mutex {number}");
            assert_eq!(look.owner, facts.owner[number].map(|owner| tasks[owner].id()));
        }
    }
    world.facts().seen = facts.seen;
}

/// Runs the tasks, brings them to rest repeatedly and checks. Returns the counts.
async fn turmoil<P: Platform>(handle: Handle<P>, seed: u64, rests: usize) -> Seen {
    let mut random = Random::new(seed, 0);
    let own = std::array::from_fn(|_| any_priority(&mut random));
    let world = Arc::new(World {
        mutexes: std::array::from_fn(|_| PiMutex::new(&handle, 0)),
        rest: Futex::new(&handle, 0),
        facts: Mutex::new(Facts { own, ..Facts::default() }),
        handle: handle.clone(),
    });
    let spawn = |task: usize| {
        handle
            .spawn(Priority::fifo(own[task]), work(world.clone(), task, seed.wrapping_mul(TASKS as u64) + task as u64))
    };
    let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
    for _ in 0..rests {
        handle.sleep(Span::from_nanos(random.below(40_000))).await;
        // Release: pairs with `pause`.
        world.rest.word().store(1, Ordering::Release);
        // Longer than any task works or waits before it times out.
        handle.sleep(Span::from_micros(2_000)).await;
        check(&world, &tasks);
        let task = random.below(TASKS as u64) as usize;
        if !world.facts().gone[task] {
            let priority = any_priority(&mut random);
            world.facts().own[task] = priority;
            handle.set_priority_of(&tasks[task], Priority::fifo(priority));
            check(&world, &tasks);
        }
        // Release: pairs with `pause`.
        world.rest.word().store(0, Ordering::Release);
        world.rest.wake(usize::MAX);
    }
    for task in tasks {
        if let Err(error) = task.await {
            let payload = error.into_panic().expect("no task aborts it");
            if payload.downcast_ref::<&str>() != Some(&"as planned") {
                std::panic::resume_unwind(payload);
            }
        }
    }
    for mutex in &world.mutexes {
        assert!(mutex.look().waiters.is_empty());
    }
    world.facts().seen
}

#[cfg(not(miri))]
#[test]
fn priorities_are_what_they_ought_to_be_whenever_all_are_at_rest() {
    use hitm_machine::{Arbitration, Config};

    use crate::host::{MACHINES, Setup, simulate};

    let mut all = Seen::default();
    for seed in 0..24 {
        let setup = Setup::of(MACHINES[seed as usize % MACHINES.len()]);
        let arbitration = if seed % 8 < 4 { Arbitration::Fifo } else { Arbitration::LocalFirst };
        let config = Config { seed, arbitration, ..setup.config.clone() };
        let seen = simulate(Setup { config, ..setup }, move |handle| turmoil(handle, seed, 12)).result;
        all.lent += seen.lent;
        all.chains += seen.chains;
        all.deadlocks += seen.deadlocks;
        all.given_up += seen.given_up;
        all.deaths += seen.deaths;
    }
    let least = [all.lent, all.chains, all.deadlocks, all.given_up, all.deaths].into_iter().min();
    assert!(least >= Some(20), "too little happened: {all:?}");
}

#[test]
fn natively_owners_are_alone_and_all_come_to_an_end() {
    for seed in 0..if cfg!(miri) { 1 } else { 8 } {
        crate::host::native(move |handle| {
            let main = handle.spawn((), turmoil(handle.clone(), seed, 0));
            async move { _ = joined(main).await }
        });
    }
}
