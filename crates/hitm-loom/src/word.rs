//! [`LoomAtomic`]: a word of any size in one of loom's 64-bit words.
//!
//! The word is in the **upper** bits, with zeros below. Then 64-bit addition and subtraction wrap
//! exactly where the narrower word does, and nothing is carried in. The bit operations act on each
//! bit alone. Equal words have equal 64 bits, which compare-exchange compares. A signed word needs
//! no extension on the way in and is truncated on the way out.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Rmw, Word};
use loom::sync::atomic::AtomicU64;

use crate::defect::{Access, Fate, Op};

/// A word that loom checks.
#[derive(Debug)]
pub struct LoomAtomic<T: Word> {
    /// Shared with operations that a defect delays.
    word: Arc<AtomicU64>,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Word> LoomAtomic<T> {
    /// Bits below the word.
    const SHIFT: u32 = {
        assert!(size_of::<T>() <= size_of::<u64>(), "loom has no words of 128 bits");
        u64::BITS - 8 * size_of::<T>() as u32
    };

    fn encode(value: T) -> u64 {
        (value.to_bits() as u64) << Self::SHIFT
    }

    fn decode(bits: u64) -> T {
        T::from_bits((bits >> Self::SHIFT).into())
    }

    /// Performs an access, or its replacement by the active defect. `absent` is the result of an
    /// access that does not happen.
    ///
    /// While a fault unwinds no access happens: the model is over, and destructors must not
    /// continue it.
    #[track_caller]
    fn access<R: 'static>(
        &self,
        op: Op,
        order: Ordering,
        operand: Option<T>,
        absent: R,
        perform: impl FnOnce(&AtomicU64, Ordering) -> R + 'static,
    ) -> R {
        if std::thread::panicking() {
            return absent;
        }
        let access = Access::new::<T>(op, order, operand.map(|operand| operand.to_bits() as u64));
        let result = match access.fate() {
            Fate::Performed(order) => perform(&self.word, order),
            Fate::Lost => absent,
            Fate::Held => {
                let word = self.word.clone();
                access.hold(move || drop(perform(&word, order)));
                absent
            }
        };
        access.release_held();
        result
    }
}

/// Returns loom's operation of 64 bits. Numbers in the upper bits have the order of the narrower
/// ones, but loom's order is that of unsigned numbers.
fn in_loom(operation: Rmw, signed: bool) -> fn(&AtomicU64, u64, Ordering) -> u64 {
    match operation {
        Rmw::Swap => AtomicU64::swap,
        Rmw::Add => AtomicU64::fetch_add,
        Rmw::Sub => AtomicU64::fetch_sub,
        Rmw::Max if signed => |word, value, order| choose(word, order, |held| held.max(value as i64)),
        Rmw::Min if signed => |word, value, order| choose(word, order, |held| held.min(value as i64)),
        Rmw::Max => AtomicU64::fetch_max,
        Rmw::Min => AtomicU64::fetch_min,
        Rmw::Or => AtomicU64::fetch_or,
        Rmw::And => AtomicU64::fetch_and,
        Rmw::Xor => AtomicU64::fetch_xor,
    }
}

/// Replaces a signed number by the result of `chosen`. Loom has no such operation on 64 signed
/// bits, so this is a loop of compare-exchanges, which ends with the same value.
fn choose(word: &AtomicU64, order: Ordering, chosen: impl Fn(i64) -> i64) -> u64 {
    // Acquire, Relaxed or SeqCst: the load's half of `order`.
    let fetch = match order {
        Ordering::Acquire | Ordering::AcqRel => Ordering::Acquire,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Relaxed,
    };
    let result = word.fetch_update(order, fetch, |held| Some(chosen(held as i64) as u64));
    result.unwrap_or_else(|held| held)
}

impl<T: Word> AtomicWord<T> for LoomAtomic<T> {
    fn new(value: T) -> Self {
        Self { word: Arc::new(AtomicU64::new(Self::encode(value))), holds: PhantomData }
    }

    fn load(&self, order: Ordering) -> T {
        Self::decode(self.access(Op::Load, order, None, 0, AtomicU64::load))
    }

    fn store(&self, value: T, order: Ordering) {
        let bits = Self::encode(value);
        self.access(Op::Store, order, Some(value), (), move |word, order| word.store(bits, order));
    }

    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        let (from, to) = (Self::encode(current), Self::encode(new));
        let exchange = move |word: &AtomicU64, success| word.compare_exchange(from, to, success, failure);
        self.access(Op::CompareExchange, success, Some(new), Ok(from), exchange).map(Self::decode).map_err(Self::decode)
    }

    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        self.compare_exchange(current, new, success, failure)
    }

    fn read_modify_write(&self, operation: Rmw, value: T, order: Ordering) -> T {
        let (bits, perform) = (Self::encode(value), in_loom(operation, T::SIGNED));
        let perform = move |word: &AtomicU64, order| perform(word, bits, order);
        Self::decode(self.access(operation.into(), order, Some(value), 0, perform))
    }
}
