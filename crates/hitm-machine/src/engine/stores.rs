//! The way of plain stores to memory: a store that does not find its line, or that comes behind one
//! that waits, stands in its CPU's buffer, and the CPU goes on. Each asks for its line at once;
//! they take effect in the order in which they were issued (TSO), each when its line is here.
//! Whoever lets a lock go therefore waits in the lock's queue, behind those who try for it.
//!
//! A line that comes before its store's turn may be taken away again; then the store asks once more
//! when its turn comes, and both requests count as misses. The line is not held meanwhile: two CPUs
//! that held one each for the other would never end.
//!
//! Until a store has taken effect the directory counts it as under way to its line, so that no CPU
//! looks ahead of it.

use hitm_memory::Mode;

use super::{Engine, Issue, Step, Touch};
use crate::account::Part;
use crate::coherence::{AccessId, Kind, Request};
use crate::cpu::Waits;
use crate::event_queue::Event;
use crate::store_buffer::{Stage, Store, ValueIs};
use crate::word::write_word;

impl Engine {
    /// Before a read-modify-write or a fence, and when there is no room: waits until the current
    /// CPU's stores have taken effect.
    pub(crate) fn drain_stores(&mut self) -> Step {
        if self.cpu().stores.is_empty() {
            return Step::Go;
        }
        let since = self.clock();
        self.wait_for(Waits::StoreBuffer { since });
        Step::Suspend
    }

    /// A full fence: waits for the current CPU's stores, and ends its window of loads.
    pub(crate) fn serialize(&mut self) -> Step {
        self.cpu().window.clear();
        self.drain_stores()
    }

    /// The current CPU was resumed with an empty store buffer.
    pub(crate) fn stores_drained(&mut self) {
        let until = self.turn_time();
        self.cpu().waits = Waits::Nothing;
        if until > self.clock() {
            self.advance_waiting(until);
        }
    }

    /// A store of the current CPU that does not find its line: asks for it and goes on.
    pub(super) fn store_apart(&mut self, touch: &Touch, line: u32) -> Issue {
        self.accesses_without_progress += 1;
        let access = self.identify(touch);
        let store = self.store_of(touch, line, access, Stage::Asked);
        let not_before = self.ask_for_store(self.current, &store, self.clock());
        self.buffer(touch, Store { not_before, ..store });
        let cost = self.buffer_cost(touch.site);
        let part = self.cpu().part_of_access(Part::Hits);
        self.advance(self.clock() + cost, part);
        Issue::Buffered
    }

    /// A store of the current CPU behind others that have not taken effect.
    pub(super) fn store_behind(&mut self, touch: &Touch, line: u32) -> Issue {
        let clock = self.clock();
        if !self.keeps_stores(clock) {
            // Whether they still stand before this one is not known yet.
            return self.come_early();
        }
        if self.cpu().stores.len() >= self.store_places && self.drain_stores() == Step::Suspend {
            return Issue::Drain;
        }
        self.cpu().window.end_fill();
        let own = self.current;
        if !self.is_free(line) && !self.cpu().stores.asked_for(line) && self.directory.here_from(own, line).is_none() {
            return self.store_apart(touch, line);
        }
        let access = self.identify(touch);
        let store = self.store_of(touch, line, access, Stage::Follows);
        self.buffer(touch, store);
        let cost = self.buffer_cost(touch.site);
        self.hit(touch, line, clock + cost);
        Issue::Buffered
    }

    /// The store that `touch` is, of the current CPU.
    fn store_of(&mut self, touch: &Touch, line: u32, access: AccessId, stage: Stage) -> Store {
        let Touch { word, size, value, value_is, .. } = *touch;
        let (kernel, operation) = (self.cpu().mode == Mode::Kernel, self.cpu().operation);
        Store { line, word, size, value, value_is, access, kernel, operation, stage, not_before: 0, freed: false }
    }

    fn buffer(&mut self, touch: &Touch, store: Store) {
        if !self.cpu().stores.asked_for(store.line) {
            self.directory.announce(store.line);
        }
        let Touch { size, value_is, .. } = *touch;
        if value_is == ValueIs::Written {
            // The program writes it at once: what it stored there before must not come after.
            self.cpu()
                .stores
                .write_early(touch.address(), size, |store| write_word(store.word, store.size, store.value));
        }
        self.cpu().stores.push(store);
    }

    /// Sends the request of a store of CPU `number`; returns when it arrives.
    fn ask_for_store(&mut self, number: u32, store: &Store, now: u64) -> u64 {
        let Store { line, access, kernel, operation, .. } = *store;
        let way = self.way_to(number, line);
        let (time, kind) = (now + way, Kind::Store);
        self.enter_arrival(Request { cpu: number, line, kind, time, way, lead: 0, access, kernel, operation });
        time
    }

    /// The stores of CPU `number` whose turn it is and whose lines are here take effect, and what
    /// waited for that goes on.
    pub(super) fn commit(&mut self, number: u32, now: u64) {
        self.commit_stores(number, now);
        if !self.behind.is_empty() {
            self.release_interrupts(number, now);
        }
    }

    fn commit_stores(&mut self, number: u32, now: u64) {
        let mut before = None;
        while let Some(&mut store) = self.cpus[number as usize].stores.next_mut() {
            let is_asked = store.stage == Stage::Asked;
            if is_asked || matches!(store.stage, Stage::Granted(at) if at > now) {
                // The grant enters another event.
                return;
            }
            if !self.has_line(number, &store, before, now) {
                return;
            }
            let stores = &mut self.cpus[number as usize].stores;
            stores.pop();
            before = Some(store.line);
            if !store.freed {
                if !stores.asked_for(store.line) {
                    self.directory.conclude(store.line);
                }
                if store.value_is == ValueIs::Held {
                    write_word(store.word, store.size, store.value);
                }
                self.wrote_line(store.line, now);
            }
        }
        if let Waits::StoreBuffer { since } = self.cpus[number as usize].waits {
            self.entered(number, now.max(since));
        }
    }

    /// Whether the line of a store is here at its turn, the one before it having written line
    /// `before` just now. If not, it is asked for again, or waited for.
    fn has_line(&mut self, number: u32, store: &Store, before: Option<u32>, now: u64) -> bool {
        let is_here = before == Some(store.line) || store.stage == Stage::Granted(now);
        if is_here || self.is_over(now) || store.freed || self.is_free(store.line) {
            return true;
        }
        if let Some(at) = self.directory.here_from(number, store.line).filter(|&at| at > now) {
            self.enter_event(at, Event::Commit { cpu: number });
            return false;
        }
        if self.store_finds(number, store.line, now) {
            return true;
        }
        self.ask_for_store(number, store, now);
        if let Some(first) = self.cpus[number as usize].stores.next_mut() {
            first.stage = Stage::Asked;
        }
        false
    }
}
