//! What each CPU did when, in a window of time: for a timeline.
//!
//! A timeline is kept on request only. It takes no simulated time, and changes no result.

use serde::{Deserialize, Serialize};

use crate::account::Part;
use crate::coherence::Grant;

/// What a stretch of a CPU's time was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Doing {
    /// A task's own work.
    Task,
    /// The kernel, for a task or for itself.
    Kernel,
    /// Nothing.
    Idle,
}

/// A stretch of a CPU's time. Times are picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Slice {
    /// Its begin.
    pub from: u64,
    /// Its end.
    pub until: u64,
    /// What it was.
    pub doing: Doing,
    /// The task that the CPU runs, by its place in [`Timeline::tasks`].
    pub task: Option<u32>,
}

/// A CPU's wait for a line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LineWait {
    /// The CPU.
    pub cpu: u32,
    /// When it asked.
    pub from: u64,
    /// When it had the line.
    pub until: u64,
    /// The line and the byte.
    #[serde(skip)]
    at: (u32, u8),
    /// The object and the field.
    pub field: String,
    /// The address, where the memory is a program's.
    pub address: Option<u64>,
}

/// A task wakes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Wakeup {
    /// When.
    pub at: u64,
    /// On which CPU.
    pub cpu: u32,
    /// The task that is woken, as in [`Slice::task`].
    pub task: u32,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Task {
    /// Its number in the scheduler. A later task may have the same.
    pub number: u32,
    /// What kind of task it is, where the program says so.
    pub role: Option<String>,
}

/// What each CPU did when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Timeline {
    /// The window, in picoseconds: what lies outside is left out.
    pub window: (u64, u64),
    /// By CPU, in order of time and without gaps.
    pub cpus: Vec<Vec<Slice>>,
    /// The waits for lines of loads and read-modify-writes: a CPU goes on while a store waits.
    pub waits: Vec<LineWait>,
    /// The wakeups.
    pub wakeups: Vec<Wakeup>,
    /// The tasks that ran or were woken.
    pub tasks: Vec<Task>,
    /// By CPU: the task that it runs.
    #[serde(skip)]
    running: Vec<Option<u32>>,
}

impl Timeline {
    pub(crate) fn new(window: (u64, u64), cpus: usize) -> Self {
        Self { window, cpus: vec![Vec::new(); cpus], running: vec![None; cpus], ..Self::default() }
    }

    /// The part of a stretch that lies in the window.
    fn clamped(&self, from: u64, until: u64) -> Option<(u64, u64)> {
        let (from, until) = (from.max(self.window.0), until.min(self.window.1));
        (from < until).then_some((from, until))
    }

    /// A CPU spends its time.
    pub(crate) fn spend(&mut self, cpu: u32, from: u64, until: u64, part: Part) {
        let Some((from, until)) = self.clamped(from, until) else { return };
        let doing = match part {
            Part::User => Doing::Task,
            Part::Idle => Doing::Idle,
            _ => Doing::Kernel,
        };
        let task = self.running[cpu as usize];
        let slices = &mut self.cpus[cpu as usize];
        match slices.last_mut() {
            Some(last) if (last.doing, last.task, last.until) == (doing, task, from) => last.until = until,
            _ => slices.push(Slice { from, until, doing, task }),
        }
    }

    /// The place of a task in the list.
    fn task(&mut self, number: u32, role: Option<&str>) -> u32 {
        let known = self.tasks.iter().rposition(|task| task.number == number && task.role.as_deref() == role);
        known.unwrap_or_else(|| {
            self.tasks.push(Task { number, role: role.map(str::to_owned) });
            self.tasks.len() - 1
        }) as u32
    }

    /// A CPU runs this task from now on, or none.
    pub(crate) fn run(&mut self, cpu: u32, task: Option<(u32, Option<&str>)>) {
        self.running[cpu as usize] = task.map(|(number, role)| self.task(number, role));
    }

    /// A CPU wakes a task.
    pub(crate) fn wake(&mut self, cpu: u32, at: u64, (number, role): (u32, Option<&str>)) {
        if (self.window.0..self.window.1).contains(&at) {
            let task = self.task(number, role);
            self.wakeups.push(Wakeup { at, cpu, task });
        }
    }

    /// A CPU has waited for a line.
    pub(crate) fn waited(&mut self, grant: &Grant, byte: u8, wait: u64) {
        let request = &grant.request;
        let is_waited_for = request.kind != crate::coherence::Kind::Store;
        if let Some((from, until)) = self.clamped(grant.at.saturating_sub(wait), grant.at).filter(|_| is_waited_for) {
            let at = (request.line, byte);
            self.waits.push(LineWait { cpu: request.cpu, from, until, at, field: String::new(), address: None });
        }
    }

    /// Gives the waits their names and addresses, and puts all in order of time.
    pub(crate) fn finish(&mut self, name: impl Fn(u32, usize) -> (String, Option<u64>)) {
        for wait in &mut self.waits {
            (wait.field, wait.address) = name(wait.at.0, usize::from(wait.at.1));
        }
        self.waits.sort_by_key(|wait| (wait.cpu, wait.from));
        self.wakeups.sort_by_key(|wakeup| (wakeup.at, wakeup.cpu));
    }
}
