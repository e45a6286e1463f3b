//! What the native runtime alone has: computations of closures, and a runtime on the caller's
//! thread.
#![allow(missing_docs, reason = "tests are their own documentation")]
#![cfg(not(miri))]

mod embedded;
mod fork_join;

use std::any::Any;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;

use hitm::{Handle, Mitigation, NativeRuntime};

/// The numbers of threads, each with a scheduler.
const THREADS: [(usize, &str); 4] = [(1, "baseline"), (2, "shipped"), (4, "baseline"), (8, "shipped")];

/// Runs a case as a task of a runtime, and checks the scheduler when it has ended.
fn run<F>((threads, mitigation): (usize, &str), case: impl FnOnce(Handle) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let topology = Arc::new(hitm_topology::parse(&format!("core:{threads} pu:1")).expect("a machine"));
    let mitigation = Mitigation::parse(mitigation).expect("a mitigation");
    let runtime = NativeRuntime::builder().topology(topology).mitigation(&mitigation).build().expect("threads");
    let handle = runtime.handle().clone();
    let result = runtime.run(case);
    drop(runtime);
    check_scheduler(&handle);
    if let Err(error) = result {
        resume_unwind(error.into_panic().unwrap_or_else(|error| -> Box<dyn Any + Send> { Box::new(error) }));
    }
}

/// Checks the final state of a runtime.
fn check_scheduler(handle: &Handle) {
    let snapshot = handle.diagnostics().snapshot();
    // An interrupt to a CPU that had left was not taken: a push chain may have ended there.
    let mut violations = snapshot.violations();
    violations.retain(|violation| !violation.contains("a push chain is under way"));
    assert!(violations.is_empty(), "{violations:#?}");
    assert_eq!(snapshot.tasks.len(), 0, "tasks that live after the end");
}
