//! Two macros that say a layout once.
//!
//! [`described!`] is a struct whose fields have names in reports. [`orders!`] declares a set of
//! fields once and any number of orders of them, each a `#[repr(C)]` type, behind one accessor
//! trait: a placement is then a type parameter and not a copy of the code.

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

/// One set of fields, several orders.
///
/// `fields` lists name, type and doc of every field, and makes a plain struct of the initial values
/// and an accessor trait of them. Each `order` lists every field once, plus padding (`pad NAME:
/// TYPE`, for bytes that our code does not use but that stand there in the original) and `line
/// NAME` marks, after which the next field starts a line. The compiler refuses an order that leaves
/// a field out or names it twice; offsets are asserted by the caller.
#[macro_export]
macro_rules! orders {
    (
        $(#[$fields_attribute:meta])*
        $visibility:vis fields $fields:ident<$memory:ident, $part:ident: $part_bound:ident> via $types:ident $body:tt
        $(#[$trait_attribute:meta])*
        accessors $accessors:ident as $object:literal;
        $(
            $(#[$order_attribute:meta])*
            order $order:ident { $($order_body:tt)+ }
        )+
    ) => {
        $crate::orders! {
            @fields [$(#[$fields_attribute])*] [$(#[$trait_attribute])*] $visibility
            $memory $part $part_bound $fields $types $accessors $body
        }
        $(
            $crate::orders! {
                @order [$(#[$order_attribute])* $visibility $order]
                [$memory $part $part_bound $fields $types $accessors $object] $body
                {$($order_body)+} -> [] [] []
            }
        )+
    };

    // The plain struct of initial values, the types by name, and the accessor trait.
    (
        @fields [$(#[$fields_attribute:meta])*] [$(#[$trait_attribute:meta])*] $visibility:vis
        $memory:ident $part:ident $part_bound:ident $fields:ident $types:ident $accessors:ident
        { $( $(#[doc = $doc:literal])* $field:ident: $type:ty $(= $kind:ident)? ),+ $(,)? }
    ) => {
        $(#[$fields_attribute])*
        $visibility struct $fields<$memory: $crate::Memory, $part: $part_bound<$memory>> {
            $( $(#[doc = $doc])* pub $field: $type, )+
        }

        /// The types of the fields, by name.
        #[doc(hidden)]
        #[allow(non_camel_case_types, reason = "the associated types are named after the fields")]
        $visibility trait $types { $( type $field; )+ }

        impl<$memory: $crate::Memory, $part: $part_bound<$memory>> $types for ($memory, $part) {
            $( type $field = $type; )+
        }

        $(#[$trait_attribute])*
        $visibility trait $accessors<$memory: $crate::Memory>: $crate::Described + Send + Sync + Sized + 'static {
            /// What stands inside.
            type Part: $part_bound<$memory>;

            /// An object with these initial values.
            fn from_fields(fields: $fields<$memory, Self::Part>) -> Self;

            $(
                $(#[doc = $doc])*
                fn $field(&self) -> &<($memory, Self::Part) as $types>::$field;
            )+
        }
    };

    // One entry of an order after the other: into the struct's fields, the constructor's, and the
    // padding's names.
    (@order $head:tt $context:tt $all:tt {$field:ident, $($rest:tt)*} -> [$($struct:tt)*] [$($pad:tt)*] [$($line:tt)*]) => {
        $crate::orders! { @order $head $context $all {$($rest)*} -> [$($struct)* {field $field}] [$($pad)*] [$($line)*] }
    };
    (@order $head:tt $context:tt $all:tt {pad $name:ident: $type:ty, $($rest:tt)*} -> [$($struct:tt)*] [$($pad:tt)*] [$($line:tt)*]) => {
        $crate::orders! { @order $head $context $all {$($rest)*} -> [$($struct)* {pad $name $type}] [$($pad)* {$name $type}] [$($line)*] }
    };
    (@order $head:tt $context:tt $all:tt {line $name:ident, $($rest:tt)*} -> [$($struct:tt)*] [$($pad:tt)*] [$($line:tt)*]) => {
        $crate::orders! { @order $head $context $all {$($rest)*} -> [$($struct)* {line $name}] [$($pad)*] [$($line)* $name] }
    };
    (
        @order [$(#[$attribute:meta])* $visibility:vis $order:ident]
        [$memory:ident $part:ident $part_bound:ident $fields:ident $types:ident $accessors:ident $object:literal]
        { $( $(#[doc = $doc:literal])* $field:ident: $type:ty $(= $kind:ident)? ),+ $(,)? }
        {} -> [$($entry:tt)+] [$({$pad:ident $pad_type:ty})*] [$($line:ident)*]
    ) => {
        $crate::orders! {
            @struct [$(#[$attribute])* $visibility $order $memory $part $part_bound $types] {$($entry)+} -> []
        }

        impl<$memory: $crate::Memory, $part: $part_bound<$memory>> $accessors<$memory> for $order<$memory, $part> {
            type Part = $part;

            fn from_fields(fields: $fields<$memory, $part>) -> Self {
                Self {
                    $( $field: fields.$field, )+
                    $( $pad: <$pad_type>::default(), )*
                    $( $line: $crate::LineStart, )*
                }
            }

            $(
                #[inline(always)]
                fn $field(&self) -> &<($memory, $part) as $types>::$field {
                    &self.$field
                }
            )+
        }

        impl<$memory: $crate::Memory, $part: $part_bound<$memory>> $crate::Described for $order<$memory, $part> {
            const OBJECT: &'static str = $object;

            fn fields() -> Vec<$crate::Field> {
                let mut fields = vec![
                    $( $crate::described!(@field Self, $field, $type, concat!($($doc, "\n",)* "") $(, $kind)?), )+
                    $( $crate::described!(@field Self, $pad, $pad_type, ""), )*
                ];
                fields.sort_by_key(|field| field.offset);
                fields
            }
        }
    };

    (@struct $head:tt {{field $field:ident} $($rest:tt)*} -> [$($done:tt)*]) => {
        $crate::orders! { @struct $head {$($rest)*} -> [$($done)* {$field => field}] }
    };
    (@struct $head:tt {{pad $name:ident $type:ty} $($rest:tt)*} -> [$($done:tt)*]) => {
        $crate::orders! { @struct $head {$($rest)*} -> [$($done)* {$name => $type}] }
    };
    (@struct $head:tt {{line $name:ident} $($rest:tt)*} -> [$($done:tt)*]) => {
        $crate::orders! { @struct $head {$($rest)*} -> [$($done)* {$name => $crate::LineStart}] }
    };
    (
        @struct [$(#[$attribute:meta])* $visibility:vis $order:ident $memory:ident $part:ident $part_bound:ident $types:ident]
        {} -> [$({$name:ident => $($type:tt)+})+]
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        $visibility struct $order<$memory: $crate::Memory, $part: $part_bound<$memory>> {
            $( $name: $crate::orders!(@type $memory $part $types $name $($type)+), )+
        }
    };
    (@type $memory:ident $part:ident $types:ident $name:ident field) => { <($memory, $part) as $types>::$name };
    (@type $memory:ident $part:ident $types:ident $name:ident $type:ty) => { $type };
}

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
