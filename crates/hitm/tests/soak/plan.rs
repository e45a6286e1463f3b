//! What a seed stands for: a machine, what goes wrong on it, and what its tasks do.

use hitm::Priority;
use hitm_machine::{Arbitration, CostSet, Faults, Random};
use hitm_memory::{CpuSet, Span};
use hitm_topology::CpuId;

use crate::fair::PERIOD;

/// What a task does at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Compute,
    Sleep,
    Yield,
    Checkpoint,
    Park,
    Unpark,
    Mutex,
    PiMutex,
    Send,
    Receive,
    Meet,
    Spawn,
    /// Spawns a child and waits for it.
    Join,
    Abort,
    DropHandle,
    Priority,
    Affinity,
    Hotplug,
    Panic,
}

/// Steps, and how often they are chosen beside each other.
const WEIGHTS: [(Step, u64); 19] = [
    (Step::Compute, 20),
    (Step::Sleep, 14),
    (Step::Yield, 6),
    (Step::Checkpoint, 4),
    (Step::Park, 8),
    (Step::Unpark, 14),
    (Step::Mutex, 14),
    (Step::PiMutex, 14),
    (Step::Send, 7),
    (Step::Receive, 7),
    (Step::Meet, 3),
    (Step::Spawn, 5),
    (Step::Join, 3),
    (Step::Abort, 1),
    (Step::DropHandle, 1),
    (Step::Priority, 6),
    (Step::Affinity, 5),
    (Step::Hotplug, 2),
    (Step::Panic, 1),
];

/// Streams of what was added to plans later, behind those of the tasks: nothing else is drawn anew by it. A task's follow the first.
const TENANTS_STREAM: u64 = 1 << 41;
const FAIR_STREAM: u64 = 1 << 42;

/// How ids are handed out, beside our own.
const IDS: [&str; 3] = ["", "+cid-recent", "+cid-owned"];

/// Where fair tasks that wake are placed, and how groups keep their load, beside our own.
const SEARCHES: [&str; 5] = ["", "+idle-merged", "+idle-util", "+idle-mask=llc", "+idle-single-pass"];
const LOADS: [&str; 4] = ["", "+task-group-reordered", "+load-avg-ratelimit", "+load-avg=llc"];

/// What no seed does without: the faults that are to come in every run.
fn is_fault(step: Step) -> bool {
    matches!(
        step,
        Step::Abort
            | Step::DropHandle
            | Step::Priority
            | Step::Affinity
            | Step::Hotplug
            | Step::Panic
            | Step::Mutex
            | Step::PiMutex
    )
}

/// The mitigations that differ in what is executed; ours, which is what people run, in one plan of four.
const MITIGATIONS: [&str; 17] = [
    "baseline",
    "cpupri-split",
    "cpupri-split-compact",
    "root-domain-reordered",
    "rto-count=node",
    "cpupri-mask=node",
    "cpupri-mask=llc+rto-mask=llc+rto-count=llc",
    "cpupri-mask=cpu+rto-mask=cpu+rto-count=cpu",
    "cpupri-mask=bytes+rto-mask=bytes:llc",
    "cpupri-mask=bytes:node+cpupri-count=bytes+rto-mask=bytes+rto-count=bytes",
    "cpupri-count=bytes:llc+rto-count=bytes:core+pull-by-locks",
    "all",
    "all+as-posted",
    "rto-count=node+as-posted",
    "cpupri-mask=node+as-posted",
    "pull-by-locks",
    "all+pull-by-locks+rto-mask=core",
];

/// Mutexes of a kind that the tasks of a run share: few enough that tasks meet, and not so few that most of them wait there.
pub(crate) const MUTEXES: usize = 12;

/// Bounded queues between them, and their room.
pub(crate) const QUEUES: usize = 2;
pub(crate) const ROOM: usize = 3;

/// Who meets at a barrier.
pub(crate) const PARTIES: usize = 3;

/// The most that somebody sleeps, or is patient, when he is.
pub(crate) const SLEEP_MAX: Span = Span::from_micros(60);

/// A stretch of work at rest: long enough to be cheap, and it is preempted anyhow.
pub(crate) const STRETCH: Span = Span::from_micros(200);

