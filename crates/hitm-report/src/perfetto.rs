//! A [`Timeline`] as a trace that Perfetto opens: packets of its protocol-buffer schema
//! (`perfetto/trace/trace_packet.proto` and `track_event/track_event.proto`).
//!
//! Each CPU is a track with the tasks that it runs, the kernel and idle time; kernel time for a
//! task lies within the task's slice. A second track has its waits for lines, by field. A wakeup
//! is a flow from where it happened to the next slice of the task. Perfetto's times are nanoseconds
//! and ours are finer, so each slice also has its picoseconds.
//!
//! The schema has hundreds of messages and a trace needs six, of three kinds of fields. Those are
//! written here: a crate of protocol buffers would bring a compiler of schemas or its macros.

use std::collections::HashMap;

use hitm_machine::{Doing, Slice, Timeline};

/// A message under way.
#[derive(Default)]
struct Message(Vec<u8>);

/// How a field is written.
const VARINT: u64 = 0;
const FIXED: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    fn fixed(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | FIXED);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }
}

/// `Trace.packet`.
const PACKET: u64 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u64 = 8;
    pub(super) const SEQUENCE: u64 = 10;
    pub(super) const EVENT: u64 = 11;
    pub(super) const SEQUENCE_FLAGS: u64 = 13;
    pub(super) const TRACK: u64 = 60;
}

/// Fields of `TrackDescriptor`.
mod track {
    pub(super) const ID: u64 = 1;
    pub(super) const NAME: u64 = 2;
    pub(super) const PARENT: u64 = 5;
    pub(super) const ORDERING: u64 = 11;
    pub(super) const RANK: u64 = 12;
    /// `ChildTracksOrdering.EXPLICIT`.
    pub(super) const EXPLICIT: u64 = 3;
}

/// Fields of `TrackEvent`.
mod event {
    pub(super) const ANNOTATION: u64 = 4;
    pub(super) const TYPE: u64 = 9;
    pub(super) const TRACK: u64 = 11;
    pub(super) const CATEGORY: u64 = 22;
    pub(super) const NAME: u64 = 23;
    pub(super) const FLOW: u64 = 47;
    pub(super) const FLOW_END: u64 = 48;
    pub(super) const BEGIN: u64 = 1;
    pub(super) const END: u64 = 2;
    pub(super) const INSTANT: u64 = 3;
}

