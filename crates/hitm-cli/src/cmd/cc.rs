//! `hitm cc`, `hitm c++` and, for the compiler, `hitm assemble`.

use std::ffi::OsString;
use std::process::ExitStatus;

use clap::Args;

use crate::exec::assembler;
use crate::exec::compiler::{self, Language};
use crate::failure::Failure;

/// Compile a C or C++ program that `hitm exec` can run on a simulated machine.
///
/// It takes the arguments of gcc or g++ and stands in its place, as in `make CC="hitm cc"`. The
/// program runs natively when it is started by itself. HITM_CC and HITM_CXX name another
/// compiler: gcc or clang of another version.
///
/// Inline assembly that the machine cannot follow is an error. The option `--unseen-ok`, or the
/// variable HITM_UNSEEN_OK, leaves it out of the simulation.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm cc -O2 counter.c -o counter -pthread\n  hitm c++ -O2 queue.cc -o queue -pthread\n  hitm exec ./counter 64"
)]
pub(crate) struct Cc {
    /// The compiler's arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Cc {
    pub(crate) fn run(self, language: Language) -> Result<(), Failure> {
        ended(compiler::compile(language, &self.arguments)?)
    }
}

/// Assemble what the compiler wrote.
#[derive(Args, Debug)]
pub(crate) struct Assemble {
    /// The assembler's arguments.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Assemble {
    pub(crate) fn run(self) -> Result<(), Failure> {
        ended(assembler::assemble(&self.arguments)?)
    }
}

/// Ends as the compiler did: it has said why.
pub(super) fn ended(status: ExitStatus) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
}
