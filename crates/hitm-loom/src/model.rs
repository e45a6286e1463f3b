//! [`Model`]: a few threads, one property, and all executions.

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use crate::defect::{self, Defect};
use crate::memory;

/// The environment variable that lifts the bounds on preemptions: minutes instead of seconds.
const UNBOUNDED: &str = "HITM_LOOM_UNBOUNDED";

/// The number of accesses after which an execution counts as endless. The longest model needs a few
/// hundred.
const BRANCHES_MAX: usize = 2_000;

/// A few threads over the code under test, and the property that must hold in every execution.
#[derive(Clone)]
pub struct Model {
    property: &'static str,
    preemptions: Option<usize>,
    breaks_off: usize,
    run: Arc<dyn Fn() + Send + Sync>,
}

/// A fault of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The message of the detector.
    pub message: String,
    /// The number of the execution, counted from 1.
    pub execution: usize,
}

/// The detector of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A condition that the model [`require`]s for its property.
    Property,
    /// A condition that the model [requires](require_of) for another property.
    OtherProperty,
    /// Loom: two unordered accesses to a [`LoomPlain`](crate::LoomPlain).
    Race,
    /// Loom: every thread waits.
    Deadlock,
    /// Loom: the execution does not end.
    NoProgress,
    /// A panic of the code under test.
    Panic,
}

impl Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Property => "loom, property",
            Self::OtherProperty => "loom, another property",
            Self::Race => "loom, data race",
            Self::Deadlock => "loom, deadlock",
            Self::NoProgress => "loom, no progress",
            Self::Panic => "panic",
        })
    }
}

/// The text before the property in the message of a violation. [`OWN`] stands for the model's own
/// property.
const VIOLATED: &str = "violated: ";
const OWN: &str = "its property";

/// Requires `condition` for the model's property; for use inside a model.
///
/// # Panics
/// When the condition does not hold; [`Model::check`] turns that into the model's fault.
#[track_caller]
pub fn require(condition: bool, what: impl Display) {
    require_of(OWN, condition, what);
}

/// Requires `condition` for `property`, which may be the model's own; for use inside a model.
///
/// # Panics
/// As [`require`].
#[track_caller]
pub fn require_of(property: &str, condition: bool, what: impl Display) {
    assert!(condition, "{VIOLATED}`{property}`: {what}");
}

impl Model {
    /// Returns the model `run` of a property. Every execution is explored.
    ///
    /// `run` is called once per execution, as loom's first thread, and spawns the other threads
    /// with `loom::thread`. It must create its words itself. It may share only records of outcomes
    /// with other executions.
    pub fn new(property: &'static str, run: impl Fn() + Send + Sync + 'static) -> Self {
        Self { property, preemptions: None, breaks_off: 0, run: Arc::new(run) }
    }

    /// Limits the exploration to executions with at most `count` preemptions of threads. A switch
    /// away from a thread that waits or has ended is not a preemption. Most faults need one or two.
    /// `HITM_LOOM_UNBOUNDED` in the environment lifts the bound.
    #[must_use]
    pub fn preemptions(self, count: usize) -> Self {
        Self { preemptions: Some(count), ..self }
    }

    /// Breaks off the first `count` waits of each execution that can be:
    /// [`Memory::spin_briefly`](hitm_memory::Memory::spin_briefly). Without it none is.
    #[must_use]
    pub fn breaks_off(self, count: usize) -> Self {
        Self { breaks_off: count, ..self }
    }

    /// Returns the property.
    #[must_use]
    pub fn property(&self) -> &'static str {
        self.property
    }

    /// Explores the executions and returns their number.
    ///
    /// # Panics
    /// When one has a fault.
    #[track_caller]
    pub fn check(&self) -> usize {
        let (fault, executions) = self.explore(None);
        if let Some(Fault { kind, message, execution }) = fault {
            panic!("`{}`: {message} (caught by {kind}, in execution {execution})", self.property);
        }
        executions
    }

    /// Explores the executions of the code under test with `defect`, and returns the first fault,
    /// if there is one.
    ///
    /// # Panics
    /// When no operation was the defect's.
    #[must_use]
    #[track_caller]
    pub fn check_with(&self, defect: Defect) -> Option<Fault> {
        let (fault, _executions) = self.explore(Some(defect));
        assert!(defect::was_applied(), "`{}`: no operation was changed by {defect:?}", self.property);
        fault
    }

    fn explore(&self, defect: Option<Defect>) -> (Option<Fault>, usize) {
        let mut builder = loom::model::Builder::new();
        builder.max_branches = BRANCHES_MAX;
        builder.preemption_bound = self.preemptions.filter(|_| std::env::var_os(UNBOUNDED).is_none());
        builder.max_permutations = None;
        builder.max_duration = None;
        builder.checkpoint_file = None;
        let executions = Arc::new(AtomicUsize::new(0));
        let (run, counter, breaks_off) = (self.run.clone(), executions.clone(), self.breaks_off);
        let execute = move || {
            // Relaxed: one thread of the operating system runs the whole model.
            counter.fetch_add(1, Ordering::Relaxed);
            defect::forget_held();
            memory::break_off(breaks_off);
            run();
        };
        defect::activate(defect);
        let panic = recording_panics(|| builder.check(execute));
        // Relaxed: as above.
        let execution = executions.load(Ordering::Relaxed);
        (panic.map(|message| Fault::of(&message, self.property, execution)), execution)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("property", &self.property).finish_non_exhaustive()
    }
}

impl Fault {
    /// Returns the fault for a panic with `message` in a model of `property`.
    fn of(message: &str, property: &str, execution: usize) -> Self {
        let prefixes = [
            (format!("{VIOLATED}`{OWN}`: "), FaultKind::Property),
            (format!("{VIOLATED}`{property}`: "), FaultKind::Property),
            (VIOLATED.to_owned(), FaultKind::OtherProperty),
        ];
        for (prefix, kind) in prefixes {
            if let Some(message) = message.strip_prefix(&prefix) {
                return Self { kind, message: message.to_owned(), execution };
            }
        }
        // The messages of loom 0.7.
        let kinds = [
            ("Causality violation", FaultKind::Race),
            ("deadlock", FaultKind::Deadlock),
            ("Model exceeded maximum number of branches", FaultKind::NoProgress),
        ];
        let kind = kinds.iter().find(|(prefix, _)| message.starts_with(prefix));
        Self { kind: kind.map_or(FaultKind::Panic, |&(_, kind)| kind), message: message.to_owned(), execution }
    }
}

thread_local! {
    /// The message and place of the first panic, while a model runs on this thread.
    static PANIC: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

/// Returns the message of the first panic in `f`, if there is one. The panic is not printed: the
/// coroutines that panic in a model have small stacks, on which a backtrace does not fit.
fn recording_panics(f: impl FnOnce()) -> Option<String> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !record_panic(info) {
                others(info);
            }
        }));
    });
    PANIC.set(Some(None));
    let result = catch_unwind(AssertUnwindSafe(f));
    let message = PANIC.take().flatten();
    match result {
        Ok(()) => None,
        Err(_) => Some(message.unwrap_or_else(|| "a panic without a message".to_owned())),
    }
}

/// Records the panic and returns true if a model runs on this thread, so that `info` belongs to it.
fn record_panic(info: &PanicHookInfo<'_>) -> bool {
    PANIC.with_borrow_mut(|panic| {
        let Some(first) = panic else { return false };
        // Coroutines end by panics without a message.
        if let (None, Some(text), Some(at)) = (&first, info.payload_as_str(), info.location()) {
            *first = Some(format!("{}, at {at}", text.trim()));
        }
        true
    })
}
