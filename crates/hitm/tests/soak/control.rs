//! The controller: it makes tasks, brings the system to a quiescent state and checks it.
//!
//! The controller is the most urgent task. In a **quiescent state** ("rest") all other tasks sleep
//! in some wait. At every second rest they compute instead: then one task per CPU runs, and the
//! others wait in the queues. The controller sleeps or computes as they do until a quiet stretch
//! has passed in which no other task called the scheduler. That stretch is longer than any task
//! with work goes without such a call.
//!
//! The checks run outside the simulation and take no simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;

use hitm::{Elapsed, Priority};
use hitm_machine::{Random, Simulated};
use hitm_memory::{Platform, Span, Time};
use hitm_sched::{Snapshot, TaskId};

use crate::ledger::{Books, Check, Doing, Entry};
use crate::plan::{MUTEXES, Plan};
use crate::task::spawn;
use crate::world::{Signal, World};

/// More urgent than all controlled tasks.
pub(crate) const CONTROLLER: Priority = Priority::fifo(99);

/// The stream of the controller's random numbers.
const STREAM: u64 = 1;

/// The number of stretches without rest after which the controller gives up.
const ROUNDS_MAX: u64 = 400;

/// Longer than a round-robin turn of 100 ms.
const LONG: Span = Span::from_micros(130_000);

/// The longest delay of a sleep's end without faults: the timer's slack, and the time until the CPU
/// handles it.
const SLACK: Span = Span::from_micros(20);

/// The longest time that a machine takes to come to rest after the last action, without faults. A
/// push chain visits CPUs one by one for some microseconds each, and as many CPUs contend for a
/// line.
fn settles_within(plan: &Plan) -> Span {
    let alone = Span::from_micros(60) + Span::from_micros(5) * u64::from(plan.cpus);
    // Each visit may be late and meet a preempted vCPU; few visits in a row do.
    let faults = plan.faults.late_by + plan.faults.taken_for;
    alone + Span::from_nanos(plan.burst_nanos) + faults * 12 + plan.throttled_for()
}

/// A run from its first task to its last.
pub(crate) async fn control<P: Platform>(world: Arc<World<P>>) {
    let random = &mut Random::new(world.plan.seed, STREAM);
    world.sched.set_controller(world.handle.task_id().expect("this is a task"));
    for rest in 0..world.plan.rests {
        let until = world.plan.operations * (rest + 1) / world.plan.rests;
        while world.sched.operations() < until && world.ledger.is_clean() {
            fill(&world, random);
            reap(&world).await;
            world.handle.sleep(Span::from_nanos(10_000 + random.below(100_000))).await;
            P::settle();
        }
        if world.plan.long_rest == Some(rest) {
            world.set_signal(Signal::Hold);
            world.handle.compute(LONG).await;
        }
        come_to_rest(&world, if world.plan.holds(rest) { Signal::Hold } else { Signal::Sleep }).await;
        if !world.ledger.is_clean() {
            break;
        }
        world.set_signal(Signal::Go);
    }
    world.set_signal(Signal::End);
    end(&world, random).await;
    let mut books = world.books();
    books.entries.iter_mut().for_each(|entry| entry.aborted = true);
}

/// Spawns tasks until the planned number is alive.
fn fill<P: Platform>(world: &Arc<World<P>>, random: &mut Random) {
    while let Some((serial, task)) = spawn(world, random) {
        world.publish(serial, task);
    }
}

/// Takes the results of ended tasks.
async fn reap<P: Platform>(world: &Arc<World<P>>) {
    for task in world.take_ended() {
        // Another task may be about to act on this task; it drops the handle then.
        if let Ok((serial, task)) = Arc::try_unwrap(task) {
            let result = task.await;
            world.check_result(serial, result);
        }
    }
}

/// Waits for the reachable tasks, and aborts those that do not end. The end of the runtime ends
/// unreachable tasks that wait for ever.
async fn end<P: Platform>(world: &Arc<World<P>>, random: &mut Random) {
    let patience = Span::from_micros(500);
    while let Some(task) = world.take_any(random) {
        // Another task may be about to act on this task.
        let Ok((serial, mut task)) = Arc::try_unwrap(task) else { continue };
        let result = match world.handle.timeout(patience, &mut task).await {
            Ok(result) => result,
            Err(Elapsed) => {
                world.books().entry(serial).aborted = true;
                task.abort();
                task.await
            }
        };
        world.check_result(serial, result);
    }
}

