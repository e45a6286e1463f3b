//! Words of every size give the same results as the standard library's.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use hitm_loom::{Loom, Model};
use hitm_memory::{AtomicWord, Integer, Memory, PlainWord};

/// Applies every operation to both words with every pair of `values`.
fn compare<T: Integer + Send + Sync>(values: &'static [T]) {
    let model = Model::new("words compute as the standard library's", move || {
        for &first in values {
            for &second in values {
                let (ours, std) = (<Loom as Memory>::Atomic::<T>::new(first), T::Std::new(first));
                let same = |operation: &str, ours: T, std: T| {
                    assert_eq!(ours, std, "{operation} of {first:?} and {second:?}");
                };
                same("load", ours.load(Acquire), std.load(Acquire));
                same("add", ours.fetch_add(second, AcqRel), std.fetch_add(second, AcqRel));
                let sum = std.load(Relaxed);
                assert_eq!(ours.compare_exchange(sum, second, AcqRel, Relaxed), Ok(sum), "the sum is canonical");
                std.store(second, Relaxed);
                same("sub", ours.fetch_sub(first, AcqRel), std.fetch_sub(first, AcqRel));
                let rest = std.load(Relaxed);
                same("load", ours.load(Acquire), rest);
                assert_eq!(ours.compare_exchange(rest, rest, AcqRel, Relaxed), Ok(rest), "the difference is canonical");
                same("or", ours.fetch_or(first, AcqRel), std.fetch_or(first, AcqRel));
                same("and", ours.fetch_and(second, AcqRel), std.fetch_and(second, AcqRel));
                same("xor", ours.fetch_xor(first, AcqRel), std.fetch_xor(first, AcqRel));
                same("max", ours.fetch_max(second, AcqRel), std.fetch_max(second, AcqRel));
                same("min", ours.fetch_min(first, AcqRel), std.fetch_min(first, AcqRel));
                let least = std.load(Relaxed);
                assert_eq!(
                    ours.compare_exchange_weak(least, least, AcqRel, Relaxed),
                    Ok(least),
                    "it fails for cause alone"
                );
                same("swap", ours.swap(first, AcqRel), std.swap(first, AcqRel));
                if first != second {
                    assert_eq!(ours.compare_exchange(second, second, AcqRel, Relaxed), Err(first));
                }
                ours.store(second, Relaxed);
                same("load", ours.load(Acquire), second);
                let plain = <Loom as Memory>::Plain::<T>::new(first);
                plain.set(second);
                assert_eq!((plain.get(), plain.peek()), (second, second));
            }
        }
    });
    assert_eq!(model.check(), 1, "one thread has one execution");
}

#[test]
fn words_compute_as_the_standard_librarys() {
    compare(&[0u8, 1, 0x80, u8::MAX]);
    compare(&[0u16, 1, u16::MAX]);
    compare(&[0u32, 1, 1 << 31, u32::MAX]);
    compare(&[0u64, 1, u64::MAX]);
    compare(&[0usize, 1, usize::MAX]);
    compare(&[0i8, 1, -1, i8::MIN, i8::MAX]);
    compare(&[0i16, 1, -1, i16::MIN, i16::MAX]);
    compare(&[0isize, 1, -1, isize::MIN, isize::MAX]);
    compare(&[0i32, 1, -1, i32::MIN, i32::MAX]);
    compare(&[0i64, 1, -1, i64::MIN, i64::MAX]);
}

#[test]
fn flags_and_pointers_are_words() {
    let model = Model::new("flags and pointers are words", || {
        let flag = <Loom as Memory>::Atomic::<bool>::new(true);
        assert!(flag.fetch_xor(true, AcqRel) && !flag.fetch_or(true, AcqRel) && flag.fetch_and(false, AcqRel));
        assert!(!flag.load(Acquire));
        let mut value = 7;
        let pointer = <Loom as Memory>::Atomic::<*mut i32>::new(std::ptr::null_mut());
        assert!(pointer.swap(&raw mut value, AcqRel).is_null());
        assert_eq!(pointer.compare_exchange_weak(&raw mut value, &raw mut value, AcqRel, Relaxed), Ok(&raw mut value));
        assert_eq!(pointer.load(Acquire), &raw mut value);
    });
    assert_eq!(model.check(), 1, "one thread has one execution");
}
