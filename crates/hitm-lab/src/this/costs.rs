//! What an access costs here, and a simulated machine of that.
//!
//! | quantity | how it is measured | which number it sets |
//! |---|---|---|
//! | clock | additions that depend on each other | `clock_ghz`, which only turns time into cycles |
//! | look at the clock | many of them | none; probes take care that looks are a fiftieth of the time |
//! | load that hits | a chase through few lines | `load_hit_ns` |
//! | read-modify-write that hits | additions to an own word | `rmw_hit_ns` |
//! | read from the LLC | a chase through eight times the second-level cache | `llc_read_ns` |
//! | read from memory | a chase through a block well beyond the LLC | `memory_local_ns` |
//! | hand-off, by distance | ping-pong whose players wait by trying | `same_core_ns`, `same_llc_ns`, ... |
//! | idle transfer | a chase through lines that the other CPU has written | `queued_factor`: the hand-off over it |
//! | operations a visit | everybody adds: hand-off over the time between two adds | `follow_up_hits`: those beyond the first |
//!
//! A hand-off is that of the ping-pong loop, as in every cost table of `hitm-machine`. What is not here keeps the value of the
//! nearest family's table.

use std::fs;
use std::sync::Arc;

use hitm_machine::{CostSet, Costs};
use hitm_memory::{NativeWorkers, Span};
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::probe::{Waiting, first_cpus};
use serde::Serialize;

use super::Sample;
use super::experiments::{Class, blind_adds, classes, hand_off};
use super::loops::{self, Ring, Written};
use crate::host::on_threads;
use crate::{mean_nanos, measure};

/// A quantity of this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantity {
    /// What it is.
    pub name: String,
    /// The unit.
    pub unit: &'static str,
    /// What was measured; none where it cannot be.
    pub measured: Option<Sample>,
    /// The number of the simulated machine that was set from it, and to what.
    pub sets: Option<(String, f64)>,
    /// What has to be known of it.
    pub note: Option<String>,
}

/// Pairs of a distance that take turns, so that the quartiles show how different they are.
const PAIRS: usize = 5;

/// A block beyond this is not taken however large the LLC is.
const MOST_BYTES: usize = 512 << 20;
/// A block where nobody says how large the LLC is.
const SOME_BYTES: usize = 256 << 20;

/// Loads of a repetition from the LLC, and from memory: about half a millisecond.
const LLC_STEPS: u32 = 20_000;
const MEMORY_STEPS: u32 = 4_000;

/// How a quantity is measured.
#[derive(Debug)]
enum Means {
    Clock,
    Look,
    LoadHit,
    RmwHit,
    Chase { ring: usize, steps: u32 },
    HandOff(Class),
    Transfer(Class),
    Adds(Vec<CpuId>),
}

/// The quantities of a machine, with what is needed to measure them.
#[derive(Debug)]
pub(super) struct Bench {
    topology: Arc<Topology>,
    time: Span,
    quantities: Vec<(String, &'static str, Means)>,
    rings: Vec<Ring>,
    written: Written,
}

/// The bytes of the data caches of a CPU as Linux has them, by level from the first.
fn cache_sizes(os_index: u32) -> Vec<usize> {
    let path = |index: usize, file: &str| format!("/sys/devices/system/cpu/cpu{os_index}/cache/index{index}/{file}");
    let read = |index, file| fs::read_to_string(path(index, file)).ok();
    let size = |text: &str| {
        let (number, unit) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
        let unit = match unit {
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            _ => return None,
        };
        Some(number.parse::<usize>().ok()? * unit)
    };
    let data = (0..).map_while(|index| Some((read(index, "type")?, read(index, "size")?)));
    data.filter(|(kind, _)| kind.trim() != "Instruction").filter_map(|(_, text)| size(&text)).collect()
}

impl Bench {
    /// Everything that can be measured on `topology`, in loops of `time`.
    pub(super) fn new(topology: &Arc<Topology>, time: Span) -> Self {
        let mut bench = Self {
            topology: topology.clone(),
            time,
            quantities: Vec::new(),
            rings: vec![Ring::new(4 << 10)],
            written: Written::new(),
        };
        bench.add("clock", "GHz", Means::Clock);
        bench.add("look at the clock", "ns", Means::Look);
        bench.add("load that hits", "ns", Means::LoadHit);
        bench.add("read-modify-write that hits", "ns", Means::RmwHit);
        let sizes = cache_sizes(topology.cpu(CpuId(0)).os_index);
        if let [.., second, last] = sizes[..]
            && last >= 4 * second
        {
            // Every second line of it is loaded, so four times the second-level cache.
            let chase = bench.chase(8 * second, LLC_STEPS);
            bench.add("read from the LLC", "ns", chase);
        }
        let block = sizes.last().map_or(SOME_BYTES, |last| 8 * last).min(MOST_BYTES);
        let chase = bench.chase(block, MEMORY_STEPS);
        bench.add("read from memory", "ns", chase);
        for class in classes(topology, PAIRS) {
            let name = class.name.clone();
            bench.add(&format!("hand-off, {name}"), "ns", Means::HandOff(class.clone()));
            bench.add(&format!("idle transfer, {name}"), "ns", Means::Transfer(class));
        }
        if topology.cpus() > 1 {
            let everybody = first_cpus(topology, topology.cpus());
            bench.add("between two adds of all CPUs", "ns", Means::Adds(everybody));
        }
        bench
    }

