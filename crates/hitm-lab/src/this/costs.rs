//! The costs of accesses on this machine, and a simulated machine made of them.
//!
//! | quantity | how it is measured | the number that it sets |
//! |---|---|---|
//! | clock | additions that depend on each other | `clock_ghz`, which only turns time into cycles |
//! | read of the clock | many of them | none; reads take a fiftieth of a probe's time |
//! | load that hits | independent loads of few lines | `load_hit_ns` |
//! | load that hits, after another | a chase through few lines | none |
//! | read-modify-write that hits | additions to a private word | `rmw_hit_ns` |
//! | read from the LLC | a chase through lines that the L2 has lost and the LLC has not | `llc_read_ns` |
//! | read from memory | a chase through a block well beyond the LLC | `memory_local_ns` |
//! | transfer, by distance | ping-pong whose players wait by trying | `same_core_ns`, `same_llc_ns`, ... |
//! | idle transfer | a chase through lines that the other CPU has written | `queued_factor`: the transfer over it |
//! | operations per visit | two CPUs add: transfer over the time between two adds | `follow_up_hits`: those after the first |
//! | interrupt, sending | two idle CPUs wake each other in turn: the time of the call | `interrupt_send_ns` |
//! | interrupt to an idle CPU | the same: from the call to the next one | `interrupt_delivery_ns`: minus call and entry; `idle_exit_ns`: zero, an idle CPU polls for interrupts |
//!
//! **Loads that hit.** The simulated CPU makes one access after the other, so the cost of an access
//! must be the time that it adds to a program. Few loads give the address of the next one, and a
//! processor overlaps the others. The time per load of a chase is shown beside it.
//!
//! A transfer is that of the ping-pong loop, as in every cost table of `hitm-machine`. A number
//! that is not measured here has the value of the nearest family's table.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use hitm_machine::{CostSet, Costs};
use hitm_memory::{NativeWorkers, Span};
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::probe::Waiting;

use super::Sample;
use super::experiments::{Body, Class, blind_adds, classes, hand_off};
use super::interrupts::Wakes;
use super::loops::{self, Ring, Written};
use crate::host::on_threads;
use crate::{Output, Program, mean_nanos, measure};

/// A quantity of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// Its name.
    pub name: String,
    /// The unit.
    pub unit: &'static str,
    /// The measurement; `None` where there cannot be one.
    pub measured: Option<Sample>,
    /// The numbers of the simulated machine that it sets, with their values.
    pub sets: Vec<(String, f64)>,
    /// A remark for the reader.
    pub note: Option<String>,
}

/// Pairs per distance, in turn, so that the quartiles show their differences.
const PAIRS: usize = 5;

/// The largest block, whatever the size of the LLC.
const MOST_BYTES: usize = 512 << 20;
/// The block where the size of the LLC is unknown.
const SOME_BYTES: usize = 256 << 20;

/// Loads per repetition from the LLC and from memory: less than half a millisecond.
const LLC_STEPS: u32 = 16_000;
const MEMORY_STEPS: u32 = 4_000;

/// The method of a quantity.
#[derive(Debug)]
enum Method {
    Clock,
    Look,
    LoadHit,
    LoadAfterLoad,
    RmwHit,
    Llc,
    Memory,
    HandOff(Class),
    Transfer(Class),
    Adds(Class),
    Send([CpuId; 2]),
    Wake([CpuId; 2]),
}

impl Method {
    /// Returns the program, with CPUs that take turns; `None` for a loop of this crate.
    fn program(&self, time: Span) -> Option<(Vec<Vec<CpuId>>, Program)> {
        let pairs = |class: &Class| class.pairs.iter().map(|pair| pair.to_vec()).collect();
        match self {
            Self::HandOff(class) => Some((pairs(class), hand_off(Waiting::Taking))),
            Self::Adds(class) => Some((pairs(class), blind_adds(time))),
            _ => None,
        }
    }

    /// Returns the figure of a program's outcome.
    fn figure(&self, given: &Output) -> f64 {
        match self {
            Self::Adds(_) => mean_nanos(&given.measured) / given.measured.len() as f64,
            _ => given.measured[0].nanos_each(),
        }
    }
}

