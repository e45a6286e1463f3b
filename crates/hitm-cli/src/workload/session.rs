//! An option: all tasks of a workload in one group, as those of a session or a service are.

use clap::Args;
use hitm_sched::Mitigation;

/// The group of all tasks.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SessionArgs {
    /// Nesting of the tasks' group: 0 for no group, 1 for a group, 2 for a group in a group.
    ///
    /// In groups, wakeups search for an idle CPU as in Linux v6.4, the published version, unless a
    /// mitigation replaces the search.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16), allow_negative_numbers = true)]
    depth: u32,
}

impl SessionArgs {
    pub(crate) fn depth(self) -> usize {
        self.depth as usize
    }

    /// Returns the mitigation that runs where `mitigation` was asked for.
    pub(crate) fn adapt(self, mitigation: Mitigation) -> Mitigation {
        if self.depth == 0 { mitigation } else { mitigation.with_search_of_v6_4() }
    }
}
