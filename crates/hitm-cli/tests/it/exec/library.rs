//! The runtime library of programs: what a program asks of the C library and of the system.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;

use super::{Program, fields, is_possible};
use crate::command::{end, folder, hitm, read_checked, workspace};

/// Compiles a program. `None` where none can be.
fn program(source: &str) -> Option<Program> {
    is_possible().then(|| Program::new(source))
}

/// What a program prints natively, which is what it prints on machines of `cpus`.
fn prints_the_same(program: &Program, words: &[&str], cpus: &[&str]) -> String {
    let natively = program.natively(words);
    for cpus in cpus {
        let (ended, _) = program.simulated(&["--cpus", cpus, "--lines", "0"], words);
        assert!(ended.stdout.starts_with(&natively), "on {cpus}:\n{}natively:\n{natively}", ended.stdout);
    }
    natively
}

#[test]
fn ids_times_and_random_numbers_come_from_the_seed() {
    let Some(program) = program("identity.c") else { return };
    assert!(program.natively(&[]).starts_with("ids right\n"));
    let of_seed = |seed: &str| {
        let (ended, _) = program.simulated(&["--cpus", "8", "--seed", seed, "--lines", "0"], &[]);
        ended.stdout.split("\n./").next().expect("the program's own lines").to_owned()
    };
    let first = of_seed("1");
    for line in [
        "ids right",
        "process 1, parent 0, threads 2 3 4 5",
        "read 8",
        "stream 8",
        "cpus 0-7 0-7 8 8",
        "shared 8 8 -1 0",
        "processor time right",
    ] {
        assert!(first.lines().any(|known| known == line), "{first}");
    }
    assert_eq!(first, of_seed("1"));
    let second = of_seed("2");
    for name in ["time ", "urandom ", "stream ", "auxiliary "] {
        let of = |text: &str| text.lines().rfind(|line| line.starts_with(name)).map(str::to_owned);
        assert_ne!(of(&first).expect("a line"), of(&second).expect("a line"));
    }
}

