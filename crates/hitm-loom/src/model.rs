//! [`Model`]: a few threads, one property, all executions.

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use crate::defect::{self, Defect};

/// The environment variable that lifts the bounds on preemptions: minutes instead of seconds.
const UNBOUNDED: &str = "HITM_LOOM_UNBOUNDED";

/// Accesses in one execution before it counts as one that cannot end. The longest model needs a few hundred.
const BRANCHES_MAX: usize = 2_000;

/// A few threads over the code under test, and the property that every execution of them must have.
#[derive(Clone)]
pub struct Model {
    property: &'static str,
    preemptions: Option<usize>,
    run: Arc<dyn Fn() + Send + Sync>,
}

/// What is wrong with an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What noticed it.
    pub kind: FaultKind,
    /// What it said.
    pub message: String,
    /// In which execution, counted from 1.
    pub execution: usize,
}

/// What notices a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// What the model [`require`]s for its property.
    Property,
    /// What the model [requires](require_of) for another property than its own.
    OtherProperty,
    /// Loom: two accesses to a [`LoomPlain`](crate::LoomPlain) that nothing orders.
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

/// Before the property in the message of a violation of it; [`OWN`] stands for the model's.
const VIOLATED: &str = "violated: ";
const OWN: &str = "its property";

/// Inside a model: its property asks for `condition`.
///
/// # Panics
/// When the condition does not hold; [`Model::check`] turns that into the model's fault.
#[track_caller]
pub fn require(condition: bool, what: impl Display) {
    require_of(OWN, condition, what);
}

/// Inside a model: `property`, which may be its own, asks for `condition`.
///
/// # Panics
/// As [`require`].
#[track_caller]
pub fn require_of(property: &str, condition: bool, what: impl Display) {
    assert!(condition, "{VIOLATED}`{property}`: {what}");
}

impl Model {
    /// The model `run` of a property. Every execution is explored.
    ///
    /// `run` is called once an execution, as loom's first thread, and spawns the others with `loom::thread`. Words must be
    /// made in it. It may share nothing with other executions but records of outcomes.
    pub fn new(property: &'static str, run: impl Fn() + Send + Sync + 'static) -> Self {
        Self { property, preemptions: None, run: Arc::new(run) }
    }

    /// As this, but only executions in which threads are preempted at most `count` times (a switch away from a thread that
    /// waits or has ended is none). Most faults need one or two. `HITM_LOOM_UNBOUNDED` in the environment lifts the bound.
    #[must_use]
    pub fn preemptions(self, count: usize) -> Self {
        Self { preemptions: Some(count), ..self }
    }

    /// The property.
    #[must_use]
    pub fn property(&self) -> &'static str {
        self.property
    }

    /// Explores the executions and returns how many there are.
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

    /// Explores the executions of the code under test with `defect`; the first fault, if there is any.
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
        let (run, counter) = (self.run.clone(), executions.clone());
        let execute = move || {
            // Relaxed: one thread of the operating system runs the whole model.
            counter.fetch_add(1, Ordering::Relaxed);
            defect::forget_held();
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
    /// What a panic with `message` means in a model of `property`.
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
        // The words of loom 0.7.
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
    /// While a model runs on this thread: the first panic's message and place.
    static PANIC: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

/// The message of the first panic in `f`, if there is any. It is not printed: the coroutines that panic in a model have
/// small stacks, on which a backtrace does not fit.
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

/// Whether a model runs on this thread, so that `info` is its own.
fn record_panic(info: &PanicHookInfo<'_>) -> bool {
    PANIC.with_borrow_mut(|panic| {
        let Some(first) = panic else { return false };
        // Coroutines end by panics without a text.
        if let (None, Some(text), Some(at)) = (&first, info.payload_as_str(), info.location()) {
            *first = Some(format!("{}, at {at}", text.trim()));
        }
        true
    })
}
