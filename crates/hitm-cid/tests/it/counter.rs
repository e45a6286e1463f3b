//! Counters: exact, whatever threads and ids do.

use hitm_cid::{Counter, Source, Support, support};

use crate::host::{area, possible_cpus, scaled, together};

#[test]
fn nothing_is_lost_and_nothing_counted_twice() {
    let counter = Counter::new();
    assert_eq!((counter.sum(), counter.slots().len()), (0, 0));
    let adds = scaled(20_000) as u64;
    together(64, |n| {
        for add in 0..adds {
            counter.add(n as u64 + 1);
            if add % 512 == 0 {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(counter.sum(), adds * (64 * 65 / 2));
    let of_kernel = counter.slots().iter().filter(|(cid, _)| cid.source() == Source::Kernel).count();
    assert!(of_kernel <= possible_cpus(), "{of_kernel} slots");
    if support() == Support::Kernel {
        assert_eq!(counter.slots().len(), of_kernel);
    }
}

#[test]
fn threads_of_both_sources_count_together() {
    let counter = Counter::new();
    let adds = scaled(5_000) as u64;
    together(16, |n| {
        if n % 2 == 0 {
            area::end();
        }
        (0..adds).for_each(|_| counter.add(1));
    });
    assert_eq!(counter.sum(), 16 * adds);
}

#[test]
fn a_counter_wraps() {
    let counter = Counter::default();
    counter.add(u64::MAX);
    counter.add(3);
    assert_eq!(counter.sum(), 2);
}
