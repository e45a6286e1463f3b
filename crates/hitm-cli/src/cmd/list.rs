//! `hitm list`.

use clap::{Args, ValueEnum};
use hitm_report::columns::{Align, Columns};
use hitm_sched::mitigation::{CATALOGUE, LAYOUTS};

use crate::failure::Failure;
use crate::print;
use crate::terminal::{fitted, width};

/// Show what there is.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hitm list machines\n  hitm list mitigations")]
pub(crate) struct List {
    /// What to list.
    #[arg(value_enum)]
    what: What,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// What can be run.
    Workloads,
    /// The machines that are built in.
    Machines,
    /// Layouts, scopes and policies, and how to join them.
    Mitigations,
    /// Objects whose layout can be shown.
    Objects,
}

const WORKLOADS: [(&str, &str); 11] = [
    ("ffmpeg", "60 transcoders on 8 CPUs each, every thread at FIFO 99: the first of the seeds' workloads"),
    ("cyclic", "a task a CPU at FIFO 99 that sleeps for 100 us and notes how late it woke: the second"),
    (
        "pi_stress",
        "groups of three tasks on one CPU each that provoke priority inversions: the third of the seeds' workloads",
    ),
    ("cid-bursts", "threads that increment 16 KiB by CPU or by concurrency id, one after the other"),
    ("cid-storms", "threads that begin and end, wake elsewhere, or are moved, all the time: what concurrency ids cost"),
    ("hackbench", "groups of fair tasks in which every sender sends to every receiver, over pipes or sockets"),
    ("tbench", "clients that ask servers for a file server's operations, over loopback: fair tasks"),
    ("netperf", "datagrams one way, or a byte there and back, over loopback: fair tasks"),
    ("schbench", "message threads that wake their workers all at once, and how late these run: fair tasks"),
    ("context1", "pairs of tasks of one group that pass a number back and forth over pipes: fair tasks"),
    ("probe", "what one shared word, counter or bitmap costs: ping-pong, counter, mask, reads"),
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
                    "{}\nJoin them by `+`: `cpupri-split+rto-count=llc`. `=bytes` is a byte a CPU, written with a plain store; `=bytes:llc`\nputs the bytes of each LLC on lines of their own.\n",
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