/// The quantities of a machine, with what their measurement needs.
#[derive(Debug)]
pub(super) struct Bench {
    topology: Arc<Topology>,
    time: Span,
    quantities: Vec<(String, &'static str, Method)>,
    near: Ring,
    llc: Option<Ring>,
    memory: Ring,
    written: Written,
}

/// Returns the sizes in bytes of a CPU's data caches, from L1 on, as Linux lists them.
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
    /// Returns everything that can be measured on `topology`, in loops of `time`.
    pub(super) fn new(topology: &Arc<Topology>, time: Span) -> Self {
        let sizes = cache_sizes(topology.cpu(CpuId(0)).os_index);
        let llc = match sizes[..] {
            // Every second line of a ring is loaded, so the loaded lines are twice the L2's size.
            [.., second, last] if last >= 8 * second => Some(Ring::new(4 * second)),
            _ => None,
        };
        let block = sizes.last().map_or(SOME_BYTES, |last| 8 * last).min(MOST_BYTES);
        let mut bench = Self {
            topology: topology.clone(),
            time,
            quantities: Vec::new(),
            near: Ring::new(4 << 10),
            llc,
            memory: Ring::new(block),
            written: Written::new(),
        };
        bench.add("clock", "GHz", Method::Clock);
        bench.add("look at the clock", "ns", Method::Look);
        bench.add("load that hits", "ns", Method::LoadHit);
        bench.add("load that hits, after another", "ns", Method::LoadAfterLoad);
        bench.add("read-modify-write that hits", "ns", Method::RmwHit);
        if bench.llc.is_some() {
            bench.add("read from the LLC", "ns", Method::Llc);
        }
        bench.add("read from memory", "ns", Method::Memory);
        let classes = classes(topology, PAIRS);
        for class in &classes {
            bench.add(&format!("hand-off, {}", class.name), "ns", Method::HandOff(class.clone()));
            bench.add(&format!("idle transfer, {}", class.name), "ns", Method::Transfer(class.clone()));
        }
        // The structure is measured between the nearest cores.
        let of_cores = classes.iter().find(|class| class.parameter == "same_llc_ns");
        let of_cores = of_cores.or_else(|| classes.iter().find(|class| class.parameter != "same_core_ns"));
        if let Some(class) = of_cores.cloned() {
            bench.add(&format!("between two adds, {}", class.name), "ns", Method::Adds(class));
        }
        if let Some(class) = of_cores.or(classes.first()) {
            bench.add("interrupt, sending", "ns", Method::Send(class.pairs[0]));
            bench.add("interrupt to an idle CPU", "ns", Method::Wake(class.pairs[0]));
        }
        bench
    }

    fn add(&mut self, name: &str, unit: &'static str, method: Method) {
        self.quantities.push((name.to_owned(), unit, method));
    }

    /// Returns the number of quantities.
    pub(super) fn len(&self) -> usize {
        self.quantities.len()
    }

    /// Measures quantity `index` once more, for the `round`th time. Also returns the time for which
    /// the operating system kept it waiting.
    pub(super) fn measure(&mut self, index: usize, round: usize) -> (f64, Span) {
        let Self { topology, time, quantities, near, llc, memory, written } = self;
        let method = &quantities[index].2;
        if let Some((cpus, program)) = method.program(*time) {
            let given = measure(topology, &cpus[round % cpus.len()], &program);
            return (method.figure(&given), given.kept_waiting);
        }
        let workers = NativeWorkers::new(topology.cpus(), false);
        let alone = |body: &mut (dyn FnMut() -> f64 + Send)| {
            let body = Mutex::new(body);
            let run = || body.lock().unwrap_or_else(PoisonError::into_inner)();
            let (nanos, waited) = on_threads(&workers, topology, &[CpuId(0)], |_, _| run());
            (nanos[0], waited)
        };
        match method {
            Method::Clock => alone(&mut loops::clock_ghz),
            Method::Look => alone(&mut loops::look_nanos),
            Method::RmwHit => alone(&mut loops::rmw_nanos),
            Method::LoadHit => alone(&mut || near.load_hits()),
            Method::LoadAfterLoad => alone(&mut || near.chase_hits()),
            Method::Llc => {
                llc.as_mut().map_or((f64::NAN, Span::ZERO), |ring| alone(&mut || ring.chase_again(LLC_STEPS)))
            }
            Method::Memory => alone(&mut || memory.chase(MEMORY_STEPS)),
            Method::Transfer(class) => {
                let pair = class.pairs[round % class.pairs.len()];
                let (nanos, waited) = on_threads(&workers, topology, &pair, |index, _| written.chase(index));
                (nanos[0], waited)
            }
            Method::Send(pair) | Method::Wake(pair) => {
                let wakes = Wakes::new(*pair);
                let is_send = matches!(method, Method::Send(_));
                let run = |index| if is_send { wakes.sending(index) } else { wakes.one_way(index) };
                let (nanos, waited) = on_threads(&workers, topology, pair, |index, _| run(index));
                (nanos[0], waited)
            }
            Method::HandOff(_) | Method::Adds(_) => unreachable!("these are programs"),
        }
    }

