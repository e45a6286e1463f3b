//! Requests reach their lines, and lines serve their waiters, in the order of each line's own time.

use super::super::Engine;
use super::ring::Due;
use crate::coherence::{Kind, Outcome, Request};
use crate::event_queue::NEVER;

/// A request that arrives in the open window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    line: u32,
    pub(super) time: u64,
    /// Among those of one line and time: stores first, then by CPU.
    order: u32,
    core: u32,
    is_write: bool,
    /// Where the request is.
    place: u32,
    /// Whether it has been served, or waits at its line.
    is_done: bool,
}

impl Arrival {
    /// Whether it has not been served and comes from `core`.
    pub(super) fn is_of(&self, core: u32) -> bool {
        self.core == core && !self.is_done
    }

    /// The order of service: by line, then by time.
    pub(super) fn key(&self) -> (u32, u64, u32) {
        (self.line, self.time, self.order)
    }
}

impl Engine {
    /// The request at `place` is on its way.
    #[inline(never)]
    pub(in crate::engine) fn send_in_windows(&mut self, place: u32) {
        let time = self.under_way[place as usize].time;
        if time >= self.windows.end {
            self.windows.ring.enter(time, Due::Arrival(place));
            return;
        }
        // To a line of the own core. The CPU may go on to the arrival.
        self.enter_window(place);
        self.lower_bound(time + 1);
    }

    /// The request at `place` arrives in the open window.
    pub(super) fn enter_window(&mut self, place: u32) {
        let Request { cpu, line, kind, time, way, .. } = self.under_way[place as usize];
        let latencies = self.directory.latencies();
        let (core, is_in_core) = (latencies.core_of(cpu), way < latencies.one_way);
        let order = u32::from(kind != Kind::Store) << 31 | cpu;
        let arrival = Arrival { line, time, order, core, is_write: kind.is_write(), place, is_done: false };
        if is_in_core {
            self.windows.in_core.push(arrival);
            self.windows.has_work(core);
        } else {
            self.windows.arrivals.push(arrival);
        }
    }

    /// The requests from other cores that arrive at `line` in the open window, in their order.
    fn arrivals(&self, line: u32) -> &[Arrival] {
        let arrivals = &self.windows.arrivals;
        let first = arrivals.partition_point(|arrival| arrival.line < line);
        let count = arrivals[first..].iter().take_while(|arrival| arrival.line == line).count();
        &arrivals[first..first + count]
    }

    /// All requests that arrive at `line` in the open window and have not been served.
    fn open_arrivals(&self, line: u32) -> impl Iterator<Item = &Arrival> {
        let in_core = self.windows.in_core.iter().filter(move |arrival| arrival.line == line);
        self.arrivals(line).iter().chain(in_core).filter(|arrival| !arrival.is_done)
    }

    /// Whether what the current CPU finds at `line`, to which something is under way, for an access
    /// of this `kind` at `clock` depends on what has not been worked in.
    pub(super) fn has_news(&self, line: u32, clock: u64) -> bool {
        let owns = self.directory.owned_by_core_of(self.current, line);
        if owns {
            let first = self.open_arrivals(line).map(|arrival| arrival.time).min().unwrap_or(NEVER);
            return first.min(self.directory.decision_at(line)) < clock;
        }
        // Another core's line changes hands without this CPU, unless its core has asked.
        let core = self.directory.latencies().core_of(self.current);
        if self.open_arrivals(line).any(|arrival| arrival.core == core && arrival.time < clock) {
            return true;
        }
        // A write that has to wait may take the copy of this core before `clock`, or may not.
        let waits = |arrival: &Arrival| arrival.is_write && !self.directory.serves_at(line, arrival.time);
        let is_open = || self.open_arrivals(line).any(|arrival| arrival.time < clock && waits(arrival));
        !self.directory.lacks(self.current, line) && (self.directory.decision_at(line) < clock || is_open())
    }

    /// Whether a write has arrived before `clock` at `line`, which several cores have and no CPU
    /// waits for: then their copies have gone. Not worked in here, since another of them may look
    /// at an earlier time.
    pub(super) fn is_lost(&self, line: u32, clock: u64) -> bool {
        let is_before = |arrival: &&Arrival| arrival.is_write && arrival.time < clock;
        !self.directory.owned_by_core_of(self.current, line) && self.open_arrivals(line).any(|one| is_before(&one))
    }