/// A machine and what happens on it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) topology: String,
    pub(crate) cpus: u32,
    pub(crate) mitigation: String,
    pub(crate) arbitration: Arbitration,
    pub(crate) costs: CostSet,
    pub(crate) jitter: f64,
    pub(crate) faults: Faults,
    pub(crate) check_races: bool,
    pub(crate) look_ahead: bool,
    /// Tasks that live at once.
    pub(crate) tasks: usize,
    /// Calls of the scheduler after which the run comes to its end.
    pub(crate) operations: u64,
    /// Times that all come to rest.
    pub(crate) rests: u64,
    /// The rest before which tasks compute for longer than a round-robin turn.
    pub(crate) long_rest: Option<u64>,
    /// The longest stretch of work, nanoseconds.
    pub(crate) burst_nanos: u64,
    /// The most steps of a task's life.
    steps_max: u64,
    /// How many different priorities there are.
    prios: u64,
    /// How many tenants there are, and how many of a hundred tasks belong to one.
    pub(crate) tenants: usize,
    tenanted: u64,
    /// How many of a hundred tasks are fair, and how many groups there are for tasks.
    pub(crate) fair: u64,
    pub(crate) groups: usize,
    /// Of tasks, those of a hundred that may run on one CPU alone, and those that may run on some.
    pinned: u64,
    scattered: u64,
    weights: Vec<(Step, u64)>,
}

/// The machine's levels, largest first: 4 to 64 CPUs in all.
fn shape(random: &mut Random) -> (String, u32) {
    loop {
        let [packages, llcs] = [1 + random.below(4), 1 + random.below(4)];
        let [cores, threads] = [1 + random.below(8), 1 + random.below(2)];
        let level = ["l3", "numa"][random.below(2) as usize];
        let cpus = packages * llcs * cores * threads;
        if (4..=64).contains(&cpus) {
            return (format!("pack:{packages} {level}:{llcs} core:{cores} pu:{threads}"), cpus as u32);
        }
    }
}

/// Faults of a run: each kind in every run, seldom or often, short or long.
fn faults(random: &mut Random) -> Faults {
    let mut of = |choices: [f64; 3]| choices[random.below(3) as usize];
    let (late, taken_after_rmw, taken_on_path) =
        (of([0.005, 0.03, 0.2]), of([0.0005, 0.002, 0.01]), of([0.0005, 0.002, 0.01]));
    let mut span = || Span::from_micros([5, 20, 60][random.below(3) as usize]);
    Faults { late, late_by: span(), taken_after_rmw, taken_on_path, taken_for: span(), lost: 0.0 }
}

