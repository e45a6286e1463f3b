//! A virtual CPU: its clock, what it waits for, and the two buffers between it and its lines.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use hitm_memory::{Interrupts, LINE, Mode};

use crate::account::{Account, Part};
use crate::coherence::Kind;
use crate::random::Random;
use crate::site::Site;
use crate::store_buffer::StoreBuffer;
use crate::word::read_word;

/// What a CPU waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    /// It runs, or its turn is entered.
    Nothing,
    /// A line.
    Line { line: u32, site: Site, since: u64 },
    /// A write to a line, or to one of several: see [`Cpu::spin_lines`].
    Spin { line: u32, offset: usize, site: Site, since: u64 },
    /// Its own stores.
    StoreBuffer { since: u64 },
    /// The end of its work, or an interrupt.
    Compute { since: u64, until: u64 },
    /// An interrupt.
    Interrupt { since: u64 },
    /// To be unparked.
    Park { address: usize, site: Site, since: u64 },
}

/// One virtual CPU. Times are picoseconds.
// What every access needs comes first, in two lines of the host that are fetched together.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
pub(crate) struct Cpu {
    pub(crate) clock: u64,
    /// Where its time went.
    pub(crate) account: Account,
    pub(crate) mode: Mode,
    /// The [operation](crate::records::Operations) that it is in.
    pub(crate) operation: u8,
    /// Whether it spins for a lock.
    pub(crate) spinning: bool,
    pub(crate) finished: bool,
    pub(crate) pending: Interrupts,
    /// Of those that are pending or under way, what it notices by itself: see `idle_notice` of the
    /// path costs.
    pub(crate) noticed: Interrupts,
    pub(crate) stores: StoreBuffer,
    pub(crate) window: LoadWindow,
    /// What it wrote ahead of the others in its turn: see [`engine::ahead`](crate::engine).
    pub(crate) overwritten: Vec<Overwritten>,
    /// The time of the turn that it has or had last.
    pub(crate) turn: u64,
    /// Where its clock stands once the access that it waits for is done.
    pub(crate) resume_clock: u64,
    pub(crate) waits: Waits,
    /// The lines that it spins on, where it spins on several.
    pub(crate) spin_lines: Vec<u32>,
    /// When the interrupts and timers that have been sent or set and have not come will.
    pub(crate) interrupts_due: Vec<u64>,
    /// Counts settings of the timer, so that an old expiry is told from the present one.
    pub(crate) timer_generation: u32,
    /// Its own source of jitter.
    pub(crate) random: Random,
}

impl Cpu {
    pub(crate) fn new(window: LoadWindow, random: Random) -> Self {
        Self {
            clock: 0,
            account: Account::default(),
            turn: 0,
            resume_clock: 0,
            mode: Mode::Kernel,
            waits: Waits::Nothing,
            spin_lines: Vec::new(),
            operation: 0,
            spinning: false,
            pending: Interrupts::NONE,
            noticed: Interrupts::NONE,
            interrupts_due: Vec::new(),
            timer_generation: 0,
            window,
            overwritten: Vec::new(),
            stores: StoreBuffer::default(),
            finished: false,
            random,
        }
    }

    /// What the time of an access counts as: `in_kernel` there, unless the CPU spins for a lock.
    #[inline]
    pub(crate) fn part_of_access(&self, in_kernel: Part) -> Part {
        match self {
            Self { spinning: true, .. } => Part::LockWaits,
            Self { mode: Mode::User, .. } => Part::User,
            _ => in_kernel,
        }
    }

    /// An interrupt that was due at `time` has come.
    pub(crate) fn interrupt_came(&mut self, time: u64) {
        let index = self.interrupts_due.iter().position(|&due| due == time);
        self.interrupts_due.swap_remove(index.expect("it was sent"));
    }

    /// Whether it executes instructions at `now`, as another thread of its core sees it. One that
    /// looked ahead may have begun to wait, or ended, later than now.
    pub(crate) fn executes(&self, now: u64) -> bool {
        let waits_since = match self.waits {
            Waits::Nothing if self.finished => self.clock,
            Waits::Nothing | Waits::Compute { .. } => return true,
            Waits::Line { since, .. }
            | Waits::Spin { since, .. }
            | Waits::StoreBuffer { since }
            | Waits::Interrupt { since }
            | Waits::Park { since, .. } => since,
        };
        waits_since >= now
    }

    /// When the next of the interrupts comes that are under way.
    #[inline]
    pub(crate) fn next_interrupt(&self) -> u64 {
        self.interrupts_due.iter().copied().min().unwrap_or(u64::MAX)
    }
}

/// What a word held until its CPU wrote it at a time that the others had not reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overwritten {
    pub(crate) address: usize,
    pub(crate) value: u128,
    /// When it was written.
    pub(crate) at: u64,
}

/// The lines that this CPU loaded since its last read-modify-write. Its reorder buffer issued the
/// later loads together with the first, so one fill serves them all, also when the line has been
/// taken away since.
///
/// Loads of the line that was filled last read what it held then. That is in order: every other
/// line that this CPU has and reads in between has not changed since that fill, or it would have
/// been taken away.
// In the order in which accesses need it: see [`Cpu`].
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct LoadWindow {
    /// The lines of the last loads, each at its number modulo the length, a power of two.
    lines: Box<[u32]>,
    loads: u32,
    /// The line that was filled last, or none, and the number of the load that did it.
    filled: u32,
    filled_by: u32,
    /// Loads after which the reorder buffer has moved on.
    reach: u32,
    /// What the line that was filled last held.
    bytes: Box<LineBytes>,
    /// Misses that are under way at once.
    overlapped: u32,
    /// Of the misses that would be under way together: how many there were, and when the first was
    /// issued.
    together: (u32, u64),
}

