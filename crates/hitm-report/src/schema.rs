//! The JSON schemas of the files that `--json` writes, made from the types that write them.

use schemars::Schema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::Value;

use crate::advice::Advice;
use crate::check::Checked;
use crate::compare::Comparison;
use crate::job::{Done, Job};
use crate::json::json_text;
use crate::result::ResultFile;
use crate::rules::Judged;
use crate::sweep::Sweep;
use crate::this_machine::ThisMachine;
use crate::uncertainty::Uncertainty;
use crate::validation::Validation;
use crate::validation_uncertainty::ValidationUncertainty;

/// The value of `schema` in a form's files, and what makes the form's schema.
type Form = (&'static str, fn(SchemaGenerator) -> Schema);

/// The forms.
const FORMS: &[Form] = &[
    (crate::result::SCHEMA, SchemaGenerator::into_root_schema_for::<ResultFile>),
    (crate::sweep::SCHEMA, SchemaGenerator::into_root_schema_for::<Sweep>),
    (crate::job::JOB, SchemaGenerator::into_root_schema_for::<Job>),
    (crate::job::DONE, SchemaGenerator::into_root_schema_for::<Done>),
    (crate::compare::SCHEMA, SchemaGenerator::into_root_schema_for::<Comparison>),
    (crate::advice::SCHEMA, SchemaGenerator::into_root_schema_for::<Advice>),
    (crate::check::SCHEMA, SchemaGenerator::into_root_schema_for::<Checked>),
    (crate::rules::SCHEMA, SchemaGenerator::into_root_schema_for::<Judged>),
    (crate::uncertainty::SCHEMA, SchemaGenerator::into_root_schema_for::<Uncertainty>),
    (crate::validation::SCHEMA, SchemaGenerator::into_root_schema_for::<Validation>),
    (crate::validation_uncertainty::SCHEMA, SchemaGenerator::into_root_schema_for::<ValidationUncertainty>),
    (crate::this_machine::SCHEMA, SchemaGenerator::into_root_schema_for::<ThisMachine>),
];

/// Returns the names of the forms: `hitm-result/1`, for example.
pub fn names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|(name, _)| *name)
}

/// Returns the JSON schema (draft 2020-12) of the form `name` as text; `None` for an unknown name.
///
/// # Panics
/// When a form has no key `schema`; all have it.
#[must_use]
pub fn schema(name: &str) -> Option<String> {
    let (name, of) = FORMS.iter().find(|(own, _)| *own == name)?;
    // What is written, not what is read: keys that older files lack are required.
    let mut schema = of(SchemaSettings::draft2020_12().for_serialize().into_generator());
    schema.insert("title".to_owned(), Value::from(*name));
    // A file says which form it has.
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let own = properties.and_then(|properties| properties.get_mut("schema")).and_then(Value::as_object_mut);
    own.expect("every form has a `schema`").insert("const".to_owned(), Value::from(*name));
    Some(json_text(&schema))
}
