//! The life of a task: random steps, each with its own ways to fail.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;

use hitm::sync::{MutexGuard, PiLockError, PiMutexGuard};
use hitm::{JoinHandle, SpawnOptions};
use hitm_machine::Random;
use hitm_memory::{Platform, Span, Time};
use hitm_topology::CpuId;

use crate::defects::Flaw;
use crate::fair::{self, Change};
use crate::ledger::{Check, Doing, Owners};
use crate::plan::{MUTEXES, QUEUES, Step, real_time};
use crate::tally::Fault;
use crate::tenants::watched;
use crate::world::{Planned, Reached, World};

/// The streams of the tasks' random numbers follow that of the plan.
const FIRST_STREAM: u64 = 1 << 40;

/// Records in the ledger that a future is dropped.
struct Life<P: Platform> {
    world: Arc<World<P>>,
    serial: u32,
}

impl<P: Platform> Drop for Life<P> {
    fn drop(&mut self) {
        self.world.books().drop_future(self.serial);
    }
}

/// A destructor that panics as planned, except during an unwind.
struct Bomb<P: Platform>(Arc<World<P>>);

impl<P: Platform> Drop for Bomb<P> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.came(Fault::PanicInDrop);
            resume_unwind(Box::new(Planned));
        }
    }
}

/// Makes a task; returns `None` when enough tasks are alive.
pub(crate) fn spawn<P: Platform>(world: &Arc<World<P>>, random: &mut Random) -> Option<(u32, JoinHandle<P, u32>)> {
    let plan = &world.plan;
    let (own, allowed) = (plan.priority(random), plan.allowed(random));
    let (steps, explodes) = (plan.steps(random), random.below(60) == 0);
    let (serial, tenant, fair, group) = {
        let mut books = world.books();
        if books.living >= plan.tasks {
            return None;
        }
        let serial = books.make(own, &allowed);
        let tenant = plan.tenant_of(serial);
        let (fair, group) = plan.fair_of(serial);
        let entry = books.entry(serial);
        (entry.panics, entry.tenant) = (explodes, tenant);
        if fair.is_some() {
            entry.own = Some(0);
        }
        (serial, tenant, fair, group)
    };
    let bomb = explodes.then(|| Bomb(world.clone()));
    let actor = Actor {
        life: Life { world: world.clone(), serial },
        random: Random::new(plan.seed, FIRST_STREAM + u64::from(serial)),
    };
    // Drawn for a fair task too, so that later draws stay the same.
    let real_time = real_time(own, random);
    let priority = fair.unwrap_or(real_time);
    let own_tenant = tenant.map(|tenant| world.tenants.tenant(tenant));
    let group = group.and_then(|group| world.groups.group(group));
    let options = SpawnOptions { priority, cpus: Some(allowed), tenant: own_tenant, group, ..SpawnOptions::default() };
    let life = live(actor, bomb, steps);
    let task = match tenant {
        Some(tenant) => world.handle.spawn(options, watched(world.clone(), tenant, serial, life)),
        None => world.handle.spawn(options, life),
    };
    world.books().entry(serial).id = Some(task.id());
    Some((serial, task))
}

async fn live<P: Platform>(mut actor: Actor<P>, bomb: Option<Bomb<P>>, steps: u64) -> u32 {
    let _bomb = bomb;
    actor.world().note(actor.life.serial, Doing::Runs, Time::NEVER);
    for _ in 0..steps {
        actor.world().pause(actor.life.serial).await;
        if actor.world().is_ending() || actor.is_abandoned() {
            break;
        }
        actor.step().await;
    }
    let serial = actor.life.serial;
    actor.world().books().entry(serial).done = true;
    serial
}

/// The kind of mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Pi,
}

/// The guard of a mutex whose owner the ledger records too.
struct Owned<'a, P: Platform, G> {
    world: &'a World<P>,
    kind: Kind,
    mutex: usize,
    guard: Option<G>,
    /// Whether the guard is released normally, not by a death.
    gives_back: bool,
}

impl<P: Platform, G> Owned<'_, P, G> {
    fn give_back(mut self) {
        self.gives_back = true;
    }
}

impl<P: Platform, G> Drop for Owned<'_, P, G> {
    fn drop(&mut self) {
        {
            let mut books = self.world.books();
            let owners = owners(&mut books, self.kind);
            owners.owner[self.mutex] = None;
            // A mutex that is released while another CPU's task unwinds is released at the end of
            // the poll; a panic before that counts as a death with the mutex.
            let is_known = !(self.gives_back && std::thread::panicking());
            owners.died[self.mutex] = is_known.then_some(!self.gives_back);
        }
        drop(self.guard.take());
    }
}

fn owners(books: &mut crate::ledger::Books, kind: Kind) -> &mut Owners {
    if kind == Kind::Plain { &mut books.mutexes } else { &mut books.pi_mutexes }
}

