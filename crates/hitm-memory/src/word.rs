//! Words: the integers that memory is made of, and the operations on them.

use std::fmt::Debug;
use std::sync::atomic::Ordering;

/// An integer that fits one atomic access: `u8`, `u16`, `u32`, `u64`, `usize`, `i32`, `i64`.
pub trait Word: Copy + Eq + Debug + Default + Send + Sync + 'static {
    /// The standard library's atomic of the same size and alignment.
    type Std: AtomicWord<Self> + Debug;

    /// The word as 64 bits; the inverse of [`Word::from_bits`].
    fn to_bits(self) -> u64;

    /// The low bits of `bits` as this word.
    fn from_bits(bits: u64) -> Self;
}

/// An atomic word. The operations are those of `std::sync::atomic` and mean the same; the trait exists so that an
/// algorithm is written once over the native, the simulated and the model-checked word.
///
/// Every method carries `#[track_caller]`: the simulated world records who touched which line. Natively the attribute
/// costs nothing once the call is inlined.
pub trait AtomicWord<T: Word>: Send + Sync {
    /// A word that holds `value`.
    fn new(value: T) -> Self;

    /// Reads the word.
    #[track_caller]
    fn load(&self, order: Ordering) -> T;

    /// Writes the word.
    #[track_caller]
    fn store(&self, value: T, order: Ordering);

    /// Writes the word and returns what it held.
    #[track_caller]
    fn swap(&self, value: T, order: Ordering) -> T;

    /// Writes `new` if the word holds `current`; returns what it held, `Ok` on success.
    ///
    /// # Errors
    /// The word's value, when it is not `current`.
    #[track_caller]
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;

    /// Adds, wrapping, and returns what the word held.
    #[track_caller]
    fn fetch_add(&self, value: T, order: Ordering) -> T;

    /// Subtracts, wrapping, and returns what the word held.
    #[track_caller]
    fn fetch_sub(&self, value: T, order: Ordering) -> T;

    /// Sets the bits of `value` and returns what the word held.
    #[track_caller]
    fn fetch_or(&self, value: T, order: Ordering) -> T;

    /// Keeps only the bits of `value` and returns what the word held.
    #[track_caller]
    fn fetch_and(&self, value: T, order: Ordering) -> T;
}

macro_rules! word {
    ($($word:ty => $atomic:ident),+ $(,)?) => {$(
        impl Word for $word {
            type Std = std::sync::atomic::$atomic;

            #[inline(always)]
            fn to_bits(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $word
            }
        }

        impl AtomicWord<$word> for std::sync::atomic::$atomic {
            #[inline(always)]
            fn new(value: $word) -> Self {
                Self::new(value)
            }

            #[inline(always)]
            fn load(&self, order: Ordering) -> $word {
                self.load(order)
            }

            #[inline(always)]
            fn store(&self, value: $word, order: Ordering) {
                self.store(value, order);
            }

            #[inline(always)]
            fn swap(&self, value: $word, order: Ordering) -> $word {
                self.swap(value, order)
            }

            #[inline(always)]
            fn compare_exchange(
                &self, current: $word, new: $word, success: Ordering, failure: Ordering,
            ) -> Result<$word, $word> {
                self.compare_exchange(current, new, success, failure)
            }

            #[inline(always)]
            fn fetch_add(&self, value: $word, order: Ordering) -> $word {
                self.fetch_add(value, order)
            }

            #[inline(always)]
            fn fetch_sub(&self, value: $word, order: Ordering) -> $word {
                self.fetch_sub(value, order)
            }

            #[inline(always)]
            fn fetch_or(&self, value: $word, order: Ordering) -> $word {
                self.fetch_or(value, order)
            }

            #[inline(always)]
            fn fetch_and(&self, value: $word, order: Ordering) -> $word {
                self.fetch_and(value, order)
            }
        }
    )+};
}

word! {
    u8 => AtomicU8,
    u16 => AtomicU16,
    u32 => AtomicU32,
    u64 => AtomicU64,
    usize => AtomicUsize,
    i32 => AtomicI32,
    i64 => AtomicI64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Word>(values: &[T]) {
        for &value in values {
            assert_eq!(T::from_bits(value.to_bits()), value);
        }
    }

    #[test]
    fn bits_round_trip() {
        round_trip(&[0u8, 1, u8::MAX]);
        round_trip(&[0i32, -1, i32::MIN, i32::MAX]);
        round_trip(&[0i64, -1, i64::MIN]);
        round_trip(&[0u64, u64::MAX]);
    }
}
