//! A ring and a sharded counter of your own: which of their lines are contended, and by which code.
use std::{array::from_fn, sync::Arc, sync::atomic::Ordering::*, thread, time::Instant};

use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{AtomicWord, LineStart, Memory, Native, Placed, described};
use hitm_report::ToReport;
described! { struct Ring<M: Memory, Gap: Default> as "ring" {
    head: M::Atomic<usize>, gap: Gap, tail: M::Atomic<usize>, gap2: Gap, slots: [M::Atomic<u64>; 64] = words
} }
described! { struct Shard<M: Memory, Gap: Default> as "shard" { count: M::Atomic<u64>, gap: Gap } }
described! { struct Counter<M: Memory, Gap: Default> as "counter" { shards: [Shard<M, Gap>; 384] = described } }
type Mine<M, Gap> = (Placed<M, Ring<M, Gap>>, Placed<M, Counter<M, Gap>>);
fn make<M: Memory, Gap: Default>() -> Mine<M, Gap> {
    let [head, tail] = from_fn(|_| M::Atomic::new(0));
    let ring = Ring { head, gap: Gap::default(), tail, gap2: Gap::default(), slots: from_fn(|_| M::Atomic::new(0)) };
    let shards = from_fn(|_| Shard { count: M::Atomic::new(0), gap: Gap::default() });
    (Placed::new(ring, None, None), Placed::new(Counter { shards }, None, None))
}
fn push<M: Memory, Gap: Default>(ring: &Ring<M, Gap>, value: u64) {
    let tail = ring.tail.load(Relaxed); // Relaxed: only the producer writes it.
    M::spin_while(&ring.head, |head| tail - head == ring.slots.len()); // It reads with Acquire.
    ring.slots[tail % ring.slots.len()].store(value, Relaxed); // Relaxed: the tail publishes it.
    ring.tail.store(tail + 1, Release); // Release: pairs with the consumer's Acquire.
}
fn pop<M: Memory, Gap: Default>(ring: &Ring<M, Gap>) -> u64 {
    let head = ring.head.load(Relaxed); // Relaxed: only the consumer writes it.
    M::spin_while(&ring.tail, |tail| tail == head); // It reads with Acquire.
    let value = ring.slots[head % ring.slots.len()].load(Relaxed); // Relaxed: the tail published it.
    ring.head.store(head + 1, Release); // Release: pairs with the producer's Acquire.
    value
}
fn work<M: Memory, Gap: Default>((ring, counter): &Mine<M, Gap>, me: usize, consumer: usize, rounds: u64) {
    for round in 0..rounds {
        match me {
            0 => push(ring, round),
            _ if me == consumer => assert_eq!(pop(ring), round),
            _ => _ = counter.shards[me].count.fetch_add(1, Relaxed), // Relaxed: it only counts.
        }
    }
}
pub(crate) fn simulate<Gap: Default + 'static>(title: &str, machine: &str, consumer: usize, rounds: u64) -> String {
    let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
    let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Linux), Config::default());
    let mine = machine.enter(make::<Simulated, Gap>);
    machine.run(move |cpu| work(&mine, cpu.index(), consumer, rounds)).expect("every CPU returns");
    let results = machine.results();
    let report = |object| results.report().title(format!("{title}: {object}")).object(object).lines(1);
    format!("{}\n{}", report("ring"), report("counter"))
}
pub(crate) fn native<Gap: Default + Sync + Send>(title: &str, threads: usize, rounds: u64) -> String {
    let (mine, start) = (&make::<Native, Gap>(), Instant::now());
    thread::scope(|scope| (0..threads).for_each(|me| _ = scope.spawn(move || work(mine, me, 1, rounds))));
    format!("{title}: {:.0} ns per round", start.elapsed().as_nanos() as f64 / rounds as f64)
}
fn main() {
    println!("{}", simulate::<()>("packed", "epyc-9654-2x96", 96, 1_000));
    println!("{}", simulate::<LineStart>("padded", "epyc-9654-2x96", 96, 1_000));
    println!("{}\n{}", native::<()>("packed", 4, 1_000_000), native::<LineStart>("padded", 4, 1_000_000));
}
