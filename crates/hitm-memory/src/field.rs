//! Names for bytes: what stands at which offset of a shared object.
//!
//! The reports of the simulated machine print the field beside the line and the offset, and `hitm
//! layout` prints whole objects. Both read the tables that [`Described`] types give of themselves.

/// A field of a shared object, or an array of equal fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name, as the source has it.
    pub name: &'static str,
    /// Bytes from the start of the enclosing object.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// Elements: 1 for a plain field. Element `i` starts at `offset + i * size`.
    pub count: usize,
    /// What the field is, its writers and its readers: its doc comment. Empty for padding.
    pub doc: &'static str,
    /// The fields inside one element, with offsets from the element's start; empty for a word.
    pub fields: Vec<Self>,
}

impl Field {
    /// A field that is one word or one opaque block.
    #[must_use]
    pub const fn word(name: &'static str, offset: usize, size: usize, doc: &'static str) -> Self {
        Self { name, offset, size, count: 1, doc, fields: Vec::new() }
    }

    /// The byte after the field's last.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.offset + self.size * self.count
    }
}

/// A type whose bytes have names.
pub trait Described {
    /// What reports call an object of this type.
    const OBJECT: &'static str;

    /// The fields, by ascending offset.
    fn fields() -> Vec<Field>;

    /// A value of this type as a field of an enclosing object.
    #[must_use]
    fn field(name: &'static str, offset: usize, doc: &'static str) -> Field
    where
        Self: Sized,
    {
        Field { fields: Self::fields(), ..Field::word(name, offset, size_of::<Self>(), doc) }
    }
}

/// An array is one field with indices: `slots[3].head`. An element that is an array itself is a
/// field without a name: `slots[3][1].head`.
impl<T: Described, const COUNT: usize> Described for [T; COUNT] {
    const OBJECT: &'static str = T::OBJECT;

    fn fields() -> Vec<Field> {
        vec![Self::field("", 0, "")]
    }

    fn field(name: &'static str, offset: usize, doc: &'static str) -> Field {
        Field { size: size_of::<T>(), count: COUNT, fields: T::fields(), ..Field::word(name, offset, 0, doc) }
    }
}

/// An array of words or of opaque blocks, as a field. `described!` calls this for a field that is
/// marked `= words`.
#[doc(hidden)]
pub trait Words {
    /// The array as a field of an enclosing object.
    fn words(name: &'static str, offset: usize, doc: &'static str) -> Field;
}

impl<T, const COUNT: usize> Words for [T; COUNT] {
    fn words(name: &'static str, offset: usize, doc: &'static str) -> Field {
        Field { count: COUNT, ..Field::word(name, offset, size_of::<T>(), doc) }
    }
}

/// The name of the field that covers byte `offset`, with indices and inner fields:
/// `pri_to_cpu[99].count`. Nothing when no field does (a hole).
#[must_use]
pub fn resolve(fields: &[Field], offset: usize) -> Option<String> {
    let field = fields.iter().find(|field| (field.offset..field.end()).contains(&offset))?;
    let within = offset - field.offset;
    let mut name = field.name.to_owned();
    if field.count > 1 || field.name.is_empty() {
        name += &format!("[{}]", within / field.size);
    }
    if !field.fields.is_empty() {
        let inner = resolve(&field.fields, within % field.size)?;
        let separator = if name.is_empty() || inner.starts_with('[') { "" } else { "." };
        name = format!("{name}{separator}{inner}");
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vecs() -> Vec<Field> {
        let inner = vec![Field::word("count", 0, 4, ""), Field::word("mask", 8, 8, "")];
        let vecs = Field { name: "vec", offset: 16, size: 16, count: 3, doc: "", fields: inner };
        vec![Field::word("lock", 0, 4, ""), vecs]
    }

    #[test]
    fn offsets_resolve_to_names() {
        let check = |offset, expect: Option<&str>| assert_eq!(resolve(&vecs(), offset).as_deref(), expect, "{offset}");
        check(0, Some("lock"));
        check(3, Some("lock"));
        check(4, None);
        check(16, Some("vec[0].count"));
        check(24, Some("vec[0].mask"));
        check(20, None);
        check(48, Some("vec[2].count"));
        check(63, Some("vec[2].mask"));
        check(64, None);
    }
}
