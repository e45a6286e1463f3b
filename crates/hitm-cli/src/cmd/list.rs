//! `hitm list`.

use clap::{Args, ValueEnum};
use hitm_report::columns::{Align, Columns};
use hitm_sched::mitigation::{CATALOGUE, LAYOUTS};

use crate::failure::Failure;
use crate::print;
use crate::terminal::{fitted, width};

/// List workloads, machines, mitigations or objects.
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
}

const WORKLOADS: [(&str, &str); 11] = [
    ("ffmpeg", "60 transcoders on 8 CPUs each; every thread has priority FIFO 99"),
    ("cyclic", "one task per CPU at FIFO 99 that sleeps for 100 us and records how late it woke"),
    ("pi_stress", "groups of three tasks on one CPU each that provoke priority inversions"),
    ("cid-bursts", "threads that increment 16 KiB indexed by CPU or by concurrency id, one after the other"),
    ("cid-storms", "threads that constantly begin and end, wake elsewhere, or migrate: the cost of concurrency ids"),
    ("hackbench", "groups of fair tasks in which every sender sends to every receiver, over pipes or sockets"),
    ("tbench", "clients that request a file server's operations over loopback: fair tasks"),
    ("netperf", "one-way datagrams, or round trips of one byte, over loopback: fair tasks"),
    ("schbench", "message threads that wake all of their workers at once, and how late these run: fair tasks"),
    ("context1", "pairs of tasks of one group that pass a number back and forth over pipes: fair tasks"),
    ("probe", "the cost of one shared word, counter, bitmap or lock"),
];

impl List {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let described = |rows: &[(&str, &str)]| {
            let mut columns = Columns::new(&[("name", Align::Left), ("what it is", Align::Left)]);
            rows.iter().for_each(|(name, what)| columns.row(vec![(*name).to_owned(), (*what).to_owned()]));
            columns.render(width())
        };
        let text = match self.what {
            What::Workloads => described(&WORKLOADS),
            What::Mitigations => {
                format!(
                    "{}\nCombine them by `+`: `cpupri-split+rto-count=llc`. `=bytes` is one byte per CPU, written by a plain store; `=bytes:llc` puts the bytes of each LLC on lines of their own.\n",
                    described(&CATALOGUE)
                )
            }
            What::Objects => described(&LAYOUTS),
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
