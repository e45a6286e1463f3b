//! `tbench` and `netperf`: pairs of fair tasks that communicate over loopback sockets.
//!
//! **Origin.** dbench 4.0's tbench, and netperf 2.6's `TCP_RR`, `UDP_RR` and `UDP_STREAM`, as in
//! Gorman, LKML 2020-12-07, and Deng Pan, LKML 2023-08-14.
//! | test | a client | its server |
//! | test | client | server |
//! |---|---|---|
//! | [`Test::Tbench`] | requests an operation of the recorded trace, waits for the reply, and requests the next one | replies |
//! | [`Test::RequestReply`] | sends a byte, waits for a byte | sends it back |
//! | [`Test::Stream`] | sends datagrams of a fixed size, one after the other | receives them; a datagram for a full socket is lost |
//!
//! **Metric.** Operations, transactions or sent datagrams per second, summed over all clients. Each
//! is one unit, and the original's figures follow from it. tbench's MB/s use the trace's mean of
//! [`trace::COUNTED_BYTES`] per operation, so that the few large operations do not make short runs
//! uncertain.
//!
//! **Work.** [`Config::work`] is the time per operation, of program and protocol together, beside
//! calls, wakeups and switches. No publication states it. The command therefore fits it to one
//! published figure, and all other results are predictions. The two ends share it equally. In a
//! stream it belongs to the sender, which carries a datagram up to the receiver's queue; the
//! receiver has half as much (assumption). [`socket::copying`] is added. Lengths are drawn with a
//! spread.
//!
//! **What is left out.** Processes, and with them page tables; the listener that makes a server a
//! connection; segments, acknowledgements and timers; the softirq context in which Linux delivers.

mod socket;
pub mod trace;

use std::cell::LazyCell;
use std::sync::Arc;

use hitm::{CpuSet, Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{Platform, Span};
use hitm_topology::{PackageId, Topology};

use self::socket::{Message, Socket, copying};
use self::trace::Mix;
use crate::bursts::{Burst, Bursts};
use crate::meter::{BATCHES, Meter, Window};
use crate::nested::nested;

/// The kind of exchange between the tasks of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// tbench's mix of operations.
    Tbench,
    /// A byte to the server and back.
    RequestReply,
    /// Datagrams of this many bytes, in one direction.
    Stream(usize),
}

/// The CPUs on which the two tasks of a pair may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// All.
    #[default]
    Free,
    /// Those of the first package.
    SamePackage,
    /// The client on those of the first package, the server on those of the last.
    OtherPackage,
}

impl Placement {
    /// Returns the name for commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::SamePackage => "same-package",
            Self::OtherPackage => "other-package",
        }
    }

    /// Returns the CPUs of a client and of a server; `None` for all.
    fn cpus(self, topology: &Topology) -> [Option<CpuSet>; 2] {
        let of = |package: u32| Some(topology.cpus_of_package(PackageId(package)).iter().copied().collect());
        match self {
            Self::Free => [None, None],
            Self::SamePackage => [of(0), of(0)],
            Self::OtherPackage => [of(0), of(topology.packages() as u32 - 1)],
        }
    }
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The kind of exchange.
    pub test: Test,
    /// Where the tasks may run.
    pub placement: Placement,
    /// The number of clients; each has its own server.
    pub pairs: usize,
    /// The depth of the group of all tasks: 0 for no group, 1 for a group, 2 for a group in a
    /// group.
    pub depth: usize,
    /// The work per operation beside calls, wakeups and copies: see the module.
    pub work: Span,
    /// The random seed for lengths and operations.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

/// The spread of lengths divided by their means: an assumption, as for all work here.
const SPREAD: f64 = 0.5;

/// All tasks are fair tasks of nice 0; the task that ends the run is more urgent.
const PRIORITY: Priority = Priority::fair(0);
const ENDS: Priority = Priority::fifo(99);

/// The names of the tasks' roles.
pub const ROLES: [&str; 2] = ["client", "server"];

const CLIENT: Role = Role(0);
const SERVER: Role = Role(1);

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

/// A running workload.
#[derive(Debug)]
pub struct Loopback {
    meter: Arc<Meter>,
}

/// A client or a server.
struct End<P: Platform> {
    runtime: Handle<P>,
    /// The socket where this task receives.
    own: Arc<Socket<P>>,
    /// The socket where the other task of the pair receives.
    other: Arc<Socket<P>>,
    lengths: Bursts,
    /// This task's part of an operation's work; `None` for no work.
    work: Option<Burst>,
}

