//! Two macros that say a layout once.
//!
//! [`described!`] is a struct whose fields have names in reports. [`orders!`] declares a set of fields once and any
//! number of orders of them, each a `#[repr(C)]` type, behind one accessor trait: a placement is then a type parameter
//! and not a copy of the code.

/// A `#[repr(C)]` struct, generic over one memory, that implements [`Described`](crate::Described).
///
/// A field that is itself described is marked `= described`, an array of described elements `= array of TYPE`.
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
        $visibility:vis struct $name:ident<$memory:ident: Memory> as $object:literal {
            $(
                $(#[doc = $doc:literal])*
                $field_visibility:vis $field:ident: $type:ty $(= $kind:ident $(of $element:ty)?)?
            ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        $visibility struct $name<$memory: $crate::Memory> {
            $( $(#[doc = $doc])* $field_visibility $field: $type, )+
        }

        impl<$memory: $crate::Memory> $crate::Described for $name<$memory> {
            const OBJECT: &'static str = $object;

            fn fields() -> Vec<$crate::Field> {
                vec![$( $crate::described!(@field Self, $field, $type, concat!($($doc, "\n",)* "") $(, $kind $(of $element)?)?) ),+]
            }
        }
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr) => {
        $crate::Field::word(
            stringify!($field), std::mem::offset_of!($owner, $field), std::mem::size_of::<$type>(), $doc,
        )
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr, described) => {
        $crate::Field {
            fields: <$type as $crate::Described>::fields(),
            ..$crate::described!(@field $owner, $field, $type, $doc)
        }
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr, words of $element:ty) => {
        $crate::Field {
            size: std::mem::size_of::<$element>(),
            count: std::mem::size_of::<$type>() / std::mem::size_of::<$element>(),
            ..$crate::described!(@field $owner, $field, $type, $doc)
        }
    };
    (@field $owner:ty, $field:ident, $type:ty, $doc:expr, array of $element:ty) => {
        $crate::Field {
            size: std::mem::size_of::<$element>(),
            count: std::mem::size_of::<$type>() / std::mem::size_of::<$element>(),
            fields: <$element as $crate::Described>::fields(),
            ..$crate::described!(@field $owner, $field, $type, $doc)
        }
    };
}

/// The start of a line: a field without bytes that pushes the next one to a multiple of 64.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct LineStart;

/// One set of fields, several orders.
///
/// `fields` lists name, type and doc of every field, and makes a plain struct of the initial values and an accessor
/// trait of them. Each `order` lists every field once, plus padding (`pad NAME: TYPE`, for bytes that our code does not
/// use but that stand there in the original) and `line NAME` marks, after which the next field starts a line.
/// The compiler refuses an order that leaves a field out or names it twice; offsets are asserted by the caller.
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

    // One entry of an order after the other: into the struct's fields, the constructor's, and the padding's names.
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
