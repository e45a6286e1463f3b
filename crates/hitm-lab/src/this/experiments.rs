//! The experiments that run on both hosts, and their figures. None of them set a number of the
//! simulated machine, apart from those that say so.

use hitm_machine::{CostSet, Costs, Distance, Latencies};
use hitm_memory::Span;
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::probe::{
    CountBy, CounterOperation, LockKind, MaskForm, Roles, RwLockKind, Search, Waiting, WriteKind, first_cpus,
};

use super::runtime::Exercise;
use super::tally::TRIES;
use crate::{Output, Program, mean_nanos};

/// Round trips of a ping-pong.
const ROUNDS: u64 = 2_000;

/// Rounds of the writer that readers wait for.
const NEWS: u32 = 40;
/// The writer's work between two rounds. It is many times as long as one yield of a waiting thread,
/// which follows a hundred reads. Otherwise most writes would come during a yield, or none.
const GAP: Span = Span::from_micros(20);

/// The program of an experiment.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A probe on these CPUs.
    Probe(Vec<CpuId>, Program),
    /// Tasks of the runtime on all CPUs.
    Tasks(Exercise),
}

impl Body {
    /// Returns the time for which the operating system may keep its threads waiting before a
    /// repetition is made again.
    pub(super) fn tolerated_wait(&self, topology: &Topology) -> Span {
        match self {
            Self::Probe(..) => Span::ZERO,
            Self::Tasks(exercise) => exercise.tolerated_wait(topology),
        }
    }

    /// Returns the largest number of tries of a repetition.
    pub(super) fn tries(&self) -> usize {
        match self {
            Self::Probe(..) => TRIES,
            Self::Tasks(exercise) => exercise.tries(),
        }
    }
}

/// A figure of a probe's outcome.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// Nanoseconds per operation of the first participants: their number.
    First(usize),
    /// Nanoseconds per operation of the participants after the first ones: the number of those.
    After(usize),
    /// The median of the delays of single participants, in nanoseconds.
    MedianDelay,
}

impl Figure {
    pub(super) fn of(self, given: &Output) -> f64 {
        match self {
            Self::First(count) => mean_nanos(&given.measured[..count]),
            Self::After(count) => mean_nanos(&given.measured[count..]),
            Self::MedianDelay => {
                let mut nanos: Vec<f64> = given.delays.iter().map(|(_, delay)| delay.as_nanos_f64()).collect();
                nanos.sort_by(f64::total_cmp);
                nanos.get(nanos.len() / 2).copied().unwrap_or(f64::NAN)
            }
        }
    }
}

/// A program, and the rows that come of it.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    pub(super) body: Body,
    /// Name and figure. An exercise has one figure, which it returns itself.
    pub(super) rows: Vec<(String, Figure)>,
}

/// Returns the distances that the machine has: for each, up to `most` pairs of CPUs, and the
/// parameter of the cost table for a transfer.
pub(super) fn classes(topology: &Topology, most: usize) -> Vec<Class> {
    let costs = Costs::of(topology, CostSet::Runtime);
    let latencies = Latencies::new(topology, &costs);
    let position = |cpu: CpuId| topology.llc_position_in_package(topology.cpu(cpu).llc);
    let mut classes: Vec<Class> = Vec::new();
    for one in topology.cpu_ids() {
        for other in topology.cpu_ids().filter(|&other| other > one) {
            let (name, parameter) = match latencies.distance_of_cpus(one, other) {
                Distance::SameCore => ("same core".to_owned(), "same_core_ns".to_owned()),
                Distance::SameLlc => ("same LLC".to_owned(), "same_llc_ns".to_owned()),
                Distance::SamePackage => {
                    // The table's last value applies to all farther distances.
                    let known = costs.family.same_package.values.len();
                    let hops = (position(one).abs_diff(position(other)) as usize).min(known);
                    (format!("same package, {hops} apart"), format!("same_package_ns_hop_{hops}"))
                }
                _ => ("other package".to_owned(), "other_package_ns".to_owned()),
            };
            match classes.iter_mut().find(|class| class.parameter == parameter) {
                Some(class) if class.pairs.len() < most => class.pairs.push([one, other]),
                Some(_) => {}
                None => classes.push(Class { name, parameter, pairs: vec![[one, other]] }),
            }
        }
    }
    classes
}

/// CPUs that are equally far from each other.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// The distance, in words.
    pub(super) name: String,
    /// The parameter of the cost table.
    pub(super) parameter: String,
    pub(super) pairs: Vec<[CpuId; 2]>,
}

/// The loop of the measuring tools, which sets transfer times.
pub(super) fn hand_off(waiting: Waiting) -> Program {
    Program::PingPong { rounds: ROUNDS, home: None, waiting }
}

/// All CPUs add: this sets the operations per visit.
pub(super) fn blind_adds(time: Span) -> Program {
    Program::Counter { scope: Scope::Machine, operation: CounterOperation::Add, time, pause: Span::ZERO }
}

/// Returns every experiment. Probes that run for a time run for `time`.
pub(super) fn all(topology: &Topology, time: Span) -> Vec<Experiment> {
    let everybody = first_cpus(topology, topology.cpus());
    let mut experiments = Vec::new();
    for class in classes(topology, 1) {
        for (waiting, words) in [(Waiting::Taking, "trying"), (Waiting::Reading, "reading")] {
            experiments.push(Experiment {
                body: Body::Probe(class.pairs[0].to_vec(), hand_off(waiting)),
                rows: vec![(format!("ping-pong {}, waits by {words}", class.name), Figure::First(1))],
            });
        }
    }
    let programs = [counters(time), words(&everybody, time), locks(time), lists(time)].concat();
    experiments.extend(programs.into_iter().filter_map(|(rows, program)| {
        // With one CPU there is no other participant.
        let needs_two = rows.iter().any(|(_, figure)| !matches!(figure, Figure::First(_)));
        let whole = |(name, figure): (&str, Figure)| (name.to_owned(), whole(figure, everybody.len()));
        (everybody.len() > 1 || !needs_two).then(|| Experiment {
            body: Body::Probe(everybody.clone(), program),
            rows: rows.into_iter().map(whole).collect(),
        })
    }));
    experiments.extend(Exercise::ALL.into_iter().filter(|exercise| exercise.fits(topology)).map(|exercise| {
        Experiment { body: Body::Tasks(exercise), rows: vec![(exercise.name().to_owned(), Figure::First(0))] }
    }));
    experiments
}

