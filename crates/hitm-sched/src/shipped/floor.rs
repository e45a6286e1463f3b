//! Floors: the result of failed searches, kept per LLC. A *floor* is a priority such that no CPU of
//! the LLC runs anything less urgent.
//!
//! **Claim.** While all CPUs of a large machine are busy, a search for a less urgent CPU reads one
//! line per LLC instead of one per CPU. A search that finds a CPU writes nothing. A CPU that
//! becomes less urgent writes only if a floor is too urgent for its new priority.
//!
//! **Origin.** Ours. The kernel counts the CPUs of every priority instead, and every CPU writes
//! these counts at every change.
//!
//! **State.** The lowest byte is 0 if no floor is known, else the floor plus one, with [`CLAIMED`]
//! while the claimant still checks. The bits above count the claims, so that a claim differs from
//! the next one.
//!
//! **Protocol.** A searcher that has found no CPU in an LLC:
//!
//! 1. claims the floor;
//! 2. fences;
//! 3. looks at all CPUs of the LLC once more;
//! 4. publishes the floor, if the claim is still there.
//!
//! A CPU that becomes less urgent:
//!
//! 1. writes its queue's priority;
//! 2. fences;
//! 3. takes a waiting task;
//! 4. if there is none, reads the floor, claimed or published;
//! 5. if the floor is more urgent than its priority, withdraws it, fences, and looks for waiting
//!    tasks once more.
//!
//! **Invariants.** (1) A published floor is valid except while it is being withdrawn or
//! revalidated. (2) A CPU that withdraws a floor reads the advertised tasks afterwards. So it finds
//! a task that was advertised before the floor was read, and was not placed because of a floor that
//! was no longer valid.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | claim, fence SeqCst in `claim`, loads of priorities | store of a priority, fence SeqCst in `Waiting::any_for`, load of the floor | the claimant sees the priority, or the claim is withdrawn |
//! | advertisement, fence SeqCst in [`Waiting::told`], load of the floor | floor withdrawn, fence SeqCst in `fell`, load of the advertisements | the floor is gone, or the advertisement is seen |
//!
//! **Layout.** One line per LLC. All CPUs of the LLC read it when they become less urgent. Searches
//! from anywhere read it when they come to that LLC.
//!
//! **Cost.** Becoming less urgent: one load, which hits unless the floor changed. A search: one
//! load per LLC. A failed search in an LLC without a floor: two read-modify-writes, and a second
//! read of lines that were just read.
//!
//! [`Waiting::told`]: crate::shipped::waiting::Waiting::told

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LINE, Memory, Placed, described};
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::operation;
use crate::base::prio::Prio;

/// The floor is claimed and not yet published.
const CLAIMED: u64 = 1 << 7;

/// The byte of the floor.
const BYTE: u64 = 0xff;

described! {
    /// What is known of one LLC.
    pub(crate) struct Floor<M: Memory> as "llc_floor" {
        /// No CPU runs anything less urgent than this. Written after failed searches, and by CPUs
        /// that become less urgent; read by both.
        word: M::Atomic<u64>,
    }
}

/// Machines with at most this many CPUs have no floors. A search of all CPUs is cheaper there than
/// a line with several writers.
const FEW: usize = 16;

/// The floors of all LLCs; none on small machines.
pub(crate) struct Floors<M: Memory> {
    by_llc: Box<[Placed<M, Floor<M>>]>,
    llc_of: Box<[u32]>,
}

/// A claim of a floor that a searcher wants to publish.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    llc: usize,
    word: u64,
}

/// Returns the floor in a word, claimed or published.
fn floor_of(word: u64) -> Option<Prio> {
    let floor = (word & BYTE & !CLAIMED).checked_sub(1)?;
    Some(Prio(floor as i32))
}

/// Returns whether a word says that no CPU runs anything less urgent than `prio`.
fn says(word: u64, prio: Prio) -> bool {
    word & CLAIMED == 0 && floor_of(word).is_some_and(|floor| floor <= prio)
}

