//! Slots: one an id, made once, in place for ever, dropped once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm_cid::{Cid, PerCid, Source, current};

use crate::host::{area, scaled, together};

#[test]
fn slots_stand_alone_on_their_lines_and_never_move() {
    let slots: PerCid<AtomicUsize> = PerCid::default();
    assert!(slots.is_empty() && slots.iter().next().is_none());
    let places = |slots: &PerCid<AtomicUsize>| -> BTreeMap<Cid, usize> {
        slots.iter().map(|(cid, slot)| (cid, std::ptr::from_ref(slot).addr())).collect()
    };
    let mut before = BTreeMap::new();
    // Own ids, so that there are as many as threads: beyond the pointers in place.
    for threads in [3, 20, 48] {
        together(threads, |_| {
            area::end();
            slots.get().fetch_add(1, Ordering::Relaxed);
        });
        let now = places(&slots);
        assert!(before.iter().all(|(cid, place)| now.get(cid) == Some(place)), "a slot has moved");
        before = now;
    }
    assert!(before.len() >= 48 && before.len() == slots.len());
    assert!(before.keys().all(|cid| cid.source() == Source::Own && slots.of(*cid).is_some()));
    let places: Vec<usize> = {
        let mut places: Vec<_> = before.into_values().collect();
        places.sort_unstable();
        places
    };
    assert!(places.iter().all(|place| place % 128 == 0));
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    assert_eq!(slots.fold(0, |sum, _, slot| sum + slot.load(Ordering::Relaxed)), 3 + 20 + 48);
}

/// Counts how many of them live.
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn every_value_is_dropped_once() {
    for _ in 0..scaled(60) {
        let live = Arc::new(AtomicUsize::new(0));
        let slots = PerCid::new(|| Live::new(&live));
        together(24, |n| {
            if n % 2 == 0 {
                area::end();
            }
            slots.with(|_| ());
        });
        // What lost a race was dropped at once.
        assert_eq!(live.load(Ordering::Relaxed), slots.len());
        assert!(slots.bytes() >= slots.len() * 128);
        drop(slots);
        assert_eq!(live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_slot_whose_making_panics_is_made_by_the_next_call() {
    let calls = AtomicUsize::new(0);
    let slots = PerCid::new(|| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first is not made");
        7
    });
    let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *slots.get()));
    first.expect_err("the panic is the caller's");
    assert_eq!((slots.len(), *slots.get()), (0, 7));
    assert!(slots.of(current()).is_none_or(|value| *value == 7));
}

#[test]
fn slots_are_shown_by_their_ids() {
    let slots = PerCid::new(|| 5);
    assert_eq!(format!("{slots:?}"), "{}");
    slots.get();
    let shown = format!("{slots:?}");
    assert!(shown.starts_with("{Cid(") && shown.ends_with("): 5}"), "{shown}");
}
