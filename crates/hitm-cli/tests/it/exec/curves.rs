//! What the instructions of a program take, and the figures that it prints.

use serde_json::Value;

use super::{Program, is_possible};
use crate::command::{end, hitm};

const SOURCE: &str = "../../../../../docs/examples/curves.c";

const FIGURE: [&str; 4] = ["--machine", "skx-8x28", "--figure", "ns per operation"];

#[test]
fn instructions_between_accesses_take_their_time() {
    if !is_possible() {
        return;
    }
    let program = Program::new(SOURCE);
    let run = |operation, threads| -> Value {
        let (_, file) = program.simulated(&FIGURE, &[operation, threads, "20"]);
        file["runs"][0].clone()
    };
    let nanos = |operation| run(operation, "1")["metric"]["value"].as_f64().unwrap();
    // The loop around a locked instruction is hidden behind it: of two adds one finds its line.
    let contended = run("count_atomic", "8");
    let line = contended["lines"].as_array().unwrap().iter().find(|line| line["object"] == "counter").unwrap();
    let (adds, misses) = (line["stores"].as_f64().unwrap(), line["fields"][0]["sites"][0]["misses"].as_f64().unwrap());
    assert!((0.4..0.6).contains(&(misses / adds)), "{misses} of {adds} adds missed");
    // A load waits for the store before it, 1.6 ns on this machine.
    assert!((1.6..2.2).contains(&nanos("count_stat")), "{}", nanos("count_stat"));
    // Two fences take as long as two locked instructions, 6 ns each.
    let barriers = nanos("route_seqlock") - nanos("route_seq");
    assert!((12.0..15.0).contains(&barriers), "{barriers}");
}

#[test]
fn a_figure_that_is_not_printed_is_missed() {
    if !is_possible() {
        return;
    }
    let program = Program::new(SOURCE);
    let ended = end(hitm().args(["exec", "--figure", "frames"]).arg(&program.file).args(["count_stat", "1", "1"]));
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--figure: it printed no number after `frames`"), "{}", ended.stderr);
}
