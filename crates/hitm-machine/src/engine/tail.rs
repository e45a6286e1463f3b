//! Counts that do not belong to the results after all.
//!
//! A program's measured stretch begins with its second thread, unless the program says later that
//! it begins. It ends when one thread is left, unless the program starts another: what follows is
//! the *tail*.

use super::Engine;
use crate::account::{Account, Part};
use crate::coherence::Moves;
use crate::counts::Levels;
use crate::cpu::{Cpu, Waits};
use crate::exchanges::Exchanges;

/// The counts that a tail adds to, as they were before it. Those of accesses are with the
/// [`Records`](crate::records::Records).
#[derive(Debug)]
pub(super) struct BeforeTail {
    /// By CPU.
    accounts: Vec<Account>,
    exchanges: Exchanges,
    served: Levels,
    moves: Option<Moves>,
}

impl Engine {
    /// What is counted from now on may not belong to the results: [`end_tail`](Self::end_tail) says
    /// that it does. Otherwise [`conclude`](Self::conclude) forgets it.
    pub(crate) fn begin_tail(&mut self) {
        // What an earlier tail has counted belongs to the results: no copy is made.
        self.records.end_tail();
        self.settle_records();
        self.records.begin_tail();
        self.before_tail = Some(Box::new(BeforeTail {
            accounts: self.cpus.iter().map(|cpu| self.account_now(cpu)).collect(),
            exchanges: self.exchanges.clone(),
            served: self.served,
            moves: self.directory.moves(),
        }));
    }

    /// What was counted since [`begin_tail`](Self::begin_tail) belongs to the results.
    pub(crate) fn end_tail(&mut self) {
        self.records.end_tail();
        self.before_tail = None;
    }

    /// The results are asked for: forgets what was counted since
    /// [`begin_tail`](Self::begin_tail), if that was the last word. Without a tail, books what CPUs
    /// have waited by now: a program may end in the middle of a run, where most of them idle.
    pub(crate) fn conclude(&mut self) {
        self.settle_records();
        let Some(before) = self.before_tail.take() else {
            return self.book_waits_until(self.clock().min(self.measured.1));
        };
        self.records.drop_tail();
        for (cpu, account) in self.cpus.iter_mut().zip(before.accounts) {
            cpu.account = account;
        }
        self.exchanges = before.exchanges;
        self.served = before.served;
        if let Some(moves) = before.moves {
            self.directory.set_moves(moves);
        }
    }

    /// Forgets what was counted up to now.
    pub(super) fn forget_counts(&mut self) {
        self.settle_records();
        self.records.forget();
        self.before_tail = None;
        self.cpus.iter_mut().for_each(|cpu| cpu.account = Account::default());
        self.exchanges.forget();
        self.served = Levels::default();
        self.directory.set_moves(Moves::default());
    }

    /// The account of `cpu` up to now, the time of the current CPU.
    fn account_now(&self, cpu: &Cpu) -> Account {
        let mut account = cpu.account.clone();
        if let Some(part) = cpu.part_of_wait() {
            let (from, to) = self.measured;
            account[part] += self.clock().max(cpu.clock).clamp(from, to) - cpu.clock.clamp(from, to);
        }
        account
    }
}

impl Cpu {
    /// What the time belongs to that passes before the CPU's next turn; `None` if its clock is past
    /// it.
    pub(super) fn part_of_wait(&self) -> Option<Part> {
        match self.waits {
            _ if self.finished => None,
            // Its turn is entered for its clock, which is past the end.
            Waits::Nothing => None,
            Waits::Line { .. } | Waits::StoreBuffer { .. } => Some(self.part_of_access(Part::LineWaits)),
            Waits::Spin { .. } => Some(self.part_of_access(Part::LockWaits)),
            Waits::Compute { .. } => Some(Part::User),
            Waits::Interrupt { .. } | Waits::Park { .. } => Some(Part::Idle),
        }
    }
}
