//! The kernel's figures: the same cases with threads and pipes, and the benchmark programs of
//! kernel developers, where they are installed.

use std::env;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe, stdin, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cases::{Contender, GROUP, MESSAGE_BYTES, Size, WORKERS, nanos_each, nanos_since, work};
use crate::rivals::threads;

/// A number goes from one thread to another through a pipe, and back.
pub(crate) fn ping_pong(size: Size) -> f64 {
    let trips = size.trips();
    let [(mut incoming, mut there), (mut back, mut outgoing)] = [pipe().expect("a pipe"), pipe().expect("a pipe")];
    let other = thread::spawn(move || {
        let mut item = [0; 8];
        for _ in 0..trips {
            incoming.read_exact(&mut item).expect("the other end is open");
            outgoing.write_all(&item).expect("the other end is open");
        }
    });
    let nanos = there_and_back(&mut there, &mut back, trips);
    other.join().expect("it does not panic");
    nanos
}

/// Nanoseconds per round trip of a number.
fn there_and_back(there: &mut impl Write, back: &mut impl Read, trips: u64) -> f64 {
    let start = Instant::now();
    for trip in 0..trips {
        let mut item = trip.to_ne_bytes();
        there.write_all(&item).expect("the other end is open");
        back.read_exact(&mut item).expect("the other end is open");
        assert_eq!(u64::from_ne_bytes(item), trip);
    }
    nanos_each(trips, nanos_since(start))
}

/// As `ping_pong`, between two processes: UnixBench's pipe-based context switching.
pub(crate) fn ping_pong_of_processes(size: Size) -> f64 {
    let this = env::current_exe().expect("the file of this program");
    let mut command = Command::new(this);
    let mut other = command.arg(ECHO).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
    let (there, back) = (other.stdin.take(), other.stdout.take());
    let (mut there, mut back) = (there.expect("it is piped"), back.expect("it is piped"));
    let nanos = there_and_back(&mut there, &mut back, size.trips());
    drop(there);
    assert!(other.wait().expect("it was begun").success());
    nanos
}

/// The argument that makes this program the other process: see [`echo`].
pub(crate) const ECHO: &str = "--echo";

/// Sends each received number back, until no more come.
pub(crate) fn echo() {
    let (mut incoming, mut outgoing) = (stdin().lock(), stdout().lock());
    let mut item = [0; 8];
    while incoming.read_exact(&mut item).is_ok() {
        outgoing.write_all(&item).and_then(|()| outgoing.flush()).expect("the reader waits");
    }
}

/// A group of threads over pipes: `hackbench -T -p -g 1`, in this process.
pub(crate) fn messages(size: Size) -> f64 {
    let loops = size.loops();
    let (readers, writers): (Vec<PipeReader>, Vec<PipeWriter>) = (0..GROUP).map(|_| pipe().expect("a pipe")).unzip();
    let start = Instant::now();
    thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || {
                let mut message = [0; MESSAGE_BYTES];
                (0..GROUP * loops).for_each(|_| reader.read_exact(&mut message).expect("the other end is open"));
            });
        }
        for _ in 0..GROUP {
            scope.spawn(|| {
                for mut writer in (0..loops).flat_map(|_| &writers) {
                    writer.write_all(&[1; MESSAGE_BYTES]).expect("the other end is open");
                }
            });
        }
    });
    nanos_each(size.messages(), nanos_since(start))
}

/// One thread wakes many threads, which then work.
pub(crate) fn crowd(size: Size) -> Vec<Duration> {
    let (done, all_done) = mpsc::channel();
    let worker = |_| {
        let (wake, woken) = mpsc::sync_channel::<Instant>(1);
        let done = done.clone();
        let thread = thread::spawn(move || {
            for since in woken {
                let latency = since.elapsed();
                work();
                done.send(latency).expect("the main thread waits");
            }
        });
        (wake, thread)
    };
    let (wakes, workers): (Vec<_>, Vec<_>) = (0..WORKERS * threads()).map(worker).unzip();
    let mut latencies = Vec::new();
    for _ in 0..size.events {
        let start = Instant::now();
        wakes.iter().for_each(|wake| wake.send(start).expect("the worker waits"));
        latencies.extend(all_done.iter().take(wakes.len()));
    }
    drop(wakes);
    workers.into_iter().for_each(|worker| worker.join().expect("it does not panic"));
    latencies
}

/// Returns the output of a program, if it is installed and succeeds.
fn printed_by(program: &str, line: &str) -> Option<String> {
    let output = Command::new(program).args(line.split_whitespace()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the first number of a text after `before`.
fn number_after(text: &str, before: &str) -> Option<f64> {
    let rest = text.split_once(before)?.1.trim_start();
    rest.split(|sign: char| !sign.is_ascii_digit() && sign != '.').next()?.parse().ok()
}

/// Returns nanoseconds per operation, by the seconds that a program prints after `before`.
fn timed(program: &str, line: &str, before: &str, operations: u64) -> Option<f64> {
    Some(number_after(&printed_by(program, line)?, before)? * 1e9 / operations as f64)
}

fn perf_pipe(size: Size) -> Option<f64> {
    let trips = size.trips();
    timed("perf", &format!("bench sched pipe -T -l {trips}"), "Total time:", trips)
}

fn perf_messaging(size: Size) -> Option<f64> {
    let line = format!("bench sched messaging -p -t -g 1 -l {}", size.loops());
    timed("perf", &line, "Total time:", size.messages())
}

fn hackbench(size: Size) -> Option<f64> {
    let line = format!("-T -p -g 1 -l {}", size.loops());
    timed("hackbench", &line, "Time:", size.messages())
}

/// The installed programs that do the same as `ping_pong`.
pub(crate) fn programs_that_ping_pong() -> Vec<Contender<f64>> {
    installed([("perf bench sched pipe", perf_pipe, |size| perf_pipe(size).expect(WORKED))])
}

/// The installed programs that do the same as `messages`.
pub(crate) fn programs_that_message() -> Vec<Contender<f64>> {
    installed([
        ("perf bench messaging", perf_messaging, |size| perf_messaging(size).expect(WORKED)),
        ("hackbench", hackbench, |size| hackbench(size).expect(WORKED)),
    ])
}

const WORKED: &str = "it worked before";

/// The name of a program, how its presence is tested, and how it is timed.
type Program = (&'static str, fn(Size) -> Option<f64>, fn(Size) -> f64);

fn installed<const N: usize>(programs: [Program; N]) -> Vec<Contender<f64>> {
    let found = programs.into_iter().filter(|(_, try_it, _)| try_it(Size::TINY).is_some());
    found.map(|(name, _, run)| (name, run)).collect()
}
