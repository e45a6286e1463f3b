//! Pools: objects are used by one at a time, kept up to the capacity, and dropped once.

use std::sync::atomic::{AtomicUsize, Ordering};

use hitm_cid::Pool;

use crate::host::{area, scaled, together};

#[test]
fn an_object_comes_back_as_it_was_left() {
    // One id throughout, whatever the kernel does.
    std::thread::spawn(|| {
        area::end();
        let pool: Pool<Vec<u8>> = Pool::new(2, Vec::new);
        let mut first = pool.take();
        first.push(1);
        drop(first);
        assert_eq!(pool.kept(), 1);
        assert_eq!(*pool.take(), [1]);
        let (one, two, three) = (pool.take(), pool.take(), pool.take());
        assert_eq!(pool.kept(), 0);
        assert_eq!(format!("{one:?} {two:?}"), "[1] []");
        drop((one, two, three));
        assert_eq!(pool.kept(), 2, "no more than the capacity");
        assert_eq!(pool.put(vec![9]), Err(vec![9]));
        assert_eq!(format!("{pool:?}"), "Pool { capacity: 2, kept: 2, .. }");
        // The last that came back is the first that goes.
        assert_eq!(pool.take().detach(), []);
        assert_eq!(pool.kept(), 1);
        pool.clear();
        assert_eq!(pool.kept(), 0);
    })
    .join()
    .expect("a thread");
}

/// An object that notices when two use it, and counts how many live.
struct Alone<'a> {
    live: &'a AtomicUsize,
    users: AtomicUsize,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn nobody_shares_an_object_and_none_is_lost() {
    const CAPACITY: usize = 3;
    let live = AtomicUsize::new(0);
    let pool = Pool::new(CAPACITY, || {
        live.fetch_add(1, Ordering::Relaxed);
        Alone { live: &live, users: AtomicUsize::new(0) }
    });
    together(32, |n| {
        if n % 4 == 0 {
            area::end();
        }
        for round in 0..scaled(4_000) {
            let held = [pool.take(), pool.take()];
            for object in &held {
                assert_eq!(object.users.fetch_add(1, Ordering::Relaxed), 0, "two use it");
            }
            if round % 128 == 0 {
                std::thread::yield_now();
            }
            for object in &held {
                object.users.fetch_sub(1, Ordering::Relaxed);
            }
            let [one, other] = held;
            drop(one);
            if round % 7 == 0 {
                drop(other.detach());
            }
        }
    });
    assert_eq!(live.load(Ordering::Relaxed), pool.kept());
    drop(pool);
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn a_pool_without_capacity_keeps_nothing() {
    let pool = Pool::new(0, || 4);
    drop(pool.take());
    assert_eq!((pool.kept(), pool.put(1)), (0, Err(1)));
}
