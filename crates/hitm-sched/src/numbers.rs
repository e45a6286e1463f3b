//! Numbers that are used again: of tasks, and of maps.

use std::fmt::Debug;
use std::marker::PhantomData;

use hitm_memory::{Described, Field, Lock, Memory, Placed};

/// What the numbers are of.
pub(crate) trait Numbered: Debug {
    /// The object's name in reports.
    const OBJECT: &'static str;
    /// What its lock is for.
    const LOCK: &'static str;
    /// Several of them.
    const PLURAL: &'static str;
    /// How many can live at once.
    const MAX: usize;
}

/// The numbers from 0 that are in use, of which the next one is the last that was given back, or else the first that never was in use.
#[derive(Debug)]
pub(crate) struct Numbers<M: Memory, N: Numbered>(Placed<M, Words<M, N>>);

#[derive(Debug)]
struct Words<M: Memory, N: Numbered> {
    free: Lock<M, Free>,
    of: PhantomData<fn() -> N>,
}

#[derive(Debug, Default)]
struct Free {
    /// Those that were in use before.
    used: Vec<u32>,
    /// The first that never was.
    fresh: u32,
}

impl<M: Memory, N: Numbered> Described for Words<M, N> {
    const OBJECT: &'static str = N::OBJECT;

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, size_of::<u32>(), N::LOCK)]
    }
}

impl<M: Memory, N: Numbered> Numbers<M, N> {
    pub(crate) fn new() -> Self {
        Self(Placed::new(Words { free: Lock::new(Free::default()), of: PhantomData }, None, None))
    }

    /// A number that nobody has.
    ///
    /// # Panics
    /// When [`Numbered::MAX`] of them are in use.
    pub(crate) fn take(&self) -> u32 {
        let mut free = self.0.free.lock();
        free.used.pop().unwrap_or_else(|| {
            let fresh = free.fresh;
            assert!((fresh as usize) < N::MAX, "more than {} {} live at once", N::MAX, N::PLURAL);
            free.fresh += 1;
            fresh
        })
    }

    /// Gives `number` back. What was done under it comes before what is done under it next: the lock orders them.
    pub(crate) fn give_back(&self, number: u32) {
        self.0.free.lock().used.push(number);
    }

    /// How many were ever in use: those below that.
    pub(crate) fn fresh(&self) -> u32 {
        self.0.free.lock().fresh
    }
}
