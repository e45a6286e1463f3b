//! Counts drops: every token must be dropped exactly once.

use std::sync::{Arc, Mutex, MutexGuard};

/// State that a case leaves for checks after its runtime has gone.
pub(crate) trait Finally: Send + 'static {
    /// Panics if the state is wrong.
    fn check(self);
}

impl Finally for () {
    fn check(self) {}
}

/// The tokens by number, each with its number of drops.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<u32>>>);

/// A token whose drop is counted.
#[derive(Debug)]
pub(crate) struct Token {
    ledger: Ledger,
    number: usize,
}

impl Ledger {
    fn drops(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().expect("no holder panics")
    }

    /// Makes a new token.
    pub(crate) fn token(&self) -> Token {
        let mut drops = self.drops();
        drops.push(0);
        Token { ledger: self.clone(), number: drops.len() - 1 }
    }

    /// Returns the numbers of made and of dropped tokens.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let drops = self.drops();
        (drops.len(), drops.iter().map(|&count| count as usize).sum())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.drops()[self.number] += 1;
    }
}

impl Finally for Ledger {
    fn check(self) {
        let drops = self.drops();
        let wrong: Vec<_> = drops.iter().enumerate().filter(|&(_, &count)| count != 1).collect();
        assert!(!drops.is_empty(), "a ledger that was never used");
        assert!(wrong.is_empty(), "of {} tokens, by number, dropped so often: {wrong:?}", drops.len());
    }
}
