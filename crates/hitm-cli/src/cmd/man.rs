//! `hitm man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};

use crate::failure::Failure;
use crate::{Hitm, print_as_it_is};

/// Print the manual page, or write the pages of all commands to a folder.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hitm man | man -l -\n  hitm man --to ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write one page per command to this folder.
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let command = Hitm::command();
        let Some(folder) = &self.to else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).expect("writing to memory");
            return print_as_it_is(&page);
        };
        clap_mangen::generate_to(command, folder).map_err(|error| {
            Failure::new(format!("--to `{}`: {error}; name a folder that can be written to", folder.display()))
        })
    }
}
