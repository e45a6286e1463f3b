//! [`described!`]: a struct whose fields have names in reports. Where one program must compare
//! several orders of the same words, [`record!`](crate::record) places them by a table.

/// A `#[repr(C)]` struct, generic over one memory, that implements [`Described`](crate::Described).
/// Further parameters, each with one bound, may follow the memory: `Ring<M: Memory, Gap: Default>`.
///
/// A field whose type is described itself, or an array of such a type, is marked `= described`.
/// Reports show `slots[3].head`, and `slots[3][1].head` where arrays are nested. An array of words
/// is marked `= words`: `counts[3]`.
///
/// ```
/// use hitm_memory::{described, resolve, Described, Memory, Native};
///
/// described! {
///     /// A queue.
///     pub struct Queue<M: Memory> as "queue" {
///         /// Written by producers.
///         pub tail: M::Atomic<u32>,
///         /// Written by the consumer.
///         pub head: M::Atomic<u32>,
///     }
/// }
/// assert_eq!(resolve(&Queue::<Native>::fields(), 4).unwrap(), "head");
/// ```
///
/// # Compile errors
/// The first parameter is the memory. Without it the words belong to no world:
///
/// ```compile_fail
/// hitm_memory::described! {
///     struct Queue as "queue" {
///         tail: u32,
///     }
/// }
/// ```
///
/// The object has a name, as reports print it:
///
/// ```compile_fail
/// # use hitm_memory::Memory;
/// hitm_memory::described! {
///     struct Queue<M: Memory> {
///         tail: M::Atomic<u32>,
///     }
/// }
/// ```
///
/// `= words` is for arrays, and `= described` for types that are described; there is no other mark:
///
/// ```compile_fail
/// # use hitm_memory::Memory;
/// hitm_memory::described! {
///     struct Queue<M: Memory> as "queue" {
///         tail: M::Atomic<u32> = words,
///     }
/// }
/// ```
///
/// ```compile_fail
/// # use hitm_memory::Memory;
/// hitm_memory::described! {
///     struct Queue<M: Memory> as "queue" {
///         tail: M::Atomic<u32> = described,
///     }
/// }
/// ```
///
/// ```compile_fail
/// # use hitm_memory::Memory;
/// hitm_memory::described! {
///     struct Queue<M: Memory> as "queue" {
///         tails: [M::Atomic<u32>; 2] = atomics,
///     }
/// }
/// ```
#[macro_export]
macro_rules! described {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident<$memory:ident: Memory $(, $other:ident: $bound:path)*> as $object:literal {
            $(
                $(#[doc = $doc:literal])*
                $field_visibility:vis $field:ident: $type:ty $(= $kind:ident)?
            ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        $visibility struct $name<$memory: $crate::Memory $(, $other: $bound)*> {
            $( $(#[doc = $doc])* $field_visibility $field: $type, )+
        }

        impl<$memory: $crate::Memory $(, $other: $bound)*> $crate::Described for $name<$memory $(, $other)*> {
            const OBJECT: &'static str = $object;

            fn fields() -> Vec<$crate::Field> {
                vec![$( $crate::described!(@field Self, $field, $type, concat!($($doc, "\n",)* "") $(, $kind)?) ),+]
            }
        }
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr) => {
        $crate::Field::word(
            stringify!($field), std::mem::offset_of!($owner, $field), std::mem::size_of::<$type>(), $doc,
        )
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr, described) => {
        <$type as $crate::Described>::field(stringify!($field), std::mem::offset_of!($owner, $field), $doc)
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr, words) => {
        <$type as $crate::Words>::words(stringify!($field), std::mem::offset_of!($owner, $field), $doc)
    };
}

/// The start of a line: a field without bytes that pushes the next one to a multiple of 64.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct LineStart;

#[cfg(test)]
mod tests {
    use crate::{Described, LineStart, Native, resolve};

    described! {
        /// An element.
        struct Slot<M: Memory> as "slot" {
            /// Two words.
            words: [M::Atomic<u32>; 2] = words,
            /// A flag.
            full: M::Atomic<bool>,
        }
    }

    described! {
        /// Arrays of elements, and arrays of arrays.
        struct Ring<M: Memory> as "ring" {
            head: M::Atomic<u32>,
            next: LineStart,
            slots: [Slot<M>; 4] = described,
            one: [Slot<M>; 1] = described,
            rows: [[Slot<M>; 3]; 2] = described,
            cube: [[[Slot<M>; 1]; 2]; 2] = described,
        }
    }

    #[test]
    fn arrays_of_a_described_type_have_indices() {
        let fields = Ring::<Native>::fields();
        let name = |offset| resolve(&fields, offset);
        assert_eq!(size_of::<Slot<Native>>(), 12);
        assert_eq!(name(0).as_deref(), Some("head"));
        assert_eq!(name(4), None, "the rest of the line");
        assert_eq!(name(64).as_deref(), Some("slots[0].words[0]"));
        assert_eq!(name(64 + 3 * 12 + 8).as_deref(), Some("slots[3].full"));
        assert_eq!(name(64 + 3 * 12 + 9), None, "padding of an element");
        assert_eq!(name(112 + 4).as_deref(), Some("one.words[1]"));
        assert_eq!(name(124 + (3 + 2) * 12 + 8).as_deref(), Some("rows[1][2].full"));
        assert_eq!(name(196 + (2 + 1) * 12 + 4).as_deref(), Some("cube[1][1][0].words[1]"));
    }
}
