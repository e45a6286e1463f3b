//! Records: words where a table says.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hitm_memory::{Entry, LINE, Member, Memory, Native, Record, RecordLayout, resolve};

/// Counts its drops.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: one thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn members() -> Vec<Member> {
    let slot = RecordLayout::new(
        &[Entry::Word("count"), Entry::Word("mask")],
        &[Member::word::<u32>("count", "a count"), Member::word::<u64>("mask", "")],
    );
    vec![
        Member::word::<u32>("lock", ""),
        Member::words::<u32>("apart", 4, ""),
        Member::nested("slots", 3, slot, "three of them"),
    ]
}

const ORDER: [Entry; 5] =
    [Entry::Word("lock"), Entry::Pad("unused", 2, 3), Entry::Word("slots"), Entry::Line, Entry::Word("apart")];

#[test]
fn members_are_placed_as_in_c() {
    let layout = RecordLayout::new(&ORDER, &members());
    let place = |path| layout.locate(path);
    assert_eq!(place("lock"), Some((0, 4, 1)));
    assert_eq!(place("unused"), Some((4, 6, 1)));
    assert_eq!(place("slots"), Some((16, 16, 3)));
    assert_eq!(place("slots.count"), Some((16, 16, 3)));
    assert_eq!(place("slots.mask"), Some((24, 16, 3)));
    assert_eq!(place("apart"), Some((64, 4, 4)));
    assert_eq!(place("slots.none"), None);
    assert_eq!(layout.size(), 2 * LINE, "whole lines, as a line's start is asked for");
    assert_eq!(resolve(layout.fields(), 40).as_deref(), Some("slots[1].mask"));
}

#[test]
fn words_and_arrays_are_where_the_layout_says() {
    let mut record = Record::<Native>::new("record", None, None, RecordLayout::new(&ORDER, &members()));
    let lock = record.put("lock", 1_u32);
    let counts = record.put_array(&["slots.count"], |index| index as u32);
    let joined = record.put_array(&["apart"], |index| 10 + index as u32);
    drop(record);
    let offset = |word: &u32| std::ptr::from_ref(word).addr() - std::ptr::from_ref(&*lock).addr();
    assert_eq!([0, 1, 2].map(|index| (counts[index], offset(&counts[index]))), [(0, 16), (1, 32), (2, 48)]);
    assert_eq!((joined[3], offset(&joined[3]), joined.len()), (13, 76, 4));
    assert_eq!(format!("{lock:?} {joined:?}"), "1 [10, 11, 12, 13]");
}

#[test]
fn a_first_element_may_stand_apart() {
    let mut record = Record::<Native>::new("record", None, None, RecordLayout::new(&ORDER, &members()));
    let array = record.put_array(&["lock", "apart"], |index| index as u32);
    assert_eq!((array.len(), array[0], array[1], array[4]), (5, 0, 1, 4));
    assert!(catch_unwind(|| array[5]).is_err(), "an index beyond the end is refused");
}

#[test]
fn words_are_dropped_once() {
    let drops = Arc::new(AtomicU32::new(0));
    let members = [Member::words::<Counted>("counted", 3, ""), Member::word::<Counted>("one", "")];
    let layout = RecordLayout::new(&[Entry::Word("counted"), Entry::Word("one")], &members);
    let mut record = Record::<Native>::new("record", None, None, layout);
    let one = record.put("one", Counted(drops.clone()));
    let array = record.put_array(&["counted"], |_| Counted(drops.clone()));
    drop(record);
    drop(one);
    // Relaxed: one thread.
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(array);
    // Relaxed: one thread.
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

#[test]
fn what_no_layout_allows_is_refused() {
    let refused = |f: fn()| {
        let message = catch_unwind(f).expect_err("it panics");
        message.downcast_ref::<String>().cloned().expect("a message")
    };
    let record = || Record::<Native>::new("record", None, None, RecordLayout::new(&ORDER, &members()));
    assert!(catch_unwind(record).is_ok());
    let twice = refused(|| drop(RecordLayout::new(&[Entry::Word("lock"), Entry::Word("lock")], &members())));
    assert_eq!(twice, "`lock` is placed twice");
    let unknown = refused(|| drop(RecordLayout::new(&[Entry::Word("key")], &members())));
    assert_eq!(unknown, "no member is called `key`");
    let put_twice = catch_unwind(|| {
        let mut record = record();
        let _first = record.put("lock", 0_u32);
        record.put("lock", 0_u32);
    });
    assert!(put_twice.is_err());
    let other_type = catch_unwind(|| record().put("lock", 0_u64));
    assert!(other_type.is_err());
    let no_place = catch_unwind(|| record().put("key", 0_u32));
    assert!(no_place.is_err());
}

#[test]
fn words_of_the_seam_work_in_a_record() {
    let mut record = Record::<Native>::new("record", None, None, RecordLayout::new(&ORDER, &members()));
    let word = record.put("lock", <Native as Memory>::Atomic::<u32>::new(3));
    // Relaxed: one thread.
    word.fetch_add(4, Ordering::Relaxed);
    // Relaxed: one thread.
    assert_eq!(word.load(Ordering::Relaxed), 7);
}