/// Participants of "the first none" are all.
fn whole(figure: Figure, participants: usize) -> Figure {
    match figure {
        Figure::First(0) => Figure::First(participants),
        other => other,
    }
}

/// Rows, and the program that gives them.
type Programs = Vec<(Vec<(&'static str, Figure)>, Program)>;

/// Nanoseconds per operation of all participants.
fn of_all(name: &'static str, program: Program) -> (Vec<(&'static str, Figure)>, Program) {
    (vec![(name, Figure::First(0))], program)
}

fn counters(time: Span) -> Programs {
    let counter = |scope, operation| Program::Counter { scope, operation, time, pause: Span::ZERO };
    use CounterOperation::{Add, CasBlind, LoadCas, LoadStore};
    use Scope::{Cpu, Machine};
    vec![
        of_all("one counter, adds", blind_adds(time)),
        of_all("one counter, load and compare-exchange", counter(Machine, LoadCas)),
        of_all("one counter, compare-exchange alone", counter(Machine, CasBlind)),
        of_all("one counter, load and store", counter(Machine, LoadStore)),
        of_all("counter by CPU, adds", counter(Cpu, Add)),
        of_all("counter by CPU, load and compare-exchange", counter(Cpu, LoadCas)),
        of_all("counter by CPU, load and store", counter(Cpu, LoadStore)),
    ]
}

/// Words and masks, which the first of `everybody` reads; a CPU that is alone does not read. A
/// search is for any CPU: a search for all would mostly time the making of their set.
fn words(everybody: &[CpuId], time: Span) -> Programs {
    let mix = |kind, roles| Program::Mix { scope: Scope::Machine, kind, roles, time, pause: Span::ZERO };
    let mask = |scope, form, search, roles| Program::Mask { scope, form, search, roles, time, pause: Span::ZERO };
    let [writers, one_reads, readers] = [0, 1, usize::MAX].map(Roles::Readers);
    let mut programs = vec![
        of_all("word that nobody writes, reads", Program::Reads { time }),
        of_all("mask that nobody writes, searches", mask(Scope::Machine, MaskForm::Bit, Search::Any, readers)),
        of_all("one mask, bits set and cleared", mask(Scope::Machine, MaskForm::Bit, Search::Any, writers)),
        of_all("one mask, bytes set and cleared", mask(Scope::Machine, MaskForm::Byte, Search::Any, writers)),
        of_all("mask by CPU, bits set and cleared", mask(Scope::Cpu, MaskForm::Bit, Search::Any, writers)),
    ];
    if everybody.len() > 1 {
        let both = |reads, writes| vec![(reads, Figure::First(1)), (writes, Figure::After(1))];
        programs.extend([
            (both("word, one reads beside adds", "word, adds beside one that reads"), mix(WriteKind::Add, one_reads)),
            (
                both("word, one reads beside stores", "word, stores beside one that reads"),
                mix(WriteKind::Store, one_reads),
            ),
            (
                both("one mask, one searches beside writers", "one mask, writers beside one that searches"),
                mask(Scope::Machine, MaskForm::Bit, Search::Any, one_reads),
            ),
            (
                both("mask by CPU, one searches beside writers", "mask by CPU, writers beside one that searches"),
                mask(Scope::Cpu, MaskForm::Bit, Search::Any, one_reads),
            ),
            (
                vec![("one writes, others wait to see it", Figure::MedianDelay)],
                Program::WriterReaders { rounds: NEWS, gap: GAP },
            ),
        ]);
    }
    programs
}

fn locks(time: Span) -> Programs {
    let lock = |kind| Program::Lock { kind, turn: Span::ZERO, time, pause: Span::ZERO, is_drawn: false };
    let name = |kind| match kind {
        LockKind::TestAndSet => "lock, test and set",
        LockKind::TestAndTestAndSet => "lock, test first",
        LockKind::Ticket | LockKind::TicketBackOff => "lock, ticket",
        LockKind::Mcs => "lock, MCS",
        LockKind::Queued => "lock, queued",
    };
    // Without time to back off, the two kinds of ticket lock are the same.
    let kinds = LockKind::ALL.into_iter().filter(|kind| *kind != LockKind::TicketBackOff);
    kinds.map(|kind| of_all(name(kind), lock(kind))).collect()
}

/// Elements of the list whose references are counted.
const ELEMENTS: usize = 4;

fn lists(time: Span) -> Programs {
    let roles = Roles::Readers(usize::MAX);
    let rwlock = |scope| Program::RwLock { kind: RwLockKind::Counted(scope), roles, time, pause: Span::ZERO };
    let references = |scope| Program::Refcount { scope, by: CountBy::Add, elements: ELEMENTS, time, pause: Span::ZERO };
    vec![
        of_all("reader-writer lock, one count, reads", rwlock(Scope::Machine)),
        of_all("reader-writer lock, counts by CPU, reads", rwlock(Scope::Cpu)),
        of_all("list, one reference count an element", references(Scope::Machine)),
        of_all("list, reference counts by CPU", references(Scope::Cpu)),
    ]
}
