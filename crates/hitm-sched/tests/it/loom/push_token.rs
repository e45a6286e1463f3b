//! The push token: requests against the current chain, and the flags of the work. The numbers are
//! those of the invariants in `src/linux/push_token.rs`.
//!
//! The threads are CPUs. Where the scheduler sends an interrupt, the thread continues as the target
//! CPU.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hitm_loom::{Loom, LoomPlain, Model, require, require_of, thread};
use hitm_memory::{AtomicWord, Form, Memory, PlainWord};
use hitm_sched::internals::RootDomainConfig;
use hitm_topology::{CpuId, Topology};

use super::overload::{BYTES, CORE, Domain, domain, topology};

/// A root domain, and a record of its chains.
struct Chains {
    domain: Arc<Domain>,
    /// Written by every CPU that the token visits. Two unordered visits are a race.
    visit: LoomPlain<u32>,
    /// The visited CPUs. It is not a word of the checker: a model runs on one thread of the
    /// operating system.
    visited: AtomicU64,
    /// 1 when an idle CPU could take the waiting task.
    idles: <Loom as Memory>::Atomic<u32>,
    /// Whether a visited CPU has seen that. It is not a word of the checker.
    served: AtomicBool,
    cpus: i32,
}

/// The treatment of push requests.
#[derive(Clone, Copy, PartialEq)]
enum Requests {
    /// As published.
    Published,
    Kept,
}

/// Invariant 2 and its consequences.
const AT_REST: &str = "push token 2: with no chain under way, nothing is left of one";

/// Invariant 4.
const FREE: &str = "push token 4: the token's holder finds the work free to claim";

/// The forms of the bits.
const FORMS: [Form; 3] = [Form::WHOLE, CORE, BYTES];

impl Chains {
    fn new(topology: &Topology, form: Form, requests: Requests) -> Arc<Self> {
        let keeps_requests = requests == Requests::Kept;
        Arc::new(Self {
            domain: Arc::new(Domain::new(
                topology,
                RootDomainConfig { rto_mask: form, keeps_requests, ..RootDomainConfig::default() },
            )),
            visit: LoomPlain::new(0),
            visited: AtomicU64::new(0),
            idles: AtomicWord::new(0),
            served: AtomicBool::new(false),
            cpus: topology.cpus() as i32,
        })
    }

    /// Pulls on `here`: requests a push, and carries the token if this starts a chain. Returns
    /// whether it does.
    fn pull(&self, here: u32) -> bool {
        let first = self.domain.request_push(CpuId(here));
        self.carry(first);
        first.is_some()
    }

    /// Carries the token from `next` onward, as `run_push_work` does.
    fn carry(&self, mut next: Option<CpuId>) {
        while let Some(cpu) = next {
            require_of(FREE, self.domain.claim_push_work(cpu), "it finds the work claimed");
            self.domain.begin_push_work();
            self.visit.set(self.visit.get() + 1);
            // Relaxed: not a word of the checker.
            self.visited.fetch_or(1 << cpu.0, Ordering::Relaxed);
            // Relaxed: the idle CPU sends its request after this store.
            if self.idles.load(Ordering::Relaxed) != 0 {
                // Relaxed: not a word of the checker.
                self.served.store(true, Ordering::Relaxed);
            }
            next = self.domain.continue_push(cpu);
            self.domain.end_push_work();
        }
    }

    fn has_visited(&self, cpu: u32) -> bool {
        // Relaxed: not a word of the checker.
        self.visited.load(Ordering::Relaxed) & 1 << cpu != 0
    }

    /// Returns whether all requests were accounted for. Call it in a quiescent state.
    fn has_accounted(&self) -> bool {
        let words = self.domain.words();
        // Relaxed: the state is quiescent.
        words.rto_loop.peek() == words.rto_loop_next.load(Ordering::Relaxed)
    }

    /// Requires in a quiescent state that no chain has left anything behind.
    fn require_at_rest(&self) {
        let words = self.domain.words();
        require_of(AT_REST, !self.domain.push_chain_active(), "a scan is under way");
        // Relaxed: the state is quiescent.
        let flags = words.push_work_flags.load(Ordering::Relaxed);
        require_of(AT_REST, flags == 0, format_args!("the work's flags are {flags}"));
        // Relaxed: as above.
        let references = words.refcount.load(Ordering::Relaxed);
        require_of(AT_REST, references == self.cpus, format_args!("there are {references} references"));
    }
}

/// The program of a thread. Its argument is the CPU to which the set-up sent the work, if it did.
type Role = fn(&Chains, Option<CpuId>);

