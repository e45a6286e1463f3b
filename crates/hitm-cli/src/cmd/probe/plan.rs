//! From options to programs: one row of the table per variant of a probe.

use clap::ValueEnum;
use hitm_lab::Program;
use hitm_memory::Span;
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::probe::{CountBy, Roles, RwLockKind, first_cpus_by_core};

use super::Probe;
use super::pairs::{by_distance, classes};
use super::programs::{PausesArg, RolesArgs, RwLockArg, What};
use crate::args::HostArg;
use crate::failure::Failure;

/// The runs on one machine.
pub(crate) struct Plan {
    /// The probe, in words.
    pub(crate) what: String,
    /// The kind of the variants: `scope`, `lock`.
    pub(crate) variants_are: &'static str,
    /// The names of an operation that writes and of one that reads.
    pub(crate) names: [&'static str; 2],
    /// The readers, for a probe with readers and writers.
    pub(crate) roles: Option<Roles>,
    /// Whether the kind of access tells the two sides apart: all loads are reads, and nothing else
    /// is.
    pub(crate) reads_are_loads: bool,
    /// The rows.
    pub(crate) variants: Vec<Variant>,
}

/// A row.
pub(crate) struct Variant {
    pub(crate) name: String,
    /// Parts that the structure is split into.
    pub(crate) parts: Option<usize>,
    /// The programs, and the CPUs of each.
    pub(crate) programs: Vec<(Vec<CpuId>, Program)>,
    /// Rows of some participants' single operations: name and participants.
    pub(crate) groups: Vec<(String, Vec<usize>)>,
}

impl Probe {
    /// Returns the runs on a machine of this topology.
    pub(super) fn plan(&self, topology: &Topology) -> Result<Plan, Failure> {
        match &self.what {
            What::PingPong { .. } => Ok(self.ping_pong(topology)),
            What::Counter { scope, operation } => {
                let name = name_of(*operation);
                let program = |scope| Program::Counter {
                    scope,
                    operation: (*operation).into(),
                    time: self.time(),
                    pause: self.pause,
                };
                self.by_scope(topology, format!("counter, {name}"), scope, None, program)
            }
            What::Mask { .. } => self.mask(topology),
            What::Mix { scope, kind, roles } => {
                let roles = self.roles(topology, *roles)?;
                let (time, pause) = (self.time(), self.pause);
                let program = |scope| Program::Mix { scope, kind: (*kind).into(), roles, time, pause };
                let plan = self.by_scope(topology, "word".to_owned(), scope, Some(roles), program)?;
                Ok(Plan { names: ["write", "read"], reads_are_loads: true, ..plan })
            }
            What::Rwlock { .. } => self.rwlock(topology),
            What::Refcount { scope, elements, by } => {
                let (elements, by) = (*elements as usize, (*by).into());
                let program = |scope| Program::Refcount { scope, by, elements, time: self.time(), pause: self.pause };
                let how = if by == CountBy::LoadCas { ", by load and compare-exchange" } else { "" };
                let what = format!("list of {elements} with reference counts by scope{how}");
                self.by_scope(topology, what, scope, None, program)
            }
            What::Lookup { guard, elements } => {
                let elements = *elements as usize;
                let cpus = self.participants(topology)?;
                let program = |&guard: &super::programs::GuardArg| Variant {
                    name: name_of(guard),
                    parts: None,
                    programs: vec![(
                        cpus.clone(),
                        Program::Lookup { guard: guard.into(), elements, time: self.time(), pause: self.pause },
                    )],
                    groups: Vec::new(),
                };
                Ok(Plan {
                    what: self.describe(&format!("list of {elements} that no CPU writes"), cpus.len(), None),
                    variants_are: "guard",
                    names: ["write", "look-up"],
                    roles: None,
                    reads_are_loads: false,
                    variants: once(guard, "--guard")?.iter().map(program).collect(),
                })
            }
            What::Lock { .. } => self.lock(topology),
            What::WriterReaders { rounds } => self.writer_readers(topology, *rounds),
            What::Reads => self.reads(topology),
        }
    }

    fn participants(&self, topology: &Topology) -> Result<Vec<CpuId>, Failure> {
        let count = self.participants.unwrap_or(topology.cpus());
        if count == 0 || count > topology.cpus() {
            let (name, cpus) = (topology.name(), topology.cpus());
            return Err(Failure::new(format!("--participants {count}: `{name}` has {cpus} CPUs; take 1 to {cpus}")));
        }
        Ok(first_cpus_by_core(topology, count))
    }

