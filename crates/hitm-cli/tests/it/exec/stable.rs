//! Programs that a stable compiler makes.

use std::fs;

use super::{Program, fields, is_possible};
use crate::command::{end, folder, hitm, workspace};

/// A program whose atomics and locks are those of `hitm-sync`.
const ALIASES: &str = r#"
use hitm_sync::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicU8, Ordering, fence};
use hitm_sync::sync::{Barrier, Condvar, Mutex, RwLock};
use hitm_sync::{hint, thread};
use std::time::{Duration, Instant};

struct Stats { size: AtomicU64, hits: AtomicU64, state: AtomicU8 }
static STATS: Stats = Stats { size: AtomicU64::new(100), hits: AtomicU64::new(0), state: AtomicU8::new(7) };
static LOG: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static MODE: RwLock<u32> = RwLock::new(1);
static IS_OPEN: AtomicBool = AtomicBool::new(false);

fn main() {
    let start = Barrier::new(8);
    let leaders = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..8u64 {
            let (start, leaders) = (&start, &leaders);
            scope.spawn(move || {
                if start.wait().is_leader() {
                    leaders.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(300));
                    IS_OPEN.store(true, Ordering::Release);
                }
                while !IS_OPEN.load(Ordering::Acquire) { hint::spin_loop(); }
                for key in 0..200 {
                    if key < STATS.size.load(Ordering::Relaxed) {
                        STATS.hits.fetch_add(1, Ordering::Relaxed);
                    }
                }
                STATS.state.fetch_max(number as u8, Ordering::Relaxed);
                LOG.lock().unwrap().push(number);
                assert_eq!(*MODE.read().unwrap(), 1);
            });
        }
    });
    *MODE.write().unwrap() += 1;
    let mut list = LOG.lock().unwrap().clone();
    list.sort_unstable();
    let panics = thread::spawn(|| { let _held = LOG.lock(); std::panic::resume_unwind(Box::new(())) }).join().is_err();
    let pair = (Mutex::new(0), Condvar::new());
    let before = Instant::now();
    let (_guard, waited) = pair.1.wait_timeout(pair.0.lock().unwrap(), Duration::from_millis(2)).unwrap();
    let took = before.elapsed();
    let mut one = 1;
    let pointer = AtomicPtr::new(&mut one);
    let swapped = pointer.compare_exchange(std::ptr::null_mut(), &mut one, Ordering::AcqRel, Ordering::Acquire);
    fence(Ordering::SeqCst);
    println!(
        "{} {} {list:?} {:?} {} {panics} {} {} {}",
        STATS.hits.load(Ordering::Relaxed), STATS.state.load(Ordering::Relaxed), MODE.read().unwrap(),
        leaders.load(Ordering::Relaxed), LOG.is_poisoned(), swapped.is_err(),
        waited.timed_out() && took >= Duration::from_millis(2),
    );
}
"#;

/// A program that pins its thread by the crate rustix, and waits for another one.
const PINS: &str = r#"
use std::{thread, time::{Duration, Instant}};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

fn main() {
    let last = std::thread::available_parallelism().unwrap().get() - 1;
    let mut cpus = CpuSet::new();
    cpus.set(last);
    println!("{:?} {}", sched_setaffinity(None, &cpus), sched_getcpu() == last);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let (begin, mut value) = (Instant::now(), [0; 8]);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(3));
            rustix::io::write(&event, &7_u64.to_ne_bytes()).unwrap();
        });
        rustix::io::read(&event, &mut value).unwrap();
    });
    println!("{} {}", u64::from_ne_bytes(value), begin.elapsed().as_millis());
}
"#;

/// Compiles a program whose dependencies are these lines of its manifest.
fn compile(dependencies: &str, source: &str) -> Program {
    let folder = folder();
    let manifest =
        format!("[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\n{dependencies}\n");
    fs::create_dir(folder.path().join("src")).expect("there is room");
    fs::write(folder.path().join("Cargo.toml"), manifest).expect("there is room");
    // The versions of the workspace: there is no network.
    fs::copy(workspace("Cargo.lock"), folder.path().join("Cargo.lock")).expect("there is room");
    fs::write(folder.path().join("src/main.rs"), source).expect("there is room");
    let words = ["cargo", "--stable", "build", "--release", "--quiet", "--offline"];
    let mut command = hitm();
    let ended = end(command.current_dir(folder.path()).env_remove("CARGO_TARGET_DIR").args(words));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let file = folder.path().join("target/hitm/x86_64-unknown-linux-gnu/release/app");
    Program { folder, file }
}

#[test]
fn calls_by_rustix_are_those_of_the_machine() {
    if !is_possible() {
        return;
    }
    let program = compile("rustix = { version = \"1\", features = [\"event\", \"thread\"] }", PINS);
    let (ended, _) = program.simulated(&["--cpus", "480", "--lines", "0"], &[]);
    assert!(ended.stdout.starts_with("Ok(()) true\n7 3\n"), "{}", ended.stdout);
}

#[test]
fn programs_of_a_stable_compiler_run_by_aliases() {
    if !is_possible() {
        return;
    }
    let program =
        compile(&format!("hitm-sync = {{ path = \"{}\" }}", workspace("crates/hitm-sync").display()), ALIASES);
    let expected = "800 7 [0, 1, 2, 3, 4, 5, 6, 7] 2 1 true true true true\n";
    assert_eq!(program.natively(&[]), expected);
    let (ended, file) = program.simulated(&["--cpus", "24"], &[]);
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
    let run = &file["runs"][0];
    let names = fields(run);
    for field in ["STATS.size", "STATS.hits", "IS_OPEN"] {
        assert!(names.iter().any(|name| name.contains(field)), "{field} is not in {names:#?}");
    }
    assert!(names.iter().any(|name| name.starts_with("LOG.raw")), "a lock is not in {names:#?}");
    // Seven threads wait for 300 us. A turn takes some nanoseconds: if each were made, there would
    // be a hundred thousand.
    let accesses = run["misses"]["accesses"].as_u64().or_else(|| run["accesses"].as_u64()).expect("a count");
    assert!(accesses < 20_000, "{accesses} accesses");
}