    fn add(&mut self, name: &str, unit: &'static str, means: Means) {
        self.quantities.push((name.to_owned(), unit, means));
    }

    fn chase(&mut self, bytes: usize, steps: u32) -> Means {
        self.rings.push(Ring::new(bytes));
        Means::Chase { ring: self.rings.len() - 1, steps }
    }

    /// How many quantities there are.
    pub(super) fn len(&self) -> usize {
        self.quantities.len()
    }

    /// What quantity `index` is.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.quantities[index].0
    }

    /// Measures quantity `index` once more, for the `round`th time; and how long the operating system kept it waiting.
    pub(super) fn measure(&mut self, index: usize, round: usize) -> (f64, Span) {
        let Self { topology, time, quantities, rings, written } = self;
        let workers = NativeWorkers::new(topology.cpus(), false);
        let pair = |class: &Class| class.pairs[round % class.pairs.len()];
        let ring = std::sync::Mutex::new(rings);
        let alone = |body: &(dyn Fn() -> f64 + Sync)| {
            let (nanos, waited) = on_threads(&workers, topology, &[CpuId(0)], |_, _| body());
            (nanos[0], waited)
        };
        let with_ring = |index: usize, body: &(dyn Fn(&mut Ring) -> f64 + Sync)| {
            alone(&|| body(&mut ring.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[index]))
        };
        match &quantities[index].2 {
            Means::Clock => alone(&loops::clock_ghz),
            Means::Look => alone(&loops::look_nanos),
            Means::RmwHit => alone(&loops::rmw_nanos),
            Means::LoadHit => with_ring(0, &Ring::chase_hits),
            Means::Chase { ring, steps } => with_ring(*ring, &|ring| ring.chase(*steps)),
            Means::HandOff(class) => {
                let given = measure(topology, &pair(class), &hand_off(Waiting::Taking));
                (given.measured[0].nanos_each(), given.kept_waiting)
            }
            Means::Transfer(class) => {
                let (nanos, waited) = on_threads(&workers, topology, &pair(class), |index, _| written.chase(index));
                (nanos[0], waited)
            }
            Means::Adds(everybody) => {
                let given = measure(topology, everybody, &blind_adds(*time));
                (mean_nanos(&given.measured) / everybody.len() as f64, given.kept_waiting)
            }
        }
    }

    /// The machine that was measured, given a sample of each quantity.
    pub(super) fn machine(&self, samples: &[Option<Sample>]) -> (Costs, Vec<Quantity>) {
        let mut costs = Costs::of(&self.topology, CostSet::Runtime);
        let family = costs.family.name.clone();
        // Two CPUs of an LLC domain where there are such, else the nearest two: the hand-off, and the idle transfer.
        let mut nearest: Option<(f64, bool)> = None;
        let mut quantities = Vec::new();
        for ((name, unit, means), &measured) in self.quantities.iter().zip(samples) {
            let mut note = None;
            let mut set = |name: &str, value: f64| match costs.set(name, value) {
                Ok(()) => Some((name.to_owned(), value)),
                Err(message) => {
                    note = Some(message);
                    None
                }
            };
            let sets = measured.and_then(|sample| match means {
                Means::Look => None,
                Means::Clock => set("clock_ghz", sample.median),
                Means::LoadHit => set("load_hit_ns", sample.median),
                Means::RmwHit => set("rmw_hit_ns", sample.median),
                Means::Chase { .. } if name == "read from memory" => set("memory_local_ns", sample.median),
                Means::Chase { .. } => set("llc_read_ns", sample.median),
                Means::HandOff(class) => {
                    let is_in_llc = class.parameter == "same_llc_ns";
                    if is_in_llc || class.parameter != "same_core_ns" && nearest.is_none() {
                        nearest = Some((sample.median, true));
                    }
                    set(&class.parameter, sample.median)
                }
                Means::Transfer(class) if class.parameter == "same_core_ns" => None,
                Means::Transfer(_) => {
                    let (hand_off, first) = nearest?;
                    nearest = Some((hand_off, false));
                    // A queued hand-off that takes longer than an idle one: the model knows none.
                    first.then(|| set("queued_factor", (hand_off / sample.median).min(1.0)))?
                }
                Means::Adds(_) => {
                    let visit = nearest?.0 / sample.median;
                    set("follow_up_hits", (visit - 1.0).round().clamp(0.0, 255.0))
                }
            });
            quantities.push(Quantity { name: name.clone(), unit, measured, sets, note });
        }
        costs.note = Some(format!("measured here; what was not is that of the family `{family}`"));
        (costs, quantities)
    }

