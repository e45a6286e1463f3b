//! Waiting for a word of the program to change: what locks are made of.
//!
//! **Origin.** Linux's futexes. A wait and a wake are system calls: they cost what the machine's
//! system calls cost, and wakeups go through the scheduler. Waiters stand in buckets, found by a
//! hash of the address, as in the kernel: a bucket's count and lock are on the machine, so a
//! contended one shows up as `futex_bucket`. The most urgent waiter is woken first, and equals in
//! order of arrival.
//!
//! **Differences.** A priority that changes during a wait moves no waiter. The buckets come into
//! being when they are first used, at home on the first package.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use hitm_machine::Simulated;
use hitm_memory::{
    AtomicWord, Described, Field, Memory, PerCpu, Placed, Platform, QueueNode, QueuedGuard, QueuedLock, Time,
};
use hitm_sched::Prio;
use hitm_topology::Topology;
use rustc_hash::FxHashMap;

use crate::access::load_on_host;
use crate::signals;
use crate::start::shared;
use crate::thread::{Thread, Wants, system_call};

/// Buckets for each CPU of the machine, before the sum is rounded up to a power of two: Linux,
/// `futex_init`.
const BUCKETS_PER_CPU: usize = 256;

/// All bits: of a wait or wake without a set of bits.
pub(crate) const ANY: u32 = u32::MAX;

struct Waiter {
    thread: &'static Thread,
    /// Its address: a requeue changes it, under the locks of both buckets.
    address: Cell<usize>,
    bits: u32,
    prio: Prio,
    woken: Cell<bool>,
}

type Queue = Vec<Rc<Waiter>>;
type Word = <Simulated as Memory>::Atomic<u32>;

/// A bucket of the kernel's table.
#[repr(C)]
struct Bucket {
    waiters: Word,
    queue: QueuedLock<Simulated, Queue>,
}

impl Described for Bucket {
    const OBJECT: &'static str = "futex_bucket";

    fn fields() -> Vec<Field> {
        vec![
            Field::word(
                "waiters",
                offset_of!(Self, waiters),
                4,
                "threads in the queue, or about to be: read by a wake",
            ),
            Field::word("lock", offset_of!(Self, queue), 2, "protects the queue; its first entry is on the line"),
            Field::word("lock.tail", offset_of!(Self, queue) + 2, 2, "the last CPU that waits for the lock"),
        ]
    }
}

type Placing = &'static Placed<Simulated, Bucket>;

/// The kernel's table.
pub(crate) struct Futexes {
    buckets: RefCell<FxHashMap<usize, Placing>>,
    /// What CPUs wait with for the locks of buckets.
    nodes: PerCpu<Simulated, QueueNode<Simulated>>,
    /// The binary logarithm of their number.
    bits: u32,
}

impl Futexes {
    /// The table of a machine. Called inside it.
    pub(crate) fn new(topology: &Topology) -> Self {
        let bits = (BUCKETS_PER_CPU * topology.cpus()).next_power_of_two().trailing_zeros();
        let nodes = PerCpu::new(topology, |_| QueueNode::default());
        Self { buckets: RefCell::default(), nodes, bits }
    }

    /// The bucket of an address, and its place in the table.
    fn of(&self, address: usize) -> (usize, Placing) {
        // Multiplication by 2^64 over the golden ratio spreads addresses; the kernel's hash does as
        // well.
        let hash = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> (u64::BITS - self.bits)) as usize;
        let known = self.buckets.borrow().get(&place).copied();
        let bucket = known.unwrap_or_else(|| {
            let bucket = Bucket { waiters: Word::new(0), queue: QueuedLock::new(Vec::new()) };
            let placed: Placing = Box::leak(Box::new(Placed::new(bucket, None, None)));
            // Another CPU may have come first meanwhile.
            self.buckets.borrow_mut().entry(place).or_insert(placed)
        });
        (place, bucket)
    }
}

