//! What it costs to run a program on the simulated machine, beside the goals.
//!
//! Each figure is time in user mode of the host, the median of a few pairs of runs. The two runs of
//! a pair differ in their rounds alone, so what a start costs is in neither difference.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Pairs of runs.
const PAIRS: usize = 5;

/// Time in user mode that children of this process have taken, in seconds.
fn of_children() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux says what it counts");
    // Behind the name, which may have spaces, come the fields from the third on; this is the 16th,
    // in hundredths of a second.
    let rest = text.rsplit(')').next().expect("a name");
    let ticks: f64 = rest.split_whitespace().nth(13).and_then(|field| field.parse().ok()).expect("a number");
    ticks / 100.0
}

/// Runs a command to its end. Returns its time in user mode.
fn user_time(command: &mut Command) -> f64 {
    let before = of_children();
    let status = command.stdout(Stdio::null()).status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
    of_children() - before
}

/// The median of `f` over some calls.
fn median(mut f: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..PAIRS).map(|_| f()).collect();
    all.sort_by(f64::total_cmp);
    all[PAIRS / 2]
}

struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    fn new() -> Self {
        let built = Path::new(env!("CARGO_BIN_EXE_hitm")).parent().expect("a folder");
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        cargo.args(["build", "--locked", "--release", "-p", "hitm-exec", "--target-dir"]);
        let status = cargo.arg(built.parent().expect("the target folder")).status().expect("cargo runs");
        assert!(status.success(), "the runtime library is built");
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn hitm() -> Command {
        Command::new(env!("CARGO_BIN_EXE_hitm"))
    }

    /// Compiles a program of this folder, with `compiler` and its options.
    fn compile(&self, mut compiler: Command, name: &str, as_name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs").join(name);
        let file = self.folder.path().join(as_name);
        let status = compiler.args(["-O2", "-pthread", "-o"]).arg(&file).arg(source).status().expect("it starts");
        assert!(status.success(), "{compiler:?}");
        file
    }

    fn simulated(&self, name: &str) -> PathBuf {
        let mut compiler = Self::hitm();
        compiler.arg("cc");
        self.compile(compiler, name, &format!("{name}.simulated"))
    }

    fn native(&self, name: &str) -> PathBuf {
        let mut compiler = Command::new("gcc");
        // The instrumented program has no vector code either.
        compiler.arg("-fno-tree-vectorize");
        self.compile(compiler, name, &format!("{name}.native"))
    }

    /// The time in user mode of a program with these words on the machine.
    fn exec(options: &[&str], program: &Path, words: &[&str]) -> f64 {
        user_time(Self::hitm().arg("exec").args(options).args(["--lines", "0"]).arg(program).args(words))
    }
}

fn main() {
    // `cargo test` calls it too.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let programs = Programs::new();
    println!("{:<58}{:>12}{:>12}", "", "here", "goal");
    let row = |what: &str, value: f64, unit: &str, goal: &str| println!("{what:<58}{value:>8.2} {unit:<5}{goal:>10}");

    let (private, native) = (programs.simulated("private.c"), programs.native("private.c"));
    let simulated = median(|| {
        let long = Programs::exec(&["--cpus", "2"], &private, &["11000000"]);
        (long - Programs::exec(&["--cpus", "2"], &private, &["1000000"])) * 1e9 / 1e7
    });
    let natively = median(|| user_time(Command::new(&native).arg("1000000000")));
    row("private data: a turn of two loads and a store", simulated, "ns", "");
    row("the same natively, without vector code", natively, "ns", "");
    row("the first over the second", simulated / natively, "", "20");

    let sharing = programs.simulated("sharing.c");
    let options = ["--machine", "skx-8x28"];
    // A round is a load and a store of each of 240 threads.
    let rate = median(|| {
        let long = Programs::exec(&options, &sharing, &["240", "9000"]);
        8e3 * 240.0 * 2.0 / 1e6 / (long - Programs::exec(&options, &sharing, &["240", "1000"]))
    });
    row("false sharing of 240 threads: accesses per second", rate, "M", "10 M");

    let lock = programs.simulated("lock.c");
    let seconds = median(|| Programs::exec(&["--machine", "gnr-2x120"], &lock, &["480", "5000"]));
    row("an MCS lock of 480 threads, 5 ms simulated", seconds, "s", "1 s");

    let begin = Instant::now();
    let counter = programs.simulated("sharing.c");
    Programs::exec(&["--machine", "gnr-2x120"], &counter, &["64", "100"]);
    row("from the compiler to the first report, by the clock", begin.elapsed().as_secs_f64(), "s", "10 s");
}
