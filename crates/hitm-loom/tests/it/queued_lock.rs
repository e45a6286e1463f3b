//! The queued lock: its holder is alone, and sees all stores of earlier holders.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, LoomPlain, Model, Op, Row, Site, require, table, thread};
use hitm_memory::{PerCpu, PlainWord, QueueNode, QueuedLock};
use hitm_topology::CpuId;

struct Counter {
    /// The data is beside the lock, where the checker watches it.
    lock: QueuedLock<Loom, ()>,
    nodes: PerCpu<Loom, QueueNode<Loom>>,
    count: LoomPlain<u32>,
}

/// A CPU each for `threads` that each add `adds` under the lock.
fn adders(threads: u32, adds: u32) {
    let topology = hitm_topology::parse("core:4 pu:1").expect("a machine");
    let nodes = PerCpu::new(&topology, |_| QueueNode::default());
    let counter = Arc::new(Counter { lock: QueuedLock::new(()), nodes, count: LoomPlain::new(0) });
    let run = |cpu| {
        let counter = counter.clone();
        thread::spawn(move || {
            for _ in 0..adds {
                let _guard = counter.lock.lock(&counter.nodes, CpuId(cpu));
                counter.count.set(counter.count.get() + 1);
            }
        })
    };
    let started: Vec<_> = (0..threads).map(run).collect();
    started.into_iter().for_each(|thread| thread.join().expect("threads return"));
    let (count, sum) = (counter.count.get(), threads * adds);
    require(count == sum, format_args!("{count} of {sum} adds are counted"));
}

/// Three holders, of which two may wait at a time.
fn three() -> Model {
    Model::new("the queued lock's holders are alone and see each other's writes", || adders(3, 1)).preemptions(2)
}

#[test]
fn holders_are_alone_and_see_each_others_writes() {
    three().check();
    Model::new("two holders that come again", || adders(2, 2)).preemptions(3).check();
}

#[test]
fn broken_locks_are_noticed() {
    let row = |name, site, change: fn(Site) -> Defect, caught_by| Row {
        name,
        defect: change(site),
        model: three(),
        caught_by,
    };
    let file = "src/queued_lock.rs";
    let release = Site::new(file, Op::Store, Ordering::Release);
    let rows = [row("stores that let go are Relaxed", release, Defect::relax, FaultKind::Race)];
    expect![[r#"
        defect                         | property                                                        | caught by
        stores that let go are Relaxed | the queued lock's holders are alone and see each other's writes | loom, data race
    "#]]
    .assert_eq(&table(&rows));
}
