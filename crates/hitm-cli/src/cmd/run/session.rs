//! Whether the tasks of a workload are of one group, as those of a session or a service are.

use clap::Args;
use hitm_sched::mitigation::Mitigation;

/// The group of all tasks.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SessionArgs {
    /// How deep the group of all tasks is: 0 for none, 1 for a group, 2 for a group in a group.
    ///
    /// In groups fair tasks find an idle CPU as in v6.4 of Linux, of which was published, unless a mitigation says otherwise.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16), allow_negative_numbers = true)]
    depth: u32,
}

impl SessionArgs {
    pub(crate) fn depth(self) -> usize {
        self.depth as usize
    }

    /// A mitigation as it is run.
    pub(crate) fn adapt(self, mitigation: Mitigation) -> Mitigation {
        if self.depth == 0 { mitigation } else { mitigation.with_search_of_v6_4() }
    }
}
