//! A virtual CPU: its clock, what it waits for, and the two buffers between it and its lines.

use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::NonNull;

use hitm_memory::{Interrupts, LINE, Mode};

use crate::coherence::Kind;
use crate::random::Random;

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
    /// When the interrupts and timers that have been sent or set and have not come will.
    pub(crate) interrupts_due: Vec<u64>,
    /// Counts settings of the timer, so that an old expiry is told from the present one.
    pub(crate) timer_generation: u32,
    pub(crate) window: LoadWindow,
    pub(crate) stores: StoreBuffer,
    pub(crate) finished: bool,
    /// Its own source of jitter.
    pub(crate) random: Random,
}

impl Cpu {
    pub(crate) fn new(start: u64, window: LoadWindow, random: Random) -> Self {
        Self {
            clock: start,
            turn: start,
            resume_clock: start,
            mode: Mode::Kernel,
            waits: Waits::Nothing,
            spinning: false,
            pending: Interrupts::NONE,
            interrupts_due: Vec::new(),
            timer_generation: 0,
            window,
            stores: StoreBuffer::default(),
            finished: false,
            random,
        }
    }

    /// An interrupt that was due at `time` has come.
    pub(crate) fn interrupt_came(&mut self, time: u64) {
        let index = self.interrupts_due.iter().position(|&due| due == time);
        self.interrupts_due.swap_remove(index.expect("it was sent"));
    }

    /// When the next of the interrupts comes that are under way.
    #[inline]
    pub(crate) fn next_interrupt(&self) -> u64 {
        self.interrupts_due.iter().copied().min().unwrap_or(u64::MAX)
    }
}

/// The lines that this CPU loaded since its last locked operation. Its reorder buffer issued the later loads together with
/// the first, so one fill serves them all, also when the line has been taken away since.
///
/// Loads of the line that was filled last read what it held then ([`Fill`]). That is in order: every other line that
/// this CPU has and reads in between has not changed since that fill, or it would have been taken away.
#[derive(Clone, Debug)]
pub(crate) struct LoadWindow {
    /// The line that was filled last.
    fill: Option<Fill>,
    /// Line and the number of the load that brought it.
    lines: Vec<(u32, u32)>,
    loads: u32,
    /// Loads after which the reorder buffer has moved on.
    reach: u32,
    /// Misses that are under way at once.
    overlapped: u32,
    /// Of the misses that would be under way together: how many there were, and when the first was issued.
    together: (u32, u64),
}

impl LoadWindow {
    pub(crate) fn new(reach: u32, overlapped: u32) -> Self {
        Self { fill: None, lines: Vec::new(), loads: 0, reach, overlapped, together: (0, 0) }
    }

    /// A load misses at `now`; how long it would have been under way if it had been issued with those before it. That it may
    /// depend on their values is not known here: a chain of pointers is taken for a scan.
    pub(crate) fn miss(&mut self, now: u64) -> u64 {
        let (count, since) = self.together;
        if count == 0 || count >= self.overlapped {
            self.together = (1, now);
            return 0;
        }
        self.together.0 += 1;
        now - since
    }

