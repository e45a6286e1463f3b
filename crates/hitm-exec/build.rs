//! Writes the table of this crate's functions by file and line.

fn main() {
    hitm_functions::write_table();
}
