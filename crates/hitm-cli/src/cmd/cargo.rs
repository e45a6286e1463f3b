//! `hitm cargo`, and `cargo hitm`.

use std::ffi::OsString;

use clap::Args;

use super::cc::ended;
use crate::exec::cargo;
use crate::failure::Failure;

/// Run cargo, so that `hitm exec` can run the Rust program on a simulated machine.
///
/// It takes the verbs and options of cargo: `build`, `run`, `test` and others. The toolchain is a
/// nightly one, which HITM_RUST may name; with `--stable` it is the one in use. What is built lies
/// in target/hitm. `run` and `test` start programs by `hitm exec`. `cargo hitm build` is the same
/// as `hitm cargo build`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm cargo build --release\n  hitm exec target/hitm/x86_64-unknown-linux-gnu/release/app 64\n  hitm cargo --exec '--cpus 64 --seeds 3' run --release -- 64\n  hitm cargo --stable build --release"
)]
pub(crate) struct Cargo {
    /// Options of `hitm exec` for the programs that `run` and `test` start.
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true, hide_default_value = true)]
    exec: String,
    /// Use a stable compiler. The machine then sees only the atomics and locks that the program
    /// takes from the crate `hitm-sync`.
    #[arg(long)]
    stable: bool,
    /// Cargo's verb and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Cargo {
    pub(crate) fn run(self) -> Result<(), Failure> {
        ended(cargo::cargo(self.stable, &self.exec, &self.arguments)?)
    }
}
