//! The push chain: one token a root domain walks the overloaded CPUs and lets each push.
//!
//! **Claim.** However many CPUs want to pull, one chain of interrupts is under way. Each of them pays two read-modify-writes
//! on one line, and nobody takes another CPU's run queue lock.
//! Without the chain every puller locks every overloaded queue; see [`pull`](crate::scheduler::Scheduler).
//!
//! **Origin.** Steven Rostedt, "sched/rt: Simplify the IPI based RT balancing logic", Linux 4.15; with the later fix that a
//! scan passes over the CPU that executes it (Chen Jinghuang, 2025), without which one CPU can interrupt itself for
//! ever.
//!
//! **State.**
//!
//! | word | meaning |
//! |---|---|
//! | `rto_loop_next` | requests so far |
//! | `rto_loop` | requests that the scan under way has accounted for; under `rto_lock` |
//! | `rto_cpu` | where the scan is, -1 when none is under way; under `rto_lock` |
//! | `rto_loop_start` | 1 while a puller is between steps 2 and 4 |
//! | `push_work_flags` | `PENDING` while the work is claimed and not begun; `BUSY` from the claim to the end of a run |
//!
//! **Protocol.** A puller: (1) adds to `rto_loop_next`; (2) takes `rto_loop_start`, or leaves; (3) under `rto_lock`, if no
//! scan is under way, advances to the first overloaded CPU; (4) releases `rto_loop_start`; (5) with a CPU found, takes a
//! reference and sends the work there. Each CPU on the way: pushes what it can, then under `rto_lock` advances, and sends the
//! work on or drops the reference. At the end of the bits, a scan starts over if requests came in meanwhile.
//!
//! **Invariants.**
//! 1. At most one chain is under way.
//! 2. With none under way, `rto_cpu` is -1.
//! 3. A scan that accounts for a request sees the overload bits that were visible to the requester before it asked.
//! 4. Who holds the token finds the work free to claim. The flags alone promise less: a run that was claimed after
//!    another began may overlap that one's end.
//! 5. Who finds the work claimed is served by that claim: the run begins later, and sees what was written before.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `request_push`, add to `rto_loop_next` Release | `advance`, load of `rto_loop_next` Acquire | the bits that caused the request: invariant 3 |
//! | `request_push`, add to `rto_loop_next`, fence SeqCst, exchange of `rto_loop_start` | `request_push`, store to `rto_loop_start`, fence SeqCst, load of `rto_loop_next` | store buffering is forbidden where requests are kept: who is turned away is seen |
//! | `claim_push_work`, fetch-or Release | `begin_push_work`, fetch-and Acquire | what the claimer did: invariant 5 |
//!
//! `rto_loop_start` publishes nothing, so it is Relaxed, unlike in the original: what its holder does is under `rto_lock`,
//! which orders it. It only keeps others from waiting for that lock. Should its release take effect early, one of them
//! waits after all.
//!
//! **Limits.** Two requests are lost, in the original too: one whose puller leaves at step 2 when whoever holds `rto_loop_start` has looked at
//! `rto_loop_next`, and one that comes while the CPU of the chain's end has pushed and not advanced, if it is for what waits there, since a
//! scan passes over that CPU. What waits stays until the next event: it was overloaded before and does not push again. Each takes a few
//! instructions' time; where threads are more than cores, as long as the operating system keeps one of them off its core.
//!
//! **Kept requests.** With [`keeps_requests`](crate::root_domain::RootDomainConfig::keeps_requests), ours, none is: after step 4 who starts no
//! chain looks whether anybody asked meanwhile, and begins anew; and a scan that accounts for requests comes back to the CPU that
//! executes it, by an interrupt, so that it can switch in between. Each time takes a new request, so it ends.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, PlainWord};
use hitm_topology::CpuId;

use crate::root_domain::{RootDomain, RootDomainWords};

/// The work is queued somewhere and not begun.
const PENDING: u32 = 1;
/// The work is queued or under way. As in the original; nothing waits for it here.
const BUSY: u32 = 2;

