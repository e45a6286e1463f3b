//! Why a text is no result file.

use std::fmt;

use crate::result::SCHEMA;

/// The reason for which a text is not a result file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not JSON.
    NoJson(serde_json::Error),
    /// It does not say which form it has.
    NoSchema,
    /// It has another form, with this name.
    OtherSchema(String),
    /// It lacks a part, or a part has another form.
    Form(serde_json::Error),
    /// A machine of this name has an LLC domain, of this number, with a part that is numbered
    /// higher than any machine's.
    Domain(String, usize),
}

/// Cores, CPUs, nodes and packages of a machine are fewer: exchanges number the parts in 16 bits.
pub(crate) const PARTS_MAX: u32 = 1 << 16;

/// What to do about a text that is none.
const AGAIN: &str = "write it again with `hitm run --json`";

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJson(error) => {
                let (line, column) = (error.line(), error.column());
                write!(f, "not JSON at line {line}, column {column}: it may be cut short; {AGAIN}")
            }
            Self::NoSchema => write!(f, "there is no `schema`: it is no file that `--json` wrote; {AGAIN}"),
            Self::OtherSchema(other) => {
                write!(f, "`schema` is `{other}` and this version reads `{SCHEMA}`; take the `hitm` that wrote it")
            }
            Self::Form(error) => write!(f, "not as `--json` writes it: {error}; {AGAIN}"),
            Self::Domain(machine, number) => write!(
                f,
                "machine `{machine}`: LLC domain {number} has a package, a node, cores or CPUs that are not numbers \
                 below {PARTS_MAX}; {AGAIN}"
            ),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoJson(error) | Self::Form(error) => Some(error),
            Self::NoSchema | Self::OtherSchema(_) | Self::Domain(..) => None,
        }
    }
}
