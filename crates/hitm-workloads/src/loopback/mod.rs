//! `tbench` and `netperf`: pairs of fair tasks that talk over loopback sockets.
//!
//! **Origin.** dbench 4.0's tbench, and netperf 2.6's `TCP_RR`, `UDP_RR` and `UDP_STREAM`, as seeds 002 and 004 ran them.
//!
//! | test | a client | its server |
//! |---|---|---|
//! | [`Test::Tbench`] | asks for an operation of the recorded trace, waits for the reply, and asks for the next | answers |
//! | [`Test::RequestReply`] | sends a byte, waits for one | sends it back |
//! | [`Test::Stream`] | sends datagrams of so many bytes, one after the other | receives them; what finds its socket full is lost |
//!
//! **Metric.** Operations, transactions, or datagrams sent a second, of all clients. Each is one unit; what the originals print follows
//! from it: tbench's MB/s by the trace's mean of [`trace::COUNTED_BYTES`] an operation, so that the few large ones do not make
//! short runs uncertain.
//!
//! **Work.** What an operation takes beside calls, wakeups and switches, of program and protocol together, is [`Config::work`]: nobody has
//! published it, so the command fits it to one published figure, and all else is prediction. The two ends share it equally. In a
//! stream it is the sender's, who carries a datagram up to the receiver's queue; the receiver has half as much (assumption).
//! [`socket::copying`] comes on top. Lengths are drawn with a spread.
//!
//! **What is left out.** Processes, and with them page tables; the listener that makes a server a connection; segments, acknowledgements
//! and timers; the softirq's own context, in which Linux delivers.

mod socket;
pub mod trace;

use std::cell::LazyCell;
use std::sync::Arc;

use hitm::{Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{Platform, Span};

use self::socket::{Message, Socket, copying};
use self::trace::Mix;
use crate::bursts::{Burst, Bursts};
use crate::meter::{BATCHES, Meter, Window};
use crate::nested::nested;

/// What the pairs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// tbench's mix of operations.
    Tbench,
    /// A byte there and back.
    RequestReply,
    /// Datagrams of so many bytes, one way.
    Stream(usize),
}

/// What a run of the workload is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// What the pairs do.
    pub test: Test,
    /// How many clients, each with its server.
    pub pairs: usize,
    /// How deep the group of all tasks is: 0 for no group, 1 for a group, 2 for a group in a group.
    pub depth: usize,
    /// What an operation takes beside calls, wakeups and copies: see the module.
    pub work: Span,
    /// Seeds lengths and operations.
    pub seed: u64,
    /// When to measure.
    pub window: Window,
}

/// Spread of lengths over their means: an assumption, as for all work here.
const SPREAD: f64 = 0.5;

/// All are fair tasks of nice 0; who ends the run is more urgent.
const PRIORITY: Priority = Priority::fair(0);
const ENDS: Priority = Priority::fifo(99);

/// The roles that tasks are counted as.
pub const ROLES: [&str; 2] = ["client", "server"];

const CLIENT: Role = Role(0);
const SERVER: Role = Role(1);

/// Counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

/// The workload, running.
#[derive(Debug)]
pub struct Loopback {
    meter: Arc<Meter>,
}

/// A client or a server.
struct End<P: Platform> {
    runtime: Handle<P>,
    /// Where it receives.
    own: Arc<Socket<P>>,
    /// Where the other one does.
    other: Arc<Socket<P>>,
    lengths: Bursts,
    /// Its part of an operation; none when nothing.
    work: Option<Burst>,
}

impl<P: Platform> End<P> {
    /// Works, and copies so many bytes.
    async fn work(&mut self, bytes: usize) {
        let length = self.work.map_or(Span::ZERO, |work| self.lengths.draw(work));
        self.runtime.compute(length + copying(bytes)).await;
    }

    /// Asks and waits, over and over.
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

    /// Answers, over and over.
    async fn answer(mut self) {
        loop {
            let request = self.own.receive().await;
            self.work(request.bytes + request.wanted).await;
            self.other.send(Message { bytes: request.wanted, wanted: 0 });
        }
    }

    /// Sends, over and over. Nothing waits for what is lost.
    async fn send(mut self, meter: Arc<Meter>, bytes: usize) {
        loop {
            self.work(bytes).await;
            self.other.send(Message { bytes, wanted: 0 });
            meter.add(&self.runtime, 1);
        }
    }

    /// Receives, over and over.
    async fn receive(mut self) {
        loop {
            let message = self.own.receive().await;
            self.work(message.bytes).await;
        }
    }
}

impl Config {
    /// What the two ends of a pair do for an operation.
    fn parts(&self) -> [Option<Burst>; 2] {
        let parts = if matches!(self.test, Test::Stream(_)) { [1.0, 0.5] } else { [0.5, 0.5] };
        let micros = self.work.as_nanos_f64() / 1e3;
        parts.map(|part| (micros > 0.0).then_some(Burst { mean_micros: micros * part, spread: SPREAD }))
    }
}

impl Loopback {
    /// Starts all pairs. They run until the runtime shuts down, at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let meter = Arc::new(Meter::new(config.window));
        config.window.open(runtime, ENDS);
        let parts = config.parts();
        let group = nested(runtime, "loopback", config.depth);
        // Made for the first client that draws from it; all share it.
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
            let role = |role| SpawnOptions {
                priority: PRIORITY,
                cpus: None,
                role: Some(role),
                tenant: None,
                group: group.clone(),
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
                    // Operations have a stream of their own, behind those of the lengths.
                    let mut operations = Bursts::new(config.seed, (2 * config.pairs + pair) as u64, 1.0);
                    runtime.spawn(role(SERVER), server.answer());
                    runtime.spawn(role(CLIENT), client.ask(own, move || mix.draw(&mut operations)));
                }
            }
        }
        Self { meter }
    }

    /// Operations a second of all clients, by batch.
    #[must_use]
    pub fn operations_per_second(&self) -> [f64; BATCHES] {
        self.meter.rates()
    }
}