#[test]
fn the_systems_files_describe_the_machine() {
    let Some(program) = program("machine.c") else { return };
    let two_nodes = "node:2 l3:1 core:2 pu:2";
    let (ended, _) = program.simulated(&["--machine", two_nodes, "--lines", "0"], &[]);
    let is_own = |line: &&str| !line.contains(", simulated on ");
    let told: String = ended.stdout.split_inclusive('\n').take_while(is_own).collect();
    expect![[r#"
        /sys/devices/system/cpu/present: 0-7
        /sys/devices/system/cpu/cpu7/topology/core_cpus_list: 6-7
        /sys/devices/system/cpu/cpu7/topology/package_cpus: 000000ff
        /sys/devices/system/cpu/cpu7/cache/index3/shared_cpu_list: 4-7
        /sys/devices/system/cpu/cpu8/topology/core_id: nothing
        /sys/devices/system/node/online: 0-1
        /sys/devices/system/node/node1/cpulist: 4-7
        /sys/devices/system/node/node0/distance: nothing
        /proc/self/cgroup: no line
        folders 8, 7 1, 8 0
        processors 8
        Cpus_allowed_list:	1-2,5
    "#]]
    .assert_eq(&told);
}

#[test]
fn accesses_of_all_widths_have_their_values() {
    let Some(program) = program("widths.c") else { return };
    prints_the_same(&program, &[], &["2", "480"]);
}

#[test]
fn copies_without_a_call_are_read_back() {
    let Some(program) = program("copies.c") else { return };
    prints_the_same(&program, &[], &["2", "6", "48"]);
    let (_, file) = program.simulated(&["--cpus", "6"], &[]);
    let lines = file["runs"][0]["lines"].as_array().expect("lines");
    assert!(lines.iter().any(|line| line["object"] == "sent"), "`memcpy` is seen: {lines:?}");
}

#[test]
fn an_owner_inherits_the_priority_of_its_waiter() {
    let Some(program) = program("urgency.c") else { return };
    for (word, waited) in [("inherit", "waited briefly\n"), ("none", "waited long\n")] {
        let (ended, _) = program.simulated(&["--cpus", "4", "--lines", "0"], &[word]);
        let expected =
            "policy 1, level 3, scheduler 1, cpus 1, on 1, stack right\npolicy 2, level 8\nnice 5\nmade way 1\n";
        assert!(ended.stdout.starts_with(&format!("{expected}{waited}")), "{}", ended.stdout);
    }
}

#[test]
fn waits_end_in_time_and_futexes_do_what_linux_says() {
    let Some(program) = program("waits.c") else { return };
    let natively = prints_the_same(&program, &[], &["2", "24"]);
    let expected = "sums 400 400 400, word 0\ntimed 1 1 1 1 1 1 1, again 1 1\n\
                    robust 0 1 0 1 0 1 1\nfutex 2 1 2 0 1, words 0 3, woken 4\n";
    assert_eq!(natively, expected);
    let (_, file) = program.simulated(&["--cpus", "24"], &[]);
    let objects: Vec<_> =
        file["runs"][0]["lines"].as_array().expect("lines").iter().map(|line| &line["object"]).collect();
    assert!(objects.iter().any(|name| **name == "futex_bucket"), "the kernel's table is seen: {objects:?}");
}

/// A program that takes seconds is shortened as a whole. A sleep until a time of day is not: who
/// does something each 100 ms sees the clock go on by that.
#[test]
fn lengths_of_time_are_shortened() {
    let Some(program) = program("lengths.c") else { return };
    let told = |length: &str, second: &str| {
        format!(
            "nanosleep {length}, poll {length}, select {length}, sigtimedwait {length}, futex {length}, \
             condition {length}, semaphore {length}, timer {length}, alarm {second}, until 100, left 1\n"
        )
    };
    for (scale, length, second) in [("1", "100", "1000"), ("0.05", "5", "50")] {
        let (ended, _) = program.simulated(&["--cpus", "2", "--sleep-scale", scale, "--lines", "0"], &[]);
        assert!(ended.stdout.starts_with(&told(length, second)), "{scale}: {}", ended.stdout);
    }
}

/// So many that a fault which one run of eight shows is missed once in twenty-five times.
const NATIVE_RUNS: usize = 24;

/// Threads that share counters of CPUs lose none, whenever they are interrupted.
#[test]
fn sequences_restart_and_ids_are_told() {
    let Some(program) = program("sequences.c") else { return };
    let expected = "sum 8000, wrong 0, missed 0\n";
    // Natively threads are interrupted anywhere. With calls in the sequences, one run of eight
    // ended with a signal.
    for _ in 0..NATIVE_RUNS {
        let natively = Command::new(&program.file).output().expect("it starts");
        // 77: a kernel without these calls.
        let first = String::from_utf8_lossy(&natively.stdout).lines().next().map(|line| format!("{line}\n"));
        assert!(natively.status.code() == Some(77) || first.as_deref() == Some(expected), "{natively:?}");
    }
    for cpus in ["2", "24"] {
        for ids in [false, true] {
            let options = ["--cpus", cpus, "--lines", "0", "--mm-cid"];
            let (ended, _) = program.simulated(&options[..if ids { 5 } else { 4 }], &[]);
            let told = match (ids, cpus) {
                (false, _) => "ids 0x1 of 24 bytes",
                (true, "2") => "ids 0x3 of 28 bytes",
                (true, _) => "ids 0x1e of 28 bytes",
            };
            let expected = format!("{expected}aborted 1, missed without 1, {told}\n");
            assert!(ended.stdout.starts_with(&expected), "{cpus}, {ids}: {}", ended.stdout);
        }
    }
}

#[test]
fn signals_are_delivered_at_calls() {
    let Some(program) = program("signals.c") else { return };
    let natively = prints_the_same(&program, &[], &["2", "24"]);
    let expected = "raise 1, kill 1, blocked 1, once 1, in a loop 1, in a lock 1\n\
                    sleep -1 1 1, semaphore 1, poll 1, caught 1, alarm 100 1\n\
                    timer 1, left 1, awaited 1 1 1\nwaited for 1\n";
    assert_eq!(natively, expected);
    // The usual action ends the program; its result is told.
    let ended = end(hitm().args(["exec", "--cpus", "4", "--lines", "0"]).arg(&program.file).arg("end"));
    assert!(ended.stderr.contains("ended with signal: 15 (SIGTERM)"), "{}", ended.stderr);
    assert!(ended.stdout.contains("simulated on gnr-2x120@4"), "{}", ended.stdout);
}

#[test]
fn pipes_and_sockets_join_threads() {
    let Some(program) = program("pipes.c") else { return };
    let natively = prints_the_same(&program, &[], &["2", "24"]);
    assert!(natively.ends_with("semaphore 1\nraw 8 8 7, wrong 1, closed 0 1\n"), "{natively}");
    let (_, file) = program.simulated(&["--cpus", "24"], &[]);
    let lines = file["runs"][0]["lines"].as_array().expect("lines").clone();
    for object in ["pipe", "socket_sends", "socket_receives"] {
        assert!(lines.iter().any(|line| line["object"] == object), "{object} is seen");
    }
}

#[test]
fn sockets_connect_within_the_program() {
    let Some(program) = program("sockets.c") else { return };
    let natively = prints_the_same(&program, &[], &["2", "24"]);
    assert!(natively.starts_with("edges 7350 300\nthreads 7350, wrong 0\nshared 40\n"), "{natively}");
    for (words, objects) in
        [(&[][..], &["epoll", "socket_sends", "socket_receives"][..]), (&["connects"], &["socket_accepts"])]
    {
        let (_, file) = program.simulated(&["--cpus", "24", "--lines", "100"], words);
        let lines = file["runs"][0]["lines"].as_array().expect("lines");
        for object in objects {
            assert!(lines.iter().any(|line| line["object"] == *object), "{object} is seen");
        }
    }
}

/// Accesses of libraries that `hitm cc` made count, whether they are linked or loaded, and their
/// variables and functions have names.
#[test]
fn shared_libraries_are_seen() {
    if !is_possible() {
        return;
    }
    let folder = folder();
    let source = workspace("crates/hitm-cli/tests/it/exec/library.c");
    let library = folder.path().join("libhits.so");
    let compile = |output: &Path, words: &[&str]| {
        let ended = end(hitm().args(["cc", "-O2", "-pthread", "-o"]).arg(output).arg(&source).args(words));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "it compiles");
    };
    compile(&library, &["-shared", "-fPIC"]);
    let place = folder.path().display();
    let (find, run) = (format!("-L{place}"), format!("-Wl,-rpath,{place}"));
    for words in [&["-DMAIN", "-ldl"][..], &["-DMAIN", "-DLINKED", &find, "-lhits", &run]] {
        let program = folder.path().join("program");
        compile(&program, words);
        let json = folder.path().join("result.json");
        let ended = end(hitm().args(["exec", "--cpus", "8", "--json"]).arg(&json).arg(&program).arg(&library));
        assert!(ended.stdout.starts_with("total 8000\n"), "{ended:?}");
        let run = &read_checked(&json, "run")["runs"][0];
        assert!(run["accesses"].as_u64().is_some_and(|accesses| accesses > 16_000), "{run:#}");
        let names = fields(run);
        let has = |field: &str| names.iter().any(|name| name == field);
        assert!(has("hits.[7]") && has("own of thread 0.calls"), "{words:?}: {names:#?}");
        assert!(run.to_string().contains("\"function\":\"hit\""), "{words:?}: {run:#}");
    }
}

/// What a simulated process cannot do: the call is named, and what to do instead.
#[test]
fn what_leads_out_of_the_process_is_refused() {
    let Some(program) = program("refused.c") else { return };
    for (word, said) in [
        ("cancel", "pthread_setcanceltype: a thread that may be cancelled at any instruction is not simulated; leave"),
        ("protected", "pthread_mutex_lock: a mutex that is priority-protected, or both robust and inheriting, is not"),
        ("fork", "fork: a child process cannot be simulated; run the program without"),
        ("vfork", "vfork: a child process cannot be simulated; run the program without"),
        ("daemon", "daemon: a child process cannot be simulated; run the program in the foreground"),
        ("segment", "shmget: memory that processes share is not simulated; use memory of the program's own"),
        ("robust", "pthread_mutex_lock: a mutex that is priority-protected, or both robust and inheriting, is not"),
        ("shared", "shm_open: memory that other processes may share is not simulated; make the object anew"),
        ("code", "mmap: memory for code that is made at run time (PROT_EXEC), whose accesses would not be seen; turn"),
        ("socket", "socket: only streams of AF_UNIX, AF_INET and AF_INET6 are simulated; use SOCK_STREAM between"),
        ("network", "connect: the simulated machine has no network but the loopback device; run both sides as threads"),
        ("copy", "sendfile: between files in the kernel, to or from a simulated pipe or socket; use read and write"),
        ("poll", "poll: it waits for descriptors that lead out of the program; wait for pipes, sockets or eventfds"),
        ("kill", "kill: a signal to another process; send signals within the program alone"),
        ("clone", "clone: a process or thread by a raw system call is not simulated; use pthread_create"),
        ("rings", "io_uring_setup: I/O by rings is not simulated; use read and write"),
        ("stream", "fdopen: several threads use a stream over a pipe or socket at the same time; use read and write"),
        ("profile", "setitimer: a timer of processor time is not simulated; use ITIMER_REAL"),
    ] {
        is_refused(&program, word, said);
    }
}

/// The program, told to do `word`, is refused by a line that says `said`.
fn is_refused(program: &Program, word: &str, said: &str) {
    let ended = end(hitm().args(["exec", "--cpus", "2"]).arg(&program.file).arg(word));
    assert_eq!(ended.status, Some(1), "{word}: {ended:?}");
    let (line, program) = (&ended.stderr, program.file.display());
    assert!(line.starts_with(&format!("hitm: program `{program}`: it calls {said}")), "{word}: {line}");
    assert_eq!(line.matches('\n').count(), 1, "{word}: {line}");
}

#[test]
fn other_programs_are_refused_by_the_name_of_the_call() {
    let Some(program) = program("refused.c") else { return };
    for (names, natively) in [
        (&["execv", "execve", "execvp", "execvpe", "fexecve", "execveat", "system", "popen"][..], "another program\n"),
        // With more words than registers.
        (&["execl", "execlp", "execle"], "a b c d e f g\n"),
    ] {
        for name in names {
            assert_eq!(program.natively(&[name]), natively, "{name}");
            is_refused(
                &program,
                name,
                &format!("{name}: another program cannot be simulated; run the program without"),
            );
        }
    }
    for name in ["posix_spawn", "posix_spawnp"] {
        is_refused(&program, name, &format!("{name}: another program cannot be simulated; run the program without"));
    }
}

#[test]
fn arguments_and_environment_do_not_move_with_the_options() {
    let Some(program) = program("arguments.c") else { return };
    let (words, trace) = (["a word of the program's"], program.folder.path().join("trace"));
    let run = |options: &[&str], variables: &[(&str, &str)]| {
        let json = program.folder.path().join("result.json");
        let mut command = hitm();
        command.env("HITM_TEST", "a value").envs(variables.iter().copied());
        command.args(["exec", "--cpus", "4", "--lines", "9"]).args(options).arg("--json").arg(&json);
        let ended = end(command.arg(&program.file).args(words));
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
        let mut file = read_checked(&json, "run");
        file["runs"][0]["wall_seconds"] = 0.into();
        (ended.stdout, file["runs"][0].take())
    };
    let first = run(&[], &[]);
    let names = fields(&first.1);
    for name in ["arguments", "environment"] {
        assert!(names.iter().any(|known| known.starts_with(name)), "{name} is not in {names:?}");
    }
    assert!(first.0.starts_with("the program does not see its setting\n"), "{}", first.0);
    // What the option adds to the setting is longer than a line's half, and not a line.
    let longer = run(&["--trace", trace.to_str().expect("a path")], &[]);
    assert_eq!(first.0, longer.0);
    assert!(first.1 == longer.1, "the results differ");
    // The user's own variables move the environment, not the arguments.
    let at = |text: &str| text.lines().find(|line| line.starts_with("arguments at")).map(str::to_owned);
    let other = run(&[], &[("HITM_TEST_MORE", "0123456789")]);
    assert!(at(&first.0).is_some() && at(&first.0) == at(&other.0), "{}{}", first.0, other.0);
}

#[test]
fn programs_without_races_see_no_impossible_value() {
    let Some(program) = program("litmus.c") else { return };
    let impossible = "impossible: message 0, fenced 0, ordered 0, loads 0, writes 0, back 0\n";
    assert!(program.natively(&[]).starts_with(impossible));
    let (mut passed, mut weak) = (0, 0);
    for seed in ["1", "2", "3", "4"] {
        for cpus in ["4", "480"] {
            let (ended, _) = program.simulated(&["--cpus", cpus, "--seed", seed, "--lines", "0"], &[]);
            assert!(ended.stdout.starts_with(impossible), "seed {seed} on {cpus}: {}", ended.stdout);
            let numbers = ended.stdout.lines().nth(1).expect("what is possible");
            let mut words = numbers.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
            passed += words.next().expect("a number");
            weak += words.next().expect("a number");
        }
    }
    // The cases are reached: a store waits in its buffer while a load goes on.
    assert!(passed > 0 && weak > 0, "{passed} {weak}");
}

/// Clocks, the time-stamp counter and loops that look at them go by simulated time.
#[test]
fn clocks_show_simulated_time() {
    let Some(program) = program("clocks.c") else { return };
    for cpus in ["2", "480"] {
        let (ended, _) = program.simulated(&["--cpus", cpus, "--lines", "0"], &[]);
        let expected = "clocks agree 1, polled 1, counted 1, stack 1\n";
        assert!(ended.stdout.starts_with(expected), "on {cpus}: {}", ended.stdout);
    }
}

/// docs/hard-cases.md names a test for each row, and the tests are there.
#[test]
fn each_hard_case_has_a_test() {
    let page = fs::read_to_string(workspace("docs/hard-cases.md")).expect("the page");
    let folder = workspace("crates/hitm-cli/tests/it/exec");
    let files = fs::read_dir(folder).expect("the tests").map(|file| file.expect("an entry").path());
    let files = files.chain([workspace("crates/hitm-cli/tests/it/exec.rs")]);
    let sources = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let tests: String = sources.map(|file| fs::read_to_string(file).expect("a source")).collect();
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut count = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().expect("a last column");
        let mut named = cell.split('`').skip(1).step_by(2).filter(|word| !word.ends_with(".rs")).peekable();
        assert!(named.peek().is_some(), "no test is named: {row}");
        for test in named {
            assert!(tests.contains(&format!("fn {test}()")), "{test} is not there: {row}");
            count += 1;
        }
    }
    assert!(count > 25, "{count} tests are named");
}
