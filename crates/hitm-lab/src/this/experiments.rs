//! What is done on both hosts, and which figures come of it. None of them set a number of the simulated machine, but for those that say so.

use hitm_machine::{CostSet, Costs, Distance, Latencies};
use hitm_memory::Span;
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::probe::{CounterOperation, LockKind, MaskForm, Roles, Search, Waiting, WriteKind, first_cpus};

use super::runtime::Exercise;
use super::tally::TRIES;
use crate::{Given, Program, mean_nanos};

/// Round trips of a ping-pong.
const ROUNDS: u64 = 2_000;

/// Rounds of the writer that readers wait for, and its work between.
const NEWS: u32 = 40;
/// Many times what a thread that waits here takes to offer its CPU to others once, after a hundred looks: else most news would
/// come while it does, or none.
const GAP: Span = Span::from_micros(20);

/// What is run.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A probe on these CPUs.
    Probe(Vec<CpuId>, Program),
    /// Tasks of the runtime on all CPUs.
    Tasks(Exercise),
}

impl Body {
    /// How long the operating system may keep its threads waiting before a repetition is done again.
    pub(super) fn tolerated_wait(&self, topology: &Topology) -> Span {
        match self {
            Self::Probe(..) => Span::ZERO,
            Self::Tasks(exercise) => exercise.tolerated_wait(topology),
        }
    }

    /// How often a repetition is done at most until it is left alone.
    pub(super) fn tries(&self) -> usize {
        match self {
            Self::Probe(..) => TRIES,
            Self::Tasks(exercise) => exercise.tries(),
        }
    }
}

/// A figure of what a probe gave.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// Nanoseconds an operation of those who come first, so many.
    First(usize),
    /// The same of those who come after so many.
    After(usize),
    /// The median of what single participants waited, in nanoseconds.
    MedianDelay,
}

impl Figure {
    pub(super) fn of(self, given: &Given) -> f64 {
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

/// Something that is run, and the rows that come of it.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    pub(super) body: Body,
    /// Name and figure; one that is no probe has one figure, which it gives itself.
    pub(super) rows: Vec<(String, Figure)>,
}

/// Two CPUs of each distance that the machine has, of each up to `most` pairs, and the parameter of the cost table that is the hand-off between such.
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
                    // The table's last value stands for all that are farther.
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
    /// How far, in words.
    pub(super) name: String,
    /// The parameter of the cost table.
    pub(super) parameter: String,
    pub(super) pairs: Vec<[CpuId; 2]>,
}

/// The loop of the measuring tools, from which hand-offs are set.
pub(super) fn hand_off(waiting: Waiting) -> Program {
    Program::PingPong { rounds: ROUNDS, home: None, waiting }
}

/// Everybody adds: from which operations a visit are set.
pub(super) fn blind_adds(time: Span) -> Program {
    Program::Counter { scope: Scope::Machine, operation: CounterOperation::Add, time, pause: Span::ZERO }
}

/// Every experiment; probes that go on for a time do it for `time`.
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
        // Of one CPU there are no others to wait for.
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

/// Of nobody means of everybody.
fn whole(figure: Figure, participants: usize) -> Figure {
    match figure {
        Figure::First(0) => Figure::First(participants),
        other => other,
    }
}

/// Rows and the program that gives them.
type Programs = Vec<(Vec<(&'static str, Figure)>, Program)>;

/// Nanoseconds an operation of everybody.
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

/// Words and masks, of which the first of `everybody` reads; with one CPU alone nobody does. A search asks for anybody: one for
/// all would mostly time how their set is made.
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
    let lock = |kind| Program::Lock { kind, turn: Span::ZERO, time, pause: Span::ZERO };
    let name = |kind| match kind {
        LockKind::TestAndSet => "lock, test and set",
        LockKind::TestAndTestAndSet => "lock, test first",
        LockKind::Ticket | LockKind::TicketBackOff => "lock, ticket",
        LockKind::Mcs => "lock, MCS",
        LockKind::Queued => "lock, queued",
    };
    // With no time to back off the two kinds of ticket lock are one.
    let kinds = LockKind::ALL.into_iter().filter(|kind| *kind != LockKind::TicketBackOff);
    kinds.map(|kind| of_all(name(kind), lock(kind))).collect()
}

/// Elements of the list that references are taken in.
const ELEMENTS: usize = 4;

fn lists(time: Span) -> Programs {
    let roles = Roles::Readers(usize::MAX);
    let rwlock = |scope| Program::RwLock { scope, roles, time, pause: Span::ZERO };
    let references = |scope| Program::Refcount { scope, elements: ELEMENTS, time, pause: Span::ZERO };
    vec![
        of_all("reader-writer lock, one count, reads", rwlock(Scope::Machine)),
        of_all("reader-writer lock, counts by CPU, reads", rwlock(Scope::Cpu)),
        of_all("list, one reference count an element", references(Scope::Machine)),
        of_all("list, reference counts by CPU", references(Scope::Cpu)),
    ]
}
