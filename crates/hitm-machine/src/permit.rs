//! What a CPU may do by itself on the fast path, laid out for code that is no Rust.
//!
//! While a program's accesses find lines that their CPU has alone, nothing else happens on the
//! machine. A [`Permit`] says how long that lasts and which lines these are. Whoever holds it does
//! such an access by a few loads and stores of this structure: the functions here do so, and the
//! entries of `hitm-exec`, in assembly, do the same. The engine gives the permit and learns from it
//! what was done ([`quick`](crate::engine)).
//!
//! Tables have fixed sizes and lie in the structure itself, so an access needs one address.

use std::cell::Cell;
use std::fmt;
use std::mem::offset_of;
use std::rc::Rc;

use hitm_memory::LINE;

/// Places for known lines; a power of two. They cover 4 MiB of neighbouring data.
const LINES: usize = 1 << 16;

/// Loads whose addresses are kept, a power of two, not less than a CPU's window of loads.
pub(crate) const LOADS: usize = 1 << 8;

/// Pairs of a place and a word that are counted in place; a power of two. With 32 bytes each they
/// fit the second-level cache of most hosts.
pub(crate) const TALLIES: usize = 1 << 15;

/// From a tally's place to the next one: far, as neighbours are those of neighbouring words.
pub(crate) const TO_NEXT: usize = 5_167;

/// Words for the holder's own use.
pub(crate) const OWN: usize = 8;

/// Of a line that was not stored to.
pub(crate) const NOT_STORED: i64 = i64::MAX;

/// How often one place touched one word.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Tally {
    pub(crate) address: Cell<usize>,
    /// The place, which has one kind of access.
    pub(crate) code: Cell<usize>,
    /// 0 for none.
    pub(crate) times: Cell<u64>,
    /// The line, and above it whether the access is a store.
    pub(crate) line: Cell<u32>,
}

/// A permit. Times are picoseconds, as what is left: they get less.
#[repr(C)]
pub struct Permit {
    /// Whether there is one.
    pub(crate) is_open: Cell<u64>,
    /// Until the end: an access may begin while this, less `owed`, is not negative.
    pub(crate) left: Cell<i64>,
    /// What the CPU has executed since its last access.
    pub(crate) owed: Cell<i64>,
    /// What an access takes.
    pub(crate) takes: Cell<i64>,
    /// A store that begins with so much left, or less, comes when others may have their turn
    /// before. Then what it overwrites is kept, which only the engine can.
    pub(crate) ahead: Cell<i64>,
    /// Whether accesses are counted.
    pub(crate) counts: Cell<u64>,
    /// Accesses so far.
    pub(crate) loads: Cell<u64>,
    pub(crate) stores: Cell<u64>,
    /// For whoever holds the permit.
    own: [Cell<i64>; OWN],
    /// The addresses of the last loads, by their numbers.
    pub(crate) loaded: [Cell<usize>; LOADS],
    /// By the low bits of a line's place in memory: that place, in lines, if the CPU has it alone.
    pub(crate) known: [Cell<usize>; LINES],
    /// With what left it was stored to last.
    pub(crate) stored: [Cell<i64>; LINES],
    /// The machine's number of it.
    pub(crate) lines: [Cell<u32>; LINES],
    pub(crate) tallies: [Tally; TALLIES],
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_open, left, owed, loads, stores, .. } = self;
        let mut shown = f.debug_struct("Permit");
        shown.field("is_open", is_open).field("left", left).field("owed", owed);
        shown.field("loads", loads).field("stores", stores).finish_non_exhaustive()
    }
}

