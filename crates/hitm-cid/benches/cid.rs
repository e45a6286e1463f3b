//! Ids and counters beside others, in one run: `cargo bench -p hitm-cid [CASE]`.
//!
//! | case | one operation |
//! |---|---|
//! | `reads` | reading which slot is this thread's, on one thread |
//! | `counters` | adding one to a counter, with 1 to 16 threads that do nothing else |
//!
//! A round runs every contender once. The order rotates by one each round, so that a disturbance of
//! the machine affects all of them. The output has the median and the minimum of the rounds, each
//! over that of the first row. In `counters` a figure is the time from the first thread's start to
//! the last one's end, divided by the number of adds: half the time of one add when two CPUs add
//! side by side.
//!
//! Rivals in `counters`:
//!
//! | rival | what it is |
//! |---|---|
//! | `one atomic` | `fetch_add` on a word that all share |
//! | `slot per thread` | `fetch_add` on a padded slot of the thread's own, which is found by a const thread-local number |
//! | `slot per thread, plain` | the same with a load and a store, as only a single writer may: it needs a slot for every live thread, and says what the read-modify-write costs |
//! | `ShardedLock` | crossbeam's: a shared `fetch_add` under the read lock, as for a statistic in a structure behind one |
//! | `fast-counter` | a counter of as many shards as CPUs, found by a number of the thread's |
//!
//! **Bytes** are the counter's memory at the end. With one slot per thread they grow with the
//! number of threads, ours with the number that ran at once.
//!
//! **What it does not show.** More than a few CPUs, other kernels, and programs whose threads do
//! something between two adds.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::ShardedLock;
use fast_counter::ConcurrentCounter;
use hitm_cid::{Counter, PerCid, current, support};
use thread_local::ThreadLocal;

/// How much is done.
#[derive(Clone, Copy)]
struct Size {
    rounds: usize,
    reads: u64,
    adds: u64,
}

/// Half a minute in all on two CPUs.
const FULL: Size = Size { rounds: 101, reads: 200_000, adds: 800_000 };
/// For tests: that it works.
const TINY: Size = Size { rounds: 1, reads: 1_000, adds: 1_600 };

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

thread_local! {
    /// As fast as a thread-local variable is: no destructor, no initialisation.
    static CONST: Cell<usize> = const { Cell::new(1) };
    /// With an initialisation at the first use.
    static LAZY: Cell<usize> = Cell::new(cpus());
    /// Which slot is this thread's.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// The figures of one contender, in nanoseconds an operation.
struct Figures {
    least: f64,
    median: f64,
}

impl Figures {
    fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        Self { least: rounds[0], median: rounds[rounds.len() / 2] }
    }
}

/// Runs the contenders round by round.
fn compare<C>(rounds: usize, contenders: &[C], run: impl Fn(&C) -> f64) -> Vec<Figures> {
    let mut nanos = vec![Vec::new(); contenders.len()];
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let next = (round + turn) % contenders.len();
            nanos[next].push(run(&contenders[next]));
        }
    }
    nanos.into_iter().map(Figures::of).collect()
}

/// Prints `rows` of a case, each over the first; `last` is a further column.
fn print<'a>(case: &str, what: &str, rows: impl Iterator<Item = (&'a str, Figures, String)>, last: &str) {
    println!("{case:<9} {what:<24} {:>11} {:>6} {:>11} {:>6} {last:>8}", "median (ns)", "ratio", "least (ns)", "ratio");
    let mut first = None;
    for (name, Figures { least, median }, last) in rows {
        let (first_median, first_least) = *first.get_or_insert((median, least));
        let (median_ratio, least_ratio) = (median / first_median, least / first_least);
        println!("{:<9} {name:<24} {median:>11.2} {median_ratio:>6.2} {least:>11.2} {least_ratio:>6.2} {last:>8}", "");
    }
}

/// Times `read`, in a loop of its own for each contender.
#[inline(always)]
fn time_reads<T>(reads: u64, read: impl Fn() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..reads {
        // Opaque, so that no read is left out or moved.
        black_box(read());
    }
    start.elapsed().as_secs_f64() * 1e9 / reads as f64
}

/// A name, and what times so many reads.
type Reader<'a> = (&'static str, &'a dyn Fn(u64) -> f64);

fn reads(size: Size) {
    let (ids, slots): (ThreadLocal<usize>, PerCid<usize>) = (ThreadLocal::new(), PerCid::new(|| 1));
    let contenders: [Reader<'_>; 8] = [
        ("const thread-local", &|reads| time_reads(reads, || CONST.get())),
        ("current()", &|reads| time_reads(reads, current)),
        ("lazy thread-local", &|reads| time_reads(reads, || LAZY.get())),
        ("thread_local's get", &|reads| time_reads(reads, || *ids.get_or(|| 1))),
        ("PerCid::get", &|reads| time_reads(reads, || *slots.get())),
        ("sched_getcpu", &|reads| time_reads(reads, processor)),
        ("thread::current().id()", &|reads| time_reads(reads, || thread::current().id())),
        ("nothing", &|reads| time_reads(reads, || 1)),
    ];
    let figures = compare(size.rounds, &contenders, |(_, run)| run(size.reads));
    let rows = contenders.iter().zip(figures).map(|((name, _), figures)| (*name, figures, String::new()));
    print("reads", "", rows, "");
}

/// The C library's idea of the CPU: read from the same area where it has one.
#[cfg(target_os = "linux")]
fn processor() -> usize {
    // SAFETY: has no preconditions.
    unsafe { libc::sched_getcpu() as usize }
}

