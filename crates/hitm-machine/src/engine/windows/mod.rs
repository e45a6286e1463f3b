//! The second engine: time advances in windows.
//!
//! **Claim.** A window is not longer than a request takes to its line, nor than a line takes from
//! the arrival of a request to the write that follows. So nothing that a CPU does in a window
//! reaches another core in it: all requests that arrive in a window are known when it opens, and
//! each core may run to its end without a look at the others. An access compares its clock with one
//! number, the [limit](Windows::limit).
//!
//! **A window.** (1) What is due in it is taken from the [`ring`]. (2) Each core that has work
//! runs, in the order of numbers ([`cores`]). (3) Each line to which requests came, or whose
//! waiters may be served, is brought to the window's end ([`lines`]). What is granted within the
//! window is worked in by doing (2) and (3) again; that is rare, since a grant takes longer than
//! what is left.
//!
//! **Lines are worked in when they are looked at.** A line's requests wait until a CPU that may
//! have the line touches it, at a time after their arrival, or until the window ends. Then they are
//! served in the order of their times, with the owner's own accesses in between. So the order of
//! requests and of the owner's accesses is that of the other engine, not an approximation of it.
//!
//! **What differs from the other engine.** The variation of a transfer is a hash of seed, line,
//! time and CPU, since transfers have no order over the machine. Within one window: whether an idle
//! CPU notices a store or is interrupted, which value a load takes that an earlier fill serves, in
//! which order CPUs park, and whether the other thread of a core executes.
//!
//! **Not covered**: caches with sizes, the race detector, and programs with their own memory;
//! [`Config::refuses`](crate::Config::refuses) says so.

mod access;
mod cores;
mod lines;
mod ring;

use self::lines::Arrival;
use self::ring::{Due, Ring};
use super::Engine;
use crate::coherence::Latencies;
use crate::event_queue::{Event, NEVER, Turn};

/// No core.
const NO_CORE: u32 = u32::MAX;

/// The state of the engine that the other one does not have.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Whether time advances in windows. If not, all of this is empty.
    pub(crate) is_on: bool,
    ring: Ring,
    /// The open window.
    start: u64,
    end: u64,
    /// Before this time the current CPU acts without a look at anything but its line.
    limit: u64,
    /// The same, but for the CPU's own events: the window's end, or when another thread of the core
    /// may reach a line of the core.
    bound: u64,
    /// Before this time the current CPU comes before the other threads of its core.
    first_until: u64,
    /// Threads of a core, at most.
    width: usize,
    /// By core and thread: the CPU.
    threads: Box<[u32]>,
    /// By core and thread: when something of it is due, its turn or an event of its own. In one
    /// line of the host for each core, without the rest: every turn looks at it several times.
    next: Box<[u64]>,
    /// By CPU: its place in the tables by core and thread.
    places: Box<[u32]>,
    /// By CPU: when it has its turn.
    due: Box<[u64]>,
    /// By CPU: the first of its events.
    soon: Box<[u64]>,
    /// By CPU: stores that may take effect, interrupts and timers, in no order.
    own: Box<[Vec<(u64, Event)>]>,
    /// The cores that have work in the open window: a bit per core.
    work: Box<[u64]>,
    /// The core that runs, or [`NO_CORE`].
    core: u32,
    /// The requests that arrive in the open window from other cores, by line and time.
    arrivals: Vec<Arrival>,
    /// Those from another thread of the core that owns the line.
    in_core: Vec<Arrival>,
    /// The lines whose waiters may be served in the open window.
    lines: Vec<u32>,
}

