//! A core runs to the end of the window.
//!
//! One thread of a core runs to the window's end. Where several have work they take turns, each to
//! the time at which another may reach a line of the core: `one_way_in_core` after it acts.

use super::{NO_CORE, Windows};
use crate::engine::{Engine, Step};
use crate::event_queue::{Event, NEVER, Turn};

impl Engine {
    /// The next turn of the core that runs; none when it is at the window's end.
    pub(super) fn next_of_core(&mut self) -> Option<Turn> {
        let core = self.windows.core;
        if core == NO_CORE {
            return None;
        }
        loop {
            let windows = &self.windows;
            let from = core as usize * windows.width;
            let times = &windows.next[from..][..windows.width];
            let (mut first, mut place, mut second, mut other) = (NEVER, 0, NEVER, 0);
            for (index, &time) in times.iter().enumerate() {
                if time < first {
                    (second, other, first, place) = (first, place, time, index);
                } else if time < second {
                    (second, other) = (time, index);
                }
            }
            let of_core = windows.in_core.iter().filter(|arrival| arrival.is_of(core));
            let arrival = of_core.map(|arrival| arrival.time).min().unwrap_or(NEVER);
            if first.min(arrival) >= windows.end {
                self.windows.core = NO_CORE;
                return None;
            }
            if arrival < first {
                self.serve_in_core(core, arrival);
                continue;
            }
            let cpu = self.windows.threads[from + place];
            let due = self.windows.due[cpu as usize];
            if self.windows.soon[cpu as usize] < due {
                self.take_own(cpu, self.windows.end);
                continue;
            }
            let way = self.directory.latencies().one_way_in_core;
            self.windows.bound = self.windows.end.min(second.min(arrival).saturating_add(way));
            // Of two threads that act at one time the lower number is first.
            self.windows.first_until = self.windows.end.min(second.saturating_add(u64::from(place < other)));
            self.set_limit(cpu);
            return Some(Turn::Cpu(cpu, due));
        }
    }

    /// What an access of `cpu` compares its clock with.
    fn set_limit(&mut self, cpu: u32) {
        // A CPU's turn comes before an event of the same time.
        let by_events = self.windows.soon[cpu as usize].saturating_add(1);
        let by_measurement = self.measured.1.saturating_add(1);
        self.windows.limit = self.windows.bound.min(by_events).min(by_measurement);
    }

    /// Handles the first event of `cpu` that comes before `until`. Whether there was one.
    fn take_own(&mut self, cpu: u32, until: u64) -> bool {
        let end = self.windows.end;
        let own = &mut self.windows.own[cpu as usize];
        // What becomes of a line after the window is not known, so stores wait for their window.
        let is_due =
            |&(time, event): &(u64, Event)| time < until && (time < end || !matches!(event, Event::Commit { .. }));
        let due = own.iter().enumerate().filter(|(_, entry)| is_due(entry));
        let Some((place, _)) = due.min_by_key(|(_, (time, event))| (*time, event.pack())) else { return false };
        let (time, event) = own.swap_remove(place);
        self.windows.soon[cpu as usize] = own.iter().map(|&(time, _)| time).min().unwrap_or(NEVER);
        self.windows.set_next(cpu);
        self.handle(time, event);
        true
    }

    /// The current CPU is at a clock that its limit does not allow: handles its events up to then.
    /// `Suspend`, with its turn entered, if others come first.
    #[inline(never)]
    pub(super) fn come_to_clock(&mut self) -> Step {
        self.come_to(|windows| windows.bound)
    }

    /// The current CPU is about to do what depends on what the other threads of its core do: the
    /// same, once they have come to its clock.
    #[inline(never)]
    pub(in crate::engine) fn come_first(&mut self) -> Step {
        self.come_to(|windows| windows.bound.min(windows.first_until))
    }

    #[inline(always)]
    fn come_to(&mut self, bound: impl Fn(&Windows) -> u64) -> Step {
        let (cpu, clock) = (self.current, self.clock());
        while self.take_own(cpu, clock.min(self.windows.end)) {}
        self.set_limit(cpu);
        if clock < bound(&self.windows) {
            return Step::Go;
        }
        self.resume_at(clock);
        Step::Suspend
    }

    /// The current CPU is about to look at `line` at its clock: what others have done to it by then
    /// is worked in. `Suspend`, with its turn entered, if others come first.
    #[inline(never)]
    pub(in crate::engine) fn come_to_line(&mut self, line: u32) -> Step {
        let clock = self.clock();
        if clock >= self.windows.limit && self.come_to_clock() == Step::Suspend {
            return Step::Suspend;
        }
        self.catch_up(line, clock);
        Step::Go
    }

    /// A store of `cpu` has its line at `time`. The event that says so may have been handled, if a
    /// store before it was granted later in one window.
    #[inline(never)]
    pub(in crate::engine) fn commit_later(&mut self, cpu: u32, time: u64) {
        let event = Event::Commit { cpu };
        if self.windows.is_on && !self.windows.own[cpu as usize].contains(&(time, event)) {
            self.enter_own(time, event);
        }
    }

    /// As [`may_see_interrupts`](Engine::may_see_interrupts). Interrupts take so long that those of
    /// later windows are known too.
    #[inline(never)]
    pub(in crate::engine) fn see_interrupts(&mut self) -> Step {
        let (cpu, clock) = (self.current, self.clock());
        let known = self.windows.start.saturating_add(self.paths.least_delivery);
        let is_known = clock < self.windows.bound || clock < known && !self.is_over(clock);
        if !is_known {
            return self.come_to_clock();
        }
        while self.take_own(cpu, clock) {}
        self.set_limit(cpu);
        Step::Go
    }
}
