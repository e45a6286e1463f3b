//! The tests of what is built on the seam.

mod record;
