//! Words: the values that memory is made of, and the operations on them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A value that fits one atomic access: an integer of 8 to 128 bits, `bool`, or a pointer `*mut T`.
///
/// 128 bits are `portable_atomic::AtomicU128` natively: one instruction where the processor has one
/// (x86-64 with `cmpxchg16b`, aarch64), a lock elsewhere. The model checker has no words of 128
/// bits.
pub trait Word: Copy + Eq + Debug + 'static {
    /// The atomic of the same size and alignment: the standard library's, except for 128 bits.
    type Std: AtomicWord<Self> + Debug;

    /// Whether the word's order is that of signed numbers.
    const SIGNED: bool = false;

    /// The word as 128 bits; the inverse of [`Word::from_bits`].
    fn to_bits(self) -> u128;

    /// The low bits of `bits` as this word.
    fn from_bits(bits: u128) -> Self;
}

/// A word whose bits are values of their own: integers and `bool`.
pub trait Bits: Word {}

/// A word that is a number.
pub trait Integer: Bits {}

/// A read-modify-write that always writes. [`AtomicWord`] has a method for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rmw {
    /// Writes the operand.
    Swap,
    /// Adds the operand, wrapping. For an [`Integer`].
    Add,
    /// Subtracts the operand, wrapping. For an [`Integer`].
    Sub,
    /// Writes the operand if it is larger. For an [`Integer`].
    Max,
    /// Writes the operand if it is smaller. For an [`Integer`].
    Min,
    /// Sets the operand's bits. For [`Bits`].
    Or,
    /// Clears all bits but the operand's. For [`Bits`].
    And,
    /// Flips the operand's bits. For [`Bits`].
    Xor,
}

/// An atomic word. The operations are those of `std::sync::atomic` and mean the same; the trait
/// exists so that an algorithm is written once over the native, the simulated and the model-checked
/// word.
///
/// Every method carries `#[track_caller]`: the simulated world records who touched which line.
/// Natively the attribute costs nothing once the call is inlined.
pub trait AtomicWord<T: Word>: Send + Sync {
    /// A word that holds `value`.
    fn new(value: T) -> Self;

    /// Reads the word.
    #[track_caller]
    fn load(&self, order: Ordering) -> T;

    /// Writes the word.
    #[track_caller]
    fn store(&self, value: T, order: Ordering);

    /// Writes `new` if the word holds `current`; returns what it held, `Ok` on success.
    ///
    /// # Errors
    /// The word's value, when it is not `current`.
    #[track_caller]
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;

    /// Does what [`compare_exchange`](Self::compare_exchange) does, but may fail although the word
    /// holds `current`. It does so on some processors. The simulated and the model-checked word
    /// fail only when the value differs.
    ///
    /// # Errors
    /// The word's value, when nothing was written.
    #[track_caller]
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;

    /// Does `operation` with `value` and returns what the word held. The methods below call it;
    /// they also check that `T` has the operation.
    ///
    /// # Panics
    /// When `T` does not have the operation.
    #[track_caller]
    fn read_modify_write(&self, operation: Rmw, value: T, order: Ordering) -> T;

    /// Writes the word and returns what it held.
    #[inline(always)]
    #[track_caller]
    fn swap(&self, value: T, order: Ordering) -> T {
        self.read_modify_write(Rmw::Swap, value, order)
    }

    /// Adds, wrapping, and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_add(&self, value: T, order: Ordering) -> T
    where
        T: Integer,
    {
        self.read_modify_write(Rmw::Add, value, order)
    }

    /// Subtracts, wrapping, and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_sub(&self, value: T, order: Ordering) -> T
    where
        T: Integer,
    {
        self.read_modify_write(Rmw::Sub, value, order)
    }

    /// Writes the larger of the word and `value`, and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_max(&self, value: T, order: Ordering) -> T
    where
        T: Integer,
    {
        self.read_modify_write(Rmw::Max, value, order)
    }

    /// Writes the smaller of the word and `value`, and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_min(&self, value: T, order: Ordering) -> T
    where
        T: Integer,
    {
        self.read_modify_write(Rmw::Min, value, order)
    }

    /// Sets the bits of `value` and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_or(&self, value: T, order: Ordering) -> T
    where
        T: Bits,
    {
        self.read_modify_write(Rmw::Or, value, order)
    }

    /// Keeps only the bits of `value` and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_and(&self, value: T, order: Ordering) -> T
    where
        T: Bits,
    {
        self.read_modify_write(Rmw::And, value, order)
    }

    /// Flips the bits of `value` and returns what the word held.
    #[inline(always)]
    #[track_caller]
    fn fetch_xor(&self, value: T, order: Ordering) -> T
    where
        T: Bits,
    {
        self.read_modify_write(Rmw::Xor, value, order)
    }
}

