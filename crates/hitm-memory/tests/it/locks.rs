//! Locks, as one thread sees them.

use hitm_memory::{Lock, Native, RawSpinLock};

#[test]
fn a_lock_is_four_bytes_and_comes_before_its_data() {
    assert_eq!(size_of::<RawSpinLock<Native>>(), 4);
    assert_eq!(size_of::<Lock<Native, u32>>(), 8);
}

#[test]
fn a_held_lock_is_refused_to_others_until_it_is_dropped() {
    let lock = RawSpinLock::<Native>::new();
    // More rounds than there are tickets, so that both of them wrap around.
    for _ in 0..70_000 {
        let held = lock.try_lock().expect("it is free");
        assert!(lock.try_lock().is_none(), "it is held");
        drop(held);
        drop(lock.lock());
    }
}

#[test]
fn a_guard_is_the_data() {
    let lock = Lock::<Native, _>::new(vec![1]);
    lock.lock().push(2);
    let guard = lock.lock();
    assert_eq!((guard.len(), guard.last(), format!("{guard:?}").as_str()), (2, Some(&2), "[1, 2]"));
}
