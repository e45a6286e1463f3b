//! One decision per access.

use crate::account::Part;
use crate::coherence::{Found, Kind};
use crate::cpu::Forward;
use crate::engine::{Engine, Issue, Step, Touch};

/// What an access of the current CPU comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The clock is at the limit: the CPU's own events come first, or the window ends.
    Limit,
    /// Something has happened to the line that is not worked in.
    News,
    /// A load of the line that was filled last.
    Fill,
    /// Earlier stores come first.
    Drain,
    /// A store behind others.
    Behind,
    /// An own store has the bytes.
    Forward(Forward),
    /// The line is here.
    Hit(Found),
    /// The line takes no part in the model.
    Free,
    /// The line has gone, and an earlier load's fill serves this one.
    Covered,
    /// The line is elsewhere.
    Ask,
}

impl Engine {
    /// Issues an access of the current CPU.
    #[inline]
    pub(crate) fn access(&mut self, touch: &Touch) -> Issue {
        let address = self.moved.at(touch.address(), self.current);
        let Some(line) = self.extent.line_of(address) else { return Issue::Unknown };
        loop {
            let clock = self.clock();
            return match self.classify(touch, line, clock) {
                Verdict::Limit if self.is_over(clock) => self.access_over(touch, line, clock),
                Verdict::Limit => match self.come_to_clock() {
                    Step::Go => continue,
                    Step::Suspend => Issue::Later,
                },
                Verdict::News => {
                    self.catch_up(line, clock);
                    continue;
                }
                Verdict::Fill => self.read_fill(touch, line).map_or(Issue::Now, Issue::Forwarded),
                Verdict::Drain => {
                    let step = self.drain_stores();
                    debug_assert_eq!(step, Step::Suspend, "it waits for a store");
                    Issue::Drain
                }
                Verdict::Behind => self.store_behind(touch, line, false, self.is_free(line)),
                Verdict::Forward(forward) => self.forward(touch, forward),
                Verdict::Hit(found) => {
                    let done = self.directory.touch(line, touch.kind, clock, found);
                    self.find_in_window(touch, line, clock, done)
                }
                Verdict::Free => {
                    let done = clock + self.directory.latencies().cost_of_hit(touch.kind);
                    self.find_in_window(touch, line, clock, done)
                }
                Verdict::Covered => {
                    let cost = self.directory.latencies().cost_of_hit(touch.kind);
                    self.read_covered(touch, line, clock + cost)
                }
                Verdict::Ask => {
                    self.cpu().window.follow(touch.kind, line);
                    self.cpu().window.end_fill();
                    if touch.kind == Kind::Store {
                        self.store_apart(touch, line)
                    } else {
                        self.send_request(touch, line, clock)
                    }
                }
            };
        }
    }

    /// Looks, and changes nothing.
    #[inline]
    fn classify(&self, touch: &Touch, line: u32, clock: u64) -> Verdict {
        let cpu = &self.cpus[self.current as usize];
        let kind = touch.kind;
        if clock >= self.windows.limit {
            return Verdict::Limit;
        }
        if kind == Kind::Load && cpu.window.has_filled(line) {
            return Verdict::Fill;
        }
        let waits = !cpu.stores.is_empty();
        if waits && kind == Kind::Rmw {
            return Verdict::Drain;
        }
        let is_quiet = self.directory.is_quiet(line);
        if !is_quiet && self.has_news(line, clock) {
            return Verdict::News;
        }
        if waits && kind == Kind::Store {
            return Verdict::Behind;
        }
        if waits && let Some(forward) = cpu.stores.forward(touch.address(), touch.size) {
            return if forward == Forward::Part { Verdict::Drain } else { Verdict::Forward(forward) };
        }
        if self.is_free(line) {
            return Verdict::Free;
        }
        if let Some(found) = self.directory.look(self.current, line, kind, clock)
            && (is_quiet || !self.is_lost(line, clock))
        {
            return Verdict::Hit(found);
        }
        if kind == Kind::Load && cpu.window.covers(line) {
            return Verdict::Covered;
        }
        Verdict::Ask
    }

    #[inline]
    fn find_in_window(&mut self, touch: &Touch, line: u32, clock: u64, done: u64) -> Issue {
        self.cpu().window.follow(touch.kind, line);
        self.found(touch, line, clock, done);
        Issue::Now
    }

    /// A load of bytes that an own store has.
    fn forward(&mut self, touch: &Touch, forward: Forward) -> Issue {
        let (part, cost) = (self.cpu().part_of_access(Part::Hits), self.buffer_cost(touch.site));
        let clock = self.clock();
        self.advance(clock + cost, part);
        if let Forward::Bits(value) = forward { Issue::Forwarded(value) } else { Issue::Now }
    }

    /// After the measurement: as in the other engine, once the windows are past it too.
    #[inline(never)]
    fn access_over(&mut self, touch: &Touch, line: u32, clock: u64) -> Issue {
        if !self.window_is_over() {
            self.resume_at(clock.max(self.windows.end));
            return Issue::Later;
        }
        if self.is_stuck() {
            // Lets the machine see it.
            self.resume_at(clock);
            return Issue::Later;
        }
        self.issue_over(touch, line)
    }
}
