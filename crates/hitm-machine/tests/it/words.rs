//! Words of every width, and every operation on them: values as natively, and one access each in
//! the coherence model.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use hitm_machine::{Config, CostSet, Costs, Machine, Results, Simulated};
use hitm_memory::{AtomicWord, Bits, Integer, Memory, PlacedSlice, Word};

type Atomic<T> = <Simulated as Memory>::Atomic<T>;

/// Runs `act` on both CPUs of a machine of two packages, each with the number of its CPU, over two
/// words of `value`.
fn run<T: Word>(value: T, act: impl Fn(u32, &[Atomic<T>]) + 'static) -> Results {
    let topology = Arc::new(hitm_topology::parse("pack:2 core:1 pu:1").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let machine = Machine::new(topology, costs, Config::default());
    let make = |_| Atomic::<T>::new(value);
    let words: Rc<PlacedSlice<Simulated, _>> =
        Rc::new(machine.enter(|| PlacedSlice::new("words", None, None, 2, &Vec::new, make)));
    let shared = words.clone();
    machine.run(move |cpu| act(cpu.0, &shared)).expect("it ends");
    drop(words);
    machine.results()
}

/// Each operation of a number returns and leaves what the native one does, and is one
/// read-modify-write.
fn computes<T: Integer>(values: &'static [T]) {
    let pairs = values.iter().flat_map(|&first| values.iter().map(move |&second| (first, second)));
    for (first, second) in pairs {
        let results = run(first, move |cpu, words| {
            if cpu != 0 {
                return;
            }
            let (ours, std) = (&words[0], T::Std::new(first));
            assert_eq!(ours.fetch_add(second, AcqRel), std.fetch_add(second, AcqRel));
            assert_eq!(ours.fetch_sub(first, AcqRel), std.fetch_sub(first, AcqRel));
            assert_eq!(ours.fetch_max(first, AcqRel), std.fetch_max(first, AcqRel));
            assert_eq!(ours.fetch_min(second, AcqRel), std.fetch_min(second, AcqRel));
            assert_eq!(ours.fetch_or(first, AcqRel), std.fetch_or(first, AcqRel));
            assert_eq!(ours.fetch_xor(second, AcqRel), std.fetch_xor(second, AcqRel));
            assert_eq!(ours.fetch_and(first, AcqRel), std.fetch_and(first, AcqRel));
            assert_eq!(ours.swap(second, AcqRel), std.swap(second, AcqRel));
            assert_eq!(ours.compare_exchange_weak(second, first, AcqRel, Relaxed), Ok(second));
            assert_eq!(ours.compare_exchange_weak(second, second, AcqRel, Relaxed).is_ok(), first == second);
        });
        let totals = results.totals;
        assert_eq!((totals.rmws, totals.loads, totals.stores), (10, 0, 0), "one access each");
    }
}

#[test]
fn numbers_of_every_width_compute() {
    computes(&[0_u8, 1, u8::MAX]);
    computes(&[0_u16, u16::MAX]);
    computes(&[0_u32, u32::MAX]);
    computes(&[0_u64, u64::MAX]);
    computes(&[0_usize, usize::MAX]);
    computes(&[0_u128, 1 << 64, u128::MAX]);
    computes(&[0_i8, -1, i8::MIN, i8::MAX]);
    computes(&[0_i16, -1, i16::MAX]);
    computes(&[0_i32, -1, i32::MIN]);
    computes(&[0_i64, -1, i64::MIN]);
    computes(&[0_isize, -1, isize::MAX]);
    computes(&[0_i128, -1, i128::MIN, i128::MAX]);
}

#[test]
fn flags_have_operations_on_bits() {
    fn all<T: Bits>(word: &Atomic<T>, value: T) -> [T; 3] {
        [word.fetch_or(value, AcqRel), word.fetch_xor(value, AcqRel), word.fetch_and(value, AcqRel)]
    }
    let results = run(false, |cpu, words| {
        if cpu == 0 {
            assert_eq!(all(&words[0], true), [false, true, false]);
        }
    });
    assert_eq!(results.totals.rmws, 3);
}

/// Stores `value` from one CPU, through its store buffer, and waits for it on the other.
fn is_handed_over<T: Word>(nothing: T, value: T) {
    let results = run(nothing, move |cpu, words| {
        if cpu == 0 {
            words[0].store(value, Release);
            assert_eq!(words[0].load(Relaxed), value, "its own store, before it took effect");
        } else {
            assert_eq!(Simulated::spin_while(&words[0], |seen| seen == nothing), value);
            assert_eq!(words[0].load(Acquire), value);
        }
    });
    assert!(results.totals.misses.transfers > 0, "the line went over");
}

#[test]
fn values_of_every_width_pass_the_store_buffer() {
    is_handed_over(0_u8, 200);
    is_handed_over(0_i16, -2);
    is_handed_over(-1_i32, 5);
    is_handed_over(0_u128, u128::MAX - 1);
    is_handed_over(-1_i128, i128::MIN);
    is_handed_over(false, true);
}

#[test]
fn pointers_arrive_with_what_they_point_to() {
    let value = Box::into_raw(Box::new(41_u64));
    let results = run(std::ptr::null_mut::<u64>(), move |cpu, words| {
        if cpu == 0 {
            words[0].store(value, Release);
        } else {
            let arrived = Simulated::spin_while(&words[0], |seen| seen.is_null());
            // SAFETY: the pointer is the box's, which no other thread touches until the machine has
            // ended.
            unsafe { *arrived += 1 };
        }
    });
    // SAFETY: the machine has ended; the box is this test's again.
    assert_eq!(*unsafe { Box::from_raw(value) }, 42);
    assert!(results.totals.misses.count() > 0);
}