impl Bucket {
    /// Locks it on the CPU that runs.
    #[track_caller]
    fn lock(&self) -> QueuedGuard<'_, Simulated, Queue> {
        self.queue.lock(&shared().futexes.nodes, Simulated::current_cpu())
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Woken,
    /// The word did not hold what was expected.
    Changed,
    TimedOut,
    /// Handlers of signals have run. Whether they let the call go on.
    Interrupted {
        restarts: bool,
    },
}

/// Waits until a wake at `address`, if the word there holds `expected`. All of this module is
/// called on the machine's side.
pub(crate) fn wait(
    thread: &'static Thread,
    address: usize,
    expected: u32,
    until: Option<Time>,
    pc: usize,
    what: &'static str,
) -> Ended {
    wait_for_bits(thread, address, (expected, ANY), until, pc, what)
}

/// The same for a wake that has one of the bits.
pub(crate) fn wait_for_bits(
    thread: &'static Thread,
    address: usize,
    (expected, bits): (u32, u32),
    until: Option<Time>,
    pc: usize,
    what: &'static str,
) -> Ended {
    wait_while(thread, (address, bits), until, what, || load_on_host(address, 4, pc) as u32 == expected)
}

/// The same while `again` holds, which is asked under the bucket's lock.
pub(crate) fn wait_while(
    thread: &'static Thread,
    (address, bits): (usize, u32),
    until: Option<Time>,
    what: &'static str,
    again: impl FnOnce() -> bool,
) -> Ended {
    let Some(waiter) = system_call(|| enqueue(thread, address, bits, again)) else { return Ended::Changed };
    thread.waits_for.set(what);
    let ended = loop {
        thread.leave(Wants::Wake(until));
        Simulated::settle();
        if waiter.woken.get() {
            break Ended::Woken;
        }
        if until.is_some_and(|until| until <= Simulated::now()) && dequeue(&waiter) {
            break Ended::TimedOut;
        }
        if signals::notice(thread) && dequeue(&waiter) {
            break Ended::Interrupted { restarts: signals::deliver_in_call(thread) };
        }
    };
    thread.waits_for.set("runs");
    ended
}

