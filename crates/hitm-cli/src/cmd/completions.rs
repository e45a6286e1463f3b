//! `hitm completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::{Hitm, print_as_it_is};

/// Print a script that completes commands and options in a shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm completions bash > ~/.local/share/bash-completion/completions/hitm\n  hitm completions fish > ~/.config/fish/completions/hitm.fish"
)]
pub(crate) struct Completions {
    /// Shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Hitm::command(), "hitm", &mut script);
        print_as_it_is(&script)
    }
}