    fn roles(&self, topology: &Topology, args: RolesArgs) -> Result<Roles, Failure> {
        let count = self.participants(topology)?.len();
        match args.readers {
            Some(readers) if readers > count => {
                Err(Failure::new(format!("--readers {readers}: only {count} CPUs take part; take fewer")))
            }
            Some(readers) => Ok(Roles::Readers(readers)),
            None => Ok(Roles::Mix(args.mix.unwrap_or(90))),
        }
    }

    /// Returns the probe in words: participants, operation, time.
    fn describe(&self, what: &str, cpus: usize, roles: Option<Roles>) -> String {
        let who = match roles {
            None => format!("{cpus} CPUs"),
            Some(Roles::Mix(percent)) => format!("{cpus} CPUs, {percent} % of each one's operations read,"),
            Some(Roles::Readers(readers)) => format!("{} CPUs write, {readers} read", cpus - readers),
        };
        let pause = if self.pause.is_zero() { String::new() } else { format!(", {} after each operation", self.pause) };
        format!("{what}: {who} {}{pause}", self.length())
    }

    fn length(&self) -> String {
        let at_most = if self.duration.is_none() && self.host == HostArg::Simulated { "at most " } else { "" };
        format!("for {at_most}{}", self.time())
    }

    fn by_scope(
        &self,
        topology: &Topology,
        what: String,
        scopes: &[Scope],
        roles: Option<Roles>,
        program: impl Fn(Scope) -> Program,
    ) -> Result<Plan, Failure> {
        let cpus = self.participants(topology)?;
        let variant = |&scope: &Scope| Variant {
            name: scope.to_string(),
            parts: Some(topology.parts(scope)),
            programs: vec![(cpus.clone(), program(scope))],
            groups: Vec::new(),
        };
        Ok(Plan {
            what: self.describe(&what, cpus.len(), roles),
            variants_are: "scope",
            names: ["operation", "operation"],
            roles,
            reads_are_loads: false,
            variants: once(scopes, "--scope")?.iter().map(variant).collect(),
        })
    }

    fn mask(&self, topology: &Topology) -> Result<Plan, Failure> {
        let What::Mask { scope, encoding, search, roles } = &self.what else { unreachable!("asked for a mask") };
        let roles = self.roles(topology, *roles)?;
        let (time, pause, search) = (self.time(), self.pause, (*search).into());
        let mut whole: Option<Plan> = None;
        for &encoding in once(encoding, "--encoding")? {
            let program = |scope| Program::Mask { scope, form: encoding.into(), search, roles, time, pause };
            let mut plan = self.by_scope(topology, "mask".to_owned(), scope, Some(roles), program)?;
            let name = name_of(encoding);
            for variant in &mut plan.variants {
                variant.name = format!("{name}={}", variant.name);
            }
            match &mut whole {
                None => whole = Some(plan),
                Some(whole) => whole.variants.extend(plan.variants),
            }
        }
        let plan = whole.expect("an encoding is the default");
        Ok(Plan { names: ["set or clear", "search"], variants_are: "encoding=scope", reads_are_loads: true, ..plan })
    }

    fn rwlock(&self, topology: &Topology) -> Result<Plan, Failure> {
        let What::Rwlock { kind, scope, roles } = &self.what else { unreachable!("asked for a reader-writer lock") };
        let roles = self.roles(topology, *roles)?;
        let program = |kind| Program::RwLock { kind, roles, time: self.time(), pause: self.pause };
        let kinds = once(kind, "--kind")?;
        let of_scope = |scope| program(RwLockKind::Counted(scope));
        let what = "reader-writer lock, its readers counted by scope".to_owned();
        let mut plan = self.by_scope(topology, what, scope, Some(roles), of_scope)?;
        if !kinds.contains(&RwLockArg::Counted) {
            plan.variants.clear();
        }
        if kinds.contains(&RwLockArg::Phased) {
            plan.variants.push(Variant {
                name: name_of(RwLockArg::Phased),
                parts: Some(1),
                programs: vec![(self.participants(topology)?, program(RwLockKind::Phased))],
                groups: Vec::new(),
            });
        }
        Ok(Plan { names: ["write section", "read section"], ..plan })
    }

