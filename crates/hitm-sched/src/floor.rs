//! What failed searches leave behind: that nobody in an LLC runs anything less urgent than a priority, its *floor*.
//!
//! **Claim.** While all CPUs of a large machine are busy, a search for a less urgent one reads a line an LLC instead of one a CPU. A search
//! that finds somebody writes nothing; a CPU that becomes less urgent writes only where a floor says that nobody would.
//!
//! **Origin.** Ours. The kernel counts the CPUs of every priority instead, which every CPU then writes at every change.
//!
//! **State.** The lowest byte is 0 for nothing known, else the floor and one, with [`CLAIMED`] while whoever wants to set it still looks; above
//! it, how often it was claimed, so that a claim is told from the next one.
//!
//! **Protocol.** Who has looked at all CPUs of an LLC in vain: (1) claims; (2) fences; (3) looks at all of them once more; (4) sets the floor if the
//! claim stands. Who becomes less urgent: (1) writes its queue's priority; (2) fences; (3) takes what waits; (4) if there is
//! nothing, reads the floor, claimed or set; (5) if that is more urgent than its priority, takes it away, fences, and looks once more who waits.
//!
//! **Invariants.** (1) A floor that is set, and that nobody is about to take away or to make true again, is true. (2) Who takes a floor away reads who waits after it. So a
//! task that is not placed because of a floor that was true no more, and that is announced before the floor is read, is found.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | claim, fence SeqCst in `claim`, a look at priorities | a priority, fence SeqCst in `Waiting::any_for`, floor | the look sees the priority, or the claim is taken away |
//! | who waits, fence SeqCst in [`Waiting::told`], floor | floor taken away, fence SeqCst in `fell`, who waits | the floor is gone, or it is seen who waits |
//!
//! **Layout.** A line an LLC: all of its CPUs read it when they become less urgent, searches from anywhere when they come to that LLC.
//!
//! **Cost.** Becoming less urgent: a load, which hits unless a floor came or went. A search: a load an LLC. One that fails in an
//! LLC that has no floor: two read-modify-writes and a second look at lines that were just read.
//!
//! [`Waiting::told`]: crate::waiting::Waiting::told

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LINE, Memory, Placed, described};
use hitm_topology::{CpuId, Scope, Topology};

use crate::prio::Prio;

/// The floor is not known yet.
const CLAIMED: u64 = 1 << 7;

/// The byte of the floor.
const BYTE: u64 = 0xff;

described! {
    /// What is known of one LLC.
    pub(crate) struct Floor<M: Memory> as "llc_floor" {
        /// Nobody runs anything less urgent than this. Written after searches in vain, and by CPUs that become less urgent; read by both.
        word: M::Atomic<u64>,
    }
}

/// Machines of no more CPUs have no floors: looking at all of them is cheaper than a line that several write.
const FEW: usize = 16;

/// The floors of all LLCs, or none on small machines.
pub(crate) struct Floors<M: Memory> {
    by_llc: Box<[Placed<M, Floor<M>>]>,
    llc_of: Box<[u32]>,
}

/// A floor that somebody wants to set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    llc: usize,
    word: u64,
}

/// The floor in a word, claimed or set.
fn floor_of(word: u64) -> Option<Prio> {
    let floor = (word & BYTE & !CLAIMED).checked_sub(1)?;
    Some(Prio(floor as i32))
}

/// Whether a word says that nobody runs anything less urgent than `prio`.
fn says(word: u64, prio: Prio) -> bool {
    word & CLAIMED == 0 && floor_of(word).is_some_and(|floor| floor <= prio)
}

impl<M: Memory> Floors<M> {
    /// Nothing is known.
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

    /// Whether there are any: else only [`Floors::fell`] is asked.
    pub(crate) fn are_kept(&self) -> bool {
        !self.by_llc.is_empty()
    }

    /// Whether nobody in `llc` runs anything less urgent than `prio`, as far as is known.
    #[track_caller]
    pub(crate) fn are_all_urgent(&self, llc: usize, prio: Prio) -> bool {
        // Relaxed: who relies on it has fenced after it announced what waits, see the module.
        says(self.by_llc[llc].word.load(Ordering::Relaxed), prio)
    }

    /// Whoever has found nobody in `llc` that runs anything less urgent than `prio` wants to say so, and looks again. None when
    /// somebody else is about to, or has: who claimed again what was set while it looked would have all that come meanwhile look, and claim
    /// in their turn.
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
        // SeqCst: between the claim and the look. Pairs with the fence in `Waiting::any_for`.
        M::fence(Ordering::SeqCst);
        Some(Claim { llc, word })
    }

    /// The claimant has looked at all CPUs and `found` somebody, or nobody: then the floor is set, unless a CPU has become less urgent meanwhile.
    pub(crate) fn settle(&self, claim: Claim, found: bool) {
        let settled = claim.word & if found { !BYTE } else { !CLAIMED };
        let word = &self.by_llc[claim.llc].word;
        // Relaxed, both: what was seen is no data; an exchange that fails leaves the claim to who has taken it away.
        let _gone = word.compare_exchange(claim.word, settled, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// `cpu` has become less urgent, has written that it runs at `prio` now, fenced, and found nothing to run. Whether that took a floor away:
    /// then who waits is to be read again.
    pub(crate) fn fell(&self, cpu: CpuId, prio: Prio) -> bool {
        let Some(floor) = self.by_llc.get(self.llc_of[cpu.index()] as usize) else { return false };
        // Relaxed: the caller has fenced.
        let is_true = floor_of(floor.word.load(Ordering::Relaxed)).is_none_or(|floor| floor >= prio);
        if is_true {
            return false;
        }
        // Relaxed: the fence follows.
        floor.word.fetch_and(!BYTE, Ordering::Relaxed);
        // SeqCst: between the floor and who waits. Pairs with the fence in `Waiting::told`.
        M::fence(Ordering::SeqCst);
        true
    }

    /// The floor of `cpu`'s LLC, for checkers. Only when nothing is in flight.
    pub(crate) fn of(&self, cpu: CpuId) -> Option<Prio> {
        let floor = self.by_llc.get(self.llc_of[cpu.index()] as usize)?;
        // Relaxed: nothing is in flight.
        floor_of(floor.word.load(Ordering::Relaxed))
    }

    /// Bytes of all of them, whole lines.
    pub(crate) fn bytes(&self) -> usize {
        self.by_llc.len() * LINE
    }
}

#[cfg(test)]
mod loom;