/// A task, and its random draws.
struct Actor<P: Platform> {
    life: Life<P>,
    random: Random,
}

impl<P: Platform> Actor<P> {
    fn world(&self) -> &Arc<World<P>> {
        &self.life.world
    }

    /// Draws true one time in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    /// Draws a timeout, except one time in `times`.
    fn patience(&mut self, times: u64) -> Option<Span> {
        (!self.once_in(times)).then(|| self.life.world.plan.sleep(&mut self.random))
    }

    /// Returns whether the task that should have ended the run has not returned.
    fn is_abandoned(&self) -> bool {
        P::settle();
        let (operations, plan) = (self.world().sched.operations(), &self.world().plan);
        let abandoned = operations > 2 * plan.operations + 100_000;
        if abandoned && self.world().ledger.is_clean() {
            let text =
                format!("{operations} operations, and who controls the run was not back after {}", plan.operations);
            self.world().ledger.find(Check::LostTask, text);
        }
        abandoned
    }

    async fn step(&mut self) {
        let world = self.world().clone();
        let step = world.plan.pick(&mut self.random);
        match step {
            Step::Compute => {
                let burst = world.plan.burst(&mut self.random);
                world.handle.compute(burst).await;
            }
            Step::Sleep => {
                let span = world.plan.sleep(&mut self.random);
                let _sleeps = world.wait(self.life.serial, Doing::Sleeps, Some(span));
                world.handle.sleep(span).await;
            }
            Step::Yield => world.handle.yield_now().await,
            Step::Checkpoint => world.handle.checkpoint().await,
            Step::Park => self.park().await,
            Step::Unpark => self.unpark(),
            Step::Mutex => self.mutex().await,
            Step::PiMutex => self.pi_mutexes().await,
            Step::Send | Step::Receive => self.queue(step).await,
            Step::Meet => {
                let patience = Some(world.plan.sleep(&mut self.random));
                self.wait(Doing::Meets, patience, world.barrier.wait()).await;
            }
            Step::Spawn => self.spawn(),
            Step::Join => self.join().await,
            Step::Abort => self.abort().await,
            Step::DropHandle => self.drop_handle(),
            Step::Priority if world.plan.groups > 0 && self.once_in(2) => self.change_group(),
            Step::Priority => self.change_priority(),
            Step::Affinity => self.change_affinity(),
            Step::Hotplug => self.hotplug(),
            Step::Panic => self.panic(Fault::Panic),
        }
    }

    /// Waits for `future` and records the wait in the ledger; returns `None` when it timed out.
    async fn wait<F: Future>(&mut self, doing: Doing, patience: Option<Span>, future: F) -> Option<F::Output> {
        let world = &self.life.world;
        let waits = world.wait(self.life.serial, doing, patience);
        let value = match patience {
            Some(patience) => world.handle.timeout(patience, future).await.ok(),
            None => Some(future.await),
        };
        drop(waits);
        if value.is_none() {
            world.came(Fault::GivenUp);
        }
        value
    }

    fn panic(&self, fault: Fault) {
        self.world().books().entry(self.life.serial).panics = true;
        self.world().came(fault);
        resume_unwind(Box::new(Planned));
    }

    // ---- waiting ----

    async fn park(&mut self) {
        let (world, serial) = (self.world().clone(), self.life.serial);
        let patience = self.patience(20);
        self.wait(Doing::Parks, patience, async {
            world.handle.park().await;
            world.books().entry(serial).unparked = false;
        })
        .await;
        // The wait timed out: an unpark that comes now lets the next park return.
        world.books().entry(serial).unparked = false;
    }

    fn unpark(&mut self) {
        let Some(task) = self.life.world.any(&mut self.random) else { return };
        self.world().books().entry(task.0).unparked = true;
        if !self.world().sched.slips(Flaw::LosesUnparks, 20) {
            task.1.unpark();
        }
    }

    async fn mutex(&mut self) {
        let world = self.world().clone();
        let number = self.random.below(MUTEXES as u64) as usize;
        let patience = self.patience(2);
        let Some(guard) = self.wait(Doing::Mutex(number), patience, world.mutexes[number].lock()).await else { return };
        let mut owned: Owned<'_, P, MutexGuard<'_, P, u64>> = self.own(&world, Kind::Plain, number, guard, None);
        if let Some(guard) = &mut owned.guard {
            **guard += 1;
        }
        self.hold().await;
        if self.once_in(150) {
            self.panic(Fault::PanicWithMutex);
        }
        if self.once_in(4) {
            self.pi_mutexes().await;
        }
        owned.give_back();
    }

