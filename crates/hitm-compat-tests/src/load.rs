//! The load: threads that send HTTP requests over connections that they keep.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The addresses of the two tenants.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The critical tenant's.
    pub critical: SocketAddr,
    /// The batch tenant's.
    pub batch: SocketAddr,
}

/// What a load is.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How long it lasts.
    pub lasts: Duration,
    /// The distance of the critical tenant's requests. The next one waits for the answer.
    pub period: Duration,
    /// The number of batch connections. Each sends its next request when it has its answer.
    pub batch: usize,
    /// What the thread of the critical requests calls before them.
    pub begins: fn(),
    /// What it calls after them.
    pub ends: fn(),
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Latencies of the critical tenant, in order.
    pub critical: Vec<Duration>,
    /// The number of critical requests that were not answered by 200.
    pub late: u64,
    /// The number of batch requests per second.
    pub batch_per_second: f64,
}

impl Outcome {
    /// Returns the latency of a rank from 0.0 to 1.0.
    ///
    /// # Panics
    /// When no critical request was answered.
    #[must_use]
    pub fn quantile(&self, rank: f64) -> Duration {
        let last = self.critical.len() - 1;
        self.critical[(last as f64 * rank).round() as usize]
    }

    /// Returns the number of critical latencies up to 1 us, up to 2 us, up to 4 us, and so on.
    #[must_use]
    pub fn histogram(&self) -> Vec<u64> {
        let mut counts = vec![0; 24];
        for latency in &self.critical {
            let micros = latency.as_micros().max(1) as u64;
            counts[(64 - (micros - 1).leading_zeros()).min(23) as usize] += 1;
        }
        counts
    }
}

/// A connection that is kept.
pub struct Client(TcpStream);

impl Client {
    /// Connects to a tenant.
    ///
    /// # Errors
    /// The operating system's.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Sends a request and waits for the answer; returns its status.
    ///
    /// # Errors
    /// The operating system's, and when the answer is not HTTP.
    pub fn get(&mut self, path: &str) -> io::Result<u16> {
        write!(self.0, "GET {path} HTTP/1.1\r\nhost: tenant\r\n\r\n")?;
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let count = self.0.read(&mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(&piece[..count]);
            if let Some(status) = status_of(&answer)? {
                return Ok(status);
            }
        }
    }
}

/// Returns the status of an answer that is complete.
fn status_of(answer: &[u8]) -> io::Result<Option<u16>> {
    let text = std::str::from_utf8(answer).map_err(io::Error::other)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length: usize = length.unwrap_or_default();
    if body.len() < length {
        return Ok(None);
    }
    status.map(Some).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

/// Runs a load.
///
/// # Errors
/// When a connection fails.
///
/// # Panics
/// When a thread of the load panics.
pub fn run(addresses: Addresses, load: Load) -> io::Result<Outcome> {
    let (ends, requests, served) = (AtomicBool::new(false), AtomicU64::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let batch = || -> io::Result<()> {
            let first = Client::connect(addresses.batch).and_then(|mut client| client.get("/").map(|_| client));
            // Relaxed: only counts.
            served.fetch_add(1, Ordering::Relaxed);
            let mut client = first?;
            // Relaxed: the threads are joined.
            while !ends.load(Ordering::Relaxed) {
                client.get("/")?;
                // Relaxed: as above.
                requests.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..load.batch).map(|_| scope.spawn(batch)).collect();
        // Nothing is measured before all are connected and served. Relaxed: as above.
        while served.load(Ordering::Relaxed) < load.batch {
            thread::sleep(load.period);
        }
        // Relaxed: a count.
        let (begin, before) = (Instant::now(), requests.load(Ordering::Relaxed));
        // `begins` may change the class of the thread that calls it.
        let critical = scope.spawn(move || critical(addresses.critical, load));
        let critical = critical.join().expect("no thread of the load panics");
        // Relaxed: a count.
        let (lasted, after) = (begin.elapsed(), requests.load(Ordering::Relaxed));
        // Relaxed: the threads are joined.
        ends.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("no thread of the load panics")?;
        }
        let mut outcome = critical?;
        outcome.critical.sort_unstable();
        outcome.batch_per_second = (after - before) as f64 / lasted.as_secs_f64();
        Ok(outcome)
    })
}

fn critical(address: SocketAddr, load: Load) -> io::Result<Outcome> {
    let mut client = Client::connect(address)?;
    let (begin, mut outcome) = (Instant::now(), Outcome::default());
    (load.begins)();
    while begin.elapsed() < load.lasts {
        let start = Instant::now();
        let status = client.get("/")?;
        outcome.critical.push(start.elapsed());
        outcome.late += u64::from(status != 200);
        thread::sleep(load.period.saturating_sub(start.elapsed()));
    }
    (load.ends)();
    Ok(outcome)
}