/// The line of a load that brought none.
const NO_LINE: u32 = u32::MAX;

impl LoadWindow {
    pub(crate) fn new(reach: u32, overlapped: u32) -> Self {
        let lines = vec![NO_LINE; reach.next_power_of_two() as usize].into();
        let bytes = Box::new(LineBytes::UNKNOWN);
        Self { lines, loads: 0, filled: NO_LINE, filled_by: 0, reach, bytes, overlapped, together: (0, 0) }
    }

    /// A load misses at `now`; how long it would have been under way if it had been issued with
    /// those before it. That it may depend on their values is not known here: a chain of pointers
    /// is taken for a scan.
    pub(crate) fn miss(&mut self, now: u64) -> u64 {
        let (count, since) = self.together;
        if count == 0 || count >= self.overlapped {
            self.together = (1, now);
            return 0;
        }
        self.together.0 += 1;
        now - since
    }

    /// A read-modify-write, a fence, a wait or work: nothing later was under way.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.filled = NO_LINE;
        self.loads = 0;
        self.together.0 = 0;
    }

    /// A load has brought `line`, which holds `bytes`.
    #[inline]
    pub(crate) fn filled(&mut self, line: u32, bytes: LineBytes) {
        (self.filled, self.filled_by, *self.bytes) = (line, self.loads, bytes);
    }

    /// The CPU missed, stored or read again: what was filled before is not the latest any more.
    #[inline]
    pub(crate) fn end_fill(&mut self) {
        self.filled = NO_LINE;
    }

    /// Whether `line` is the one that was filled last.
    #[inline]
    pub(crate) fn has_filled(&self, line: u32) -> bool {
        self.filled == line && self.loads - self.filled_by < self.reach
    }

    /// The same, after so many further loads.
    pub(crate) fn has_filled_after(&self, line: u32, loads: u64) -> bool {
        self.filled == line && u64::from(self.loads - self.filled_by) + loads < u64::from(self.reach)
    }

    /// So many loads come, of which the last are to be [added](Self::add): as many as this returns.
    /// The others are beyond reach by then.
    pub(crate) fn skip(&mut self, loads: u64) -> u64 {
        let room = self.lines.len() as u64;
        if loads < room {
            return loads;
        }
        self.end_fill();
        self.loads = 0;
        room
    }

    /// What the line that was filled last held, if it is `line`.
    pub(crate) fn fill_of(&self, line: u32) -> Option<&LineBytes> {
        self.has_filled(line).then_some(&*self.bytes)
    }

    /// Whether a load of `line` would be served by an earlier fill.
    pub(crate) fn covers(&self, line: u32) -> bool {
        let first = self.loads.saturating_sub(self.reach);
        (first..self.loads).any(|load| self.lines[self.place(load)] == line)
    }

    /// A load that an earlier fill has served. It was issued with the load that brought the line,
    /// and lengthens nothing.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.add(NO_LINE);
    }

    /// An access to `line` of another kind than those that a fill serves.
    #[inline(always)]
    pub(crate) fn follow(&mut self, kind: Kind, line: u32) {
        match kind {
            Kind::Load => self.add(line),
            Kind::Store => self.end_fill(),
            Kind::Rmw => self.clear(),
        }
    }

    /// A load of `line`, which is here or asked for.
    #[inline]
    pub(crate) fn add(&mut self, line: u32) {
        let place = self.place(self.loads);
        self.lines[place] = line;
        self.loads += 1;
    }

    #[inline]
    fn place(&self, load: u32) -> usize {
        load as usize & (self.lines.len() - 1)
    }
}

/// The bytes of a line, some of which may be padding that was never written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineBytes([MaybeUninit<u8>; LINE]);

impl LineBytes {
    const UNKNOWN: Self = Self([MaybeUninit::uninit(); LINE]);

    /// The bytes at `start`.
    ///
    /// # Safety
    /// A whole line of live memory stands there, and no CPU writes it meanwhile.
    pub(crate) unsafe fn read(start: NonNull<u8>) -> Self {
        // SAFETY: the caller's duty; bytes of any content, initialised or not, may be copied as
        // `MaybeUninit`.
        Self(unsafe { start.cast().read() })
    }

    /// The bytes at the addresses that `host_of` gives for each place in the line, if it does.
    ///
    /// # Safety
    /// Live memory stands at each of them, and no CPU writes it meanwhile.
    pub(crate) unsafe fn gather(mut host_of: impl FnMut(usize) -> Option<usize>) -> Self {
        let mut line = Self::UNKNOWN;
        for (index, byte) in line.0.iter_mut().enumerate() {
            let Some(address) = host_of(index) else { continue };
            // SAFETY: the caller's duty; a byte of any content may be copied as `MaybeUninit`.
            *byte = unsafe { std::ptr::with_exposed_provenance::<MaybeUninit<u8>>(address).read() };
        }
        line
    }

    /// The word of `size` bytes at `offset`.
    ///
    /// # Safety
    /// An initialised word stands there.
    #[inline]
    pub(crate) unsafe fn word(&self, offset: usize, size: usize) -> u128 {
        let word = &self.0[offset..offset + size];
        // SAFETY: the caller says that the word is initialised.
        unsafe { read_word(word.as_ptr().cast(), size) }
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
}
