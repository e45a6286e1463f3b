//! The plan of a seed: its machine, its faults, and the steps of its tasks.

use hitm::Priority;
use hitm_machine::{Arbitration, CostSet, Faults, Random};
use hitm_memory::{CpuSet, Span};
use hitm_topology::CpuId;

use crate::fair::PERIOD;

/// One step of a task.
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

/// The steps and their relative weights.
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

/// Random streams for later additions to plans, after the streams of the tasks: additions change no
/// other draws. The stream of task `serial` has the number `1 + serial` after each of these.
const TENANTS_STREAM: u64 = 1 << 41;
const FAIR_STREAM: u64 = 1 << 42;
const WAKEUPS_STREAM: u64 = 1 << 43;
const RINGS_STREAM: u64 = 1 << 44;

/// The ways to assign ids, beside `shipped`'s.
const IDS: [&str; 3] = ["", "+cid-recent", "+cid-owned"];

/// The ways to place waking fair tasks and to keep group load, beside `shipped`'s.
const SEARCHES: [&str; 5] = ["", "+idle-merged", "+idle-util", "+idle-mask=llc", "+idle-single-pass"];
const LOADS: [&str; 4] = ["", "+task-group-reordered", "+load-avg-ratelimit", "+load-avg=llc"];

/// The faults that every run must have.
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

/// The mitigations that execute different code; one plan in four uses `shipped`, which users run.
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

/// The mutexes per kind that a run's tasks share: few enough that tasks meet, and enough that most
/// tasks do not wait there.
pub(crate) const MUTEXES: usize = 12;

/// The bounded queues between tasks, and their capacity.
pub(crate) const QUEUES: usize = 2;
pub(crate) const ROOM: usize = 3;

/// The parties of a barrier.
pub(crate) const PARTIES: usize = 3;

/// The longest sleep or timeout of a task.
pub(crate) const SLEEP_MAX: Span = Span::from_micros(60);

/// The length of work at rest: long enough to be cheap; the task is preempted in it anyway.
pub(crate) const STRETCH: Span = Span::from_micros(200);

/// A machine and the plan of its events.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) topology: String,
    pub(crate) cpus: u32,
    pub(crate) mitigation: String,
    /// Whether CPUs keep the tasks that their own tasks wake: with `shipped`, as natively.
    pub(crate) keeps_wakeups: bool,
    pub(crate) arbitration: Arbitration,
    pub(crate) costs: CostSet,
    pub(crate) jitter: f64,
    pub(crate) faults: Faults,
    pub(crate) check_races: bool,
    pub(crate) look_ahead: bool,
    /// The number of tasks that live at the same time.
    pub(crate) tasks: usize,
    /// The number of scheduler calls after which the run ends.
    pub(crate) operations: u64,
    /// The number of rests.
    pub(crate) rests: u64,
    /// The rest before which tasks compute for longer than a round-robin turn.
    pub(crate) long_rest: Option<u64>,
    /// The longest stretch of work, in nanoseconds.
    pub(crate) burst_nanos: u64,
    /// The largest number of steps in a task's life.
    steps_max: u64,
    /// The number of different priorities.
    prios: u64,
    /// The number of tenants, and the percentage of tasks that belong to one.
    pub(crate) tenants: usize,
    tenanted: u64,
    /// The percentage of fair tasks, and the number of groups for tasks.
    pub(crate) fair: u64,
    pub(crate) groups: usize,
    /// The nice values of fair tasks.
    nices: &'static [i8],
    /// The percentage of tasks that may run on one CPU only, and of tasks that may run on some
    /// CPUs.
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

/// The faults of a run: every kind in every run, rare or frequent, short or long.
fn faults(random: &mut Random) -> Faults {
    let mut of = |choices: [f64; 3]| choices[random.below(3) as usize];
    let (late, taken_after_rmw, taken_on_path) =
        (of([0.005, 0.03, 0.2]), of([0.0005, 0.002, 0.01]), of([0.0005, 0.002, 0.01]));
    let mut span = || Span::from_micros([5, 20, 60][random.below(3) as usize]);
    Faults { late, late_by: span(), taken_after_rmw, taken_on_path, taken_for: span(), lost: 0.0 }
}

impl Plan {
    /// Makes the plan of `seed`, on `mitigation` or a drawn one.
    pub(crate) fn new(seed: u64, mitigation: Option<&str>) -> Self {
        let random = &mut Random::new(seed, 0);
        let (topology, cpus) = shape(random);
        let other = MITIGATIONS[random.below(MITIGATIONS.len() as u64) as usize];
        let drawn = if random.below(4) == 0 { "shipped" } else { other };
        // One step in five is switched off, except for required faults.
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
        let mut plan = Self {
            seed,
            topology,
            cpus,
            mitigation: mitigation.map_or(drawn, str::to_owned),
            keeps_wakeups: Random::new(seed, WAKEUPS_STREAM).below(2) == 0,
            arbitration: [Arbitration::LocalFirst, Arbitration::Fifo, Arbitration::Bounded(4)]
                [random.below(3) as usize],
            costs: [CostSet::Linux, CostSet::Runtime][random.below(2) as usize],
            jitter: [0.0, 0.1, 0.5][random.below(3) as usize],
            faults: faults(random),
            // The race detector costs one clock of all CPUs per access.
            check_races: random.below(4) == 0 && cpus <= 16,
            look_ahead: true,
            tasks: 160 + random.below(80) as usize,
            operations: 100_000,
            rests: 6,
            // Fair tasks never come to a standstill: see `holds`.
            long_rest: long_rest.filter(|_| fair == 0),
            burst_nanos: [1_000, 5_000, 20_000][random.below(3) as usize],
            steps_max: [60, 200, 600][random.below(3) as usize],
            prios: [1, 3, 10, 90][random.below(4) as usize],
            tenants: 1 + of_ids.below(3) as usize,
            tenanted: [5, 30, 90][of_ids.below(3) as usize],
            fair,
            groups: if fair > 0 { of_fair.below(4) as usize } else { 0 },
            nices: &[-20, -5, 0, 0, 10, 19],
            pinned: [0, 10, 40][random.below(3) as usize],
            scattered: [0, 20][random.below(2) as usize],
            weights,
        };
        plan.fit_for_rings(mitigation);
        plan
    }

