//! The push chain: one token per root domain visits the overloaded CPUs and lets each of them push.
//!
//! **Claim.** For any number of pullers, one chain of interrupts is under way. Each puller pays two
//! read-modify-writes on one line, and takes no other CPU's run queue lock. Without the chain every
//! puller locks every overloaded queue; see [`pull`](crate::scheduler::Scheduler).
//!
//! **Origin.** Steven Rostedt, "sched/rt: Simplify the IPI based RT balancing logic", Linux 4.15,
//! with a later fix: a scan skips the CPU that executes it (Chen Jinghuang, 2025). Without the fix
//! one CPU can interrupt itself forever.
//!
//! **State.**
//!
//! | word | meaning |
//! |---|---|
//! | `rto_loop_next` | the number of requests |
//! | `rto_loop` | the number of requests that the current scan has accounted for; under `rto_lock` |
//! | `rto_cpu` | the position of the scan, -1 when none is under way; under `rto_lock` |
//! | `rto_loop_start` | 1 while a puller is between steps 2 and 4 |
//! | `push_work_flags` | `PENDING` while the work is claimed and not begun; `BUSY` from the claim to the end of a run |
//!
//! **Protocol.** A puller does these steps:
//!
//! 1. It adds to `rto_loop_next`.
//! 2. It takes `rto_loop_start`, or leaves.
//! 3. Under `rto_lock`, if no scan is under way, it advances to the first overloaded CPU.
//! 4. It releases `rto_loop_start`.
//! 5. If it found a CPU, it takes a reference and sends the work to that CPU.
//!
//! Each visited CPU pushes what it can. Then, under `rto_lock`, it advances and sends the work on,
//! or drops the reference. At the end of the bits a scan starts again if requests came in
//! meanwhile.
//!
//! **Invariants.**
//! 1. At most one chain is under way.
//! 2. With none under way, `rto_cpu` is -1.
//! 3. A scan that accounts for a request sees the overload bits that were visible to the requester
//!    before the request.
//! 4. The token's holder can always claim the work. The flags alone promise less: a run that was
//!    claimed after another began may overlap the end of that other run.
//! 5. A CPU that finds the work claimed is served by that claim: the run begins later, and sees the
//!    CPU's earlier stores.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `request_push`, add to `rto_loop_next` Release | `advance`, load of `rto_loop_next` Acquire | the bits that caused the request: invariant 3 |
//! | `request_push`, add to `rto_loop_next`, fence SeqCst, exchange of `rto_loop_start` | `request_push`, store to `rto_loop_start`, fence SeqCst, load of `rto_loop_next` | store buffering is forbidden where requests are kept: the holder sees a puller that it turned away |
//! | `claim_push_work`, fetch-or Release | `begin_push_work`, fetch-and Acquire | what the claimer did: invariant 5 |
//!
//! `rto_loop_start` publishes nothing, so it is Relaxed, unlike in the original. Its holder works
//! under `rto_lock`, which orders that work. `rto_loop_start` only keeps other pullers from waiting
//! for that lock. If its release takes effect early, one puller waits for the lock, which is
//! harmless.
//!
//! **Limits.** Two kinds of request are lost, in the original too. First, a puller leaves at step 2
//! when the holder of `rto_loop_start` has already read `rto_loop_next`. Second, a request comes
//! while the last CPU of the chain has pushed and not yet advanced. If it is for tasks that wait on
//! that CPU, it is lost, since a scan skips that CPU. The waiting tasks stay until the next event:
//! their CPU was overloaded before and does not push again. Each window is a few instructions long.
//! Where threads outnumber cores, it lasts as long as the operating system keeps one of the threads
//! off its core.
//!
//! **Kept requests.** With
//! [`keeps_requests`](super::config::RootDomainConfig::keeps_requests), which is ours, no
//! request is lost. After step 4 a puller that starts no chain checks for requests that came
//! meanwhile, and if there are any, begins again. A scan that accounts for requests also returns to
//! the CPU that executes it, by an interrupt, so that the CPU can switch in between. Each
//! repetition needs a new request, so it ends.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, PlainWord};
use hitm_topology::CpuId;

use crate::linux::root_domain::RootDomain;

/// The work is queued on a CPU and not begun.
const PENDING: u32 = 1;
/// The work is queued or under way. As in the original, but no code here waits for it.
const BUSY: u32 = 2;