    /// Works in what happens to `line` before `until`, which is not after the window's end.
    pub(in crate::engine) fn catch_up(&mut self, line: u32, until: u64) {
        loop {
            let first = self.open_arrivals(line).min_by_key(|arrival| (arrival.time, arrival.order)).copied();
            let decision = self.directory.decision_at(line);
            // A request that arrives at the moment of the decision is among those decided on.
            match first.filter(|first| first.time < until && first.time <= decision) {
                Some(first) => self.arrive_in_window(&first),
                None if decision < until => self.decide_in_window(line, decision),
                None => return,
            }
        }
    }

    /// The request of `arrival` reaches its line.
    fn arrive_in_window(&mut self, arrival: &Arrival) {
        // The place of one that is done may be another's by now.
        let is_this = |other: &&mut Arrival| other.place == arrival.place && !other.is_done;
        let windows = &mut self.windows;
        let first = windows.arrivals.partition_point(|other| other.key() < arrival.key());
        let mut found = windows.in_core.iter_mut().find(is_this);
        if found.is_none() {
            found = windows.arrivals[first..].iter_mut().find(is_this);
        }
        found.expect("it has not been served").is_done = true;
        self.serve(arrival);
    }

    fn serve(&mut self, arrival: &Arrival) {
        let request = self.under_way[arrival.place as usize];
        self.free_places.push(arrival.place);
        // The line is visited at the window's end in any case.
        let (outcome, _decide_at) = self.directory.arrive(request);
        if let Outcome::Granted(grant) = outcome {
            self.record_miss(&grant);
            self.grant(&grant);
        }
    }

    fn decide_in_window(&mut self, line: u32, time: u64) {
        let mut grants = std::mem::take(&mut self.grants);
        // When to decide again follows from the line's state.
        let _again = self.directory.decide(line, time, &mut grants);
        for grant in grants.drain(..) {
            self.record_miss(&grant);
            self.grant(&grant);
        }
        self.grants = grants;
    }

    /// The first request from a thread of `core` to a line of the core, at `time`, arrives.
    pub(super) fn serve_in_core(&mut self, core: u32, time: u64) {
        let mut of_core = self.windows.in_core.iter().filter(|arrival| arrival.is_of(core) && arrival.time == time);
        let line = of_core.next().expect("it arrives").line;
        self.catch_up(line, time + 1);
    }

    /// Brings every line to which something happens in the open window to the window's end.
    pub(super) fn end_lines(&mut self) {
        let arrivals = std::mem::take(&mut self.windows.arrivals);
        let mut last = None;
        for arrival in &arrivals {
            if let Some(line) = last.filter(|&line| line != arrival.line) {
                self.end_line(line);
            }
            last = Some(arrival.line);
            if !arrival.is_done {
                self.decide_before(arrival.line, arrival.time);
                self.serve(arrival);
            }
        }
        if let Some(line) = last {
            self.end_line(line);
        }
        // Every request from a thread of the own core was served when the core was at its time.
        let in_core = std::mem::take(&mut self.windows.in_core);
        in_core.iter().for_each(|arrival| self.end_line(arrival.line));
        let lines = std::mem::take(&mut self.windows.lines);
        lines.iter().for_each(|&line| self.end_line(line));
        // Nothing arrives while lines come to the end. Their room is used again.
        debug_assert!(self.windows.in_core.is_empty(), "a CPU has run meanwhile");
        (self.windows.arrivals, self.windows.in_core, self.windows.lines) = (arrivals, in_core, lines);
        self.windows.arrivals.clear();
        self.windows.in_core.clear();
        self.windows.lines.clear();
    }

    /// The requests that `line` had are served: brings it to the window's end.
    fn end_line(&mut self, line: u32) {
        self.decide_before(line, self.windows.end);
        if let Some(time) = self.directory.is_to_be_visited(line) {
            self.windows.ring.enter(time, Due::Line(line));
        }
    }

    /// Serves the waiters of `line` that are served before `until`; a request that arrives then is
    /// among those decided on at that time.
    fn decide_before(&mut self, line: u32, until: u64) {
        loop {
            let decision = self.directory.decision_at(line);
            if decision >= until {
                return;
            }
            self.decide_in_window(line, decision);
        }
    }
}
