//! Result files that no run of ours writes, and that a page must stand.

use serde_json::{Value, json};

/// A name that is a script wherever it is taken for markup, for an attribute or for code.
const HOSTILE: &str = "</script><img src=x onerror=\"ran = 1\">'\"><svg onload=ran=1>\u{2028}${ran=1}<!--";

fn machine(name: &str, cpus: usize) -> Value {
    let (cores, llcs) = (cpus.div_ceil(2), cpus.div_ceil(128));
    let domain = |llc: usize| {
        let first = llc * 64;
        let last = (first + 63).min(cores - 1);
        json!({ "package": llc / 8, "node": llc / 8, "cores": format!("{first}-{last}"), "cpus": format!("{first}-{last}") })
    };
    json!({ "name": name, "cpus": cpus, "cores": cores, "llcs": llcs, "nodes": llcs.div_ceil(8), "packages": llcs.div_ceil(8),
        "source": name, "cost_table": "gnr", "model": {}, "counted_by": if cores <= 64 { "core" } else { "llc" },
        "domains": (0..llcs).map(domain).collect::<Vec<_>>() })
}

fn site(function: &str, field: &str, misses: u64) -> Value {
    json!({ "function": function, "location": format!("{function}:1"), "share": 1.0, "kind": "rmw", "hits": 3, "misses": misses,
        "hitm_local": 1, "hitm_remote": 1, "clean": [0, 0], "memory": [0, 0], "cycles": [100.0, 50.0, 80.0], "cpus": 2,
        "invalidated_by": [{ "field": field, "function": function, "location": "", "share": 1.0 }] })
}

fn line(object: &str, field: &str, misses: u64) -> Value {
    json!({ "object": object, "line": 0, "address": "0x1000", "loads": 9, "stores": 9, "misses": misses, "ownership_transfers": 1,
        "hitm_local": 1, "hitm_remote": 1, "cycles_per_load": { "mean": 80.0, "p50": 80.0, "p99": 90.0, "max": 99.0 },
        "exchanged": [[0, 0, 3, 240.0]],
        "fields": [{ "field": field, "offset": 8, "hitm_local": 1, "hitm_remote": 1, "loads": 9, "stores": 9, "sites": [site(object, field, misses)], "invalidated_by": [] }] })
}

/// All objects of a kind, on two lines.
fn objects(object: &str, field: &str) -> Value {
    json!({ "object": object, "lines": 2, "misses": 10, "hitm_local": 1, "hitm_remote": 1, "cycles": 800.0,
        "fields": [{ "field": field, "misses": 10, "hitm_local": 1, "hitm_remote": 1, "cycles": 800.0, "function": object,
            "location": object, "share": 1.0 }] })
}

fn run(name: &str, lines: &Value) -> Value {
    json!({ "workload": name, "mitigation": name, "host": "simulated", "machine": name, "arbitration": "fifo", "coherence": "full",
        "seed": 1, "seeds": [1], "wall_seconds": 1.0, "metric": { "name": name, "value": 2.0, "interval": null, "unit": "", "better": "lower" },
        "kernel_share": null, "idle_share": null, "kernel_parts": {}, "simulated_seconds": 1.0, "accesses": 9, "misses": 3, "switches": 1,
        "bytes": {}, "operations": {}, "cycles_waited": 0.0, "lines": lines, "notes": [name] })
}

fn file(machines: &Value, runs: &Value) -> Value {
    json!({ "schema": "hitm-result/1", "version": "0.1.0", "command": ["run"], "machines": machines, "calibrations": [], "runs": runs })
}

/// A file of `count` lines.
pub(crate) fn many(count: usize) -> Value {
    let lines: Vec<Value> =
        (0..count).map(|number| line(&format!("object {number}"), "word", (2 * count - number) as u64)).collect();
    file(&json!([machine("m", 8)]), &json!([run("m", &json!(lines))]))
}

/// Files with their names: without runs, without lines, of one CPU, of 4,096, without the names of
/// fields, from an earlier version, and with hostile names.
pub(crate) fn unusual() -> Vec<(&'static str, Value)> {
    let cores: Vec<Value> = (0..2_048).map(|core| json!([f64::from(core % 10) / 20.0, 0.5])).collect();
    let mut large = run("large", &json!([line("object", "word", 10)]));
    large["objects"] = json!([objects("all objects", "word")]);
    (large["cores"], large["exchanged"]) = (json!(cores), json!([[0, 31, 5, 400.0], [31, 0, 2, 100.0]]));
    let mut layout = run("unnamed", &json!([line("memory at 0x1000", "+8", 10)]));
    layout["layouts"] = json!({ "memory at 0x1000": [] });
    let mut hostile = run(HOSTILE, &json!([line(HOSTILE, HOSTILE, 10)]));
    hostile["objects"] = json!([objects(HOSTILE, HOSTILE)]);
    let word = json!({ "name": HOSTILE, "offset": 0, "size": 8, "doc": HOSTILE });
    hostile["layouts"] = json!({ HOSTILE: [word] });
    hostile["kernel_parts"] = json!({ HOSTILE: 0.5 });
    (hostile["kernel_share"], hostile["idle_share"]) = (json!(0.5), json!(0.1));
    let mut hostile = file(&json!([machine(HOSTILE, 4)]), &json!([hostile.clone(), hostile]));
    (hostile["command"], hostile["failures"]) = (json!([HOSTILE]), json!([HOSTILE]));
    hostile["declared"] = json!([{ "name": HOSTILE, "address": HOSTILE, "size": 8, "fields": [word] }]);
    let old = json!({ "name": "old", "cpus": 4, "cores": 2, "llcs": 1, "nodes": 1, "packages": 1, "source": "", "cost_table": "", "model": {} });
    vec![
        ("no-runs", file(&json!([]), &json!([]))),
        ("no-lines", file(&json!([machine("one", 2)]), &json!([run("one", &json!([]))]))),
        ("one-cpu", file(&json!([machine("one", 1)]), &json!([run("one", &json!([line("object", "word", 10)]))]))),
        ("large", file(&json!([machine("large", 4_096)]), &json!([large]))),
        ("unnamed", file(&json!([machine("unnamed", 4)]), &json!([layout]))),
        ("old", file(&json!([old]), &json!([run("old", &json!([line("object", "word", 10)]))]))),
        ("hostile", hostile),
    ]
}