/// Fields of `DebugAnnotation`.
mod annotation {
    pub(super) const NUMBER: u64 = 3;
    pub(super) const NAME: u64 = 10;
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`, on the first packet of a sequence.
const CLEARED: u64 = 1;

/// The track that has those of the CPUs.
const ROOT: u64 = 1;

/// The numbers of a CPU's tracks.
fn track_of(cpu: usize) -> u64 {
    0x1000 + 2 * cpu as u64
}

/// A trace under way.
#[derive(Default)]
struct Trace {
    bytes: Message,
    packets: u64,
}

impl Trace {
    fn packet(&mut self, packet: Message) {
        let flags = if self.packets == 0 { CLEARED } else { 0 };
        let mut packet = packet.number(packet::SEQUENCE, 1);
        if flags != 0 {
            packet = packet.number(packet::SEQUENCE_FLAGS, flags);
        }
        self.packets += 1;
        self.bytes = std::mem::take(&mut self.bytes).message(PACKET, &packet);
    }

    fn track(&mut self, id: u64, parent: Option<u64>, name: &str, rank: u64) {
        let mut descriptor = Message::default().number(track::ID, id).text(track::NAME, name);
        descriptor = match parent {
            Some(parent) => descriptor.number(track::PARENT, parent).number(track::RANK, rank),
            None => descriptor.number(track::ORDERING, track::EXPLICIT),
        };
        self.packet(Message::default().message(packet::TRACK, &descriptor));
    }

    fn event(&mut self, picos: u64, event: &Message) {
        self.packet(Message::default().number(packet::TIMESTAMP, picos / 1_000).message(packet::EVENT, event));
    }

    fn begin(&mut self, track: u64, from: u64, until: u64, category: &str, name: &str, ends: Option<u64>) {
        let length = Message::default().text(annotation::NAME, "picoseconds").number(annotation::NUMBER, until - from);
        let mut event = Message::default()
            .number(event::TYPE, event::BEGIN)
            .number(event::TRACK, track)
            .text(event::CATEGORY, category)
            .text(event::NAME, name)
            .message(event::ANNOTATION, &length);
        if let Some(flow) = ends {
            event = event.fixed(event::FLOW_END, flow);
        }
        self.event(from, &event);
    }

    fn end(&mut self, track: u64, until: u64) {
        self.event(until, &Message::default().number(event::TYPE, event::END).number(event::TRACK, track));
    }
}

/// Returns a timeline as the bytes of a trace. `title` names it.
#[must_use]
pub fn perfetto(timeline: &Timeline, title: &str) -> Vec<u8> {
    let mut trace = Trace::default();
    trace.track(ROOT, None, title, 0);
    for cpu in 0..timeline.cpus.len() {
        let track = track_of(cpu);
        trace.track(track, Some(ROOT), &format!("CPU {cpu}"), track);
        trace.track(track + 1, Some(ROOT), &format!("CPU {cpu} waits for lines"), track + 1);
    }
    let name = |task: u32| {
        let task = &timeline.tasks[task as usize];
        format!("{} {}", task.role.as_deref().unwrap_or("task"), task.number)
    };
    // The wakeups of each task, by time, and when it last left a CPU.
    let mut woken: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    let mut left: HashMap<u32, u64> = HashMap::new();
    for (flow, wakeup) in timeline.wakeups.iter().enumerate() {
        woken.entry(wakeup.task).or_default().push((wakeup.at, flow as u64 + 1));
        let event = Message::default()
            .number(event::TYPE, event::INSTANT)
            .number(event::TRACK, track_of(wakeup.cpu as usize))
            .text(event::CATEGORY, "wakeup")
            .text(event::NAME, &format!("wakes {}", name(wakeup.task)))
            .fixed(event::FLOW, flow as u64 + 1);
        trace.event(wakeup.at, &event);
    }
    // Flows end in order of time, whichever CPU runs the task.
    let mut stretches: Vec<(usize, &[Slice])> = Vec::new();
    for (cpu, slices) in timeline.cpus.iter().enumerate() {
        stretches
            .extend(slices.chunk_by(|one, next| one.task.is_some() && one.task == next.task).map(|run| (cpu, run)));
    }
    stretches.sort_by_key(|(cpu, slices)| (slices[0].from, *cpu));
    for (cpu, slices) in stretches {
        let (track, from, until) = (track_of(cpu), slices[0].from, slices[slices.len() - 1].until);
        let Some(task) = slices[0].task else {
            let what = if slices[0].doing == Doing::Idle { "idle" } else { "kernel" };
            trace.begin(track, from, until, what, what, None);
            trace.end(track, until);
            continue;
        };
        // The first wakeup since the task last left a CPU: later ones found it awake.
        let flows = woken.get(&task).map_or(&[][..], |flows| flows);
        let left_at = left.insert(task, until).unwrap_or(0);
        let since = flows.partition_point(|&(at, _)| at < left_at);
        let flow = flows[since..].first().filter(|&&(at, _)| at <= from).map(|&(_, flow)| flow);
        trace.begin(track, from, until, "task", &name(task), flow);
        for slice in slices.iter().filter(|slice| slice.doing != Doing::Task) {
            trace.begin(track, slice.from, slice.until, "kernel", "kernel", None);
            trace.end(track, slice.until);
        }
        trace.end(track, until);
    }
    for wait in &timeline.waits {
        let track = track_of(wait.cpu as usize) + 1;
        trace.begin(track, wait.from, wait.until, "line", &wait.field, None);
        trace.end(track, wait.until);
    }
    trace.bytes.0
}
