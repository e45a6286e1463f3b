//! Reports from outside.

mod compare;