impl<M: Memory> Floors<M> {
    /// Creates floors of which none is known.
    pub(crate) fn new(topology: &Topology) -> Self {
        let llcs = if topology.cpus() > FEW { topology.llcs() } else { 0 };
        let floor = |llc| {
            let node = topology.cpu(topology.cpus_of(Scope::Llc, llc)[0]).node;
            Placed::new(Floor { word: M::Atomic::new(0) }, Some(llc), Some(node))
        };
        Self {
            by_llc: (0..llcs).map(floor).collect(),
            llc_of: topology.cpu_ids().map(|cpu| topology.part_of(Scope::Llc, cpu) as u32).collect(),
        }
    }

    /// Returns whether floors are kept. If not, only [`Floors::fell`] may be called.
    pub(crate) fn are_kept(&self) -> bool {
        !self.by_llc.is_empty()
    }

    /// Returns whether, as far as is known, no CPU of `llc` runs anything less urgent than `prio`.
    #[track_caller]
    pub(crate) fn are_all_urgent(&self, llc: usize, prio: Prio) -> bool {
        // Relaxed: a caller that relies on it has fenced after its advertisement, see the module.
        says(self.by_llc[llc].word.load(Ordering::Relaxed), prio)
    }

    /// Claims the floor `prio` of `llc` for a searcher that has found no less urgent CPU there, and
    /// must look again. Returns `None` when the floor is claimed or already published. If a claim
    /// could replace a floor that was published meanwhile, all other searchers would look again and
    /// claim in their turn.
    pub(crate) fn claim(&self, llc: usize, prio: Prio) -> Option<Claim> {
        let floor = &self.by_llc[llc].word;
        // Relaxed: the exchange decides.
        let before = floor.load(Ordering::Relaxed);
        if before & CLAIMED != 0 || says(before, prio) {
            return None;
        }
        let word = ((before | BYTE) + 1) | CLAIMED | (prio.0 as u64 + 1);
        // Relaxed, both: the fence follows.
        floor.compare_exchange(before, word, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        // SeqCst: between the claim and the second look. Pairs with the fence in
        // `Waiting::any_for`.
        M::fence(Ordering::SeqCst);
        Some(Claim { llc, word })
    }

    /// Ends a claim after the look at all CPUs. If none was `found`, the floor is published, unless
    /// a CPU has become less urgent meanwhile.
    pub(crate) fn settle(&self, claim: Claim, found: bool) {
        let settled = claim.word & if found { !BYTE } else { !CLAIMED };
        let word = &self.by_llc[claim.llc].word;
        // Relaxed, both: the loads of the look carry no data. If the exchange fails, another CPU
        // has already withdrawn the claim.
        let _gone = word.compare_exchange(claim.word, settled, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Checks the floor for `cpu`, which has become less urgent, has written its new priority
    /// `prio`, has fenced, and has found nothing to run. Returns whether it withdrew a floor; if
    /// so, the caller must read the advertisements again.
    pub(crate) fn fell(&self, cpu: CpuId, prio: Prio) -> bool {
        let _look = operation::LOOK.begin::<M>();
        let Some(floor) = self.by_llc.get(self.llc_of[cpu.index()] as usize) else { return false };
        // Relaxed: the caller has fenced.
        let is_true = floor_of(floor.word.load(Ordering::Relaxed)).is_none_or(|floor| floor >= prio);
        if is_true {
            return false;
        }
        // Relaxed: the fence follows.
        floor.word.fetch_and(!BYTE, Ordering::Relaxed);
        // SeqCst: between the floor and the advertisements. Pairs with the fence in
        // `Waiting::told`.
        M::fence(Ordering::SeqCst);
        true
    }

    /// Returns the floor of `cpu`'s LLC, for checkers. Call it only in a quiescent state.
    pub(crate) fn of(&self, cpu: CpuId) -> Option<Prio> {
        let floor = self.by_llc.get(self.llc_of[cpu.index()] as usize)?;
        // Relaxed: nothing is in flight.
        floor_of(floor.word.load(Ordering::Relaxed))
    }

    /// Returns the bytes of all floors, in whole lines.
    pub(crate) fn bytes(&self) -> usize {
        self.by_llc.len() * LINE
    }
}

#[cfg(test)]
mod loom;
