//! `hitm layout`.

use clap::Args;
use hitm_sched::{LAYOUTS, Mitigation};

use crate::failure::Failure;
use crate::print;
use crate::terminal::width;

/// Show the memory layout of an object, cache line by cache line.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm layout root_domain\n  hitm layout root_domain --mitigation root-domain-reordered"
)]
pub(crate) struct Layout {
    /// Object: see `hitm list objects`.
    object: String,
    /// Mitigation: see `hitm list mitigations`.
    #[arg(long, value_name = "NAME", default_value = "baseline")]
    mitigation: String,
}

impl Layout {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mitigation = Mitigation::parse(&self.mitigation)?;
        let (size, fields) = mitigation.layout(&self.object).ok_or_else(|| {
            Failure::new(format!(
                "object `{}` is not known: take one of {}",
                self.object,
                LAYOUTS.map(|(name, _)| format!("`{name}`")).join(", ")
            ))
        })?;
        let name = format!("{} ({})", self.object, mitigation.name());
        print(&hitm_report::layout::render(&name, size, &fields, width()))
    }
}
