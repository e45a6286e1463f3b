//! Spans of `tracing`: one per task, with the feature `tracing`.
//!
//! The span has the target `hitm::task`, the name `task` and the level of debugging. Its fields are
//! the task's name and group. Its parent is the spawner's span. It is entered at each poll, so a
//! subscriber sees when the task runs, and the events of the task are inside the span.

use std::future::Future;

use tracing::instrument::{Instrument, Instrumented};

use crate::group::Group;
use crate::options::SpawnOptions;

/// Puts a task's future into a span. It costs a test of a flag if no subscriber wants the span.
pub(crate) fn within_span<F: Future>(options: &SpawnOptions, future: F) -> Instrumented<F> {
    let (name, group) = (options.name.as_deref(), options.group.as_ref().map(Group::name));
    future.instrument(tracing::debug_span!(target: "hitm::task", "task", name, group))
}