    /// Changes one plan of six so that many tasks wait in the rings of their CPUs: with `shipped`,
    /// if most tasks may run everywhere, and are fair and have one weight, or have the least
    /// real-time priority.
    fn fit_for_rings(&mut self, mitigation: Option<&str>) {
        let random = &mut Random::new(self.seed, RINGS_STREAM);
        if random.below(6) > 0 || mitigation.is_some_and(|asked| asked != "shipped") {
            return;
        }
        "shipped".clone_into(&mut self.mitigation);
        self.keeps_wakeups = true;
        (self.fair, self.groups, self.nices) = ([0, 0, 60, 95][random.below(4) as usize], 0, &[0]);
        self.long_rest = self.long_rest.filter(|_| self.fair == 0);
        self.prios = [1, 1, 3, 10][random.below(4) as usize];
        self.pinned = [0, 0, 10][random.below(3) as usize];
    }

    /// Makes a small plan as [`Plan::new`] does, without faults beside the tasks' own, for a test
    /// of one property.
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

    /// Draws the steps of a task's life.
    pub(crate) fn steps(&self, random: &mut Random) -> u64 {
        1 + random.below(self.steps_max)
    }

    /// Draws a priority from the range below the controller's.
    pub(crate) fn priority(&self, random: &mut Random) -> u8 {
        1 + (random.below(self.prios) * (90 / self.prios)) as u8
    }

    /// Draws a new priority for a task. Returns it as the ledger records it (0 for a fair task),
    /// and as the runtime takes it.
    pub(crate) fn change(&self, random: &mut Random) -> (u8, Priority) {
        let own = self.priority(random);
        let real_time = real_time(own, random);
        // A plan without fair tasks draws nothing for them.
        if self.fair > 0 && random.below(100) < self.fair { (0, self.nice(random)) } else { (own, real_time) }
    }

    /// Returns whether task `serial` begins as a fair one, and its group.
    pub(crate) fn fair_of(&self, serial: u32) -> (Option<Priority>, Option<usize>) {
        let random = &mut Random::new(self.seed, FAIR_STREAM + 1 + u64::from(serial));
        let priority = (random.below(100) < self.fair).then(|| self.nice(random));
        let group = (self.groups > 0 && random.below(3) > 0).then(|| random.below(self.groups as u64) as usize);
        (priority, group)
    }

    /// Draws the priority of a fair task.
    fn nice(&self, random: &mut Random) -> Priority {
        Priority::fair(self.nices[random.below(self.nices.len() as u64) as usize])
    }

    /// Returns whether tasks compute at a rest. With fair tasks they do not, because waiting fair
    /// tasks would take turns.
    pub(crate) fn holds(&self, rest: u64) -> bool {
        rest.is_multiple_of(2) && self.fair == 0
    }

    /// Draws the CPUs that a task may run on.
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

    /// Returns the tenant of task `serial`. Tenants have many or few live tasks in turn, so that
    /// tasks outnumber CPUs and the reverse.
    pub(crate) fn tenant_of(&self, serial: u32) -> Option<usize> {
        let random = &mut Random::new(self.seed, TENANTS_STREAM + 1 + u64::from(serial));
        let share = if (serial as usize / self.tasks).is_multiple_of(2) { self.tenanted } else { self.tenanted / 5 };
        (random.below(100) < share).then(|| random.below(self.tenants as u64) as usize)
    }

    /// Draws a stretch of work.
    pub(crate) fn burst(&self, random: &mut Random) -> Span {
        Span::from_nanos(1 + random.below(self.burst_nanos))
    }

    /// Draws the length of a sleep or timeout.
    pub(crate) fn sleep(&self, random: &mut Random) -> Span {
        Span::from_picos(1 + random.below(SLEEP_MAX.as_picos()))
    }

    /// Returns a time longer than any task with work goes without a scheduler call, under all
    /// faults. This includes a task that has not yet noticed the end of an earlier rest.
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

    /// Returns how long a task may wait because its group is throttled: for the next period, and
    /// for one more that pays for an overrun.
    pub(crate) fn throttled_for(&self) -> Span {
        PERIOD * if self.groups > 0 { 2 } else { 0 }
    }
}

/// For a real-time task.
pub(crate) fn real_time(own: u8, random: &mut Random) -> Priority {
    if random.below(3) == 0 { Priority::round_robin(own) } else { Priority::fifo(own) }
}
