//! A span per task, entered at each poll.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hitm::{NativeRuntime, SpawnOptions};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes the fields of each span of a task, and counts how often it is entered.
#[derive(Clone, Default)]
struct Notes {
    spans: Arc<Mutex<Vec<String>>>,
    entered: Arc<AtomicU64>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "hitm::task"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = String::new();
        span.record(&mut Fields(&mut text));
        let mut spans = self.spans.lock().expect("no holder panics");
        spans.push(text);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _span: &Id) {}
}

#[test]
fn a_task_has_a_span_that_its_polls_enter() {
    let notes = Notes::default();
    let runtime = NativeRuntime::with_cpus(1).expect("a thread");
    let group = runtime.handle().group("batch");
    let options = SpawnOptions::default().named("worker").within(&group);
    let polls = async {
        for _ in 0..4 {
            hitm::yield_now().await;
        }
    };
    // The span is made by the spawning thread's subscriber, and keeps to it.
    let task = tracing::subscriber::with_default(notes.clone(), || runtime.handle().spawn(options, polls));
    runtime.block_on(task).expect("it ends");
    let spans = notes.spans.lock().expect("no holder panics");
    assert_eq!(*spans, ["name=\"worker\" group=\"batch\" "]);
    // Five polls, and the drop of the future.
    assert!(notes.entered.load(Ordering::Relaxed) >= 5);
}
