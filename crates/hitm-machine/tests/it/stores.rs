//! Plain stores: in order, when their lines are here, and before the CPU ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{
    AtomicWord, Field, Interrupts, Memory, Placed, PlacedSlice, PlainWord, Platform, RawSpinLock, Span, Time, described,
};
use hitm_topology::CpuId;

described! {
    /// A lock.
    struct LockWords<M: Memory> as "lock" {
        /// What is waited for.
        lock: RawSpinLock<M>,
        /// What others read of its line.
        count: M::Plain<u32>,
    }
}

type Words = PlacedSlice<Simulated, <Simulated as Memory>::Atomic<u32>>;

/// A machine, and `lines` words on lines of their own.
fn machine(shape: &str, seed: u64, lines: usize) -> (Machine, Arc<Vec<Words>>) {
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let machine = Machine::new(topology, costs, Config { seed, ..Config::default() });
    let fields = || vec![Field::word("word", 0, 4, "touched by the test")];
    let make = |_| <Simulated as Memory>::Atomic::<u32>::new(0);
    let words = machine.enter(|| (0..lines).map(|_| PlacedSlice::new("line", None, None, 1, &fields, make)).collect());
    (machine, Arc::new(words))
}

/// Waits until a time of the machine.
fn until(nanos: u64) {
    let time = Time::START + Span::from_nanos(nanos);
    Simulated::delay(time.since(Simulated::now()));
}

/// The first line is shared with another package, the second is here alone, and a thread of the
/// same core looks: no other CPU is nearer. It looks a little later each time, from before both
/// stores to after them.
#[test]
fn a_store_that_finds_its_line_comes_after_one_that_does_not() {
    let shape = "pack:2 l3:1 core:1 pu:2";
    let seen = Arc::new(Mutex::new(Vec::new()));
    for later in 0..100 {
        let (machine, words) = machine(shape, 1, 2);
        let topology = hitm_topology::parse(shape).expect("a machine");
        let seen = seen.clone();
        let run = move |cpu: CpuId| {
            let (data, flag) = (&words[0][0], &words[1][0]);
            let is_near = topology.siblings(CpuId(0)).contains(&cpu);
            if cpu == CpuId(0) {
                until(80_000);
                // The core has a copy that its other thread finds until the store's request is
                // granted.
                _ = data.load(Ordering::Relaxed);
                flag.fetch_add(1, Ordering::Relaxed);
                until(100_000);
                data.store(7, Ordering::Relaxed);
                // Release: pairs with the Acquire of who looks.
                flag.store(2, Ordering::Release);
            } else if is_near {
                until(99_950 + later * 5);
                // Acquire: pairs with the Release above.
                let flag = flag.load(Ordering::Acquire);
                seen.lock().expect("no panic holds it").push((flag, data.load(Ordering::Relaxed)));
            } else {
                until(60_000);
                data.fetch_add(1, Ordering::Relaxed);
            }
        };
        machine.run(run).expect("it ends");
        machine.check();
    }
    let seen = seen.lock().expect("no panic holds it");
    assert!(seen.iter().any(|&(flag, _)| flag == 1) && seen.iter().any(|&(flag, _)| flag == 2), "{seen:?}");
    assert!(seen.iter().all(|&(flag, data)| flag != 2 || data == 7), "{seen:?}");
}

/// A CPU that has looked at a lock, and waits for it to be let go, sees that a thread of its core
/// does so just after its look: by that the line stays where it is. Another package has taken the
/// line before, so that both ask for it; at times that differ a little each time.
#[test]
fn a_lock_that_a_thread_of_the_core_lets_go_is_had() {
    let topology = Arc::new(hitm_topology::parse("pack:2 l3:1 core:2 pu:2").expect("a machine"));
    let near = topology.siblings(CpuId(0)).to_owned();
    let far = topology.cpu_ids().last().expect("one");
    for comes in 0..10 {
        for goes in 0..40 {
            let costs = Costs::of(&topology, CostSet::Linux);
            let config = Config { jitter: 0.0, start_spread: Span::ZERO, ..Config::default() };
            let machine = Machine::new(topology.clone(), costs, config);
            let make = || LockWords::<Simulated> { lock: RawSpinLock::new(), count: PlainWord::new(0) };
            let words = Arc::new(machine.enter(|| Placed::<Simulated, _>::new(make(), None, None)));
            let near = near.clone();
            let run = move |cpu: CpuId| {
                let until = |picos: u64| {
                    let time = Time::from_picos(100_000_000 + picos);
                    Simulated::delay(time.since(Simulated::now()));
                };
                if cpu == CpuId(0) {
                    let held = words.lock.lock();
                    until(comes * 1_000 + goes * 500);
                    drop(held);
                } else if near.contains(&cpu) {
                    until(comes * 1_000);
                    let _held = words.lock.lock();
                } else if cpu == far {
                    until(0);
                    words.count.peek();
                }
            };
            machine.run(run).unwrap_or_else(|stall| panic!("{comes}, {goes}: {stall}"));
        }
    }
}

