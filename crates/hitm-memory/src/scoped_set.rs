//! Sets of CPUs in whatever form they are asked for: bits or bytes, whole or split.
//!
//! [`Form`] says which; [`ScopedSets`] is one or the other behind the same methods. What each
//! costs, and who may write: [`ScopedBitmaps`] and [`ScopedBytes`].

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::Ordering;

use hitm_topology::{CpuId, Scope, Topology};

use crate::cpu_set::CpuSet;
use crate::memory::Memory;
use crate::scoped_bitmap::{BitmapRow, CpuMask, Encoding, ScopedBitmaps};
use crate::scoped_bytes::{BytesRow, ScopedBytes};

/// How a set of CPUs, or a count of them, is written and over what it is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Words that the CPUs of a part share and change by read-modify-writes: bits, or a number.
    Words(Scope),
    /// A byte a CPU, those of a part side by side, written with plain stores.
    Bytes(Scope),
}

impl Form {
    /// One for all CPUs, in words: what has not been split.
    pub const WHOLE: Self = Self::Words(Scope::Machine);

    /// Over what it is split.
    #[must_use]
    pub fn scope(self) -> Scope {
        match self {
            Self::Words(scope) | Self::Bytes(scope) => scope,
        }
    }

    /// Every form.
    pub fn all() -> impl Iterator<Item = Self> {
        Scope::ALL.into_iter().flat_map(|scope| [Self::Words(scope), Self::Bytes(scope)])
    }
}

/// A text that names no form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownForm;

/// Reads what [`Form`] writes: a scope's name, `bytes`, or `bytes:` and a scope's name.
impl FromStr for Form {
    type Err = UnknownForm;

    fn from_str(text: &str) -> Result<Self, UnknownForm> {
        let scope = |name: &str| name.parse().map_err(|_| UnknownForm);
        match text.strip_prefix("bytes") {
            Some("") => Ok(Self::Bytes(Scope::Machine)),
            Some(rest) => Ok(Self::Bytes(scope(rest.strip_prefix(':').ok_or(UnknownForm)?)?)),
            None => Ok(Self::Words(scope(text)?)),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(scope) => scope.fmt(f),
            Self::Bytes(Scope::Machine) => f.write_str("bytes"),
            Self::Bytes(scope) => write!(f, "bytes:{scope}"),
        }
    }
}

/// Rows of a set of CPUs, of either form.
#[derive(Debug)]
pub enum ScopedSets<M: Memory> {
    /// A bit a CPU.
    Bits(ScopedBitmaps<M>),
    /// A byte a CPU.
    Bytes(ScopedBytes<M>),
}

/// One row.
#[derive(Debug)]
pub enum SetRow<'a, M: Memory> {
    /// A bit a CPU.
    Bits(BitmapRow<'a, M>),
    /// A byte a CPU.
    Bytes(BytesRow<'a, M>),
}

impl<M: Memory> ScopedSets<M> {
    /// `rows` empty rows. Reports call a part `object`, a row `row`. `encoding` is that of bits.
    #[must_use]
    pub fn new(
        object: &str,
        row: &'static str,
        rows: usize,
        topology: &Topology,
        form: Form,
        encoding: Encoding,
    ) -> Self {
        match form {
            Form::Words(scope) => Self::Bits(ScopedBitmaps::new(object, row, rows, topology, scope, encoding)),
            Form::Bytes(scope) => Self::Bytes(ScopedBytes::new(object, row, rows, topology, scope)),
        }
    }

    /// What a pointer to row `index` holds: see [`ScopedBitmaps::row`].
    #[must_use]
    pub fn pointer_to(&self, index: usize) -> u64 {
        match self {
            Self::Bits(bits) => bits.pointer_to(index),
            Self::Bytes(_) => index as u64,
        }
    }

    /// The row that `pointer` points to, a value that [`ScopedSets::pointer_to`] gave.
    #[inline]
    #[must_use]
    pub fn row(&self, pointer: u64) -> SetRow<'_, M> {
        match self {
            Self::Bits(bits) => SetRow::Bits(bits.row(pointer)),
            Self::Bytes(bytes) => SetRow::Bytes(bytes.row(pointer as usize)),
        }
    }

    /// Bytes that they take, whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Bits(bits) => bits.bytes(),
            Self::Bytes(bytes) => bytes.bytes(),
        }
    }
}

/// The same method of both forms.
macro_rules! either {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {
        impl<M: Memory> SetRow<'_, M> {
            $(
                $(#[$attribute])*
                #[inline]
                #[track_caller]
                pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    match self {
                        Self::Bits(bits) => bits.$name($($argument),*),
                        Self::Bytes(bytes) => bytes.$name($($argument),*),
                    }
                }
            )+
        }
    };
}

either! {
    /// Puts `cpu` into the row. Of bytes: see [`BytesRow::set`] for who may.
    set(cpu: CpuId, order: Ordering);

    /// Takes `cpu` out of the row, as in [`SetRow::set`].
    clear(cpu: CpuId, order: Ordering);

    /// Whether `cpu` is in the row.
    contains(cpu: CpuId, order: Ordering) -> bool;

    /// Whether some CPU of `allowed` is in the row. Looks at the part of `here` first and stops at
    /// the first match.
    intersects(allowed: &CpuMask<M>, here: CpuId, order: Ordering) -> bool;

    /// The CPUs of `allowed` that are in the row.
    intersection(allowed: &CpuMask<M>, order: Ordering) -> CpuSet;

    /// The first CPU of the row after `previous`, or the first of all.
    next_after(previous: Option<CpuId>, order: Ordering) -> Option<CpuId>;

    /// The CPUs in the row: a snapshot for checkers.
    snapshot() -> CpuSet;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_named() {
        for form in Form::all() {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        assert_eq!("bytes:machine".parse(), Ok(Form::Bytes(Scope::Machine)));
        assert_eq!(Form::Bytes(Scope::Llc).to_string(), "bytes:llc");
        for text in ["", "byte", "bytes:", "bytesnode", "bytes:socket", "node:bytes", "Bytes"] {
            assert_eq!(text.parse::<Form>(), Err(UnknownForm), "{text}");
        }
    }
}