    /// Builds the machine from a sample of each quantity.
    pub(super) fn machine(&self, samples: &[Option<Sample>]) -> (Costs, Vec<Quantity>) {
        let mut costs = Costs::of(&self.topology, CostSet::Runtime);
        let family = costs.family.name.clone();
        let structural = self.quantities.iter().find_map(|(.., method)| match method {
            Method::Adds(class) => Some(class.parameter.clone()),
            _ => None,
        });
        let mut known = Known { structural, hand_offs: Vec::new() };
        let mut quantities = Vec::new();
        for ((name, unit, method), &measured) in self.quantities.iter().zip(samples) {
            let mut quantity = Quantity { name: name.clone(), unit, measured, sets: Vec::new(), note: None };
            let numbers = measured.map_or(Vec::new(), |sample| known.numbers(method, sample.median, &costs));
            for (name, value) in numbers {
                match costs.set(&name, value) {
                    Ok(()) => quantity.sets.push((name, value)),
                    Err(refused) => quantity.note = Some(refused.to_string()),
                }
            }
            quantities.push(quantity);
        }
        costs.note = Some(format!("measured here; what was not is that of the family `{family}`"));
        (costs, quantities)
    }

    /// Returns whether one of `quantities` set a number of the machine from the program of `body`.
    pub(super) fn were_set_from(&self, quantities: &[Quantity], body: &Body) -> bool {
        let Body::Probe(cpus, program) = body else { return false };
        let mut set = self.quantities.iter().zip(quantities).filter(|(_, quantity)| !quantity.sets.is_empty());
        set.any(|((_, _, method), _)| {
            let same =
                |(all, own): (Vec<Vec<CpuId>>, Program)| own == program.lasting(Span::ZERO) && all.contains(cpus);
            method.program(Span::ZERO).is_some_and(same)
        })
    }

    /// Returns the quantities that this machine does not have.
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

/// Values that later quantities need of earlier ones.
#[derive(Debug)]
struct Known {
    /// The parameter of the distance at which the structure is measured.
    structural: Option<String>,
    /// Transfer times by parameter.
    hand_offs: Vec<(String, f64)>,
}

impl Known {
    fn hand_off(&self, class: &Class) -> Option<f64> {
        self.hand_offs.iter().find(|(parameter, _)| *parameter == class.parameter).map(|(_, nanos)| *nanos)
    }

