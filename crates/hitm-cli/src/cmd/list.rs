//! `hitm list`.

use clap::{Args, CommandFactory as _, ValueEnum};
use hitm_report::columns::{Align, Columns};
use hitm_sched::{LAYOUTS, TABLE};

use crate::failure::Failure;
use crate::terminal::{fitted, width};
use crate::{Hitm, print};

/// List workloads, machines, mitigations, objects or tables.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hitm list machines\n  hitm list mitigations")]
pub(crate) struct List {
    /// What to list.
    #[arg(value_enum)]
    what: What,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Workloads of `hitm run`.
    Workloads,
    /// Built-in machines.
    Machines,
    /// Layouts, scopes and policies, and how to combine them.
    Mitigations,
    /// Objects whose layout can be shown.
    Objects,
    /// Tables that `hitm report` writes, and their columns.
    Tables,
}

impl List {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let described = |rows: &[(&str, &str)]| {
            let mut columns = Columns::new(&[("name", Align::Left), ("what it is", Align::Left)]);
            rows.iter().for_each(|(name, what)| columns.row(vec![(*name).to_owned(), (*what).to_owned()]));
            columns.render(width())
        };
        let text = match self.what {
            What::Workloads => {
                let workloads = workloads();
                described(&workloads.iter().map(|(name, what)| (&**name, &**what)).collect::<Vec<_>>())
            }
            What::Mitigations => {
                format!(
                    "{}\nCombine them by `+`: `cpupri-split+rto-count=llc`. `=bytes` is one byte per CPU, written by a plain store; `=bytes:llc` puts the bytes of each LLC on lines of their own.\n",
                    described(&TABLE.iter().map(|row| (row.name, row.description)).collect::<Vec<_>>())
                )
            }
            What::Objects => described(&LAYOUTS),
            What::Tables => hitm_report::tables::describe(width()),
            What::Machines => {
                let presets = hitm_topology::presets::all().iter();
                let rows: Vec<(&str, &str)> = presets.map(|preset| (preset.name(), preset.description())).collect();
                format!(
                    "{}\nAlso an hwloc synthetic string (`pack:2 l3:4 core:8 pu:2`), an hwloc XML file, a sysfs dump, or `this`.\n",
                    described(&rows)
                )
            }
        };
        print(&fitted(&text))
    }
}

/// Returns the workloads of `hitm run`, as its help describes them.
fn workloads() -> Vec<(String, String)> {
    let command = Hitm::command();
    let run = command.find_subcommand("run").expect("a verb");
    let about = |own: &clap::Command| own.get_about().map(ToString::to_string).unwrap_or_default();
    run.get_subcommands().map(|own| (own.get_name().to_owned(), about(own))).collect()
}
