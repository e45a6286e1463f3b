//! [`LoomAtomic`]: a word of any size in one of loom's 64-bit words.
//!
//! The word stands in the **upper** bits, zeros below: then 64-bit addition and subtraction wrap exactly where the narrower
//! word does and carry nothing in, the bit operations act on each bit alone, and equal words have equal 64 bits, which is
//! what compare-exchange compares. A signed word needs no extension on the way in and is cut to size on the way out.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Word};
use loom::sync::atomic::AtomicU64;

use crate::defect::{Access, Fate, Op};

/// A word that loom watches.
#[derive(Debug)]
pub struct LoomAtomic<T: Word> {
    /// Shared with operations that a defect delays.
    word: Arc<AtomicU64>,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Word> LoomAtomic<T> {
    /// Bits below the word.
    const SHIFT: u32 = u64::BITS - 8 * size_of::<T>() as u32;

    fn encode(value: T) -> u64 {
        value.to_bits() << Self::SHIFT
    }

    fn decode(bits: u64) -> T {
        T::from_bits(bits >> Self::SHIFT)
    }

    /// Performs an access, or what the active defect makes of it. `absent` is the result of one that does not happen.
    ///
    /// While a fault unwinds nothing happens at all: the model is over, and destructors must not run it on.
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
        let access = Access::new::<T>(op, order, operand.map(T::to_bits));
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

    #[track_caller]
    fn read_modify_write(
        &self,
        op: Op,
        operand: T,
        order: Ordering,
        perform: fn(&AtomicU64, u64, Ordering) -> u64,
    ) -> T {
        let bits = Self::encode(operand);
        Self::decode(self.access(op, order, Some(operand), 0, move |word, order| perform(word, bits, order)))
    }
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

    fn swap(&self, value: T, order: Ordering) -> T {
        self.read_modify_write(Op::Swap, value, order, AtomicU64::swap)
    }

    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        let (from, to) = (Self::encode(current), Self::encode(new));
        let exchange = move |word: &AtomicU64, success| word.compare_exchange(from, to, success, failure);
        self.access(Op::CompareExchange, success, Some(new), Ok(from), exchange).map(Self::decode).map_err(Self::decode)
    }

    fn fetch_add(&self, value: T, order: Ordering) -> T {
        self.read_modify_write(Op::Add, value, order, AtomicU64::fetch_add)
    }

    fn fetch_sub(&self, value: T, order: Ordering) -> T {
        self.read_modify_write(Op::Sub, value, order, AtomicU64::fetch_sub)
    }

    fn fetch_or(&self, value: T, order: Ordering) -> T {
        self.read_modify_write(Op::Or, value, order, AtomicU64::fetch_or)
    }

    fn fetch_and(&self, value: T, order: Ordering) -> T {
        self.read_modify_write(Op::And, value, order, AtomicU64::fetch_and)
    }
}
