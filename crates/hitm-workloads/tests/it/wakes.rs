//! The pairs of waker and wakee in `ffmpeg`, compared with the programs' sources
//! (`docs/workloads.md`, 1.3 and 1.4).

use std::collections::BTreeSet;

use hitm_memory::Span;
use hitm_workloads::ffmpeg::Profile;
use hitm_workloads::meter::Window;

use crate::simulated::Case;

type Pair = (Option<&'static str>, &'static str);

/// A run on eight CPUs with the measured work. The start counts: the queues fill and the workers
/// come in one by one.
fn pairs(profile: Profile, scale: bool) -> BTreeSet<Pair> {
    let window = Window { warm_up: Span::ZERO, measured: Span::from_micros(600_000) };
    let case = Case { machine: "core:4 pu:2", profile, scale, burst_factor: 1.0, window, ..Case::default() };
    let outcome = case.run();
    assert!(outcome.frames > 20, "{} frames", outcome.frames);
    outcome.wakes.into_iter().map(|(waker, woken, _)| (waker, woken)).collect()
}

/// Checks that the pairs in `must` occur, that those in `may` are allowed to, and that no other
/// pair occurs.
fn check(profile: Profile, scale: bool, must: &[[&'static str; 2]], may: &[[&'static str; 2]]) {
    let found = pairs(profile, scale);
    let pair = |&[waker, woken]: &[&'static str; 2]| (Some(waker), woken);
    let must: BTreeSet<Pair> = must.iter().map(pair).collect();
    // Timers wake only main, since only main sleeps.
    let may: BTreeSet<Pair> = may.iter().map(pair).chain([(None, "main")]).collect();
    let missing: Vec<_> = must.difference(&found).collect();
    assert!(missing.is_empty(), "{profile:?} lacks {missing:?}");
    let extra: Vec<_> = found.iter().filter(|pair| !must.contains(pair) && !may.contains(pair)).collect();
    assert!(extra.is_empty(), "{profile:?} must not have {extra:?}");
}

/// The decoder's frame threads: a signal at the start, signals at the end of the set-up and of the
/// frame, and rows between the threads.
const DECODING: [[&str; 2]; 3] = [
    ["decoder", "decoder frame thread"],
    ["decoder frame thread", "decoder"],
    ["decoder frame thread", "decoder frame thread"],
];

/// The queues between the threads of FFmpeg 7: a sender wakes its receiver; where the receiver is
/// slower, it wakes its sender.
const PIPELINE: [[&str; 2]; 7] = [
    ["demuxer", "decoder"],
    ["decoder", "demuxer"],
    ["decoder", "filter"],
    ["filter", "decoder"],
    ["filter", "encoder"],
    ["encoder", "filter"],
    ["encoder", "muxer"],
];

/// The encoder, its workers and its lookahead.
const X264: [[&str; 2]; 6] = [
    ["encoder", "encoder worker"],
    ["encoder worker", "encoder worker"],
    ["encoder", "lookahead"],
    ["lookahead", "encoder"],
    ["lookahead", "lookahead worker"],
    ["lookahead worker", "lookahead"],
];

/// The muxer is never behind, and the oldest picture is mostly done when the encoder requests it.
const SELDOM: [[&str; 2]; 2] = [["muxer", "encoder"], ["encoder worker", "encoder"]];

#[test]
fn x264() {
    check(Profile::X264, false, &[&DECODING[..], &PIPELINE, &X264].concat(), &SELDOM);
}

#[test]
fn x264_with_scaling() {
    // The caller works too: a round ends with the caller or with a worker.
    let slices = [["filter", "filter slice worker"], ["filter slice worker", "filter"]];
    let seldom = [&SELDOM[..], &[["filter slice worker", "filter slice worker"]]].concat();
    check(Profile::X264, true, &[&DECODING[..], &PIPELINE, &X264, &slices].concat(), &seldom);
}

#[test]
fn main_alone() {
    let must = [
        ["main", "decoder frame thread"],
        ["decoder frame thread", "main"],
        ["decoder frame thread", "decoder frame thread"],
        ["main", "encoder worker"],
        ["encoder worker", "encoder worker"],
        ["main", "lookahead"],
        ["lookahead", "main"],
        ["lookahead", "lookahead worker"],
        ["lookahead worker", "lookahead"],
        ["main", "muxer"],
    ];
    check(Profile::SingleMain, false, &must, &[["muxer", "main"], ["encoder worker", "main"]]);
}

#[test]
fn x265() {
    // Frame encoders allow rows and wake a worker for each. Workers wake each other for the rows
    // below, and wake frame encoders for filtered rows.
    let must = [
        ["encoder", "frame encoder"],
        ["frame encoder", "encoder"],
        ["encoder", "encoder worker"],
        ["frame encoder", "encoder worker"],
        ["encoder worker", "encoder worker"],
        ["encoder worker", "frame encoder"],
    ];
    // Pictures are mostly decided before the encoder requests them. Two workers may check the rows
    // of one picture at the same time.
    let may = [["muxer", "encoder"], ["encoder worker", "encoder"], ["frame encoder", "frame encoder"]];
    check(Profile::X265Like, false, &[&DECODING[..], &PIPELINE, &must].concat(), &may);
}
