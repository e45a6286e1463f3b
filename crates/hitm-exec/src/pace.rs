//! How long the program's instructions take between its accesses.
//!
//! The machine prices what lines cost. A processor executes many instructions at a time, so a block
//! and an access that finds its line take little: [`Setting::block_ns`] and [`Setting::issue_ns`].
//! Three things are otherwise:
//!
//! - *Store forwarding.* A load of the word that the CPU has stored last gets the value out of the
//!   store buffer, no sooner after the store than a load takes from level 1: 4 to 5 cycles on
//!   Skylake (Fog, "The microarchitecture of Intel, AMD and VIA CPUs", "Store forwarding"). So
//!   `counter = counter + 1` in a loop takes as long per turn.
//! - *Locked instructions.* No later access begins before they end. Later instructions without
//!   accesses execute meanwhile. So what follows a locked instruction within its time adds nothing,
//!   and the next access is under way when it ends.
//! - *Fences.* A full fence takes as long as a locked instruction, which gcc makes it of. The
//!   instruction `mfence` takes longer, and hides nothing: on Skylake no later instruction begins
//!   before it ends.

use hitm_machine::Costs;

use crate::setting::Setting;

/// An `mfence`, in picoseconds: 33 cycles on Skylake (Fog, "Instruction tables"), at 3 GHz.
const FENCE_INSTRUCTION: u64 = 11_000;

/// What instructions take, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaceCosts {
    /// The instructions of a basic block.
    block: u64,
    /// An access that finds its line, in a stream of others.
    issue: u64,
    /// A load that finds its line, until its value is there.
    load: u64,
    /// A locked instruction that finds its line.
    locked: u64,
}

impl PaceCosts {
    pub(crate) fn new(setting: &Setting, costs: &Costs) -> Self {
        let picos = |nanos: f64| (nanos * 1_000.0) as u64;
        Self {
            block: picos(setting.block_ns),
            // As the machine has it.
            issue: picos(setting.issue_ns).min(picos(costs.family.load_hit.value)),
            load: picos(costs.family.load_hit.value),
            locked: picos(costs.family.rmw_hit.value),
        }
    }
}

impl PaceCosts {
    /// What a basic block takes.
    pub(crate) fn block(&self) -> u64 {
        self.block
    }

    /// How long a load waits for the word that was stored so long before.
    #[inline]
    pub(crate) fn forwards_in(&self, ago: i64) -> i64 {
        (self.load as i64 - ago).max(0)
    }
}

/// The pace of a thread. Its times are those of its instructions alone: what the thread waits for
/// lines is not counted.
#[derive(Debug)]
pub(crate) struct Pace {
    costs: PaceCosts,
    /// What its instructions have taken so far.
    now: u64,
    /// What of the next instructions a locked instruction hides.
    hidden: u64,
    /// The word that it stored last, and when.
    stored: usize,
    stored_at: u64,
}

impl Pace {
    pub(crate) fn new(costs: &PaceCosts) -> Self {
        Self { costs: *costs, now: 0, hidden: 0, stored: 0, stored_at: 0 }
    }

    /// A basic block: what it takes.
    #[inline]
    pub(crate) fn block(&mut self) -> u64 {
        let mut takes = self.costs.block;
        if self.hidden > 0 {
            let hidden = self.hidden.min(takes);
            self.hidden -= hidden;
            takes -= hidden;
        }
        self.now += takes;
        takes
    }

    /// What a load of the word at `address` waits, beside its own cost.
    #[inline]
    pub(crate) fn wait(&self, address: usize) -> u64 {
        if address == self.stored { self.costs.forwards_in((self.now - self.stored_at) as i64) as u64 } else { 0 }
    }

    /// A load or store of the word at `address`, which has waited.
    #[inline]
    pub(crate) fn access(&mut self, address: usize, is_store: bool, waited: u64) {
        self.hidden = 0;
        if is_store {
            (self.stored, self.stored_at) = (address, self.now);
        }
        self.now += waited + self.costs.issue;
    }

    /// The word that was stored last, and how long before now.
    pub(crate) fn stored(&self) -> (usize, i64) {
        (self.stored, (self.now - self.stored_at) as i64)
    }

    /// Instructions without a locked one have taken `elapsed`. By now the word at `stored` is the
    /// one that was stored last, so long `ago`.
    pub(crate) fn pass(&mut self, elapsed: i64, stored: usize, ago: i64) {
        self.now += elapsed as u64;
        (self.stored, self.stored_at) = (stored, self.now - ago as u64);
    }

    /// A locked instruction: what it takes where it finds its line.
    #[inline]
    pub(crate) fn locked(&mut self) -> u64 {
        self.hidden = self.costs.locked;
        self.now += self.costs.locked;
        self.costs.locked
    }

    /// The instruction `mfence`: what it takes.
    pub(crate) fn fence_instruction(&mut self) -> u64 {
        let takes = self.costs.locked.max(FENCE_INSTRUCTION);
        self.hidden = 0;
        self.now += takes;
        takes
    }
}