impl Windows {
    /// Of a machine without windows.
    pub(super) fn off() -> Self {
        Self {
            is_on: false,
            ring: Ring::new(0),
            start: 0,
            end: 0,
            limit: 0,
            bound: 0,
            first_until: 0,
            width: 0,
            threads: Box::default(),
            next: Box::default(),
            places: Box::default(),
            due: Box::default(),
            soon: Box::default(),
            own: Box::default(),
            work: Box::default(),
            core: NO_CORE,
            arrivals: Vec::new(),
            in_core: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Of a machine with these latencies, before the first window.
    pub(super) fn on(latencies: &Latencies) -> Self {
        let (cores, cpus) = (latencies.cores(), latencies.cpus());
        let mut counts = vec![0; cores];
        let threads = (0..cpus as u32).map(|cpu| latencies.core_of(cpu) as usize);
        let threads: Vec<(usize, usize)> = threads
            .map(|core| {
                counts[core] += 1;
                (core, counts[core] - 1)
            })
            .collect();
        let width = counts.into_iter().max().unwrap_or(1);
        let places: Box<[u32]> = threads.iter().map(|&(core, thread)| (core * width + thread) as u32).collect();
        let mut by_place = vec![0; cores * width];
        places.iter().zip(0..).for_each(|(&place, cpu)| by_place[place as usize] = cpu);
        // A power of two: the window of a time is a shift.
        let ring = Ring::new(latencies.window().ilog2());
        Self {
            is_on: true,
            end: ring.end(),
            ring,
            width,
            threads: by_place.into(),
            next: vec![NEVER; cores * width].into(),
            places,
            due: vec![NEVER; cpus].into(),
            soon: vec![NEVER; cpus].into(),
            own: vec![Vec::new(); cpus].into(),
            work: vec![0; cores.div_ceil(64)].into(),
            ..Self::off()
        }
    }

    /// Something of `cpu` has another time.
    fn set_next(&mut self, cpu: u32) {
        let cpu = cpu as usize;
        self.next[self.places[cpu] as usize] = self.due[cpu].min(self.soon[cpu]);
    }

    /// `core` has work in the open window.
    fn has_work(&mut self, core: u32) {
        self.work[core as usize / 64] |= 1 << (core % 64);
    }

    /// The first core that has work, which is taken from those that have.
    fn take_core(&mut self) -> Option<u32> {
        let word = self.work.iter().position(|&word| word != 0)?;
        let bit = self.work[word].trailing_zeros();
        self.work[word] &= self.work[word] - 1;
        Some(word as u32 * 64 + bit)
    }
}

impl Engine {
    /// What is next: the turn of a CPU. Windows open and close here.
    #[inline(never)]
    pub(super) fn next_in_windows(&mut self) -> Turn {
        loop {
            if let Some(turn) = self.next_of_core() {
                return turn;
            }
            if let Some(core) = self.windows.take_core() {
                self.windows.core = core;
                continue;
            }
            self.end_lines();
            if self.windows.work.iter().all(|&word| word == 0) && !self.open_window() {
                return Turn::Nothing;
            }
        }
    }

    /// Opens the next window in which anything is due. Whether there is one.
    fn open_window(&mut self) -> bool {
        if !self.windows.ring.open_next() {
            return false;
        }
        (self.windows.start, self.windows.end) = (self.windows.ring.start(), self.windows.ring.end());
        while let Some(due) = self.windows.ring.take() {
            match due {
                Due::Cpu(cpu) => {
                    let core = self.directory.latencies().core_of(cpu);
                    self.windows.has_work(core);
                }
                Due::Line(line) => self.windows.lines.push(line),
                Due::Arrival(place) => self.enter_window(place),
            }
        }
        self.windows.arrivals.sort_unstable_by_key(Arrival::key);
        true
    }

    /// `cpu` has its turn at `time`.
    #[inline(never)]
    pub(super) fn give_turn_in_windows(&mut self, cpu: u32, time: u64) {
        self.windows.due[cpu as usize] = time;
        self.windows.set_next(cpu);
        self.enter_cpu(cpu, time);
    }

    /// Something of `cpu` is due at `time`.
    fn enter_cpu(&mut self, cpu: u32, time: u64) {
        if time >= self.windows.end {
            if time != NEVER {
                self.windows.ring.enter(time, Due::Cpu(cpu));
            }
            return;
        }
        let latencies = self.directory.latencies();
        let core = latencies.core_of(cpu);
        let reaches = time + latencies.one_way_in_core;
        self.windows.has_work(core);
        if cpu != self.current && core == self.windows.core {
            self.lower_bound(reaches);
            self.windows.first_until = self.windows.first_until.min(time + u64::from(self.current < cpu));
        }
    }

    /// From `time` on the current CPU is not alone any more.
    fn lower_bound(&mut self, time: u64) {
        self.windows.bound = self.windows.bound.min(time);
        self.windows.limit = self.windows.limit.min(time);
    }

    /// When `cpu` has its turn.
    pub(super) fn due(&self, cpu: u32) -> u64 {
        if self.windows.is_on { self.windows.due[cpu as usize] } else { self.event_queue.time_of(cpu) }
    }

    /// Enters an event that is no request's and no line's.
    #[inline(never)]
    pub(super) fn enter_own(&mut self, time: u64, event: Event) {
        let (Event::Commit { cpu } | Event::Interrupt { cpu, .. } | Event::Timer { cpu, .. }) = event else {
            unreachable!("requests and lines have their own ways")
        };
        self.windows.own[cpu as usize].push((time, event));
        if time < self.windows.soon[cpu as usize] {
            self.windows.soon[cpu as usize] = time;
            self.windows.set_next(cpu);
        }
        self.enter_cpu(cpu, time);
        if cpu == self.current {
            self.windows.limit = self.windows.limit.min(time + 1);
        }
    }

    /// Whether all that is measured comes before the open window.
    pub(super) fn window_is_over(&self) -> bool {
        self.is_over(self.windows.start)
    }
}