/// What every native atomic word has, and the read-modify-writes of this one.
macro_rules! atomic {
    ($word:ty, $atomic:ty, [$($parameter:ident)?], $($operation:ident => $method:ident),+) => {
        impl$(<$parameter: 'static>)? AtomicWord<$word> for $atomic {
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
            fn compare_exchange(
                &self, current: $word, new: $word, success: Ordering, failure: Ordering,
            ) -> Result<$word, $word> {
                self.compare_exchange(current, new, success, failure)
            }

            #[inline(always)]
            fn compare_exchange_weak(
                &self, current: $word, new: $word, success: Ordering, failure: Ordering,
            ) -> Result<$word, $word> {
                self.compare_exchange_weak(current, new, success, failure)
            }

            #[inline(always)]
            fn read_modify_write(&self, operation: Rmw, value: $word, order: Ordering) -> $word {
                match operation {
                    $( Rmw::$operation => self.$method(value, order), )+
                    #[allow(unreachable_patterns, reason = "an integer has all of them")]
                    other => panic!("{} has no {other:?}", std::any::type_name::<$word>()),
                }
            }
        }
    };
}

macro_rules! integer {
    ($($word:ty => $atomic:ty),+ $(,)?) => {$(
        impl Word for $word {
            type Std = $atomic;

            const SIGNED: bool = <$word>::MIN != 0;

            #[inline(always)]
            fn to_bits(self) -> u128 {
                self as u128
            }

            #[inline(always)]
            fn from_bits(bits: u128) -> Self {
                bits as $word
            }
        }

        impl Bits for $word {}
        impl Integer for $word {}

        atomic! {
            $word, $atomic, [],
            Swap => swap, Add => fetch_add, Sub => fetch_sub, Max => fetch_max, Min => fetch_min,
            Or => fetch_or, And => fetch_and, Xor => fetch_xor
        }
    )+};
}

integer! {
    u8 => std::sync::atomic::AtomicU8,
    u16 => std::sync::atomic::AtomicU16,
    u32 => std::sync::atomic::AtomicU32,
    u64 => std::sync::atomic::AtomicU64,
    u128 => portable_atomic::AtomicU128,
    usize => std::sync::atomic::AtomicUsize,
    i8 => std::sync::atomic::AtomicI8,
    i16 => std::sync::atomic::AtomicI16,
    i32 => std::sync::atomic::AtomicI32,
    i64 => std::sync::atomic::AtomicI64,
    i128 => portable_atomic::AtomicI128,
    isize => std::sync::atomic::AtomicIsize,
}

impl Word for bool {
    type Std = AtomicBool;

    #[inline(always)]
    fn to_bits(self) -> u128 {
        self.into()
    }

    #[inline(always)]
    fn from_bits(bits: u128) -> Self {
        bits & 1 == 1
    }
}

impl Bits for bool {}

atomic! { bool, AtomicBool, [], Swap => swap, Or => fetch_or, And => fetch_and, Xor => fetch_xor }

impl<T: 'static> Word for *mut T {
    type Std = AtomicPtr<T>;

    // A pointer that has gone through bits may be used again: its provenance is exposed.
    #[inline(always)]
    fn to_bits(self) -> u128 {
        self.expose_provenance() as u128
    }

    #[inline(always)]
    fn from_bits(bits: u128) -> Self {
        std::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

atomic! { *mut T, AtomicPtr<T>, [T], Swap => swap }

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
        round_trip(&[0u128, 1 << 64, u128::MAX]);
        round_trip(&[0i128, -1, i128::MIN]);
        round_trip(&[false, true]);
        round_trip(&[std::ptr::null_mut(), &raw mut *Box::leak(Box::new(7))]);
    }

    #[test]
    fn every_width_is_as_large_as_its_value() {
        fn check<T: Word>() {
            assert_eq!(size_of::<T::Std>(), size_of::<T>(), "{}", std::any::type_name::<T>());
            assert_eq!(align_of::<T::Std>(), align_of::<T>(), "{}", std::any::type_name::<T>());
        }
        let small: [fn(); 4] = [check::<u8>, check::<i16>, check::<u32>, check::<bool>];
        let large: [fn(); 5] = [check::<isize>, check::<i64>, check::<*mut u8>, check::<u128>, check::<i128>];
        small.into_iter().chain(large).for_each(|check| check());
    }

    #[test]
    fn native_words_compute() {
        // Relaxed: one thread.
        let order = Ordering::Relaxed;
        fn word<T: Word>(value: T) -> impl AtomicWord<T> {
            T::Std::new(value)
        }
        let small = word(-3_i8);
        assert_eq!((small.fetch_max(2, order), small.fetch_min(-7, order), small.load(order)), (-3, 2, -7));
        let wide = word(1_u128 << 100);
        assert_eq!(wide.fetch_xor(1 | 1 << 100, order), 1 << 100);
        assert_eq!((wide.fetch_add(u128::MAX, order), wide.fetch_sub(1, order), wide.load(order)), (1, 0, u128::MAX));
        let flag = word(true);
        assert_eq!(
            (flag.fetch_xor(true, order), flag.fetch_or(true, order), flag.swap(false, order)),
            (true, false, true)
        );
        let (mut one, mut other) = (1, 2);
        let pointer = word(&raw mut one);
        assert_eq!(pointer.compare_exchange(&raw mut other, &raw mut other, order, order), Err(&raw mut one));
        while pointer.compare_exchange_weak(&raw mut one, &raw mut other, order, order).is_err() {}
        assert_eq!(pointer.load(order), &raw mut other);
    }

    #[test]
    #[should_panic(expected = "bool has no Add")]
    fn a_word_without_an_operation_says_so() {
        // Relaxed: one thread.
        <AtomicBool as AtomicWord<bool>>::read_modify_write(&AtomicBool::new(true), Rmw::Add, true, Ordering::Relaxed);
    }
}
