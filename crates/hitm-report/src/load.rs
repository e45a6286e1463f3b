//! Loads: what a workload runs and how much of it, as a key for programs.
//!
//! A published figure is looked up by its [`Load`]; the words that a table shows for the same load
//! are the run's profile.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A load of a workload, written as in `pipe-threads-1-depth-1`.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct Load {
    /// The kind of load, with its amount.
    pub kind: Kind,
    /// The depth of the group of all tasks: 0 for no group.
    pub depth: usize,
}

/// The kind of a load, with its amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// tbench with this many clients.
    Clients(usize),
    /// netperf's request and reply with this many clients.
    RequestReply(usize),
    /// netperf's stream of datagrams.
    UdpStream {
        /// The bytes per datagram.
        bytes: usize,
        /// The number of clients.
        clients: usize,
    },
    /// context1 with this many pairs.
    Pairs(usize),
    /// hackbench over pipes with this many groups of 20 senders and 20 receivers.
    PipeThreads(usize),
    /// hackbench over sockets with this many groups of 20 senders and 20 receivers.
    SocketThreads(usize),
    /// schbench with this many message threads and its default times.
    MessageThreads(usize),
    /// cid-bursts.
    Bursts {
        /// The threads.
        threads: Threads,
        /// Milliseconds between two successive threads.
        delay: u64,
    },
}

/// The threads of cid-bursts, shown as in `24-core/24-L3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threads {
    /// The number of threads.
    pub count: usize,
    /// Whether cores have more than one of them.
    pub all_cpus: bool,
    /// The number of L3 domains that they run on.
    pub llcs: usize,
}

impl Threads {
    fn kind(self) -> &'static str {
        if self.all_cpus { "thread" } else { "core" }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}/{}-L3", self.count, self.kind(), self.llcs)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Clients(count) => write!(f, "clients-{count}"),
            Kind::RequestReply(count) => write!(f, "rr-clients-{count}"),
            Kind::UdpStream { bytes, clients } => write!(f, "udp-stream-{bytes}-clients-{clients}"),
            Kind::Pairs(count) => write!(f, "pairs-{count}"),
            Kind::PipeThreads(count) => write!(f, "pipe-threads-{count}"),
            Kind::SocketThreads(count) => write!(f, "socket-threads-{count}"),
            Kind::MessageThreads(count) => write!(f, "message-threads-{count}"),
            Kind::Bursts { threads, delay } => {
                write!(f, "{}-bursts-{}-llcs-{}-delay-{delay}", threads.kind(), threads.count, threads.llcs)
            }
        }?;
        if self.depth == 0 { Ok(()) } else { write!(f, "-depth-{}", self.depth) }
    }
}

/// A key that no load has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLoad(pub String);

impl fmt::Display for UnknownLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load `{}`: no such load; one is `pipe-threads-1-depth-1`", self.0)
    }
}

impl std::error::Error for UnknownLoad {}

impl FromStr for Load {
    type Err = UnknownLoad;

    fn from_str(key: &str) -> Result<Self, UnknownLoad> {
        let unknown = || UnknownLoad(key.to_owned());
        let number = |text: &str| text.parse().map_err(|_not_a_number| unknown());
        let (what, depth) = match key.split_once("-depth-") {
            Some((what, depth)) => (what, number(depth)?),
            None => (key, 0),
        };
        let kind = match what.split('-').collect::<Vec<_>>()[..] {
            ["clients", count] => Kind::Clients(number(count)?),
            ["rr", "clients", count] => Kind::RequestReply(number(count)?),
            ["udp", "stream", bytes, "clients", clients] => {
                Kind::UdpStream { bytes: number(bytes)?, clients: number(clients)? }
            }
            ["pairs", count] => Kind::Pairs(number(count)?),
            ["pipe", "threads", count] => Kind::PipeThreads(number(count)?),
            ["socket", "threads", count] => Kind::SocketThreads(number(count)?),
            ["message", "threads", count] => Kind::MessageThreads(number(count)?),
            [kind @ ("core" | "thread"), "bursts", count, "llcs", llcs, "delay", delay] => {
                let threads = Threads { count: number(count)?, all_cpus: kind == "thread", llcs: number(llcs)? };
                Kind::Bursts { threads, delay: delay.parse().map_err(|_not_a_number| unknown())? }
            }
            _ => return Err(unknown()),
        };
        Ok(Self { kind, depth })
    }
}

impl TryFrom<String> for Load {
    type Error = UnknownLoad;

    fn try_from(key: String) -> Result<Self, UnknownLoad> {
        key.parse()
    }
}

impl From<Load> for String {
    fn from(load: Load) -> Self {
        load.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let threads = Threads { count: 24, all_cpus: false, llcs: 24 };
        for kind in [
            Kind::Clients(1),
            Kind::RequestReply(80),
            Kind::UdpStream { bytes: 64, clients: 2 },
            Kind::Pairs(160),
            Kind::PipeThreads(1),
            Kind::SocketThreads(8),
            Kind::MessageThreads(4),
            Kind::Bursts { threads, delay: 200 },
            Kind::Bursts { threads: Threads { all_cpus: true, ..threads }, delay: 10 },
        ] {
            for depth in [0, 1, 3] {
                let load = Load { kind, depth };
                assert_eq!(load.to_string().parse(), Ok(load));
            }
        }
        let load = Load { kind: Kind::PipeThreads(1), depth: 1 };
        assert_eq!(serde_json::to_string(&load).unwrap(), r#""pipe-threads-1-depth-1""#);
        assert_eq!(threads.to_string(), "24-core/24-L3");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for key in ["", "clients", "clients-", "clients-x", "1 client", "pairs-1-depth-", "pairs-1-2", "pairs--1"] {
            let refused = key.parse::<Load>().unwrap_err();
            assert!(refused.to_string().starts_with(&format!("load `{key}`: no such load")), "{refused}");
        }
    }
}
