//! What `described!` and `record!` declare. What they refuse is beside them, as examples that do
//! not compile.

use hitm_memory::{AtomicWord, Described, Entry, LineStart, Native, Record, RecordLayout, described, record, resolve};

described! {
    /// Two words on two lines.
    struct Pair<M: Memory, Gap: Default> as "pair" {
        /// Written by
        /// the left.
        left: M::Atomic<u32>,
        gap: Gap,
        right: M::Atomic<u32>,
    }
}

#[test]
fn a_further_parameter_changes_the_layout_and_the_names_follow() {
    let right_of = |fields: Vec<hitm_memory::Field>| {
        let right = fields.iter().find(|field| field.name == "right").expect("it is declared");
        assert_eq!(resolve(&fields, right.offset).as_deref(), Some("right"));
        right.offset
    };
    assert_eq!(right_of(Pair::<Native, ()>::fields()), 4);
    assert_eq!(right_of(Pair::<Native, LineStart>::fields()), 64);
    let pair = Pair::<Native, LineStart> { left: AtomicWord::new(1), gap: LineStart, right: AtomicWord::new(2) };
    assert_eq!(std::ptr::from_ref(&pair.right).addr() - std::ptr::from_ref(&pair.left).addr(), 64);
}

#[test]
fn a_comment_is_the_description() {
    let fields = Pair::<Native, ()>::fields();
    assert_eq!(Pair::<Native, ()>::OBJECT, "pair");
    assert_eq!(fields[0].doc, " Written by\n the left.\n");
    assert_eq!(fields[2].doc, "");
}

record! {
    /// Two words in any order.
    struct Free<M: Memory> from FreeWords {
        /// The first.
        first: M::Atomic<u32>,
        second: M::Atomic<u64>,
    }
}

/// The offsets of both words in this order.
fn offsets(order: &[Entry]) -> (usize, usize) {
    let layout = RecordLayout::new(order, &Free::<Native>::members());
    let places = ["first", "second"].map(|name| layout.locate(name).expect("it is placed").0);
    let mut record = Record::<Native>::new("free", None, None, layout);
    let words = FreeWords { first: AtomicWord::new(3), second: AtomicWord::new(4) };
    let free = Free::put(&mut record, words);
    assert_eq!((format!("{:?}", free.first), format!("{:?}", free.second)), ("3".to_owned(), "4".to_owned()));
    let distance = std::ptr::from_ref(&*free.first).addr().abs_diff(std::ptr::from_ref(&*free.second).addr());
    assert_eq!(distance, places[0].abs_diff(places[1]), "the words are where the layout says");
    (places[0], places[1])
}

#[test]
fn one_record_has_the_order_of_a_table() {
    let (first, second) = (Entry::Word("first"), Entry::Word("second"));
    assert_eq!(offsets(&[first, second]), (0, 8));
    assert_eq!(offsets(&[second, first]), (8, 0));
    assert_eq!(offsets(&[first, Entry::Line, second]), (0, 64));
}