#[cfg(not(target_os = "linux"))]
fn processor() -> usize {
    0
}

/// A counter that is compared.
trait Rival: Sync {
    fn add(&self);
    fn sum(&self) -> u64;
    /// Memory that it takes, itself included.
    fn bytes(&self) -> usize;
}

impl Rival for Counter {
    #[inline]
    fn add(&self) {
        self.add(1);
    }
    fn sum(&self) -> u64 {
        self.sum()
    }
    fn bytes(&self) -> usize {
        self.slots().bytes()
    }
}

struct OneAtomic(CachePadded<AtomicU64>);

impl Rival for OneAtomic {
    #[inline]
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// Slots by thread; `PLAIN` ones have a single writer each.
struct SlotPerThread<const PLAIN: bool>(Vec<CachePadded<AtomicU64>>);

impl<const PLAIN: bool> Rival for SlotPerThread<PLAIN> {
    #[inline]
    fn add(&self) {
        let slot = &self.0[SLOT.get()];
        if PLAIN {
            slot.store(slot.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            slot.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn sum(&self) -> u64 {
        self.0.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.len() * size_of::<CachePadded<AtomicU64>>()
    }
}

impl Rival for ShardedLock<AtomicU64> {
    #[inline]
    fn add(&self) {
        self.read().expect("nobody panics with it").fetch_add(1, Ordering::Relaxed);
    }
    fn sum(&self) -> u64 {
        self.read().expect("nobody panics with it").load(Ordering::Relaxed)
    }
    fn bytes(&self) -> usize {
        // Eight padded locks (crossbeam-utils 0.8, `NUM_SHARDS`), which are not ours to measure.
        size_of::<Self>() + 8 * 128
    }
}

/// The counter, and how many shards it was asked for.
struct Sharded(ConcurrentCounter, usize);

impl Rival for Sharded {
    #[inline]
    fn add(&self) {
        self.0.add(1);
    }
    fn sum(&self) -> u64 {
        self.0.sum() as u64
    }
    fn bytes(&self) -> usize {
        // A shard is alone on 128 bytes on x86-64 and aarch64 (fast-counter 1.0).
        size_of::<ConcurrentCounter>() + self.1.next_power_of_two() * 128
    }
}

/// Adds `adds` in all on `threads`; nanoseconds an add, and the counter's bytes.
fn time_adds<R: Rival>(rival: &R, threads: usize, adds: u64) -> (f64, usize) {
    let (each, ready) = (adds / threads as u64, Barrier::new(threads));
    let run = |number| {
        SLOT.set(number);
        // So that slots are made before the clock runs.
        rival.add();
        ready.wait();
        let start = Instant::now();
        (1..each).for_each(|_| rival.add());
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        running.into_iter().map(|thread| thread.join().expect("it adds")).collect()
    });
    assert_eq!(rival.sum(), each * threads as u64);
    let first = spans.iter().map(|(start, _)| *start).min().expect("a thread");
    let last = spans.iter().map(|(_, end)| *end).max().expect("a thread");
    ((last - first).as_secs_f64() * 1e9 / (each * threads as u64) as f64, rival.bytes())
}

type Adder = (&'static str, fn(usize, u64) -> (f64, usize));

const ADDERS: [Adder; 7] = [
    ("PerCid counter", |threads, adds| time_adds(&Counter::new(), threads, adds)),
    ("one atomic", |threads, adds| time_adds(&OneAtomic(CachePadded::default()), threads, adds)),
    ("slot per thread", |threads, adds| time_adds(&slots::<false>(threads), threads, adds)),
    ("slot per thread, plain", |threads, adds| time_adds(&slots::<true>(threads), threads, adds)),
    ("ShardedLock", |threads, adds| time_adds(&ShardedLock::new(AtomicU64::new(0)), threads, adds)),
    ("fast-counter", |threads, adds| time_adds(&sharded(cpus()), threads, adds)),
    ("fast-counter, by threads", |threads, adds| time_adds(&sharded(threads), threads, adds)),
];

fn slots<const PLAIN: bool>(threads: usize) -> SlotPerThread<PLAIN> {
    SlotPerThread((0..threads).map(|_| CachePadded::default()).collect())
}

fn sharded(shards: usize) -> Sharded {
    Sharded(ConcurrentCounter::new(shards), shards)
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn counters(size: Size) {
    for threads in THREADS {
        let bytes: Vec<_> = ADDERS.iter().map(|_| Cell::new(0)).collect();
        let contenders: Vec<_> = ADDERS.iter().zip(&bytes).collect();
        let figures = compare(size.rounds, &contenders, |((_, run), bytes)| {
            let (nanos, taken) = run(threads, size.adds);
            bytes.set(taken.max(bytes.get()));
            nanos
        });
        let rows = contenders.iter().zip(figures);
        let rows = rows.map(|(((name, _), bytes), figures)| (*name, figures, bytes.get().to_string()));
        print("counters", &format!("{threads} threads"), rows, "bytes");
    }
}

fn main() {
    // Cargo says `--bench` when it measures; in `cargo test` it does not, and every case runs tiny.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = if arguments.iter().any(|argument| argument == "--bench") { FULL } else { TINY };
    let wanted = arguments.iter().find(|argument| !argument.starts_with("--"));
    println!("cid: {}, {} CPUs, {} rounds; measured, this machine, this run", support(), cpus(), size.rounds);
    let start = Instant::now();
    for (case, run) in [("reads", reads as fn(Size)), ("counters", counters)] {
        if wanted.is_none_or(|wanted| case.contains(wanted.as_str())) {
            run(size);
        }
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
}
