//! Reports from outside.

mod compare;
mod report;
mod your_structure;