    fn lock(&self, topology: &Topology) -> Result<Plan, Failure> {
        let What::Lock { kind, turn, pauses } = &self.what else { unreachable!("asked for a lock") };
        let cpus = self.participants(topology)?;
        let variant = |&kind: &super::programs::LockArg| {
            let is_drawn = *pauses == PausesArg::Drawn;
            let (time, pause) = (self.time(), self.pause);
            let program = Program::Lock { kind: kind.into(), turn: *turn, time, pause, is_drawn };
            Variant { name: name_of(kind), parts: None, programs: vec![(cpus.clone(), program)], groups: Vec::new() }
        };
        let is_drawn = *pauses == PausesArg::Drawn && !self.pause.is_zero();
        let drawn = if is_drawn { ", pauses drawn" } else { "" };
        Ok(Plan {
            what: self.describe(&format!("lock around one further line{drawn}"), cpus.len(), None),
            variants_are: "lock",
            names: ["section", "section"],
            roles: None,
            reads_are_loads: false,
            variants: once(kind, "--kind")?.iter().map(variant).collect(),
        })
    }

    fn writer_readers(&self, topology: &Topology, rounds: u32) -> Result<Plan, Failure> {
        let cpus = self.participants(topology)?;
        if cpus.len() < 2 {
            return Err(Failure::new(
                "--participants 1: `writer-readers` has one writer and a reader at least; take 2 or more",
            ));
        }
        let gap = match (self.pause, self.host) {
            (Span::ZERO, HostArg::Simulated) => Span::from_micros(5),
            (Span::ZERO, HostArg::Native) => Span::from_micros(50),
            (pause, _) => pause,
        };
        let program = Program::WriterReaders { rounds, gap };
        let mut groups = vec![("all".to_owned(), (1..cpus.len()).collect())];
        for (name, others) in by_distance(topology, &cpus) {
            groups.push((name.to_owned(), others));
        }
        Ok(Plan {
            what: format!(
                "nanoseconds from before the store to after the load that saw it, {} readers, {rounds} writes, one each {gap}",
                cpus.len() - 1
            ),
            variants_are: "readers",
            names: ["write", "read"],
            roles: None,
            reads_are_loads: false,
            variants: vec![Variant { name: "all".to_owned(), parts: None, programs: vec![(cpus, program)], groups }],
        })
    }

    fn reads(&self, topology: &Topology) -> Result<Plan, Failure> {
        let cpus = self.participants(topology)?;
        let program = Program::Reads { time: self.time() };
        let variant = |cpus: &[CpuId]| Variant {
            name: if cpus.len() == 1 { "one CPU".to_owned() } else { format!("{} CPUs", cpus.len()) },
            parts: None,
            programs: vec![(cpus.to_vec(), program.clone())],
            groups: Vec::new(),
        };
        let mut variants = vec![variant(&cpus[..1])];
        variants.extend((cpus.len() > 1).then(|| variant(&cpus)));
        Ok(Plan {
            what: format!("reads of one word that nobody writes, {}", self.length()),
            variants_are: "who",
            names: ["write", "read"],
            roles: None,
            reads_are_loads: true,
            variants,
        })
    }

    fn ping_pong(&self, topology: &Topology) -> Plan {
        let What::PingPong { pairs, rounds, kind } = &self.what else { unreachable!("asked for a ping-pong") };
        let variants = classes(topology, *pairs as usize).into_iter().map(|(distance, home, chosen)| {
            let program = |node| Program::PingPong { rounds: *rounds, home: node, waiting: (*kind).into() };
            Variant {
                name: format!("{distance}, {home} home"),
                parts: None,
                programs: chosen.into_iter().map(|(one, other, node)| (vec![one, other], program(node))).collect(),
                groups: Vec::new(),
            }
        });
        Plan {
            what: format!("nanoseconds a hand-off, {rounds} round trips a pair, {kind:?}"),
            variants_are: "distance",
            names: ["hand-off", "hand-off"],
            roles: None,
            reads_are_loads: false,
            variants: variants.collect(),
        }
    }
}

/// Returns a value's name on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// Returns `values`, unless one is given twice.
fn once<'a, T: PartialEq + std::fmt::Debug>(values: &'a [T], flag: &str) -> Result<&'a [T], Failure> {
    match values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        Some((index, _)) => {
            Err(Failure::new(format!("{flag}: value {} of {} is there twice; give it once", index + 1, values.len())))
        }
        None => Ok(values),
    }
}