/// Asks all tasks to rest, waits until they do, and checks the state.
async fn come_to_rest<P: Platform>(world: &Arc<World<P>>, signal: Signal) {
    world.set_signal(signal);
    world.groups.end_limits();
    let asked = world.handle.now();
    let mut rounds = 0;
    loop {
        P::settle();
        let before = world.sched.of_others();
        match signal {
            // A controller that computes keeps its CPU; if it slept, other tasks would migrate.
            Signal::Hold => world.handle.compute(world.plan.quiet()).await,
            _ => world.handle.sleep(world.plan.quiet()).await,
        }
        P::settle();
        if world.sched.of_others() == before {
            break;
        }
        rounds += 1;
        if rounds == ROUNDS_MAX {
            world
                .ledger
                .find(Check::NotQuiet, format!("the scheduler is still called after {rounds} stretches of quiet"));
            return;
        }
    }
    let now = world.handle.now();
    Simulated::aside(|| look(world, signal, [asked, now]));
}

/// Checks all that must hold at rest, after a rest was requested and reached.
fn look<P: Platform>(world: &World<P>, signal: Signal, [asked, now]: [Time; 2]) {
    let snapshot = world.handle.diagnostics().snapshot();
    let mut books = world.ledger.books();
    let mut found: Vec<(Check, String)> = Vec::new();
    found.extend(snapshot.violations().into_iter().map(|what| (Check::Snapshot, what)));
    found.extend(snapshot.priority_inversions().into_iter().map(|what| (Check::Inversion, what)));
    look_at_cpus(&books, &snapshot, &mut found);
    look_at_tasks(world, &books, &snapshot, signal, now, &mut found);
    look_at_urgency(world, &books, &snapshot, &mut found);
    world.look_at_ids(&books, &mut found);
    // The last action: a wait that ended by itself, or an action of a task.
    let over = books.entries.iter().map(|entry| entry.until).filter(|&until| until <= now);
    let disturbed = over.chain([asked, books.stirred]).max().expect("one at least");
    let settled = world.sched.last().since(disturbed);
    let bound = settles_within(&world.plan);
    if settled > bound {
        found.push((Check::Settled, format!("settled in {settled}, not in {bound}")));
    }
    books.settled.push(settled);
    found.into_iter().for_each(|(check, what)| books.find(check, format!("at {:.6} s: {what}", now.as_secs_f64())));
}

fn look_at_cpus(books: &Books, snapshot: &Snapshot, found: &mut Vec<(Check, String)>) {
    for (cpu, queue) in (0..).map(hitm_topology::CpuId).zip(&snapshot.queues) {
        let online = !books.offline.contains(cpu);
        if queue.online != online {
            found.push((Check::Snapshot, format!("cpu {cpu}: online is {}, it was set to {online}", queue.online)));
        }
        let running = queue.running.and_then(|id| snapshot.tasks.iter().find(|task| task.id == id));
        // The CPU set is ignored while none of its CPUs is online, until the task wakes again.
        if let Some(task) = running
            && !books.hotplug
            && !task.allowed.contains(cpu)
        {
            found.push((Check::LostTask, format!("cpu {cpu} runs task {}, which may not run there", task.id)));
        }
    }
}