    /// A locked operation, a fence, a wait or work: nothing later was under way.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.fill = None;
        self.lines.clear();
        self.loads = 0;
        self.together.0 = 0;
    }

    /// A load has brought `line`, which holds `bytes`.
    #[inline]
    pub(crate) fn filled(&mut self, line: u32, bytes: LineBytes) {
        self.fill = Some(Fill { line, bytes, load: self.loads });
    }

    /// The CPU missed, stored or read anew: what was filled before is not the latest any more.
    #[inline]
    pub(crate) fn end_fill(&mut self) {
        self.fill = None;
    }

    /// What the line that was filled last held.
    #[inline]
    pub(crate) fn fill_of(&self, line: u32) -> Option<&LineBytes> {
        let fill = self.fill.as_ref()?;
        (fill.line == line && self.loads - fill.load < self.reach).then_some(&fill.bytes)
    }

    /// Whether a load of `line` would be served by an earlier fill.
    #[inline]
    pub(crate) fn covers(&self, line: u32) -> bool {
        self.lines.iter().rev().any(|&(known, load)| known == line && self.loads - load < self.reach)
    }

    /// A load that an earlier fill has served. It was issued with the load that brought the line, and lengthens nothing.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.loads += 1;
    }

    /// A load of `line`, which is here or asked for.
    #[inline]
    pub(crate) fn add(&mut self, line: u32) {
        self.loads += 1;
        let loads = self.loads;
        // Most loads are of a line that was loaded just before.
        if let Some(entry) = self.lines.iter_mut().rev().find(|(known, _)| *known == line) {
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

/// A line as it was when a load brought it.
#[derive(Clone, Copy, Debug)]
struct Fill {
    line: u32,
    bytes: LineBytes,
    /// The number of that load.
    load: u32,
}

/// The bytes of a line, some of which may be padding that was never written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineBytes([MaybeUninit<u8>; LINE]);

impl LineBytes {
    /// The bytes at `start`.
    ///
    /// # Safety
    /// A whole line of live memory stands there, and nobody writes it meanwhile.
    pub(crate) unsafe fn read(start: NonNull<u8>) -> Self {
        // SAFETY: the caller's duty; bytes of any content, initialised or not, may be copied as `MaybeUninit`.
        Self(unsafe { start.cast().read() })
    }

    /// The word of `size` bytes at `offset`.
    ///
    /// # Safety
    /// An initialised word stands there.
    pub(crate) unsafe fn word(&self, offset: usize, size: usize) -> u64 {
        let mut bytes = [0; size_of::<u64>()];
        for (index, byte) in bytes[..size].iter_mut().enumerate() {
            // SAFETY: the caller says that the word is initialised.
            *byte = unsafe { self.0[offset + index].assume_init() };
        }
        u64::from_le_bytes(bytes)
    }
}

/// A plain store that has been issued.
#[derive(Clone, Copy, Debug)]
struct Store {
    line: u32,
    address: usize,
    value: u64,
    /// When it takes effect.
    effect: u64,
    /// Whether it has.
    arrived: bool,
    /// When its line is here and it has taken effect; `u64::MAX` while that is not known.
    at: u64,
    /// Whether it follows an earlier store to the same line instead of asking for it.
    joins: bool,
}

/// Plain stores whose lines are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreBuffer {
    stores: Vec<Store>,
    /// How many of them wait for a grant.
    queued: u32,
    /// When the last grant so far arrives.
    drained_at: u64,
}

impl StoreBuffer {
    /// Whether no store was issued since the last drain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    /// Whether an access to `line` has nothing to do with the stores here: it neither waits for them nor asks for what they
    /// wrote. `places` is how many stores there may be.
    #[inline]
    pub(crate) fn let_pass(&self, kind: Kind, line: u32, places: usize) -> bool {
        self.stores.is_empty() || kind != Kind::Rmw && self.stores.len() < places && !self.asked_for(line)
    }

    /// Whether a store to `line` is under way at `now`, so that a further one joins it.
    #[inline]
    pub(crate) fn holds(&self, line: u32, now: u64) -> bool {
        self.stores.iter().any(|store| store.line == line && !store.joins && store.at > now)
    }

    /// Whether a store to `line` is under way of which it is not known what has become of it by `now`: its arrival is due and
    /// has not been seen, or it has arrived and its grant has not been seen.
    #[inline]
    pub(crate) fn outcome_due(&self, line: u32, now: u64) -> bool {
        let is_open = |store: &Store| !store.arrived || store.at == u64::MAX;
        self.stores.iter().any(|store| store.line == line && store.effect <= now && is_open(store))
    }

    /// Whether a store to `line` was issued since the last drain.
    #[inline]
    pub(crate) fn asked_for(&self, line: u32) -> bool {
        self.stores.iter().any(|store| store.line == line)
    }

    /// When the last store to `line` that has not taken effect will.
    #[inline]
    pub(crate) fn last_effect(&self, line: u32) -> Option<u64> {
        self.stores.iter().filter(|store| store.line == line && !store.arrived).map(|store| store.effect).max()
    }

    /// The store to `address` that was due at `effect` has taken effect.
    pub(crate) fn arrived(&mut self, address: usize, effect: u64) {
        for store in self.stores.iter_mut().filter(|store| store.address == address && store.effect == effect) {
            store.arrived = true;
        }
    }

    /// The memory in `start..end` is freed: its stores never take effect.
    pub(crate) fn forget(&mut self, start: usize, end: usize) {
        for store in self.stores.iter_mut().filter(|store| (start..end).contains(&store.address)) {
            store.arrived = true;
        }
    }

    /// How many stores are under way at `now`; forgets those that are done.
    #[inline]
    pub(crate) fn under_way(&mut self, now: u64) -> usize {
        self.stores.retain(|store| store.at > now || !store.arrived);
        self.stores.len()
    }

    /// The value of the last store to `address` that has not taken effect. One that is due at this very moment has not: a CPU's
    /// turn comes before the events of its time.
    #[inline]
    pub(crate) fn forward(&self, address: usize) -> Option<u64> {
        self.stores.iter().rev().find(|store| store.address == address && !store.arrived).map(|store| store.value)
    }

    /// A store of `value` to `address` is issued and takes effect at `effect`.
    pub(crate) fn add(&mut self, line: u32, address: usize, value: u64, effect: u64, joins: bool) {
        let leader = self.stores.iter().find(|store| store.line == line && !store.joins);
        // One that joins may take effect after the line is here.
        let at = if joins { leader.map_or(effect, |leader| leader.at.max(effect)) } else { u64::MAX };
        self.stores.push(Store { line, address, value, effect, arrived: false, at, joins });
        self.queued += u32::from(!joins);
        if joins {
            // Just after it: at the very moment, a CPU's turn would come first.
            self.drained_at = self.drained_at.max(effect + 1);
        }
    }

    /// The queued store to `line` was granted; whether it was the last.
    pub(crate) fn granted(&mut self, line: u32, at: u64) -> bool {
        for store in self.stores.iter_mut().filter(|store| store.line == line && store.at == u64::MAX) {
            store.at = at.max(store.effect);
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

    /// All stores are done. Those whose effect is due and has not been seen yet stay known.
    pub(crate) fn clear(&mut self) {
        self.stores.retain(|store| !store.arrived);
        self.drained_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_covers_what_was_loaded_since_it_was_cleared() {
        let mut window = LoadWindow::new(4, 1);
        let load = |window: &mut LoadWindow, line| {
            let covered = window.covers(line);
            window.add(line);
            covered
        };
        assert!(!load(&mut window, 7));
        assert!(load(&mut window, 7));
        for line in [8, 9, 10] {
            assert!(!load(&mut window, line));
        }
        assert!(load(&mut window, 7), "the fourth load after it is within reach");
        for line in [11, 12, 13, 14] {
            assert!(!load(&mut window, line));
        }
        assert!(!load(&mut window, 7), "the fifth is not");
        window.clear();
        assert!(!load(&mut window, 14));
    }

    #[test]
    fn misses_of_one_window_are_under_way_together() {
        let mut window = LoadWindow::new(64, 3);
        assert_eq!([100, 150, 190, 230, 300].map(|now| window.miss(now)), [0, 50, 90, 0, 70]);
        window.clear();
        assert_eq!(window.miss(310), 0, "a locked operation stood between");
        let mut in_order = LoadWindow::new(64, 1);
        assert_eq!([100, 150, 190].map(|now| in_order.miss(now)), [0, 0, 0]);
    }

    #[test]
    fn a_store_that_joins_is_forwarded_until_it_takes_effect() {
        const LINE: u32 = 3;
        let mut stores = StoreBuffer::default();
        stores.add(LINE, 192, 1, 100, false);
        stores.add(LINE, 196, 2, 250, true);
        stores.arrived(192, 100);
        assert!(stores.granted(LINE, 200), "one request was made");
        // The line is here, the second store is still on its way.
        assert_eq!(stores.under_way(220), 1);
        assert_eq!(stores.forward(196), Some(2));
        assert_eq!(stores.drained_at(), 251, "a locked operation waits for both");
        stores.clear();
        assert!(stores.outcome_due(LINE, 250), "its value is in memory when its arrival has been seen");
        assert_eq!(stores.forward(196), Some(2), "until then it is forwarded");
        stores.arrived(196, 250);
        assert!(!stores.outcome_due(LINE, 250));
        assert_eq!(stores.forward(196), None);
        assert_eq!(stores.under_way(250), 0);
    }

    #[test]
    fn stores_to_one_line_keep_their_order() {
        const LINE: u32 = 3;
        let mut stores = StoreBuffer::default();
        stores.add(LINE, 192, 1, 100, false);
        assert_eq!(stores.last_effect(LINE), Some(100));
        stores.add(LINE, 196, 2, 250, true);
        stores.arrived(192, 100);
        assert!(stores.granted(LINE, 200));
        assert_eq!(stores.last_effect(LINE), Some(250), "a third store must not come before the second");
        assert_eq!(stores.under_way(220), 1);
        stores.add(LINE, 196, 3, 251, true);
        assert_eq!(stores.forward(196), Some(3));
        stores.arrived(196, 250);
        stores.arrived(196, 251);
        assert_eq!((stores.last_effect(LINE), stores.drained_at()), (None, 252));
    }
}