impl Plan {
    /// The plan of `seed`, on `mitigation` or the one that it draws.
    pub(crate) fn new(seed: u64, mitigation: Option<&str>) -> Self {
        let random = &mut Random::new(seed, 0);
        let (topology, cpus) = shape(random);
        let other = MITIGATIONS[random.below(MITIGATIONS.len() as u64) as usize];
        let drawn = if random.below(4) == 0 { "shipped" } else { other };
        // A step in five is off, but for those that are faults.
        let weights = WEIGHTS.into_iter().filter(|&(step, _)| random.below(5) > 0 || is_fault(step));
        let weights = weights.collect();
        let long_rest = (random.below(2) == 0).then(|| random.below(6));
        let of_ids = &mut Random::new(seed, TENANTS_STREAM);
        let ids = IDS[of_ids.below(IDS.len() as u64) as usize];
        let of_fair = &mut Random::new(seed, FAIR_STREAM);
        let fair = [0, 0, 20, 60][of_fair.below(4) as usize];
        let mut of = |choices: &[&'static str]| choices[of_fair.below(choices.len() as u64) as usize];
        let parts = if fair > 0 { [ids, of(&SEARCHES), of(&LOADS)].concat() } else { ids.to_owned() };
        let drawn = if drawn == "shipped" { drawn.to_owned() } else { format!("{drawn}{parts}") };
        Self {
            seed,
            topology,
            cpus,
            mitigation: mitigation.map_or(drawn, str::to_owned),
            arbitration: [Arbitration::LocalFirst, Arbitration::Fifo, Arbitration::Bounded(4)]
                [random.below(3) as usize],
            costs: [CostSet::Linux, CostSet::Runtime][random.below(2) as usize],
            jitter: [0.0, 0.1, 0.5][random.below(3) as usize],
            faults: faults(random),
            // The detector costs a clock of all CPUs an access.
            check_races: random.below(4) == 0 && cpus <= 16,
            look_ahead: true,
            tasks: 160 + random.below(80) as usize,
            operations: 100_000,
            rests: 6,
            // Fair tasks never hold still: see `holds`.
            long_rest: long_rest.filter(|_| fair == 0),
            burst_nanos: [1_000, 5_000, 20_000][random.below(3) as usize],
            steps_max: [60, 200, 600][random.below(3) as usize],
            prios: [1, 3, 10, 90][random.below(4) as usize],
            tenants: 1 + of_ids.below(3) as usize,
            tenanted: [5, 30, 90][of_ids.below(3) as usize],
            fair,
            groups: if fair > 0 { of_fair.below(4) as usize } else { 0 },
            pinned: [0, 10, 40][random.below(3) as usize],
            scattered: [0, 20][random.below(2) as usize],
            weights,
        }
    }

    /// As [`Plan::new`], small and without other faults than the tasks' own: for a test that must see one thing.
    pub(crate) fn small(seed: u64) -> Self {
        let plan = Self::new(seed, None);
        let faults = Faults { late: 0.0, taken_after_rmw: 0.0, taken_on_path: 0.0, ..plan.faults };
        Self {
            operations: 6_000,
            rests: 6,
            tasks: 40,
            long_rest: None,
            check_races: false,
            fair: 0,
            groups: 0,
            faults,
            ..plan
        }
    }

    pub(crate) fn pick(&self, random: &mut Random) -> Step {
        random.weighted(&self.weights)
    }

    /// The steps of a task's life.
    pub(crate) fn steps(&self, random: &mut Random) -> u64 {
        1 + random.below(self.steps_max)
    }

    /// A priority, spread over the range below that of who checks.
    pub(crate) fn priority(&self, random: &mut Random) -> u8 {
        1 + (random.below(self.prios) * (90 / self.prios)) as u8
    }

    /// What a task's priority is to be, before it as the books have it: a fair one's is 0 there.
    pub(crate) fn change(&self, random: &mut Random) -> (u8, Priority) {
        let own = self.priority(random);
        let real_time = real_time(own, random);
        // Who has no fair tasks draws nothing for them.
        if self.fair > 0 && random.below(100) < self.fair { (0, fair(random)) } else { (own, real_time) }
    }

    /// Whether task `serial` begins as a fair one, and its group.
    pub(crate) fn fair_of(&self, serial: u32) -> (Option<Priority>, Option<usize>) {
        let random = &mut Random::new(self.seed, FAIR_STREAM + 1 + u64::from(serial));
        let priority = (random.below(100) < self.fair).then(|| fair(random));
        let group = (self.groups > 0 && random.below(3) > 0).then(|| random.below(self.groups as u64) as usize);
        (priority, group)
    }

    /// Whether tasks compute at a rest. Where there are fair ones they do not: those that wait would take turns.
    pub(crate) fn holds(&self, rest: u64) -> bool {
        rest.is_multiple_of(2) && self.fair == 0
    }

    /// Where a task may run.
    pub(crate) fn allowed(&self, random: &mut Random) -> CpuSet {
        let one = CpuId(random.below(u64::from(self.cpus)) as u32);
        let kind = random.below(100);
        if kind < self.pinned {
            return CpuSet::from_iter([one]);
        }
        let every = (0..self.cpus).map(CpuId);
        if kind >= self.pinned + self.scattered {
            return every.collect();
        }
        let mut some: CpuSet = every.filter(|_| random.below(2) == 0).collect();
        some.insert(one);
        some
    }

    /// Which tenant's task `serial` is. There are many of them and few by turns, so that they are more than CPUs, and fewer.
    pub(crate) fn tenant_of(&self, serial: u32) -> Option<usize> {
        let random = &mut Random::new(self.seed, TENANTS_STREAM + 1 + u64::from(serial));
        let share = if (serial as usize / self.tasks).is_multiple_of(2) { self.tenanted } else { self.tenanted / 5 };
        (random.below(100) < share).then(|| random.below(self.tenants as u64) as usize)
    }

    /// A stretch of work.
    pub(crate) fn burst(&self, random: &mut Random) -> Span {
        Span::from_nanos(1 + random.below(self.burst_nanos))
    }

    /// A stretch of sleep, or of patience.
    pub(crate) fn sleep(&self, random: &mut Random) -> Span {
        Span::from_picos(1 + random.below(SLEEP_MAX.as_picos()))
    }

    /// Longer than anybody goes on without calling the scheduler who has anything to do, whatever goes wrong; also who has not heard yet
    /// that an earlier rest is over.
    pub(crate) fn quiet(&self) -> Span {
        let Faults { late_by, taken_for, .. } = self.faults;
        STRETCH
            + SLEEP_MAX
            + SLEEP_MAX
            + Span::from_nanos(2 * self.burst_nanos)
            + late_by
            + late_by
            + taken_for
            + taken_for
            + self.throttled_for()
    }

    /// How long a task may wait because its group is throttled: for the next period, and for one more that pays what was used too much.
    pub(crate) fn throttled_for(&self) -> Span {
        PERIOD * if self.groups > 0 { 2 } else { 0 }
    }
}

/// A real-time task's.
pub(crate) fn real_time(own: u8, random: &mut Random) -> Priority {
    if random.below(3) == 0 { Priority::round_robin(own) } else { Priority::fifo(own) }
}

/// A fair task's.
fn fair(random: &mut Random) -> Priority {
    Priority::fair([-20, -5, 0, 0, 10, 19][random.below(6) as usize])
}