/// Puts the calling thread into a queue, if `again` holds.
fn enqueue(thread: &'static Thread, address: usize, bits: u32, again: impl FnOnce() -> bool) -> Option<Rc<Waiter>> {
    let prio = shared().runtime.diagnostics().priority_of(thread.task_id());
    let waiter = Rc::new(Waiter { thread, address: Cell::new(address), bits, prio, woken: Cell::new(false) });
    let (_, bucket) = shared().futexes.of(address);
    // SeqCst: forbids store buffering against `pending`: the waker sees the waiter, or the waiter
    // sees what the waker wrote before.
    bucket.waiters.fetch_add(1, Ordering::SeqCst);
    let mut queue = bucket.lock();
    if !again() {
        // Relaxed: a hint for wakers; the queue is authoritative.
        bucket.waiters.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    insert(&mut queue, waiter.clone());
    Some(waiter)
}

/// By priority, equals in order of arrival.
fn insert(queue: &mut Queue, waiter: Rc<Waiter>) {
    let place = queue.partition_point(|other| other.prio <= waiter.prio);
    queue.insert(place, waiter);
}

/// Takes a waiter out; returns false when a wake has done so.
fn dequeue(waiter: &Rc<Waiter>) -> bool {
    loop {
        let address = waiter.address.get();
        let (_, bucket) = shared().futexes.of(address);
        let mut queue = bucket.lock();
        if waiter.woken.get() {
            return false;
        }
        let place = queue.iter().position(|other| Rc::ptr_eq(other, waiter));
        // A requeue may have moved it meanwhile.
        if let Some(place) = place.filter(|_| waiter.address.get() == address) {
            queue.remove(place);
            // Relaxed: a hint for wakers.
            bucket.waiters.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
    }
}

/// Whether a wake has to look at the queue.
fn pending(bucket: &Bucket) -> bool {
    // SeqCst: see `enqueue`.
    Simulated::fence(Ordering::SeqCst);
    // Relaxed: the fence orders it.
    bucket.waiters.load(Ordering::Relaxed) != 0
}

/// Wakes up to `count` waiters at `address`; returns how many.
pub(crate) fn wake(address: usize, count: usize) -> usize {
    wake_bits(address, count, ANY)
}

/// Wakes up to `count` waiters at `address` that wait for one of the bits.
pub(crate) fn wake_bits(address: usize, count: usize, bits: u32) -> usize {
    system_call(|| wake_here(address, count, bits))
}

/// Wakes all waiters at `address`, from the kernel.
pub(crate) fn wake_all(address: usize) {
    wake_here(address, usize::MAX, ANY);
}

fn wake_here(address: usize, count: usize, bits: u32) -> usize {
    let (_, bucket) = shared().futexes.of(address);
    if count == 0 || !pending(bucket) {
        return 0;
    }
    let woken = take(bucket, &mut bucket.lock(), address, count, bits);
    finish(&woken)
}

/// Takes up to `count` waiters out of the bucket that is locked.
fn take(bucket: &Bucket, queue: &mut Queue, address: usize, count: usize, bits: u32) -> Queue {
    let mut taken = Queue::new();
    queue.retain(|waiter| {
        let fits = waiter.address.get() == address && waiter.bits & bits != 0 && taken.len() < count;
        if fits {
            taken.push(waiter.clone());
        }
        !fits
    });
    if !taken.is_empty() {
        // Relaxed: a hint for wakers; the queue is authoritative.
        bucket.waiters.fetch_sub(taken.len() as u32, Ordering::Relaxed);
    }
    Simulated::settle();
    taken.iter().for_each(|waiter| waiter.woken.set(true));
    taken
}

/// Wakes those that were taken out, without the lock.
fn finish(woken: &[Rc<Waiter>]) -> usize {
    Simulated::progress();
    woken.iter().for_each(|waiter| waiter.thread.wake());
    woken.len()
}

/// Wakes up to `wake` waiters at `from` and moves up to `moved` others to `to`, if the word at
/// `from` holds `expected`. Returns how many it woke and moved.
///
/// # Errors
/// `EAGAIN` when the word holds something else.
pub(crate) fn requeue(
    (from, to): (usize, usize),
    (wake, moved): (usize, usize),
    expected: Option<u32>,
    pc: usize,
) -> Result<(usize, usize), c_int> {
    system_call(|| {
        let ((place, one), (other_place, other)) = (shared().futexes.of(from), shared().futexes.of(to));
        // In the order of the table: two requeues cannot wait for each other.
        let mut locks: Vec<QueuedGuard<'_, Simulated, Queue>> = Vec::with_capacity(2);
        let first_is_from = place <= other_place;
        locks.push(if first_is_from { one.lock() } else { other.lock() });
        if place != other_place {
            locks.push(if first_is_from { other.lock() } else { one.lock() });
        }
        if expected.is_some_and(|expected| load_on_host(from, 4, pc) as u32 != expected) {
            return Err(libc::EAGAIN);
        }
        let from_lock = if first_is_from { 0 } else { 1 };
        let woken = take(one, &mut locks[from_lock], from, wake, ANY);
        let mut moving = Queue::new();
        locks[from_lock].retain(|waiter| {
            let moves = waiter.address.get() == from && moving.len() < moved;
            if moves {
                moving.push(waiter.clone());
            }
            !moves
        });
        let to_lock = locks.len() - 1 - from_lock;
        if place != other_place && !moving.is_empty() {
            // Relaxed: hints for wakers, under the locks.
            one.waiters.fetch_sub(moving.len() as u32, Ordering::Relaxed);
            other.waiters.fetch_add(moving.len() as u32, Ordering::Relaxed);
        }
        let count = moving.len();
        for waiter in moving {
            waiter.address.set(to);
            insert(&mut locks[to_lock], waiter);
        }
        drop(locks);
        Ok((finish(&woken), count))
    })
}
