//! The parameters' names.

use super::{Cost, Costs};

/// The costs that are parameters, by name; `shared` or `unique` says how they are borrowed.
macro_rules! named_costs {
    (@ shared $cost:expr) => { &$cost };
    (@ unique $cost:expr) => { &mut $cost };
    ($mode:ident, $family:ident, $structure:ident, $paths:ident) => {{
        let named = [
            ("clock_ghz", named_costs!(@ $mode $family.clock_ghz)),
            ("load_hit_ns", named_costs!(@ $mode $family.load_hit)),
            ("rmw_hit_ns", named_costs!(@ $mode $family.rmw_hit)),
            ("same_core_ns", named_costs!(@ $mode $family.same_core)),
            ("same_llc_ns", named_costs!(@ $mode $family.same_llc)),
            ("other_package_ns", named_costs!(@ $mode $family.other_package)),
            ("upgrade_other_package_factor", named_costs!(@ $mode $family.upgrade_other_package_factor)),
            ("llc_read_ns", named_costs!(@ $mode $family.llc_read)),
            ("memory_local_ns", named_costs!(@ $mode $family.memory_local)),
            ("memory_remote_ns", named_costs!(@ $mode $family.memory_remote)),
            ("idle_exit_ns", named_costs!(@ $mode $family.idle_exit)),
            ("queued_factor", named_costs!(@ $mode $structure.queued_factor)),
            ("follow_up_hits", named_costs!(@ $mode $structure.follow_up_hits)),
            ("invalidation_each_ns", named_costs!(@ $mode $structure.invalidation_each)),
            ("refill_each_ns", named_costs!(@ $mode $structure.refill_each)),
            ("load_window", named_costs!(@ $mode $structure.load_window)),
            ("overlapped_misses", named_costs!(@ $mode $structure.overlapped_misses)),
            ("store_buffer", named_costs!(@ $mode $structure.store_buffer)),
            ("shared_core_factor", named_costs!(@ $mode $structure.shared_core_factor)),
            ("transfer_spread", named_costs!(@ $mode $structure.transfer_spread)),
            ("system_call_ns", named_costs!(@ $mode $paths.system_call)),
            ("switch_ns", named_costs!(@ $mode $paths.switch)),
            ("interrupt_send_ns", named_costs!(@ $mode $paths.interrupt_send)),
            ("interrupt_delivery_ns", named_costs!(@ $mode $paths.interrupt_delivery)),
            ("interrupt_delivery_other_package_ns", named_costs!(@ $mode $paths.interrupt_delivery_other_package)),
            ("interrupt_entry_ns", named_costs!(@ $mode $paths.interrupt_entry)),
            ("idle_notice_ns", named_costs!(@ $mode $paths.idle_notice)),
            ("timer_slack_ns", named_costs!(@ $mode $paths.timer_slack)),
            ("page_fault_ns", named_costs!(@ $mode $paths.page_fault)),
            ("page_copy_ns", named_costs!(@ $mode $paths.page_copy)),
            ("cold_fault_factor", named_costs!(@ $mode $paths.cold_fault_factor)),
        ];
        let optional = [
            ("same_package_remote_home_ns", named_costs!(@ $mode $family.same_package_remote_home).into()),
            ("other_package_far_ns", named_costs!(@ $mode $family.other_package_far).into()),
        ];
        let optional: [(&'static str, Option<_>); 2] = optional;
        let optional = optional.into_iter().filter_map(|(name, cost)| Some((name, cost?)));
        named.into_iter().chain(optional).collect::<Vec<_>>()
    }};
}

impl Costs {
    /// Every number, by name.
    pub(super) fn numbers(&mut self) -> Vec<(String, &mut f64)> {
        let (family, structure, paths) = (&mut self.family, &mut self.structure, &mut self.paths);
        let hops = family.same_package.values.iter_mut().enumerate();
        let hops: Vec<_> = hops.map(|(hops, value)| (format!("same_package_ns_hop_{}", hops + 1), value)).collect();
        let named = named_costs!(unique, family, structure, paths);
        named.into_iter().map(|(name, cost)| (name.to_owned(), &mut cost.value)).chain(hops).collect()
    }

    /// Every number that has a band of its own or could have one, by name.
    pub(super) fn named_costs(&self) -> Vec<(&'static str, &Cost)> {
        let (family, structure, paths) = (&self.family, &self.structure, &self.paths);
        named_costs!(shared, family, structure, paths)
    }
}