impl<M: Memory, R: RootDomainWords<M>> RootDomain<M, R> {
    /// `here` wants to pull. Returns the CPU to send the push work to, if this starts a chain.
    #[must_use]
    pub fn request_push(&self, here: CpuId) -> Option<CpuId> {
        let words = self.words();
        // Release: publishes the overload bits that this CPU saw to the scan that accounts for the request. Pairs with
        // the Acquire load in `advance`.
        words.rto_loop_next().fetch_add(1, Ordering::Release);
        let keeps = self.config.keeps_requests;
        if keeps {
            // SeqCst: the module's table.
            M::fence(Ordering::SeqCst);
        }
        let first = loop {
            // Relaxed: see the module's documentation; on failure nothing follows. A failed one takes the line all the same.
            words.rto_loop_start().compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
            let (first, seen) = {
                let _lock = words.rto_lock().lock();
                // Relaxed: a request that is missed here is seen below. Before the scan, which accounts for these and perhaps more.
                let seen = keeps.then(|| words.rto_loop_next().load(Ordering::Relaxed));
                (if words.rto_cpu().get() < 0 { self.advance(here) } else { None }, seen)
            };
            // Relaxed: as above.
            words.rto_loop_start().store(0, Ordering::Relaxed);
            if seen.is_none_or(|seen| !self.was_asked_since(seen)) || first.is_some() {
                break first;
            }
        };
        if first.is_some() {
            // Relaxed: the chain's reference, which nobody frees anything by.
            words.refcount().fetch_add(1, Ordering::Relaxed);
        }
        first
    }

    /// Whether anybody was turned away by who has just let go of `rto_loop_start` and counted `seen` requests.
    fn was_asked_since(&self, seen: u32) -> bool {
        // SeqCst: the module's table. Also of who starts a chain: at its end that looks for the same requests.
        M::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        self.words().rto_loop_next().load(Ordering::Relaxed) != seen
    }

    /// The chain is at `here`, which has pushed. Returns the CPU to send the work to next; with none the chain has ended.
    #[must_use]
    pub fn continue_push(&self, here: CpuId) -> Option<CpuId> {
        let words = self.words();
        let next = {
            let _lock = words.rto_lock().lock();
            self.advance(here)
        };
        if next.is_none() {
            // Relaxed: nobody frees anything by this count; the domain's owner does.
            words.refcount().fetch_sub(1, Ordering::Relaxed);
        }
        next
    }

    /// The next overloaded CPU other than `here`; or `here` for the sake of new requests, where those are kept. Under `rto_lock`.
    fn advance(&self, here: CpuId) -> Option<CpuId> {
        let words = self.words();
        // Relaxed: constant.
        let mask = words.rto_mask().load(Ordering::Relaxed);
        let mut has_new = false;
        loop {
            let previous = u32::try_from(words.rto_cpu().get()).ok().map(CpuId);
            // Relaxed: the Acquire load below orders the bits that a request announced; a bit that is missed is
            // pushed by its own CPU.
            let next = self.rto_mask.row(mask).next_after(previous, Ordering::Relaxed);
            words.rto_cpu().set(next.map_or(-1, |cpu| cpu.0 as i32));
            match next {
                Some(cpu) if cpu == here && !has_new => {}
                Some(cpu) => return Some(cpu),
                None => {
                    // Acquire: the bits behind the requests counted here are seen by the scan that follows. Pairs with the
                    // Release in `request_push`.
                    let requests = words.rto_loop_next().load(Ordering::Acquire);
                    if words.rto_loop().get() == requests {
                        return None;
                    }
                    words.rto_loop().set(requests);
                    has_new = self.config.keeps_requests;
                }
            }
        }
    }

    /// Claims the push work for sending it to a CPU. False when it is queued already.
    #[must_use]
    pub fn claim_push_work(&self, target: CpuId) -> bool {
        // Release: publishes what the claimer did, also to a run that was claimed before. Pairs with the Acquire in
        // `begin_push_work`.
        let before = self.words().push_work_flags().fetch_or(PENDING | BUSY, Ordering::Release);
        if before & PENDING != 0 {
            return false;
        }
        // Relaxed: the interrupt that follows publishes it.
        self.words().push_work_link().store(u64::from(target.0) + 1, Ordering::Relaxed);
        true
    }

    /// The work runs: from now on it can be claimed anew.
    pub fn begin_push_work(&self) {
        // Acquire: sees what all claimers up to here did. Pairs with the Release in `claim_push_work`.
        self.words().push_work_flags().fetch_and(!PENDING, Ordering::Acquire);
    }

    /// The work has run.
    pub fn end_push_work(&self) {
        // Relaxed: nobody reads `BUSY` but here. A failure means that the work was claimed anew, and stays busy.
        let _claimed_anew =
            self.words().push_work_flags().compare_exchange(BUSY, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether a chain is under way, for checkers.
    pub fn push_chain_active(&self) -> bool {
        self.words().rto_cpu().peek() >= 0
    }
}