/// Returns a model of chains. After `setup`, `other` runs on its own thread beside `own`. In the
/// quiescent state `verdict` runs.
fn model(
    property: &'static str,
    (form, requests): (Form, Requests),
    setup: fn(&Chains) -> Option<CpuId>,
    [other, own]: [Role; 2],
    verdict: impl Fn(&Chains) + Send + Sync + 'static,
) -> Model {
    let topology = topology();
    Model::new(property, move || {
        let chains = Chains::new(&topology, form, requests);
        let first = setup(&chains);
        let others = chains.clone();
        let other = thread::spawn(move || other(&others, first));
        own(&chains, first);
        other.join().expect("threads return");
        chains.require_at_rest();
        verdict(&chains);
    })
}

/// CPUs 0 and 1 pull from CPU 2.
fn two_pull_from_one(property: &'static str) -> Model {
    let setup = |chains: &Chains| {
        chains.domain.set_overload(CpuId(2));
        None
    };
    two_pull(property, Form::WHOLE, setup)
}

fn two_pull(property: &'static str, form: Form, setup: fn(&Chains) -> Option<CpuId>) -> Model {
    let roles: [Role; 2] = [
        |chains, _| {
            chains.pull(0);
        },
        |chains, _| {
            chains.pull(1);
        },
    ];
    model(property, (form, Requests::Published), setup, roles, |_| ())
}

/// Invariant 1.
pub(crate) fn one_chain() -> Model {
    two_pull_from_one("push token 1: at most one chain is under way")
}

/// Invariant 2.
pub(crate) fn nothing_left() -> Model {
    two_pull_from_one(AT_REST)
}

/// Invariant 4.
pub(crate) fn free_to_claim() -> Model {
    two_pull_from_one(FREE)
}

#[test]
fn at_most_one_chain_is_under_way() {
    one_chain().check();
    for form in FORMS {
        let setup = |chains: &Chains| {
            chains.domain.set_overload(CpuId(2));
            chains.domain.set_overload(CpuId(3));
            None
        };
        two_pull("push token 1: at most one chain is under way, of two CPUs", form, setup).preemptions(3).check();
    }
}

const ACCOUNTED: &str = "push token 3: a scan that accounts for a request sees the CPUs that it is for";

/// Invariant 3: CPU 0 is overloaded, and CPU 1 knows it. CPU 1 requests a push while CPU 3 does.
fn meets_a_starter(form: Form, requests: Requests, verdict: impl Fn(&Chains) + Send + Sync + 'static) -> Model {
    let roles: [Role; 2] = [
        |chains, _| {
            chains.domain.set_overload(CpuId(0));
            chains.pull(1);
        },
        |chains, _| {
            chains.pull(3);
        },
    ];
    model(ACCOUNTED, (form, requests), |_| None, roles, verdict)
}

fn require_served(chains: &Chains) {
    require(!chains.has_accounted() || chains.has_visited(0), "a request is accounted for and forgotten");
}

pub(crate) fn a_request_meets_a_starter() -> Model {
    meets_a_starter(Form::WHOLE, Requests::Published, require_served)
}

/// Invariant 3 is transitive: CPU 1 knows of CPU 0 only from its advertisement.
pub(crate) fn a_request_for_another() -> Model {
    let topology = topology();
    let model = Model::new(ACCOUNTED, move || {
        let chains = Chains::new(&topology, Form::WHOLE, Requests::Published);
        let overloaded = chains.clone();
        let overloaded = thread::spawn(move || overloaded.domain.set_overload(CpuId(0)));
        let puller = chains.clone();
        let puller = thread::spawn(move || {
            let pulls = puller.domain.overload_elsewhere(CpuId(1));
            if pulls {
                puller.pull(1);
            }
            pulls
        });
        chains.pull(3);
        overloaded.join().expect("threads return");
        let pulled = puller.join().expect("threads return");
        chains.require_at_rest();
        if pulled {
            require_served(&chains);
        }
    });
    model.preemptions(3)
}

#[test]
#[ignore = "it takes a minute, and ends long after the others: `.ci/run slow` asks for it"]
fn an_accounted_request_is_served() {
    a_request_meets_a_starter().check();
    meets_a_starter(CORE, Requests::Published, require_served).preemptions(3).check();
    a_request_for_another().check();
}

/// A request that meets a chain and no other starter is not lost.
pub(crate) fn a_request_meets_a_chain() -> Model {
    meets_a_chain(Form::WHOLE)
}