impl<M: Memory> RootDomain<M> {
    /// Requests a push because `here` wants to pull. Returns the CPU to send the push work to, if
    /// this starts a chain.
    #[must_use]
    pub fn request_push(&self, here: CpuId) -> Option<CpuId> {
        let words = self.words();
        // Release: publishes the overload bits that this CPU saw to the scan that accounts for the
        // request. Pairs with the Acquire load in `advance`.
        words.rto_loop_next.fetch_add(1, Ordering::Release);
        let keeps = self.config.keeps_requests;
        if keeps {
            // SeqCst: the module's table.
            M::fence(Ordering::SeqCst);
        }
        let first = loop {
            // Relaxed: see the module's documentation. On failure nothing follows, but a failed
            // exchange takes the line too.
            words.rto_loop_start.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
            let (first, seen) = {
                let _lock = words.rto_lock.lock();
                // Relaxed: a request that is missed here is seen below. The load comes before the
                // scan, which accounts for these requests and perhaps more.
                let seen = keeps.then(|| words.rto_loop_next.load(Ordering::Relaxed));
                (if words.rto_cpu.get() < 0 { self.advance(here) } else { None }, seen)
            };
            // Relaxed: as above.
            words.rto_loop_start.store(0, Ordering::Relaxed);
            if seen.is_none_or(|seen| !self.was_asked_since(seen)) || first.is_some() {
                break first;
            }
        };
        if first.is_some() {
            // Relaxed: the chain's reference. It protects no memory from being freed.
            words.refcount.fetch_add(1, Ordering::Relaxed);
        }
        first
    }

    /// Returns whether a puller was turned away by the caller, which has just released
    /// `rto_loop_start` and counted `seen` requests.
    fn was_asked_since(&self, seen: u32) -> bool {
        // SeqCst: the module's table. Also for a caller that starts a chain: the chain's end checks
        // for the same requests.
        M::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        self.words().rto_loop_next.load(Ordering::Relaxed) != seen
    }

    /// Continues the chain at `here`, which has pushed. Returns the CPU to send the work to next,
    /// or `None` when the chain has ended.
    #[must_use]
    pub fn continue_push(&self, here: CpuId) -> Option<CpuId> {
        let words = self.words();
        let next = {
            let _lock = words.rto_lock.lock();
            self.advance(here)
        };
        if next.is_none() {
            // Relaxed: this count frees nothing. The domain's owner frees the domain.
            words.refcount.fetch_sub(1, Ordering::Relaxed);
        }
        next
    }

    /// Returns the next overloaded CPU other than `here`. Where requests are kept, it returns
    /// `here` too if there are new ones. The caller holds `rto_lock`.
    fn advance(&self, here: CpuId) -> Option<CpuId> {
        let words = self.words();
        // Relaxed: constant.
        let mask = words.rto_mask.load(Ordering::Relaxed);
        let mut has_new = false;
        loop {
            let previous = u32::try_from(words.rto_cpu.get()).ok().map(CpuId);
            // Relaxed: the Acquire load below orders the bits behind a request. If a bit is
            // missed, its own CPU pushes.
            let next = self.rto_mask.row(mask).next_after(previous, Ordering::Relaxed);
            words.rto_cpu.set(next.map_or(-1, |cpu| cpu.0 as i32));
            match next {
                Some(cpu) if cpu == here && !has_new => {}
                Some(cpu) => return Some(cpu),
                None => {
                    // Acquire: the scan that follows sees the bits behind the requests counted
                    // here. Pairs with the Release in `request_push`.
                    let requests = words.rto_loop_next.load(Ordering::Acquire);
                    if words.rto_loop.get() == requests {
                        return None;
                    }
                    words.rto_loop.set(requests);
                    has_new = self.config.keeps_requests;
                }
            }
        }
    }

    /// Claims the push work in order to send it to a CPU. Returns false when it is queued already.
    #[must_use]
    pub fn claim_push_work(&self, target: CpuId) -> bool {
        // Release: publishes what the claimer did, also to a run that was claimed before. Pairs
        // with the Acquire in `begin_push_work`.
        let before = self.words().push_work_flags.fetch_or(PENDING | BUSY, Ordering::Release);
        if before & PENDING != 0 {
            return false;
        }
        // Relaxed: the interrupt that follows publishes it.
        self.words().push_work_link.store(u64::from(target.0) + 1, Ordering::Relaxed);
        true
    }

    /// Begins a run of the work. From now on the work can be claimed again.
    pub fn begin_push_work(&self) {
        // Acquire: sees everything that all claimers up to now did. Pairs with the Release in
        // `claim_push_work`.
        self.words().push_work_flags.fetch_and(!PENDING, Ordering::Acquire);
    }

    /// Ends a run of the work.
    pub fn end_push_work(&self) {
        // Relaxed: `BUSY` is read only here. A failure means that the work was claimed again, and
        // stays busy.
        let _claimed_anew =
            self.words().push_work_flags.compare_exchange(BUSY, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether a chain is under way, for checkers.
    pub fn push_chain_active(&self) -> bool {
        self.words().rto_cpu.peek() >= 0
    }
}
