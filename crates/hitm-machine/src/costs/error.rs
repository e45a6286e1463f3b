//! [`CostError`]: a cost table that cannot be used as it was asked for.

use std::fmt;

/// The reason for which a cost table cannot be used as it was asked for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CostError {
    /// The model can do nothing with the value of a parameter.
    OutOfRange {
        /// The parameter.
        name: String,
        /// The value.
        value: f64,
        /// The lowest value.
        least: f64,
        /// The highest value.
        most: f64,
    },
    /// The machine's model has no parameter of this name.
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The table has no sizes of caches, because no citable source was found.
    NoSizes {
        /// The machine.
        machine: String,
        /// Its table.
        table: String,
        /// The tables that have sizes.
        known: Vec<String>,
    },
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { name, value, least, most } => {
                write!(f, "`{name}` cannot be {value}: give a number from {least} to {most}")
            }
            Self::Unknown { name, known } => {
                write!(f, "`{name}` is no parameter of this machine's model: take one of {}", known.join(", "))
            }
            Self::NoSizes { machine, table, known } => write!(
                f,
                "`{machine}` cannot have caches of limited size: its cost table `{table}` has no sizes with a source; take a machine of {}",
                known.join(" or ")
            ),
        }
    }
}

impl std::error::Error for CostError {}