/// How long CPU 0 waits until a store has taken effect, while so many others add to its line.
fn wait_among(others: usize) -> Span {
    let (machine, words) = machine("core:16 pu:1", 1, 1);
    let waited = Arc::new(Mutex::new(Span::ZERO));
    let slot = waited.clone();
    let run = move |cpu: CpuId| {
        let word = &words[0][0];
        if cpu.index() > others {
            return;
        }
        if cpu.index() > 0 {
            (0..1_000).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
            return;
        }
        Simulated::delay(Span::from_micros(40));
        let begin = Simulated::now();
        word.store(0, Ordering::Relaxed);
        // SeqCst: waits for the store.
        Simulated::fence(Ordering::SeqCst);
        *slot.lock().expect("no panic holds it") = Simulated::now().since(begin);
    };
    machine.run(run).expect("it ends");
    *waited.lock().expect("no panic holds it")
}

#[test]
fn a_store_waits_behind_those_who_want_its_line() {
    let [few, many] = [3, 15].map(wait_among);
    assert!(many.as_picos() > 3 * few.as_picos(), "five times as many are before it: {few} and {many}");
}

#[test]
fn what_a_cpu_stores_last_is_seen_after_the_run() {
    let (machine, words) = machine("core:2 pu:1", 1, 1);
    let word = words.clone();
    let run = move |cpu: CpuId| {
        let word = &word[0][0];
        word.fetch_add(1, Ordering::Relaxed);
        Simulated::delay(Span::from_micros(50 * (1 + cpu.index() as u64)));
        word.store(10 + cpu.0, Ordering::Relaxed);
    };
    machine.run(run).expect("it ends");
    // Relaxed: the machine stands still.
    assert_eq!(machine.enter(|| words[0][0].load(Ordering::Relaxed)), 11);
}

/// Many CPUs fight for the line that CPU 0 stores to before it stores to another and interrupts CPU
/// 1, which looks at the other when it has taken the interrupt.
#[test]
fn who_takes_an_interrupt_sees_what_its_sender_stored() {
    // With as many others as have the line for longer than an interrupt is under way.
    for (seed, others) in (1..=4).flat_map(|seed| [0, 20, 120].map(|others| (seed, others))) {
        let (machine, words) = machine("pack:2 l3:1 core:64 pu:1", seed, 2);
        let seen = Arc::new(Mutex::new(None));
        let slot = seen.clone();
        let run = move |cpu: CpuId| {
            let (wanted, flag) = (&words[0][0], &words[1][0]);
            match cpu.index() {
                0 => {
                    flag.store(1, Ordering::Relaxed);
                    until(60_000);
                    // Relaxed: the interrupt orders them.
                    wanted.store(0, Ordering::Relaxed);
                    flag.store(2, Ordering::Relaxed);
                    Simulated::interrupt(CpuId(1), Interrupts::RESCHEDULE);
                }
                1 => {
                    Simulated::wait_for_interrupt();
                    assert_eq!(Simulated::take_interrupts(), Interrupts::RESCHEDULE);
                    // Relaxed: as above.
                    *slot.lock().expect("no panic holds it") = Some(flag.load(Ordering::Relaxed));
                }
                other if other < 2 + others => {
                    until(50_000);
                    (0..200).for_each(|_| _ = wanted.fetch_add(1, Ordering::Relaxed));
                }
                _ => {}
            }
        };
        machine.run(run).expect("it ends");
        assert_eq!(*seen.lock().expect("no panic holds it"), Some(2), "seed {seed}, {others} others");
    }
}