fn meets_a_chain(form: Form) -> Model {
    let setup = |chains: &Chains| {
        chains.domain.set_overload(CpuId(2));
        chains.domain.request_push(CpuId(3))
    };
    let roles: [Role; 2] = [
        |chains, first| {
            // The chain's CPU pushes all its tasks.
            chains.domain.clear_overload(CpuId(2));
            chains.carry(first);
        },
        |chains, _| {
            chains.domain.set_overload(CpuId(0));
            chains.pull(1);
        },
    ];
    let property = "push token: no request is lost unless its starter leaves at step 2";
    let model = model(property, (form, Requests::Published), setup, roles, |chains| {
        require(chains.has_accounted(), "a request is not accounted for");
        require(chains.has_visited(0), "a request is lost");
    });
    model.preemptions(3)
}

#[test]
fn a_request_that_meets_a_chain_is_served() {
    for form in FORMS {
        meets_a_chain(form).check();
    }
}

/// Returns the outcomes of a request that meets a starter: whether it was accounted for, and
/// whether its CPU was visited.
fn outcomes_of_a_start(requests: Requests) -> Vec<(bool, bool)> {
    outcomes(|record| {
        meets_a_starter(Form::WHOLE, requests, move |chains| record((chains.has_accounted(), chains.has_visited(0))))
    })
}

/// Returns the outcomes of a request of CPU 1, which becomes idle, that meets a chain on CPU 2,
/// whose tasks keep waiting: whether it was accounted for, and whether CPU 2 was visited
/// afterwards.
fn outcomes_of_an_end(requests: Requests) -> Vec<(bool, bool)> {
    let setup = |chains: &Chains| {
        chains.domain.set_overload(CpuId(2));
        chains.domain.request_push(CpuId(3))
    };
    let roles: [Role; 2] = [
        |chains, first| chains.carry(first),
        |chains, _| {
            // Relaxed: the request publishes it.
            chains.idles.store(1, Ordering::Relaxed);
            chains.pull(1);
        },
    ];
    outcomes(|record| {
        model("push token: requests kept", (Form::WHOLE, requests), setup, roles, move |chains| {
            // Relaxed: not a word of the checker.
            record((chains.has_accounted(), chains.served.load(Ordering::Relaxed)));
        })
    })
}

/// Returns the outcomes of all executions of a model.
fn outcomes(model: impl FnOnce(Box<dyn Fn((bool, bool)) + Send + Sync>) -> Model) -> Vec<(bool, bool)> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let record = outcomes.clone();
    model(Box::new(move |outcome| _ = record.lock().expect("not poisoned").insert(outcome))).preemptions(3).check();
    let outcomes = outcomes.lock().expect("not poisoned");
    outcomes.iter().copied().collect()
}

/// The lost requests that the module describes do occur.
#[test]
fn published_requests_are_lost() {
    // Not accounted for: either lost, or served because its own starter had found the CPU before.
    assert_eq!(outcomes_of_a_start(Requests::Published), [(false, false), (false, true), (true, true)]);
    // Accounted for by a scan that skips the CPU.
    assert_eq!(outcomes_of_an_end(Requests::Published), [(true, false), (true, true)]);
}

#[test]
fn kept_requests_are_served() {
    for requests in [outcomes_of_a_start, outcomes_of_an_end] {
        let outcomes = requests(Requests::Kept);
        assert!(outcomes.iter().all(|&(_, served)| served), "{outcomes:?}");
    }
}

/// Invariant 5: two CPUs claim the work, and run it if they may.
pub(crate) fn two_claim() -> Model {
    let topology = topology();
    Model::new("push token 5: a CPU that finds the work claimed is served by a later run", move || {
        let domain = domain(&topology, Form::WHOLE, Form::WHOLE);
        let messages: Arc<[<Loom as Memory>::Atomic<u32>; 2]> = Arc::new(std::array::from_fn(|_| AtomicWord::new(0)));
        let seen = Arc::new(AtomicU64::new(0));
        let claim = |index: usize| {
            let (domain, messages, seen) = (domain.clone(), messages.clone(), seen.clone());
            move || {
                // Relaxed: published by the claim.
                messages[index].store(1, Ordering::Relaxed);
                if domain.claim_push_work(CpuId(index as u32)) {
                    domain.begin_push_work();
                    for (index, message) in messages.iter().enumerate() {
                        // Relaxed: sees what the claims before the beginning have published.
                        seen.fetch_or(u64::from(message.load(Ordering::Relaxed)) << index, Ordering::Relaxed);
                    }
                    domain.end_push_work();
                }
            }
        };
        let other = thread::spawn(claim(0));
        claim(1)();
        other.join().expect("threads return");
        // Relaxed: not a word of the checker.
        let seen = seen.load(Ordering::Relaxed);
        require(seen == 0b11, format_args!("of the two claims, runs have seen {seen:#b}"));
    })
}

#[test]
fn no_claim_is_lost() {
    two_claim().check();
}
