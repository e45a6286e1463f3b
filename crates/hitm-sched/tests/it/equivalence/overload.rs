//! The overload's words and the push token against a set of CPUs and three numbers.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use hitm_machine::Random;
use hitm_memory::{Form, Native, PlainWord};
use hitm_sched::internals::{BASELINE, REORDERED, REORDERED_COUNTS, RootDomain, RootDomainConfig};
use hitm_topology::{CpuId, Topology};

use super::{TOPOLOGIES, any_cpu};
use crate::TARGET;

/// One call, the same for every variant.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Toggles whether the CPU is overloaded.
    Toggle(CpuId),
    Elsewhere(CpuId),
    RequestPush(CpuId),
    /// Continues the push chain, if one is under way.
    ContinuePush,
}

/// The plain model.
#[derive(Default)]
struct Model {
    overloaded: BTreeSet<CpuId>,
    requests: u32,
    accounted: u32,
    /// The CPU that has the token.
    token: Option<CpuId>,
}

impl Model {
    /// Returns the next overloaded CPU other than `here`, after the token's CPU. It starts again if
    /// there are new requests.
    fn advance(&mut self, here: CpuId) -> Option<CpuId> {
        loop {
            let first = self.token.map_or(CpuId(0), |cpu| CpuId(cpu.0 + 1));
            self.token = self.overloaded.range(first..).copied().find(|&cpu| cpu != here);
            if self.token.is_some() || self.accounted == self.requests {
                return self.token;
            }
            self.accounted = self.requests;
        }
    }
}

fn history(seed: u64, cpus: u32, calls: usize) -> Vec<Call> {
    let random = &mut Random::new(seed, 4);
    let toggles = 1 + random.below(8);
    let mut call = || match random.below(4 + toggles) {
        0 => Call::Elsewhere(any_cpu(random, cpus)),
        1 => Call::RequestPush(any_cpu(random, cpus)),
        2 | 3 => Call::ContinuePush,
        _ => Call::Toggle(any_cpu(random, cpus)),
    };
    (0..calls).map(|_| call()).collect()
}

/// Runs `calls` on one variant beside the model.
fn check(topology: &Topology, config: RootDomainConfig, calls: &[Call]) {
    // One level of cpupri, since no code here uses it.
    let domain = RootDomain::<Native>::with_levels(topology, config, 1);
    let mut model = Model::default();
    for (index, &call) in calls.iter().enumerate() {
        let context = || format!("call {index}, {call:?}, {config:?}");
        match call {
            Call::Toggle(cpu) if model.overloaded.remove(&cpu) => domain.clear_overload(cpu),
            Call::Toggle(cpu) => {
                model.overloaded.insert(cpu);
                domain.set_overload(cpu);
            }
            Call::Elsewhere(here) => {
                let expect = model.overloaded.iter().any(|&cpu| cpu != here);
                assert_eq!(domain.overload_elsewhere(here), expect, "{}", context());
            }
            Call::RequestPush(here) => {
                model.requests += 1;
                let expect = if model.token.is_none() { model.advance(here) } else { None };
                assert_eq!(domain.request_push(here), expect, "{}", context());
                assert!(expect.is_none_or(|first| domain.claim_push_work(first)), "{}", context());
            }
            Call::ContinuePush => {
                let Some(here) = model.token else { continue };
                domain.begin_push_work();
                let (next, expect) = (domain.continue_push(here), model.advance(here));
                domain.end_push_work();
                assert_eq!(next, expect, "{}", context());
                assert!(expect.is_none_or(|next| domain.claim_push_work(next)), "{}", context());
            }
        }
        assert_eq!(domain.overload_bits(), model.overloaded.iter().copied().collect(), "{}", context());
        assert_eq!(domain.overload_count(), model.overloaded.len() as i32, "{}", context());
        let (words, chains) = (domain.words(), i32::from(model.token.is_some()));
        assert_eq!(domain.push_chain_active(), model.token.is_some(), "{}", context());
        assert_eq!(words.rto_loop.peek(), model.accounted, "{}", context());
        // Relaxed: one thread.
        assert_eq!(words.refcount.load(Ordering::Relaxed), topology.cpus() as i32 + chains, "{}", context());
    }
}

#[test]
fn every_form_announces_the_same() {
    crate::seeds::each(TARGET, "equivalence::overload::every_form_announces_the_same", 20, &[], |seed| {
        for topology in TOPOLOGIES.map(|text| hitm_topology::parse(text).expect(text)) {
            let calls = history(seed, topology.cpus() as u32, 100);
            for (rto_count, rto_mask) in Form::all().flat_map(|a| Form::all().map(move |b| (a, b))) {
                for order in [&BASELINE, &REORDERED, &REORDERED_COUNTS] {
                    let split = RootDomainConfig { rto_count, rto_mask, ..RootDomainConfig::default() };
                    check(&topology, RootDomainConfig { order, ..split }, &calls);
                }
            }
        }
    });
}