/// Where the parts of a permit lie, in bytes, and how tables are asked.
impl Permit {
    /// Not 0 while there is a permit.
    pub const IS_OPEN: usize = offset_of!(Self, is_open);
    /// What is left.
    pub const LEFT: usize = offset_of!(Self, left);
    /// What was executed since the last access.
    pub const OWED: usize = offset_of!(Self, owed);
    /// What an access takes.
    pub const TAKES: usize = offset_of!(Self, takes);
    /// A store with so much left, or less, is the engine's.
    pub const AHEAD: usize = offset_of!(Self, ahead);
    /// Not 0 if accesses are counted.
    pub const COUNTS: usize = offset_of!(Self, counts);
    /// The number of loads.
    pub const LOADS: usize = offset_of!(Self, loads);
    /// The number of stores.
    pub const STORES: usize = offset_of!(Self, stores);
    /// The holder's words.
    pub const OWN: usize = offset_of!(Self, own);
    /// The addresses of loads, 8 bytes each, by the low byte of their number.
    pub const LOADED: usize = offset_of!(Self, loaded);
    /// Known lines, 8 bytes each, by the low 16 bits of the address in lines.
    pub const KNOWN: usize = offset_of!(Self, known);
    /// When they were stored to, 8 bytes each.
    pub const STORED: usize = offset_of!(Self, stored);
    /// The tallies: address, code, times, each 8 bytes. The offset of one is
    /// `code * MIX + address * (32 / size)`, masked.
    pub const TALLIES: usize = offset_of!(Self, tallies);
    /// Spreads places over the table: 32 bytes of a tally by an odd number.
    pub const TALLY_MIX: u32 = 0x9E37_79B1_u32.wrapping_mul(32);
    /// From the offset of a tally's place to that of the next, where another has the first.
    pub const TALLY_NEXT: u32 = TO_NEXT as u32 * 32;
    /// The bits of a tally's offset.
    pub const TALLY_MASK: u32 = (TALLIES as u32 - 1) * 32;
}

const _: () = assert!(size_of::<Tally>() == 32 && LOADS == 1 << 8 && LINES == 1 << 16);

impl Permit {
    /// None yet.
    pub(crate) fn none() -> Rc<Self> {
        // In its place: it is too large for a stack.
        let mut permit = Rc::<Self>::new_uninit();
        let place = Rc::get_mut(&mut permit).expect("nobody else has it").as_mut_ptr();
        // SAFETY: it was allocated for one of this type.
        unsafe { place.write_bytes(0, 1) };
        // SAFETY: zeroes are a value of each of its parts.
        let permit = unsafe { permit.assume_init() };
        permit.left.set(-1);
        permit
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open.get() != 0
    }

    /// What is left for an access that begins now: negative if none may.
    #[must_use]
    pub fn left_now(&self) -> i64 {
        self.left.get() - self.owed.get()
    }

    /// What the CPU has executed since its last access.
    #[must_use]
    pub fn owed(&self) -> i64 {
        self.owed.get()
    }

    /// How many accesses there have been since the permit began. It can be asked after its end too.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.loads.get() + self.stores.get()
    }

    /// A word of the holder.
    #[must_use]
    pub fn own(&self, number: usize) -> &Cell<i64> {
        &self.own[number]
    }

    /// Where a line is known.
    #[inline]
    pub(crate) fn place_of(address: usize) -> usize {
        address / LINE % LINES
    }

    /// Where the tally of an access of `SIZE` bytes is looked for first. Neighbouring words have
    /// neighbouring ones.
    #[inline]
    pub(crate) fn tally_of<const SIZE: usize>(address: usize, code: usize) -> usize {
        let scaled = (address as u32).wrapping_mul((32 / SIZE) as u32);
        let offset = (code as u32).wrapping_mul(Self::TALLY_MIX).wrapping_add(scaled) & Self::TALLY_MASK;
        offset as usize / 32
    }

    /// An access to the line at `place` is made, with so much left.
    #[inline]
    pub(crate) fn pass<const IS_STORE: bool>(&self, place: usize, address: usize, left: i64) {
        self.left.set(left - self.takes.get());
        self.owed.set(0);
        if IS_STORE {
            self.stored[place].set(left);
            self.stores.set(self.stores.get() + 1);
        } else {
            let number = self.loads.get();
            self.loaded[number as usize % LOADS].set(address);
            self.loads.set(number + 1);
        }
    }
}
