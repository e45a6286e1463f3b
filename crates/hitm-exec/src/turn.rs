//! Loops that wait for a word to change.
//!
//! A load that sees the same value at the same place, with the same registers and the same stack
//! frame as one turn before, and with no store in between, is in a loop that goes on until what it
//! loads changes. Then the CPU waits for a write to one of the lines of the loop, instead of
//! running its turns one by one.
//!
//! A plain load begins such a turn only after [`PLAIN_LOADS`] others without a store.
//!
//! A loop of assembly alone may count its turns in any register. A loop of a compiler has calls of
//! this library in it, at the begin of its basic blocks. What it needs in its next turn is then in
//! the registers that a call keeps, in its frame, and in what it loads. The others have what the
//! calls left in them.

use hitm_machine::Site;
use hitm_machine::program::Seen;

/// Loads of one turn of a loop, at most, beside the first.
const LOADS: usize = 8;

/// Plain loads without a store after which one of them may begin a turn. Loops that wait by plain
/// loads alone are few, and loops that load and do not wait are most of a program.
pub(crate) const PLAIN_LOADS: usize = 64;

/// Words of the stack frame that tell one turn from another: 4 KiB.
const FRAME_WORDS: usize = 512;

/// Registers that a call keeps: RBX, RBP, R12 to R15.
const KEPT: usize = 6;

/// Words that an entry saves, at most.
const SAVED: usize = 18;

/// What an entry has saved on the caller's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    /// The registers that a call keeps. Others may follow them.
    pub(crate) saved: *const [usize; KEPT],
    /// Words from there to the caller's frame.
    pub(crate) words: usize,
}

impl Registers {
    /// Those of a call: the return address stands behind them.
    pub(crate) fn of_call(saved: *const [usize; KEPT]) -> Self {
        Self { saved, words: KEPT + 1 }
    }
}

/// A word that the program has looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// 0 for none.
    pub(crate) address: usize,
    /// The place in the program.
    pub(crate) code: usize,
    /// What it held.
    pub(crate) bits: u128,
    /// In bytes.
    pub(crate) size: usize,
    /// Whether it is a plain load: no atomic or volatile one, and none of assembly.
    pub(crate) is_plain: bool,
}

impl Look {
    const NONE: Self = Self { address: 0, code: 0, bits: 0, size: 0, is_plain: true };

    fn seen(&self) -> Seen {
        Seen { address: self.address, size: self.size, bits: self.bits, site: Site::Code(self.code) }
    }
}

/// The turn of a loop, as far as it is known.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The load that it begins with; none if no turn is under way.
    first: Look,
    /// How many basic blocks the thread had executed by then.
    begun: u64,
    /// The loads since: so many.
    others: [Look; LOADS],
    count: usize,
    /// Plain loads until one begins a turn, while none is under way.
    until: usize,
    /// The state of the program at the begin of the turn before, if that began with the same load:
    /// so many words.
    state: Box<[usize]>,
    words: usize,
    /// Room for the present one.
    spare: Box<[usize]>,
    /// The top of the thread's stack.
    stack: usize,
}

impl Turn {
    /// Of a thread whose stack ends at `stack`.
    pub(crate) fn new(stack: usize) -> Self {
        let room = || vec![0; SAVED + FRAME_WORDS].into();
        let others = [Look::NONE; LOADS];
        Self {
            first: Look::NONE,
            begun: 0,
            others,
            count: 0,
            until: PLAIN_LOADS,
            state: room(),
            words: 0,
            spare: room(),
            stack,
        }
    }

    /// A store, or a call that waits or wakes: the turn under way is not one of a waiting loop.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.first.address = 0;
        self.until = PLAIN_LOADS;
    }

    /// What the fast path keeps: the address that a turn began with, 0 for none, and the number of
    /// the next plain load that has to be looked at. While the words of a turn are wanted that is
    /// the next one; otherwise only how many there are.
    pub(crate) fn begin(&self) -> (usize, usize) {
        let until = match self.first.address {
            0 => self.until,
            _ if self.words > 0 => 1,
            _ => LOADS + 1 - self.count,
        };
        (self.first.address, until)
    }

    /// The fast path has kept this.
    pub(crate) fn set_begin(&mut self, first: usize, until: usize) {
        self.first.address = first;
        match first {
            0 => self.until = until,
            _ if self.words > 0 => {}
            _ => self.count = LOADS + 1 - until,
        }
    }

    /// Whether `look` is what the turn began with.
    #[inline]
    pub(crate) fn is_round(&self, look: &Look) -> bool {
        self.first.address == look.address && self.first == *look
    }

    /// A load that is not what the turn began with, after `blocks` basic blocks.
    #[inline]
    pub(crate) fn go_on(&mut self, look: Look, blocks: u64) {
        if self.first.address == 0 {
            if look.is_plain && self.until > 1 {
                self.until -= 1;
                return;
            }
        } else if let Some(place) = self.others.get_mut(self.count) {
            *place = look;
            self.count += 1;
            return;
        } else if look.is_plain {
            return self.forget();
        }
        (self.first, self.begun, self.words, self.count) = (look, blocks, 0, 0);
    }

    /// A load, after `blocks` basic blocks. Whether it ends a turn of a loop that waits.
    pub(crate) fn ends(&mut self, look: Look, registers: Registers, blocks: u64) -> bool {
        if !self.is_round(&look) {
            self.go_on(look, blocks);
            return false;
        }
        let has_called = std::mem::replace(&mut self.begun, blocks) != blocks;
        let is_second = self.words > 0;
        if !self.keep(registers, has_called) {
            self.count = 0;
            // A loop that gets on: it is not looked at again at once.
            if is_second && look.is_plain {
                self.forget();
            }
            return false;
        }
        self.forget();
        true
    }

    /// Takes the words of the turn, which began with `first`.
    pub(crate) fn take(&mut self, first: Look) -> Vec<Seen> {
        let others = &self.others[..std::mem::take(&mut self.count)];
        std::iter::once(&first).chain(others).map(Look::seen).collect()
    }

    /// Keeps the present state of the program, which `has_called` this library in the turn. Whether
    /// it is the one before.
    fn keep(&mut self, registers: Registers, has_called: bool) -> bool {
        let saved = registers.saved.cast::<usize>();
        let frame = saved.wrapping_add(registers.words);
        let counted = if has_called { KEPT } else { registers.words.min(SAVED) };
        let in_frame = (self.stack.saturating_sub(frame.addr()) / size_of::<usize>()).min(FRAME_WORDS);
        let room = self.spare.as_mut_ptr();
        // SAFETY: the entry has saved them. There is room for `SAVED` words, and the frame.
        unsafe { saved.copy_to_nonoverlapping(room, counted) };
        let room = room.wrapping_add(counted);
        // SAFETY: it lies between the caller's frame and the top of its stack; room as above.
        unsafe { frame.copy_to_nonoverlapping(room, in_frame) };
        std::mem::swap(&mut self.state, &mut self.spare);
        let words = counted + in_frame;
        let before = std::mem::replace(&mut self.words, words);
        before == words && self.state[..words] == self.spare[..words]
    }
}
