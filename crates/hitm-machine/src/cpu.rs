//! A virtual CPU: its clock, what it waits for, and the two buffers between it and its lines.

use std::panic::Location;

use hitm_memory::{Interrupts, Mode};

/// What a CPU waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    /// It runs, or its turn is entered.
    Nothing,
    /// A line.
    Line { line: u32, site: &'static Location<'static>, since: u64 },
    /// A write to a line.
    Spin { line: u32, offset: usize, site: &'static Location<'static>, since: u64 },
    /// Its own stores.
    StoreBuffer { since: u64 },
    /// The end of its work, or an interrupt.
    Compute { until: u64 },
    /// An interrupt.
    Interrupt { since: u64 },
    /// To be unparked.
    Park { address: usize, site: &'static Location<'static>, since: u64 },
}

/// One virtual CPU. Times are picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) clock: u64,
    /// The time of the turn that it has or had last.
    pub(crate) turn: u64,
    /// Where its clock stands once the access that it waits for is done.
    pub(crate) resume_clock: u64,
    pub(crate) mode: Mode,
    pub(crate) waits: Waits,
    /// Whether it spins for a lock.
    pub(crate) spinning: bool,
    pub(crate) pending: Interrupts,
    /// Counts settings of the timer, so that an old expiry is told from the present one.
    pub(crate) timer_generation: u32,
    pub(crate) window: LoadWindow,
    pub(crate) stores: StoreBuffer,
    pub(crate) finished: bool,
}

impl Cpu {
    pub(crate) fn new(start: u64, window: LoadWindow) -> Self {
        Self {
            clock: start,
            turn: start,
            resume_clock: start,
            mode: Mode::Kernel,
            waits: Waits::Nothing,
            spinning: false,
            pending: Interrupts::NONE,
            timer_generation: 0,
            window,
            stores: StoreBuffer::default(),
            finished: false,
        }
    }
}

/// The lines that this CPU loaded since its last locked operation. Its reorder buffer issued the later loads together with
/// the first, so one fill serves them all, also when the line has been taken away since.
#[derive(Clone, Debug)]
pub(crate) struct LoadWindow {
    /// Line and the number of the load that brought it.
    lines: Vec<(u32, u32)>,
    loads: u32,
    /// Loads after which the reorder buffer has moved on.
    reach: u32,
}

impl LoadWindow {
    pub(crate) fn new(reach: u32) -> Self {
        Self { lines: Vec::new(), loads: 0, reach }
    }

    /// A locked operation, a fence, a wait or work: nothing later was under way.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.loads = 0;
    }

    /// Whether a load of `line` is served by an earlier fill.
    #[inline]
    pub(crate) fn covers(&mut self, line: u32) -> bool {
        self.loads += 1;
        let loads = self.loads;
        self.lines.iter().any(|&(known, load)| known == line && loads - load <= self.reach)
    }

    /// A load brings `line`.
    #[inline]
    pub(crate) fn add(&mut self, line: u32) {
        let loads = self.loads;
        if let Some(entry) = self.lines.iter_mut().find(|(known, _)| *known == line) {
            entry.1 = loads;
            return;
        }
        let reach = self.reach;
        if self.lines.len() >= reach as usize {
            self.lines.retain(|&(_, load)| loads - load <= reach);
        }
        self.lines.push((line, loads));
    }
}

/// Plain stores whose lines are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreBuffer {
    /// Line, and when it arrives; `u64::MAX` while that is not known.
    lines: Vec<(u32, u64)>,
    /// How many of them wait for a grant.
    queued: u32,
    /// When the last grant so far arrives.
    drained_at: u64,
}

impl StoreBuffer {
    /// Whether a store to `line` is under way at `now`, so that a further one joins it.
    #[inline]
    pub(crate) fn holds(&self, line: u32, now: u64) -> bool {
        self.lines.iter().any(|&(stored, at)| stored == line && at > now)
    }

    /// How many stores are under way at `now`; forgets those that are done.
    #[inline]
    pub(crate) fn under_way(&mut self, now: u64) -> usize {
        self.lines.retain(|&(_, at)| at > now);
        self.lines.len()
    }

    pub(crate) fn add_granted(&mut self, line: u32, at: u64) {
        self.lines.push((line, at));
        self.drained_at = self.drained_at.max(at);
    }

    pub(crate) fn add_queued(&mut self, line: u32) {
        self.lines.push((line, u64::MAX));
        self.queued += 1;
    }

    /// The queued store to `line` was granted; whether it was the last.
    pub(crate) fn granted(&mut self, line: u32, at: u64) -> bool {
        if let Some(store) = self.lines.iter_mut().find(|(stored, arrives)| *stored == line && *arrives == u64::MAX) {
            store.1 = at;
        }
        self.queued -= 1;
        self.drained_at = self.drained_at.max(at);
        self.queued == 0
    }

    pub(crate) fn any_queued(&self) -> bool {
        self.queued > 0
    }

    /// When the last of the granted stores is done.
    pub(crate) fn drained_at(&self) -> u64 {
        self.drained_at
    }

    /// All stores are done.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.drained_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_covers_what_was_loaded_since_it_was_cleared() {
        let mut window = LoadWindow::new(4);
        let mut load = |window: &mut LoadWindow, line| {
            let covered = window.covers(line);
            if !covered {
                window.add(line);
            }
            covered
        };
        assert!(!load(&mut window, 7));
        assert!(load(&mut window, 7));
        assert!(!load(&mut window, 8));
        assert!(load(&mut window, 7), "the fourth load is within reach of the first");
        assert!(load(&mut window, 7));
        assert!(!load(&mut window, 7), "the sixth is not");
        window.clear();
        assert!(!load(&mut window, 8));
    }
}