impl<P: Platform> End<P> {
    /// Works, and copies `bytes` bytes.
    async fn work(&mut self, bytes: usize) {
        let length = self.work.map_or(Span::ZERO, |work| self.lengths.draw(work));
        self.runtime.compute(length + copying(bytes)).await;
    }

    /// Requests operations and waits for the replies, in a loop.
    async fn ask(mut self, meter: Arc<Meter>, mut next: impl FnMut() -> Message) {
        loop {
            let request = next();
            self.work(request.bytes).await;
            self.other.send(request);
            let reply = self.own.receive().await;
            self.runtime.compute(copying(reply.bytes)).await;
            meter.add(&self.runtime, 1);
        }
    }

    /// Replies to requests, in a loop.
    async fn answer(mut self) {
        loop {
            let request = self.own.receive().await;
            self.work(request.bytes + request.wanted).await;
            self.other.send(Message { bytes: request.wanted, wanted: 0 });
        }
    }

    /// Sends datagrams in a loop. No task waits for a lost datagram.
    async fn send(mut self, meter: Arc<Meter>, bytes: usize) {
        loop {
            self.work(bytes).await;
            self.other.send(Message { bytes, wanted: 0 });
            meter.add(&self.runtime, 1);
        }
    }

    /// Receives datagrams in a loop.
    async fn receive(mut self) {
        loop {
            let message = self.own.receive().await;
            self.work(message.bytes).await;
        }
    }
}

impl Config {
    /// Returns the work of the two ends of a pair per operation.
    fn parts(&self) -> [Option<Burst>; 2] {
        let parts = if matches!(self.test, Test::Stream(_)) { [1.0, 0.5] } else { [0.5, 0.5] };
        let micros = self.work.as_nanos_f64() / 1e3;
        parts.map(|part| (micros > 0.0).then_some(Burst { mean_micros: micros * part, spread: SPREAD }))
    }
}

impl Loopback {
    /// Starts all pairs. They run until the runtime shuts down at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let meter = Arc::new(Meter::new(config.window));
        config.window.open(runtime, ENDS);
        let parts = config.parts();
        let group = nested(runtime, "loopback", config.depth);
        let cpus = config.placement.cpus(runtime.topology());
        // Made when the first client draws from it; all clients share it.
        let mix = LazyCell::new(|| Arc::new(Mix::new()));
        for pair in 0..config.pairs {
            let [asks, answers] = [2 * pair, 2 * pair + 1].map(|index| Arc::new(Socket::new(runtime, index)));
            let end = |index: usize, own: &Arc<Socket<P>>, other: &Arc<Socket<P>>| End {
                runtime: runtime.clone(),
                own: own.clone(),
                other: other.clone(),
                lengths: Bursts::new(config.seed, (2 * pair + index) as u64, 1.0),
                work: parts[index],
            };
            let (client, server) = (end(0, &asks, &answers), end(1, &answers, &asks));
            let role = |role: Role| SpawnOptions {
                priority: PRIORITY,
                cpus: cpus[role.0].clone(),
                role: Some(role),
                group: group.clone(),
                ..SpawnOptions::default()
            };
            let own = meter.clone();
            match config.test {
                Test::Stream(bytes) => {
                    runtime.spawn(role(SERVER), server.receive());
                    runtime.spawn(role(CLIENT), client.send(own, bytes));
                }
                Test::RequestReply => {
                    runtime.spawn(role(SERVER), server.answer());
                    runtime.spawn(role(CLIENT), client.ask(own, || Message { bytes: 1, wanted: 1 }));
                }
                Test::Tbench => {
                    let mix = Arc::clone(&mix);
                    // The random streams for operations follow those for lengths.
                    let mut operations = Bursts::new(config.seed, (2 * config.pairs + pair) as u64, 1.0);
                    runtime.spawn(role(SERVER), server.answer());
                    runtime.spawn(role(CLIENT), client.ask(own, move || mix.draw(&mut operations)));
                }
            }
        }
        Self { meter }
    }

    /// Returns the operations per second of all clients, per batch.
    #[must_use]
    pub fn operations_per_second(&self) -> [f64; BATCHES] {
        self.meter.rates()
    }
}
