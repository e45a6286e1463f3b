//! The runtime library of programs that `hitm cc` compiles.
//!
//! **Two lives.** A program that `hitm exec` starts runs on a simulated machine. Started by itself
//! it runs natively: every function here then does what the C library's does.
//!
//! **One host thread.** The whole machine, with all threads of the program, runs on one thread of
//! the host, which [`start`] makes. A thread of the program is a coroutine ([`thread`]) in a task
//! of the runtime `hitm`, so the scheduler under the program is `hitm-sched`.
//!
//! **Thread-local storage.** Each thread of the program has the thread-local storage of a host
//! thread that is parked for its sake ([`tls`]). So `errno`, `__thread` and the C library's own
//! variables are right without a change to either. The functions here run with the storage of the
//! machine's own host thread: they enter by [`tls::on_host`].
//!
//! | module | what of the program it is |
//! |---|---|
//! | [`access`], [`atomic`] | loads, stores and atomic operations, in the ABI of the thread sanitizer |
//! | [`quick`] | the entries of loads and stores, and what they do of an easy one |
//! | [`assembly`] | accesses of inline assembly |
//! | [`stubs`] | the entries of both, in assembly: they need the caller's address and registers |
//! | [`futex`], [`pi`], [`mutex`], [`locks`] | waiting, and what is made of it |
//! | [`c11`] | threads of C11 |
//! | [`once`] | what is done once, and at a thread's end |
//! | [`leave`], [`cancel`] | threads that end in the middle of their code |
//! | [`clock`], [`cpus`], [`heap`], [`random`] | time, CPUs, allocation, random numbers |
//! | [`frames`] | whose variables are on stacks |
//! | [`turn`] | loops that wait for a word |
//! | [`pace`] | how long instructions between accesses take |
//! | [`ids`], [`classes`] | processes and threads, policies and priorities |
//! | [`signals`], [`timers`] | signals, which are delivered at calls |
//! | [`files`], [`descriptors`] | descriptors, and what they lead to |
//! | [`streams`], [`eventfd`], [`stdio`] | pipes, pairs of sockets, counters, streams over them |
//! | [`sockets`], [`listener`], [`addresses`] | sockets that listen and connect |
//! | [`options`], [`messages`] | what is set of sockets, and sent through them |
//! | [`polls`], [`epoll`], [`watchers`] | waiting for one of several files |
//! | [`guarded`] | the locks of all of these |
//! | [`rseq`], [`membarrier`] | ids from the kernel, restarts, and fences of other CPUs |
//! | [`sysfs`] | the system's files about its CPUs |
//! | [`shared_memory`] | objects of shared memory |
//! | [`syscalls`] | raw system calls, and code that is made at run time |
//! | [`processes`] | other processes and programs, which are refused |
//! | [`strings`] | the C library's functions that copy, fill and look through memory |
//! | [`place`], [`arguments`] | where its variables, arguments and environment lie |
//! | [`report`] | what `hitm exec` is told at the end |
#![cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(unused))]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

/// The functions of this crate.
static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

mod access;
mod addresses;
mod arguments;
mod arranged;
mod assembly;
mod atomic;
mod c11;
mod cancel;
mod classes;
mod clock;
mod cpus;
mod descriptors;
mod epoll;
mod eventfd;
mod files;
mod frames;
mod futex;
mod guarded;
mod heap;
mod ids;
mod last;
mod leave;
mod listener;
mod locks;
mod membarrier;
mod messages;
mod mutex;
mod native;
mod once;
mod options;
mod pace;
mod pi;
mod place;
mod polls;
mod processes;
mod quick;
mod random;
mod report;
mod rseq;
mod setting;
mod shared_memory;
mod signals;
mod sockets;
mod start;
mod stdio;
mod streams;
mod strings;
mod stubs;
mod syscalls;
mod sysfs;
mod thread;
mod timers;
mod tls;
mod turn;
mod watchers;
