//! Published experiments on simulated machines: the published figure, the model's, and whether they
//! agree.
//!
//! | experiments | file |
//! |---|---|
//! | V1, ping-pong by distance | `ping_pong.rs` |
//! | V2, V6, V11 to V13, increments and their curves | `increments.rs` |
//! | V3, V4, one access by state and distance | `states.rs` |
//! | V5, one writer and 79 readers | `readers.rs` |
//! | V7, locks | `locks.rs` |
//! | V14, a message back and forth | `pipe.rs` |
//! | V15, independence of the host | `sanity.rs` |
//! | HITMs, local and remote ones of the root domain | `remote.rs` |
//! | scaling, six loops on 448 CPUs | `scaling.rs` |
//!
//! A number of the model names the published rows that set it (`rows` in `hitm-machine/costs`). A
//! finding of such a name is a consistency check and never counts as a pass.

mod bench;
mod finding;
mod increments;
mod locks;
mod misses;
mod ping_pong;
mod pipe;
mod readers;
mod remote;
mod sanity;
mod scaling;
mod score;
mod states;

use hitm_machine::{Arbitration, Stalled};

pub use bench::Bench;
pub use finding::{Criterion, Finding, Verdict};
pub use misses::lacks;
pub use score::{Score, recorded};

/// A published experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its number among the validation targets.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The policy that machines of its time follow.
    pub fits: Arbitration,
    /// Whether it belongs to the usual ones; the others are run by name only.
    pub is_usual: bool,
    run: fn(&Bench) -> Result<Vec<Finding>, Stalled>,
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// When a machine stalls.
    pub fn run(&self, bench: &Bench) -> Result<Vec<Finding>, Stalled> {
        (self.run)(bench)
    }
}

const fn experiment(
    id: &'static str,
    title: &'static str,
    run: fn(&Bench) -> Result<Vec<Finding>, Stalled>,
) -> Experiment {
    Experiment { id, title, fits: Arbitration::LocalFirst, is_usual: true, run }
}

/// An experiment on machines of 2010, whose curves follow the order of arrival.
const fn of_2010(
    id: &'static str,
    title: &'static str,
    run: fn(&Bench) -> Result<Vec<Finding>, Stalled>,
) -> Experiment {
    Experiment { id, title, fits: Arbitration::Fifo, is_usual: true, run }
}

/// An experiment that is run by name only.
const fn by_name(experiment: Experiment) -> Experiment {
    Experiment { is_usual: false, ..experiment }
}

/// Every experiment, by number; at the end those that the structure was chosen by, and those that
/// are run by name only.
pub static EXPERIMENTS: [Experiment; 18] = [
    experiment("V1", "hand-off between two CPUs, by distance", ping_pong::classes),
    experiment("V1", "a remote home costs what another package costs", ping_pong::remote_home),
    experiment("V2", "reading before writing", increments::look_before),
    of_2010("V3", "one access by state, Westmere-EX", states::xeon),
    of_2010("V3", "one access by state, Magny-Cours", states::opteron),
    of_2010("V4", "taking a line from many sharers", states::fan_out),
    experiment("V5", "one writer, 79 readers", readers::distribution),
    experiment("V6", "load and compare-exchange over a blind add", increments::retried),
    of_2010("V7", "increments with a pause", increments::with_pause),
    of_2010("V7", "locks", locks::rates),
    experiment("V11", "increments that are not atomic", increments::not_atomic),
    experiment("V12", "a word that nobody writes", increments::read_only),
    experiment("V13", "adds on an AMD of a third party", increments::third_party),
    experiment("V14", "a message to and fro", pipe::across),
    experiment("V15", "the same whatever the host does", sanity::same_figures),
    experiment("curves", "adds by 1 to 420 CPUs", increments::blind_adds),
    by_name(Experiment {
        fits: Arbitration::Fifo,
        ..experiment("HITMs", "local and remote HITMs of the root domain", remote::shares)
    }),
    by_name(experiment("scaling", "six loops by 1 to 420 threads", scaling::loops)),
];
