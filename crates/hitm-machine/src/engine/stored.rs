//! Accesses of a program that its CPU's own stores decide alone, on the program's own code.
//!
//! A thread that writes lines which other threads write too makes most of its accesses while a
//! store of its own waits for a line. Such a load gets its bytes from the store, and such a store
//! stands behind it. Neither asks the directory for anything, so both belong to the
//! [fast path](super::quick), although there is no permit: the line is not the CPU's, and each
//! access comes here. The conditions are the same: no switch to another CPU, no call of the host,
//! no memory from it. If one does not hold, nothing has happened, and the engine makes the access
//! in the usual way with the same result.

use hitm_memory::Mode;

use super::{Engine, Issue, Touch};
use crate::coherence::Kind;
use crate::store_buffer::Forward;
use crate::word::read_word;

impl Engine {
    /// Whether accesses of the current CPU may take the fast path: it runs its program, in no
    /// operation that counts them.
    pub(super) fn is_ordinary(&self) -> bool {
        let cpu = &self.cpus[self.current as usize];
        // After the measurement, and where caches have sizes, accesses have other rules.
        self.has_fast_path && cpu.mode == Mode::User && !cpu.spinning && cpu.operation == 0
    }

    /// The line that `touch` belongs to, if the current CPU's own stores may decide alone what it
    /// comes to after `executed` picoseconds of instructions: they stand in its store buffer.
    fn line_behind_stores(&self, touch: &Touch, executed: u64) -> Option<u32> {
        let cpu = &self.cpus[self.current as usize];
        if cpu.stores.is_empty() || !self.quick.is_on() || !self.is_ordinary() || self.is_stuck() {
            return None;
        }
        let now = cpu.clock + executed;
        if self.is_over(now) {
            return None;
        }
        let line = self.pages.line_if_cached(touch.address())?;
        (!self.is_free(line) && self.keeps_stores(now)).then_some(line)
    }

    /// The current CPU executes instructions for `executed` picoseconds, and then makes a load of
    /// bytes that an own store has. Returns them; none if the load has not happened.
    pub(crate) fn load_stored(&mut self, executed: u64, touch: &Touch) -> Option<u128> {
        let line = self.line_behind_stores(touch, executed)?;
        let cpu = &self.cpus[self.current as usize];
        let forward = cpu.stores.forward(touch.address(), touch.size).filter(|&forward| forward != Forward::Part)?;
        if cpu.window.has_filled(line) {
            return None;
        }
        self.execute(executed);
        match self.forward(touch, forward) {
            Issue::Forwarded(bits) => Some(bits),
            // SAFETY: the program is about to read this word.
            _ => Some(unsafe { read_word(touch.word.as_ptr(), touch.size) }),
        }
    }

    /// The current CPU executes instructions for `executed` picoseconds, and then makes a store to
    /// a line that an own store has asked for. Whether it did.
    pub(crate) fn store_stored(&mut self, executed: u64, touch: &Touch) -> bool {
        let Some(line) = self.line_behind_stores(touch, executed) else { return false };
        let stores = &self.cpus[self.current as usize].stores;
        let has_room = stores.len() < self.store_places && stores.has_room() && self.records.has_room();
        if !has_room || !stores.asked_for(line) || !self.records.knows(touch.site) {
            return false;
        }
        self.execute(executed);
        let issued = self.store_behind(touch, line);
        debug_assert_eq!((issued, touch.kind), (Issue::Buffered, Kind::Store));
        true
    }
}
