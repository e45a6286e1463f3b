//! `--trace`: the trace's messages, and its times beside those of the report.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command::{read_checked, run, stdout_of};

/// The fields of a message: numbers, and bytes of messages and texts. Perfetto's schema says what
/// they mean (`trace_packet.proto`, `track_event.proto`, `debug_annotation.proto`).
#[derive(Default)]
struct Message<'a> {
    numbers: BTreeMap<u64, u64>,
    bytes: BTreeMap<u64, Vec<&'a [u8]>>,
}

fn varint(text: &mut &[u8]) -> u64 {
    let mut value = 0;
    for place in 0.. {
        let (&byte, rest) = text.split_first().expect("a number ends");
        *text = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
    }
    value
}

impl<'a> Message<'a> {
    fn read(mut text: &'a [u8]) -> Self {
        let mut message = Self::default();
        while !text.is_empty() {
            let key = varint(&mut text);
            match key & 7 {
                0 => drop(message.numbers.insert(key >> 3, varint(&mut text))),
                1 => {
                    let (fixed, rest) = text.split_at(8);
                    text = rest;
                    message.numbers.insert(key >> 3, u64::from_le_bytes(fixed.try_into().expect("eight bytes")));
                }
                2 => {
                    let length = varint(&mut text) as usize;
                    let (bytes, rest) = text.split_at(length);
                    text = rest;
                    message.bytes.entry(key >> 3).or_default().push(bytes);
                }
                other => panic!("no such wire type: {other}"),
            }
        }
        message
    }

    fn message(&self, field: u64) -> Option<Message<'a>> {
        Some(Self::read(self.bytes.get(&field)?[0]))
    }

    fn text(&self, field: u64) -> &'a str {
        self.bytes.get(&field).map_or("", |bytes| std::str::from_utf8(bytes[0]).expect("text"))
    }
}

/// A slice of a trace.
pub(crate) struct Slice {
    track: u64,
    pub(crate) category: String,
    pub(crate) name: String,
    picos: u64,
    nested: bool,
}

/// Reads the slices of a trace, in the order of their begins, and the numbers of flows that begin
/// and end. Checks that slices of a track lie within each other.
pub(crate) fn slices(trace: &[u8]) -> (Vec<Slice>, usize, usize) {
    let mut slices = Vec::new();
    let mut open: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (mut begun, mut ended) = (0, 0);
    let trace = Message::read(trace);
    let packets = trace.bytes[&1].iter().map(|packet| Message::read(packet));
    let mut events: Vec<(u64, Message<'_>)> =
        packets.filter_map(|packet| Some((packet.numbers.get(&8).copied()?, packet.message(11)?))).collect();
    // As Perfetto does: by time, and what has one time in the order of the file.
    events.sort_by_key(|&(at, _)| at);
    for (at, event) in events {
        let track = event.numbers[&11];
        begun += usize::from(event.numbers.contains_key(&47));
        ended += usize::from(event.numbers.contains_key(&48));
        let stack = open.entry(track).or_default();
        match event.numbers[&9] {
            1 => {
                let length = event.message(4).expect("a slice has its length");
                assert_eq!(length.text(10), "picoseconds");
                slices.push(Slice {
                    track,
                    category: event.text(22).to_owned(),
                    name: event.text(23).to_owned(),
                    picos: length.numbers[&3],
                    nested: !stack.is_empty(),
                });
                stack.push(at);
            }
            2 => drop(stack.pop().expect("a slice ends that has begun")),
            3 => {}
            other => panic!("no such event: {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "every slice ends");
    (slices, begun, ended)
}

#[test]
fn the_times_of_a_trace_are_those_of_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, trace) = (folder.path().join("r.json"), folder.path().join("t.perfetto-trace"));
    stdout_of(&format!(
        "run cyclic --cpus 8 --mitigation baseline --seeds 1 --warm-up 1ms --duration 4ms --roles --trace-window 1ms..5ms --trace {} --json {}",
        trace.display(),
        json.display()
    ));
    let file = read_checked(&json, "run");
    let run = &file["runs"][0];
    let (slices, begun, ended) = slices(&std::fs::read(trace).expect("the trace"));
    let sum = |is_it: &dyn Fn(&Slice) -> bool| {
        slices.iter().filter(|slice| is_it(slice)).map(|slice| slice.picos).sum::<u64>() as f64
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let all = 8.0 * 4e9;
    let idle = sum(&|slice| slice.category == "idle");
    assert!((idle / all - number(&run["idle_share"])).abs() < 1e-9, "idle: {idle}");
    let kernel = sum(&|slice| slice.category == "kernel");
    assert!((kernel / (all - idle) - number(&run["kernel_share"])).abs() < 1e-9, "kernel: {kernel}");
    let outer = sum(&|slice| !slice.nested && slice.category != "line");
    assert!((outer - all).abs() < 1.0, "the tracks have no gaps: {outer}");
    let units = number(&run["metric"]["value"]) * number(&run["simulated_seconds"]);
    let roles = run["roles"].as_array().expect("roles");
    assert!(!roles.is_empty());
    for role in roles {
        let name = role["name"].as_str().expect("a name");
        let reported = 1e6 * number(&role["burst_micros"]) * number(&role["activations"]) * units;
        let own = sum(&|slice| slice.category == "task" && slice.name.starts_with(&format!("{name} ")));
        assert!((own - reported).abs() <= 1e-6 * reported.max(1.0), "{name}: {own} in the trace, {reported} reported");
    }
    assert!(begun > 0 && ended > 0 && ended <= begun, "{begun} flows, {ended} ends");
    let waits: Vec<&Slice> = slices.iter().filter(|slice| slice.category == "line").collect();
    assert!(waits.iter().any(|wait| wait.name.starts_with("root_domain.")), "waits have the names of fields");
    assert!(waits.iter().all(|wait| wait.track % 2 == 1), "on tracks of their own");
}

#[test]
fn a_part_that_is_none_is_refused() {
    let refuse = |window: &str, why: &str| {
        let words = format!("run cyclic --cpus 4 --seeds 1 --duration 1ms --trace /dev/null --trace-window {window}");
        let ended = run(words.split_whitespace());
        assert_eq!(ended.status, Some(2), "{window}: {}", ended.stderr);
        assert!(ended.stderr.contains(why) && ended.stderr.lines().count() == 1, "{window}: {}", ended.stderr);
    };
    refuse("2ms..1ms", "it ends before it begins");
    refuse("2ms", "give its begin and its end, as in `1ms..2ms`");
    refuse("900s..901s", "the run has ended before; give an earlier part");
}
