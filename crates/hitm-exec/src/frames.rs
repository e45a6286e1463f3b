//! Where functions of the program have their variables on stacks.
//!
//! What threads share on a stack lies in a function that has not returned when they are made. So
//! the frames of whoever makes a thread are noted. Their variables have names in the debug
//! information, relative to the frame pointer.

use std::cell::RefCell;

use serde::Serialize;

/// Frames that are noted for one creation of a thread, at most, and in all.
const DEPTH: usize = 16;
const FRAMES: usize = 4_096;

/// A function in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Frame {
    /// The address that the call returns to.
    pub(crate) pc: usize,
    /// Its frame pointer.
    base: usize,
    /// All of its frame lies above this.
    low: usize,
}

/// The frames in which a thread was made.
#[derive(Default)]
pub(crate) struct Frames(RefCell<Vec<Frame>>);

impl Frames {
    /// Notes the function that calls, and those around it.
    pub(crate) fn note(&self, frames: impl Iterator<Item = Frame>) {
        let mut all = self.0.borrow_mut();
        for frame in frames {
            if all.len() < FRAMES && !all.iter().any(|other| (other.pc, other.base) == (frame.pc, frame.base)) {
                all.push(frame);
            }
        }
    }

    /// All of them.
    pub(crate) fn take(&self) -> Vec<Frame> {
        self.0.take()
    }
}

/// The call that returns to `pc`, of the function with the frame pointer `base`, and those around
/// it. Code without frame pointers may keep other values in the register: only what lies on the
/// stack, which ends at `top`, is followed.
pub(crate) fn walk(pc: usize, base: usize, top: usize) -> impl Iterator<Item = Frame> {
    let here = 0_u8;
    let first = Frame { pc, base, low: (&raw const here).addr() };
    let is_on_stack =
        move |frame: &Frame| (frame.low..top.saturating_sub(16)).contains(&frame.base) && frame.base.is_multiple_of(8);
    let outer = move |frame: &Frame| {
        if !is_on_stack(frame) {
            return None;
        }
        let words = std::ptr::with_exposed_provenance::<[usize; 2]>(frame.base);
        // SAFETY: two words of the stack of the calling thread, above what runs.
        let [base, pc] = unsafe { words.read() };
        Some(Frame { pc, base, low: frame.base + 16 })
    };
    std::iter::successors(Some(first), outer).take(DEPTH)
}
