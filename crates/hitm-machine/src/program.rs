//! A program that runs on the machine with its own memory.
//!
//! Code that is generic over [`Memory`](hitm_memory::Memory) has words that report each access. A
//! program that was compiled as it is has ordinary memory, and calls that its compiler put before
//! each access. These functions are what the calls do. All of them act for the CPU whose code
//! runs, and panic outside a machine's CPU.
//!
//! A page of the program gets its lines at its first touch: see [`Machine::open_to_program`].
//!
//! [`Machine::open_to_program`]: crate::Machine::open_to_program

use std::ptr::NonNull;
use std::sync::Arc;

use hitm_memory::LINE;

use crate::coherence::Kind;
use crate::engine::{Issue, Touch};
use crate::moved::Arrangement;
use crate::site::Site;
use crate::store_buffer::ValueIs;
pub use crate::word::read_word;
use crate::world::{World, on_cpu, with_world};

/// The name of the object that all memory of programs is, in results.
pub const OBJECT: &str = "program";

/// The value of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// These bits: the machine writes them when the store takes effect. Bits beyond the size are 0.
    Bits(u128),
    /// The program writes it before anything else happens on the machine, and other CPUs may see it
    /// from then on. This is for plain stores: a program without data races cannot tell.
    ByProgram,
    /// The program writes it before its next call, puts back what was there, and says what it wrote
    /// by [`value_came`]. This is for volatile stores, which other CPUs may watch.
    Later,
}

/// A word that a CPU has looked at.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its address.
    pub address: usize,
    /// Its size in bytes.
    pub size: usize,
    /// What it held.
    pub bits: u128,
    /// The place in the program.
    pub site: Site,
}

/// What is said by a call outside a machine's CPU.
pub(crate) const NO_CPU: &str = "a program's accesses are made on a CPU of the machine";

/// Of an access that stores nothing by itself.
pub(crate) const NO_VALUE: (u128, ValueIs) = (0, ValueIs::Held);

/// Whether an access lies in one line.
#[inline]
pub(crate) fn is_in_line(address: usize, size: usize) -> bool {
    address % LINE + size <= LINE
}

pub(crate) fn touch(address: usize, size: usize, kind: Kind, (value, value_is): (u128, ValueIs), site: Site) -> Touch {
    debug_assert!(is_in_line(address, size), "an access lies in one line");
    let word = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("no program touches address 0");
    Touch { word, size, kind, value, value_is, site }
}

/// An access on the usual way.
#[inline]
fn access(touch: &Touch) -> Issue {
    with_cpu(|world| {
        world.engine.borrow_mut().make_room_for_tallies();
        world.touch(touch)
    })
}

fn with_cpu<R>(f: impl FnOnce(&World) -> R) -> R {
    on_cpu(|world, _| f(world)).expect(NO_CPU)
}

/// Loads `size` bytes of one line. Returns when they may be read: `None` where memory has them,
/// otherwise the bits.
#[inline]
pub fn load(address: usize, size: usize, site: Site) -> Option<u128> {
    let touch = touch(address, size, Kind::Load, NO_VALUE, site);
    match access(&touch) {
        Issue::Forwarded(bits) => Some(bits),
        _ => None,
    }
}

/// Stores `size` bytes of one line. Returns whether the machine keeps the value and writes it
/// later: otherwise the program writes it now.
#[inline]
pub fn store(address: usize, size: usize, value: Stored, site: Site) -> bool {
    let value = match value {
        Stored::Bits(bits) => (bits, ValueIs::Held),
        Stored::ByProgram => (0, ValueIs::Written),
        Stored::Later => (0, ValueIs::Late),
    };
    access(&touch(address, size, Kind::Store, value, site)) == Issue::Buffered
}

/// The value of the last store, which was made with [`Stored::Later`] and which the machine
/// keeps.
pub fn value_came(bits: u128) {
    with_cpu(|world| world.value_came(bits));
}

/// A read-modify-write of `size` bytes of one line. Returns when it takes effect: the program
/// reads and writes before anything else happens on the machine.
#[inline]
pub fn read_modify_write(address: usize, size: usize, site: Site) {
    let _now = access(&touch(address, size, Kind::Rmw, NO_VALUE, site));
}

/// A full fence.
pub fn fence() {
    with_cpu(World::serialize);
}

/// Waits until the line of one of these words is written: the CPU has looked at them one after
/// the other, and goes round until one of them changes. Returns at once if one has changed
/// meanwhile.
pub fn spin(seen: &[Seen]) {
    let touch_of = |seen: &Seen| touch(seen.address, seen.size, Kind::Load, (seen.bits, ValueIs::Held), seen.site);
    let looked: Vec<Touch> = seen.iter().map(touch_of).collect();
    // What a program waits for in its own loop is its own time, not the kernel's.
    with_cpu(|world| world.spin_on_any(&looked));
}

/// The CPU executes instructions for `picos` picoseconds.
#[inline]
pub fn execute(picos: u64) {
    with_cpu(|world| world.engine.borrow_mut().execute(picos));
}

/// Whether the CPU has stores to `start..end` whose values are not in memory yet.
#[must_use]
pub fn holds_stores(start: usize, end: usize) -> bool {
    on_cpu(|world, cpu| world.engine.borrow().cpus[cpu as usize].stores.holds(start, end)).expect(NO_CPU)
}

/// The memory in `start..end` is given back: stores to it that have not taken effect never will.
pub fn forget(start: usize, end: usize) {
    with_cpu(|world| {
        let mut engine = world.engine.borrow_mut();
        engine.forget_stores(start, end);
        engine.moved.remove(start, end);
    });
}

/// From now on the bytes of the block at `address` lie as `arrangement` says: see
/// [`Config::arrangements`](crate::Config::arrangements). A block whose bytes move starts a line.
/// To be called before the program touches it.
pub fn arrange(address: usize, arrangement: &Arc<Arrangement>) {
    with_world(|world| {
        let mut engine = world.engine.borrow_mut();
        engine.pages.close(address, address + arrangement.size());
        engine.moved.add_block(address, arrangement.clone());
    });
}

/// Memory of the program that lies elsewhere in the model: where it lies, its bytes, and where it
/// is.
#[must_use]
pub fn moved() -> Vec<(usize, usize, usize)> {
    with_world(|world| world.engine.borrow().moved.pieces()).unwrap_or_default()
}

/// Where a byte of a program that lies at `place` in the model is in its memory; `None` for
/// padding.
#[must_use]
pub fn host_of(place: usize) -> Option<usize> {
    with_world(|world| world.engine.borrow().moved.host_of(place)).flatten()
}

/// The number of the CPU whose code runs; none outside.
#[inline]
#[must_use]
pub fn cpu() -> Option<u32> {
    on_cpu(|_, cpu| cpu)
}