    /// Returns the numbers of the machine that follow from a quantity.
    fn numbers(&mut self, method: &Method, median: f64, costs: &Costs) -> Vec<(String, f64)> {
        let number = |name: &str, value: f64| vec![(name.to_owned(), value)];
        match method {
            Method::Look | Method::LoadAfterLoad => Vec::new(),
            Method::Clock => number("clock_ghz", median),
            Method::LoadHit => number("load_hit_ns", median),
            Method::RmwHit => number("rmw_hit_ns", median),
            Method::Llc => number("llc_read_ns", median),
            Method::Memory => number("memory_local_ns", median),
            Method::HandOff(class) => {
                self.hand_offs.push((class.parameter.clone(), median));
                number(&class.parameter, median)
            }
            Method::Transfer(class) => {
                match self.hand_off(class) {
                    // The model has no queued transfer that takes longer than an idle one.
                    Some(hand_off) if self.structural.as_deref() == Some(&class.parameter) => {
                        number("queued_factor", (hand_off / median).min(1.0))
                    }
                    _ => Vec::new(),
                }
            }
            Method::Adds(class) => self.hand_off(class).map_or(Vec::new(), |hand_off| {
                number("follow_up_hits", (hand_off / median - 1.0).round().clamp(0.0, 255.0))
            }),
            Method::Send(_) => number("interrupt_send_ns", median),
            Method::Wake(_) => {
                let paths = &costs.paths;
                let rest = median - paths.interrupt_send.value - paths.interrupt_entry.value;
                [number("interrupt_delivery_ns", rest.max(0.0)), number("idle_exit_ns", 0.0)].concat()
            }
        }
    }
}

#[cfg(test)]
impl Bench {
    /// Returns the figures that this would measure on the simulated machine `setting`: it runs the
    /// programs there, and looks up native loops in the costs.
    pub(super) fn on_simulated(&self, setting: &crate::Setting) -> Vec<Option<Sample>> {
        use hitm_workloads::probe::{LineState, TransferOperation};
        let numbers = setting.costs.parameters();
        let nanos = |program: &Program, cpus: &[CpuId], method: &Method| {
            method.figure(&crate::simulate(setting, cpus, program).expect("no stall"))
        };
        let value = |method: &Method| match method {
            Method::Clock => numbers["clock_ghz"],
            Method::Look | Method::LoadAfterLoad => 1.0,
            Method::LoadHit => numbers["load_hit_ns"],
            Method::RmwHit => numbers["rmw_hit_ns"],
            Method::Llc => numbers["llc_read_ns"],
            Method::Memory => numbers["memory_local_ns"],
            Method::Send(_) => numbers["interrupt_send_ns"],
            Method::Wake(_) => {
                let parts = ["interrupt_send_ns", "interrupt_delivery_ns", "interrupt_entry_ns", "idle_exit_ns"];
                parts.iter().map(|part| numbers[*part]).sum()
            }
            Method::Transfer(class) => {
                let (state, operation) = (LineState::Modified, TransferOperation::Load);
                let program = Program::Transfer { state, operation, rounds: 200, home: None };
                nanos(&program, &class.pairs[0], method)
            }
            Method::HandOff(_) | Method::Adds(_) => {
                let (cpus, program) = method.program(self.time).expect("these are programs");
                nanos(&program, &cpus[0], method)
            }
        };
        self.quantities.iter().map(|(.., method)| Sample::of(&[value(method)])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(machine: &str) -> Bench {
        let topology = hitm_topology::parse(machine).expect("a machine");
        Bench::new(&Arc::new(topology), Span::from_micros(10))
    }

    /// A machine on which each quantity has the value `of`.
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
            "between two adds, same LLC" => Some(10.2),
            "interrupt, sending" => Some(150.0),
            "interrupt to an idle CPU" => Some(400.0),
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
            ("interrupt_send_ns", 150.0),
            // Minus the call, and 10 ns to take it.
            ("interrupt_delivery_ns", 240.0),
            ("idle_exit_ns", 0.0),
        ] {
            assert_eq!(numbers[name], value, "{name}");
        }
        let sets = |name: &str| {
            let found = quantities.iter().find(|quantity| quantity.name == name).expect("there is such a quantity");
            found.sets.clone()
        };
        assert_eq!(sets("hand-off, same LLC"), [("same_llc_ns".to_owned(), 40.0)]);
        assert_eq!(sets("idle transfer, same LLC"), [("queued_factor".to_owned(), 0.8)]);
        assert_eq!(sets("idle transfer, same package, 1 apart"), [], "it is set once");
        assert_eq!(sets("read from memory"), [], "it was not measured");
    }

    #[test]
    fn what_set_a_number_is_found_by_what_was_run() {
        let bench = bench("core:2 pu:1");
        let pair = vec![CpuId(0), CpuId(1)];
        let ping_pong = |waiting| Body::Probe(pair.clone(), hand_off(waiting));
        let adds = Body::Probe(pair.clone(), blind_adds(Span::from_micros(77)));
        let (_, all) = machine(&bench, |_| Some(1.5));
        assert!(bench.were_set_from(&all, &ping_pong(Waiting::Taking)));
        assert!(bench.were_set_from(&all, &adds), "for whatever time");
        assert!(!bench.were_set_from(&all, &ping_pong(Waiting::Reading)));
        let alone = Body::Probe(vec![CpuId(0)], blind_adds(Span::from_micros(77)));
        assert!(!bench.were_set_from(&all, &alone), "other CPUs");
        let (_, without) = machine(&bench, |name| (name != "hand-off, same LLC").then_some(1.5));
        assert!(!bench.were_set_from(&without, &ping_pong(Waiting::Taking)), "it was not measured");
        assert!(!bench.were_set_from(&without, &adds), "without a hand-off it says nothing");
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