fn look_at_tasks<P: Platform>(
    world: &World<P>,
    books: &Books,
    snapshot: &Snapshot,
    signal: Signal,
    now: Time,
    found: &mut Vec<(Check, String)>,
) {
    let known: BTreeMap<TaskId, _> = snapshot.tasks.iter().map(|task| (task.id, task)).collect();
    let running: Vec<TaskId> = snapshot.queues.iter().filter_map(|queue| queue.running).collect();
    let sleeps = |entry: &Entry| entry.id.and_then(|id| known.get(&id)).is_some_and(|task| task.sleeping);
    let living = books.living().count();
    // The controller is a live task too.
    if known.len() != living + 1 {
        found.push((Check::LostTask, format!("{living} tasks live, the scheduler has {}", known.len() - 1)));
    }
    let late = SLACK + world.plan.faults.late_by + world.plan.faults.taken_for;
    for (serial, entry) in books.living() {
        let Some((id, task)) = entry.id.and_then(|id| Some((id, known.get(&id)?))) else {
            found.push((Check::LostTask, format!("task {serial} ({:?}) is unknown to the scheduler", entry.id)));
            continue;
        };
        let mut find = |check, what: String| found.push((check, format!("task {serial} (number {id}) {what}")));
        if entry.aborted && (task.sleeping || running.contains(&id)) {
            find(Check::Abort, format!("was aborted and lives ({:?})", entry.doing));
        } else if task.sleeping {
            let lost = books.wakeup_lost(entry, now, late, &|entry| !sleeps(entry));
            lost.into_iter().for_each(|what| find(Check::LostWake, what));
        } else if signal == Signal::Sleep {
            find(Check::NotQuiet, format!("does not sleep at rest ({:?})", entry.doing));
        } else if running.contains(&id) && entry.doing != Doing::Holds {
            find(Check::NotQuiet, format!("runs at rest and does {:?}", entry.doing));
        }
        if entry.allowed.as_ref().is_some_and(|allowed| *allowed != task.allowed) {
            find(Check::LostTask, format!("may run on {:?}, it was set to {:?}", task.allowed, entry.allowed));
        }
    }
}

/// Computes each task's expected priority: the most urgent of its own, of the waiters for its
/// mutexes, of the waiters for those tasks' mutexes, and so on.
fn look_at_urgency<P: Platform>(
    world: &World<P>,
    books: &Books,
    snapshot: &Snapshot,
    found: &mut Vec<(Check, String)>,
) {
    let serials: BTreeMap<TaskId, u32> =
        books.living().filter_map(|(serial, entry)| Some((entry.id?, serial))).collect();
    let looks: [_; MUTEXES] = std::array::from_fn(|mutex| world.pi_mutexes[mutex].look());
    // A task that became the owner and has not run yet waits no longer, even if the ledger says so.
    let owner = |mutex: usize| {
        let told = looks[mutex].owner.and_then(|id| serials.get(&id).copied());
        told.or(books.pi_mutexes.owner[mutex])
    };
    let mut urgency: BTreeMap<u32, Option<u8>> = books.living().map(|(serial, entry)| (serial, entry.own)).collect();
    let waits = |entry: &Entry| if let Doing::PiMutex(mutex) = entry.doing { Some(mutex) } else { None };
    // A chain has at most as many links as there are mutexes.
    for _ in 0..MUTEXES {
        for (serial, mutex) in books.living().filter_map(|(serial, entry)| Some((serial, waits(entry)?))) {
            let Some(owner) = owner(mutex).filter(|&owner| owner != serial) else { continue };
            let lent = urgency[&serial];
            urgency.entry(owner).and_modify(|own| *own = own.zip(lent).map(|(own, lent)| own.max(lent)));
        }
    }
    for task in &snapshot.tasks {
        let Some(&serial) = serials.get(&task.id) else { continue };
        let (own, expect) = (books.entries[serial as usize].own, urgency[&serial]);
        let is = Some(task.prio.rt_priority().unwrap_or(0));
        if expect.is_some() && is != expect {
            let text = format!("task {serial} is {is:?}, it ought to be {expect:?} and is {own:?}");
            found.push((Check::Urgency, format!("{text} by itself")));
        }
        let lent = expect > own;
        World::<P>::add(&world.lent, u64::from(lent));
        World::<P>::add(&world.chains, u64::from(lent && waits(&books.entries[serial as usize]).is_some()));
    }
    for (mutex, look) in looks.iter().enumerate() {
        if let Some((owns, told)) = books.pi_mutexes.owner[mutex].zip(look.owner)
            && serials.get(&told) != Some(&owns)
        {
            found.push((Check::Owner, format!("PI mutex {mutex} is task {owns}'s, it says number {told}'s")));
        }
        if look.owner.is_none() && !look.waiters.is_empty() {
            found.push((Check::LostWake, format!("PI mutex {mutex} is free, and {:?} wait for it", look.waiters)));
        }
        let prio_of = |id| snapshot.tasks.iter().find(|task| task.id == id).map(|task| task.prio);
        let stand = look.waiters.iter().all(|&(prio, id)| prio_of(id) == Some(prio));
        if !stand || !look.waiters.is_sorted_by_key(|&(prio, _)| prio) {
            found.push((Check::Urgency, format!("the queue of PI mutex {mutex}: {:?}", look.waiters)));
        }
    }
}