    /// What this machine has not, so that nothing was measured of it.
    pub(super) fn not_measured(&self) -> Vec<String> {
        let topology = &self.topology;
        let mut missing = Vec::new();
        if topology.cpus() == 1 {
            missing.push("hand-offs, and whatever needs two CPUs: there is one".to_owned());
        }
        if !self.quantities.iter().any(|(name, ..)| name == "read from the LLC") {
            missing.push(
                "reads from the LLC: nobody says how large it is, or it is not much larger than what is before it"
                    .to_owned(),
            );
        }
        if topology.parts(Scope::Node) > 1 {
            missing.push("homes of lines and memory of other nodes: memory is where it is first touched".to_owned());
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(machine: &str) -> Bench {
        let topology = hitm_topology::parse(machine).expect("a machine");
        Bench::new(&Arc::new(topology), Span::from_micros(10))
    }

    /// A machine on which each quantity is as `of` says.
    fn machine(bench: &Bench, of: impl Fn(&str) -> Option<f64>) -> (Costs, Vec<Quantity>) {
        let samples: Vec<Option<Sample>> = bench.quantities.iter().map(|(name, ..)| Sample::of(&[of(name)?])).collect();
        bench.machine(&samples)
    }

    #[test]
    fn a_machine_has_the_numbers_that_were_measured() {
        let bench = bench("pack:2 l3:2 core:2 pu:2");
        let (costs, quantities) = machine(&bench, |name| match name {
            "clock" => Some(3.0),
            "load that hits" => Some(1.25),
            "read-modify-write that hits" => Some(5.0),
            "hand-off, same core" => Some(9.0),
            "hand-off, same LLC" => Some(40.0),
            "hand-off, same package, 1 apart" => Some(90.0),
            "hand-off, other package" => Some(200.0),
            "idle transfer, same core" => Some(1.0),
            "idle transfer, same LLC" => Some(50.0),
            "idle transfer, same package, 1 apart" => Some(95.0),
            "between two adds of all CPUs" => Some(10.2),
            _ => None,
        });
        let numbers = costs.parameters();
        for (name, value) in [
            ("clock_ghz", 3.0),
            ("load_hit_ns", 1.25),
            ("rmw_hit_ns", 5.0),
            ("same_core_ns", 9.0),
            ("same_llc_ns", 40.0),
            ("same_package_ns_hop_1", 90.0),
            ("other_package_ns", 200.0),
            ("queued_factor", 0.8),
            ("follow_up_hits", 3.0),
        ] {
            assert_eq!(numbers[name], value, "{name}");
        }
        let set =
            |name: &str| quantities.iter().find(|quantity| quantity.name == name).and_then(|found| found.sets.clone());
        assert_eq!(set("hand-off, same LLC"), Some(("same_llc_ns".to_owned(), 40.0)));
        assert_eq!(set("idle transfer, same LLC"), Some(("queued_factor".to_owned(), 0.8)));
        assert_eq!(set("idle transfer, same package, 1 apart"), None, "it is set once");
        assert_eq!(set("read from memory"), None, "it was not measured");
    }

    #[test]
    fn a_number_that_the_model_cannot_have_is_left_alone() {
        let bench = bench("core:2 pu:1");
        let (costs, quantities) = machine(&bench, |name| (name == "clock").then_some(1e9));
        assert!(costs.parameters()["clock_ghz"] < 100.0);
        assert!(quantities[0].note.as_deref().is_some_and(|note| note.contains("clock_ghz")), "{quantities:?}");
    }

    #[test]
    fn of_one_cpu_no_hand_off_is_measured() {
        let bench = bench("core:1 pu:1");
        assert!(bench.quantities.iter().all(|(name, ..)| !name.starts_with("hand-off")));
        assert!(bench.not_measured()[0].contains("there is one"));
    }
}
