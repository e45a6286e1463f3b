//! The allocator of our own ids: the lowest free bit of a bitmap that grows.
//!
//! **Claim.** No id has two holders, and every id is below the greatest number of threads that held
//! one, or asked for one, at the same moment.
//!
//! **Protocol.** `take` passes over the words upwards. A full word is left behind; in any other the
//! lowest zero bit is set by compare-exchange, which is tried again on the same word while it is
//! not full. `give_back` clears the bit.
//!
//! **Why ids stay low.** Let A be that greatest number, and let N(k) count the threads that hold an
//! id in word k or above, or have left word k - 1 behind. Then N(k) is at most A - BITS k at every
//! moment: N(0) is at most A. N(k) grows only when a thread leaves word k - 1 because it is full;
//! at that moment BITS threads hold ids in that word, and they and those of N(k), the newcomer
//! included, all count for N(k - 1), which is at most A - BITS (k - 1). Who takes bit b of word k
//! does so in the moment in which all bits below b are taken, so b + 1 is at most A - BITS k, and
//! the id BITS k + b is below A.
//!
//! **Memory ordering.** That argument speaks of moments, so a thread must not see one word as it is
//! and the next as it was before: a fence stands before each word that a thread turns to, which
//! puts all their accesses into one order.
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | the fence in `give_back`, with its `fetch_and` | the successful compare-exchange in `take` | all that the former holder did with the id |
//!
//! | forbidden | by | what it would do |
//! |---|---|---|
//! | a thread sees a word full by an id that was taken after another was given back, and that other one still taken | the fences in `take` and `give_back` | ids above the bound |

use std::sync::atomic::Ordering;

use crate::atomics::{AtomicBits, AtomicPointer};
use crate::table::Table;

/// The bitmap: `BITS` ids a word, `FIRST` words in place and `SEGMENTS` segments of them.
pub(crate) struct Bitmap<W, P: AtomicPointer<W>, const BITS: u32, const FIRST: usize, const SEGMENTS: usize> {
    words: Table<W, P, FIRST, SEGMENTS>,
}

impl<W: AtomicBits, P: AtomicPointer<W>, const BITS: u32, const FIRST: usize, const SEGMENTS: usize>
    Bitmap<W, P, BITS, FIRST, SEGMENTS>
{
    const FULL: u64 = u64::MAX >> (u64::BITS - BITS);

    /// All ids are free: the `words` are zero, and not more than they.
    pub(crate) const fn new(words: Table<W, P, FIRST, SEGMENTS>) -> Self {
        Self { words }
    }

    /// Takes the lowest free id; none when all are held.
    pub(crate) fn take(&self) -> Option<u32> {
        for number in 0.. {
            let word = self.words.get_or_grow(number)?;
            // SeqCst: a word that is seen full was full after all that was seen of the words below;
            // pairs with itself and with the fence in `give_back`.
            W::fence(Ordering::SeqCst);
            // Relaxed: a guess, which the compare-exchange verifies.
            let mut seen = word.load(Ordering::Relaxed);
            while seen != Self::FULL {
                let bit = seen.trailing_ones();
                // Acquire: pairs with the fence in `give_back`, so that the former holder is done
                // with the id. Relaxed on failure: a better guess.
                match word.compare_exchange(seen, seen | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(number as u32 * BITS + bit),
                    Err(now) => seen = now,
                }
            }
        }
        unreachable!("the table ends before the numbers do")
    }

    /// Gives back an id that the caller holds.
    pub(crate) fn give_back(&self, id: u32) {
        let word = self.words.get((id / BITS) as usize).expect("who holds the id has made its word");
        let bit = 1 << (id % BITS);
        // SeqCst: what this thread takes next is seen only together with this; pairs with the fence
        // in `take`. It also releases what was done with the id, to the Acquire in `take`.
        W::fence(Ordering::SeqCst);
        // Relaxed: the fence says it all.
        let before = word.fetch_and(!bit, Ordering::Relaxed);
        debug_assert!(before & bit != 0, "id {id} is given back twice");
    }

    /// Frees every id but `kept`. Only where no other thread is left, in the child after a fork.
    #[cfg(any(unix, test))]
    pub(crate) fn keep_only(&self, kept: Option<u32>) {
        for (number, word) in self.words.iter() {
            let keep = kept.filter(|id| (id / BITS) as usize == number).map_or(0, |id| 1 << (id % BITS));
            // Relaxed: the child has one thread.
            word.fetch_and(keep, Ordering::Relaxed);
        }
    }

    /// How many ids are held, at rest.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u32 {
        self.words.iter().map(|(_, word)| word.load(Ordering::Relaxed).count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::array;
    use std::sync::atomic::{AtomicPtr, AtomicU64};

    use super::*;

    fn bitmap() -> Bitmap<AtomicU64, AtomicPtr<AtomicU64>, 64, 1, 1> {
        Bitmap::new(Table::new(array::from_fn(|_| AtomicU64::new(0)), array::from_fn(|_| AtomicPtr::default())))
    }

    #[test]
    fn the_lowest_free_id_is_taken_until_there_is_none() {
        let ids = bitmap();
        for expected in 0..128 {
            assert_eq!(ids.take(), Some(expected));
        }
        assert_eq!(ids.take(), None);
        ids.give_back(100);
        ids.give_back(3);
        assert_eq!([ids.take(), ids.take(), ids.take()], [Some(3), Some(100), None]);
        assert_eq!(ids.held(), 128);
    }

    #[test]
    fn a_child_keeps_its_own_id_alone() {
        let ids = bitmap();
        assert!((0..70).all(|_| ids.take().is_some()));
        ids.keep_only(Some(65));
        assert_eq!((ids.held(), ids.take()), (1, Some(0)));
        ids.keep_only(None);
        assert_eq!(ids.held(), 0);
    }
}