    /// Works, sleeps or rests while holding something.
    async fn hold(&mut self) {
        let world = self.world().clone();
        if self.once_in(4) {
            let span = world.plan.sleep(&mut self.random);
            let _sleeps = world.wait(self.life.serial, Doing::Sleeps, Some(span));
            world.handle.sleep(span).await;
        } else {
            let burst = world.plan.burst(&mut self.random);
            world.handle.compute(burst).await;
        }
        world.pause(self.life.serial).await;
    }

    /// Records in the ledger that this task owns a mutex. `died` is the lock's report on the last
    /// owner.
    fn own<'a, G>(
        &self,
        world: &'a World<P>,
        kind: Kind,
        mutex: usize,
        guard: G,
        died: Option<bool>,
    ) -> Owned<'a, P, G> {
        let mut books = world.books();
        let owners = owners(&mut books, kind);
        let (owner, last_died) = (owners.owner[mutex], owners.died[mutex]);
        (owners.owner[mutex], owners.died[mutex]) = (Some(self.life.serial), Some(false));
        let text = format!("task {} takes mutex {mutex} ({kind:?})", self.life.serial);
        if let Some(owner) = owner {
            books.find(Check::Owner, format!("{text}, which task {owner} owns"));
        }
        if let Some((told, died)) = died.zip(last_died)
            && told != died
        {
            books.find(Check::Owner, format!("{text} and is told that its last owner died: {told}, he did: {died}"));
        }
        drop(books);
        Owned { world, kind, mutex, guard: Some(guard), gives_back: false }
    }

    /// Takes up to three mutexes, mostly in one order, so that cycles are rare.
    async fn pi_mutexes(&mut self) {
        let world = self.world().clone();
        let mut owned: Vec<Owned<'_, P, PiMutexGuard<'_, P, u64>>> = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let number = self.random.below(MUTEXES as u64) as usize;
            let in_order = owned.iter().all(|own| own.mutex < number);
            if owned.iter().any(|own| own.mutex == number) || !in_order && !self.once_in(4) {
                continue;
            }
            let patience = self.patience(2);
            let lock = world.pi_mutexes[number].lock();
            let (guard, died) = match self.wait(Doing::PiMutex(number), patience, lock).await {
                None => break,
                Some(Ok(guard)) => (guard, false),
                Some(Err(PiLockError::OwnerDied(guard))) => (guard, true),
                Some(Err(PiLockError::Deadlock)) => {
                    World::<P>::add(&world.deadlocks, 1);
                    break;
                }
                Some(Err(PiLockError::TooDeep)) => {
                    world.ledger.find(Check::Urgency, "a chain of PI mutexes is told to be too deep");
                    break;
                }
            };
            World::<P>::add(&world.deaths_told, u64::from(died));
            let mut own = self.own(&world, Kind::Pi, number, guard, Some(died));
            if let Some(guard) = &mut own.guard {
                **guard += 1;
            }
            owned.push(own);
            self.hold().await;
            if self.once_in(150) {
                self.panic(Fault::PanicWithPiMutex);
            }
        }
        while !owned.is_empty() {
            owned.swap_remove(self.random.below(owned.len() as u64) as usize).give_back();
            world.handle.checkpoint().await;
        }
    }

    async fn queue(&mut self, step: Step) {
        let (world, serial) = (self.world().clone(), self.life.serial);
        let number = self.random.below(QUEUES as u64) as usize;
        let (queue, patience) = (&world.queues[number], self.patience(20));
        if step == Step::Send {
            let send = async {
                let sent = queue.send(serial).await;
                // This runs in the poll that has sent the item.
                world.books().items[number] += isize::from(sent.is_ok());
            };
            self.wait(Doing::Sends(number), patience, send).await;
        } else {
            let receive = async {
                let received = queue.recv().await;
                world.books().items[number] -= isize::from(received.is_some());
            };
            self.wait(Doing::Receives(number), patience, receive).await;
        }
    }

    // ---- other tasks ----

    fn spawn(&mut self) {
        let world = self.life.world.clone();
        let Some((serial, task)) = spawn(&world, &mut self.random) else { return };
        match self.random.below(12) {
            0 => self.abort_task(serial, &task),
            1 => self.note_dropped(serial, &task),
            _ => world.publish(serial, task),
        }
    }

    async fn join(&mut self) {
        let world = self.world().clone();
        let Some((serial, mut task)) = spawn(&world, &mut self.random) else { return };
        let patience = self.patience(20);
        match self.wait(Doing::Joins(serial), patience, &mut task).await {
            Some(result) => world.check_result(serial, result),
            None => world.publish(serial, task),
        }
    }

    fn abort_task(&self, serial: u32, task: &JoinHandle<P, u32>) {
        let world = self.world();
        let is_queued = world.is_queued(task.id());
        let before = {
            let mut books = world.books();
            let entry = books.entry(serial);
            let before = (entry.drops == 0 && !entry.aborted).then_some(entry.doing);
            entry.aborted = true;
            before
        };
        if let Some(doing) = before {
            world.came(Fault::Abort);
            if doing == Doing::New {
                world.came(Fault::AbortUnstarted);
            }
            if is_queued {
                world.came(Fault::AbortQueued);
            }
        }
        if !world.sched.slips(Flaw::ForgetsAborts, 4) {
            task.abort();
        }
    }

    async fn abort(&mut self) {
        let Some(task) = self.life.world.any(&mut self.random) else { return };
        if task.1.is_finished() { self.reap(task).await } else { self.abort_task(task.0, &task.1) }
    }

    /// Takes the result of an ended task.
    async fn reap(&mut self, task: Reached<P>) {
        if self.world().take(&task)
            && let Ok((serial, task)) = Arc::try_unwrap(task)
        {
            let result = task.await;
            self.world().check_result(serial, result);
        }
    }

    /// Records that a handle is about to be dropped.
    fn note_dropped(&self, serial: u32, task: &JoinHandle<P, u32>) {
        let world = self.world();
        if world.books().entry(serial).drops == 0 {
            world.came(Fault::HandleDropped);
            if world.is_queued(task.id()) {
                world.came(Fault::HandleDroppedQueued);
            }
        }
    }

    fn drop_handle(&mut self) {
        let Some(task) = self.life.world.take_any(&mut self.random) else { return };
        self.note_dropped(task.0, &task.1);
    }

    // ---- changes ----

    /// Draws the target of a change: another task, or `None` for the task itself.
    fn whom(&mut self) -> (u32, Option<Reached<P>>) {
        let other = if self.once_in(3) { None } else { self.life.world.any(&mut self.random) };
        (other.as_ref().map_or(self.life.serial, |task| task.0), other)
    }

    fn change_priority(&mut self) {
        let (own, priority) = self.life.world.plan.change(&mut self.random);
        let (serial, other) = self.whom();
        let world = self.world();
        // With two concurrent changes the ledger would not know the result.
        if world.books().entry(serial).own.take().is_none() {
            return;
        }
        match &other {
            Some(task) => world.handle.set_priority_of(&task.1, priority),
            None => world.handle.set_priority(priority),
        }
        world.books().entry(serial).own = Some(own);
        world.came(Fault::Priority);
    }

    fn change_group(&mut self) {
        let (world, random) = (self.life.world.clone(), &mut self.random);
        let (groups, change) = (&world.groups, Change::draw(random));
        match change {
            Change::Weighed => groups.weigh(random),
            Change::Sliced => groups.slice(random),
            Change::Limited => groups.limit(random),
            Change::RealTimeLimited => groups.limit_real_time(random),
            Change::Unlimited => groups.end_limit(random),
            Change::Renewed => groups.renew(&world.handle, random),
            Change::Moved => {
                let group = groups.any(random).filter(|_| random.below(4) > 0);
                match self.whom().1 {
                    Some(task) => world.handle.set_group_of(&task.1, group.as_ref()),
                    None => world.handle.set_group(group.as_ref()),
                }
            }
            Change::Due => {
                let deadline = fair::deadline(random);
                match self.whom().1 {
                    Some(task) => world.handle.set_deadline_of(&task.1, deadline),
                    None => world.handle.set_deadline(deadline),
                }
            }
        }
        groups.came(change);
    }

    fn change_affinity(&mut self) {
        let allowed = self.life.world.plan.allowed(&mut self.random);
        let (serial, other) = self.whom();
        let world = self.world();
        if world.books().entry(serial).allowed.take().is_none() {
            return;
        }
        match &other {
            Some(task) => world.handle.set_cpus_of(&task.1, &allowed),
            None => world.handle.set_cpus(&allowed),
        }
        world.books().entry(serial).allowed = Some(allowed);
        world.came(Fault::Affinity);
    }

    /// Takes a CPU offline or puts it online. Not in a run's first part, in which CPU sets are
    /// never ignored.
    fn hotplug(&mut self) {
        let cpu = CpuId(self.random.below(u64::from(self.life.world.plan.cpus)) as u32);
        let world = self.world();
        P::settle();
        if world.sched.operations() * 3 < world.plan.operations {
            return;
        }
        let was_offline = {
            let mut books = world.books();
            books.hotplug = true;
            if books.changing.contains(&cpu) {
                return;
            }
            books.changing.push(cpu);
            books.offline.contains(cpu)
        };
        let online = if was_offline {
            world.handle.set_online(cpu);
            world.came(Fault::Online);
            true
        } else {
            let gone = world.handle.set_offline(cpu);
            if gone {
                world.came(Fault::Offline);
            }
            !gone
        };
        let mut books = world.books();
        books.changing.retain(|&other| other != cpu);
        if online { books.offline.remove(cpu) } else { books.offline.insert(cpu) }
    }
}
