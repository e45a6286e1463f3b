//! The state of every line, in few bytes.

/// No entry among the contended lines.
pub(super) const NO_ENTRY: u32 = u32::MAX;

/// No thread.
pub(super) const NO_THREAD: u16 = u16::MAX;

/// A line. Most are only ever touched by one core and need nothing else. Every access reads one;
/// two fill a line of the host.
#[derive(Clone, Debug)]
#[repr(align(32))]
pub(super) struct Line {
    /// Before this time the line serves no request: it is on its way, or its owner's operation is
    /// not done.
    pub(super) busy_until: u64,
    /// When the owner's copy arrived.
    pub(super) filled_at: u64,
    /// Index of the line's [`Contended`], or `NO_ENTRY`.
    pub(super) contended: u32,
    /// See [`State`].
    pub(super) state: Packed,
    /// The thread of the owning core that may write the line, or `NO_THREAD` after several of them
    /// have read it.
    pub(super) thread: u16,
    /// The package of the line's home.
    pub(super) home: u16,
    /// The CPUs with issued accesses that have not taken effect: loads and read-modify-writes, and
    /// stores, at most one each per CPU.
    pub(super) under_way: u16,
    /// Whether its queue has a waiter.
    pub(super) wanted: bool,
    /// Whether the owner has modified it.
    pub(super) dirty: bool,
    /// The operations that the CPU in `thread` may still do before a wanted line moves on.
    pub(super) follow_ups: u8,
}

const _: () = assert!(size_of::<Line>() == 32, "two lines fill one of the host");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No cache has it.
    Uncached,
    /// This core has it alone.
    Owned(u32),
    /// Several cores have it.
    Shared,
}

/// A [`State`] in two bytes: the owner, or one of two numbers that no core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(u16);

impl Packed {
    /// [`State::Uncached`].
    pub(super) const UNCACHED: Self = Self(u16::MAX);
    /// [`State::Shared`].
    pub(super) const SHARED: Self = Self(u16::MAX - 1);
    /// The number of CPUs must be below this.
    pub(super) const LIMIT: usize = u16::MAX as usize - 1;
}

impl From<State> for Packed {
    #[inline]
    fn from(state: State) -> Self {
        match state {
            State::Uncached => Self::UNCACHED,
            State::Owned(core) => Self(core as u16),
            State::Shared => Self::SHARED,
        }
    }
}

impl From<Packed> for State {
    #[inline]
    fn from(packed: Packed) -> Self {
        match packed {
            Packed::UNCACHED => Self::Uncached,
            Packed::SHARED => Self::Shared,
            Packed(core) => Self::Owned(core.into()),
        }
    }
}

impl Line {
    /// Returns its state.
    #[inline]
    pub(super) fn state(&self) -> State {
        self.state.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_their_owner() {
        let last = Packed::LIMIT as u32 - 1;
        for state in [State::Uncached, State::Shared, State::Owned(0), State::Owned(last)] {
            assert_eq!(State::from(Packed::from(state)), state);
        }
    }
}
