//! The table of a workload's mitigations: one row per run, with the published figures beside the
//! results.

use crate::columns::{Align, Columns, short};
use crate::heading::{calibration, heading};
use crate::measured::{MEASURED_FRAME, MEASURED_INVERSION, MeasuredRole, measured_role};
use crate::published::{NAMED_LINES, NamedLine, Place};
use crate::result::{Host, Line, Machine, ResultFile, Role, Run};
use crate::{latency, loads};

/// Returns the runs of a file in groups that share workload, host, machine, arbitration and
/// coherence, in order.
fn groups(file: &ResultFile) -> Vec<Vec<&Run>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    let key = |run: &Run| {
        let Run { workload, host, machine, arbitration, coherence, .. } = run;
        (*host, [workload, machine, arbitration, coherence].map(Clone::clone))
    };
    for run in file.runs.iter().filter(|run| !loads::is_of(run)) {
        match groups.iter_mut().find(|group| key(group[0]) == key(run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

/// Renders a file: for each machine and policy a heading, the fitted parameters, and the table.
#[must_use]
pub fn render(file: &ResultFile, width: usize) -> String {
    let mut text = String::new();
    for group in groups(file) {
        if !text.is_empty() {
            text.push('\n');
        }
        let first = group[0];
        text.push_str(&heading(file, first));
        text.push_str(&calibration(file, first));
        text.push('\n');
        let machine = file.machines.iter().find(|machine| machine.name == first.machine);
        text.push_str(&table(&group, machine.filter(|machine| machine.unknown_processor), width));
        text.push_str(&costs(&group, width));
        if first.workload == "pi_stress" {
            text.push_str(&inversions(&group, width));
        }
        if first.host != Host::Simulated {
            text.push_str(&operations(&group, width));
        }
        let late: Vec<_> =
            group.iter().filter_map(|run| Some((run.mitigation.as_str(), run.latency.as_ref()?))).collect();
        if !late.is_empty() {
            text.push('\n');
            text.push_str(&latency::render("wakeup delays of all instances", latency::Unit::Nanoseconds, &late, width));
        }
        for note in group.iter().flat_map(|run| run.notes.iter().map(move |note| (run, note))) {
            text.push_str(&format!("{}: {}\n", note.0.mitigation, note.1));
        }
    }
    text
}

/// Renders the table of a group. `unknown` is its machine if the machine's processor has no cost
/// table.
fn table(group: &[&Run], unknown: Option<&Machine>, width: usize) -> String {
    let first = group[0];
    let unit = format!("{}\n[{}]", first.metric.name.replace('_', " "), first.metric.unit);
    let mut heads = vec![
        ("mitigation", Align::Left),
        (unit.as_str(), Align::Right),
        ("relative\n±95 %", Align::Right),
        ("pub-\nlished", Align::Right),
        ("error\n[points]", Align::Right),
        ("kernel\nshare", Align::Right),
        ("pub-\nlished", Align::Right),
        ("idle", Align::Right),
    ];
    let lined: Vec<String> = NAMED_LINES.iter().map(|line| format!("cycles per load\n{}", line.heading)).collect();
    let simulated = first.host == Host::Simulated;
    let named = if simulated && first.workload == "ffmpeg" { &NAMED_LINES[..] } else { &[] };
    heads.extend(lined.iter().take(named.len()).map(|head| (head.as_str(), Align::Right)));
    heads.push(("bytes of\nroot domain", Align::Right));
    heads.extend(unknown.map(|_| ("costs\nof", Align::Right)));
    let mut columns = Columns::new(&heads);
    for run in group {
        let mut cells = row(run, named);
        cells.extend(unknown.map(|machine| format!("{}?", machine.cost_table)));
        columns.row(cells);
    }
    columns.render(width)
}

/// Renders the cost per operation for the readers and writers of each mitigation.
fn costs(group: &[&Run], width: usize) -> String {
    let mut names: Vec<&str> = Vec::new();
    for cost in group.iter().flat_map(|run| &run.costs) {
        if !names.contains(&cost.name.as_str()) {
            names.push(&cost.name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let each = ["accesses", "misses", "cycles"];
    let heads: Vec<String> =
        names.iter().flat_map(|name| each.map(|what| format!("{}\n{what}", name.replacen(' ', "\n", 1)))).collect();
    let mut columns = vec![("mitigation", Align::Left)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut columns = Columns::new(&columns);
    for run in group {
        let cells = |name: &&str| match run.cost(name) {
            Some(cost) => [format!("{:.1}", cost.accesses), format!("{:.2}", cost.misses), short(cost.cycles)],
            None => [(); 3].map(|()| "-".to_owned()),
        };
        columns.row(std::iter::once(run.mitigation.clone()).chain(names.iter().flat_map(cells)).collect());
    }
    let ids =
        if names.contains(&"ids") { format!("; of concurrency ids per {}", unit(group[0])) } else { String::new() };
    format!(
        "\naccesses, misses and cycles per operation of readers (search, look) and writers (the others){ids}\n{}",
        columns.render(width)
    )
}

/// Renders the number of inversions and the operations of each, beside those measured of the
/// original.
fn inversions(group: &[&Run], width: usize) -> String {
    let mut columns = Columns::new(&[
        ("mitigation", Align::Left),
        ("total\ninversions", Align::Right),
        ("seconds", Align::Right),
        ("wakes", Align::Right),
        ("context\nswitches", Align::Right),
        ("futex\ncalls", Align::Right),
        ("priority\nchanges", Align::Right),
    ]);
    for run in group {
        let tasks = run.roles.iter().filter(|role| role.name != "admin");
        let sum = |what: fn(&Role) -> f64| format!("{:.2}", tasks.clone().map(what).sum::<f64>());
        let total = (run.metric.value * run.simulated_seconds).round();
        let mut cells = vec![run.mitigation.clone(), format!("{total:.0}"), format!("{:.3}", run.simulated_seconds)];
        let each: [fn(&Role) -> f64; 4] =
            [|role| role.wakes, |role| role.switches, |role| role.futex_calls, |role| role.priority_changes];
        cells.extend(each.map(sum));
        columns.row(cells);
    }
    let of = MEASURED_INVERSION;
    let measured = [of.wakes, of.switches, of.futex_calls, of.priority_changes].map(|figure| format!("{figure:.2}"));
    let head = ["measured of rt-tests", "-", "-"].map(str::to_owned);
    columns.row(head.into_iter().chain(measured).collect());
    format!("\noperations per inversion\n{}", columns.render(width))
}

/// Renders the counts of the scheduler's operations in each run.
fn operations(group: &[&Run], width: usize) -> String {
    let names: Vec<&String> = group[0].operations.keys().collect();
    let heads: Vec<String> = names.iter().map(|name| name.replace('_', "\n")).collect();
    let mut columns = vec![("mitigation", Align::Left)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut columns = Columns::new(&columns);
    for run in group {
        let counts = names.iter().map(|name| run.operations.get(*name).map_or_else(|| "-".to_owned(), u64::to_string));
        columns.row(std::iter::once(run.mitigation.clone()).chain(counts).collect());
    }
    format!("\nscheduler operations, warm-up included\n{}", columns.render(width))
}

fn row(run: &Run, named: &[NamedLine]) -> Vec<String> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    // A run too short for one unit has no relation to another.
    let relative = run.relative.zip(run.relative_interval).filter(|(value, _)| value.is_finite());
    let published = run.published.as_ref();
    let error = relative.zip(published).map(|((value, _), published)| 100.0 * (value - published.relative));
    let mut cells = vec![
        run.mitigation.clone(),
        if run.measured_nothing { "nothing".to_owned() } else { format!("{:.0}", run.metric.value) },
        or_dash(relative.map(|(value, interval)| format!("{value:.3} ±{interval:.3}"))),
        or_dash(published.map(|published| format!("{:.3}", published.relative))),
        or_dash(error.map(|error| format!("{error:+.1}"))),
        format!("{:.3}", run.kernel_share),
        or_dash(published.and_then(|published| published.kernel_share).map(|share| format!("{share:.3}"))),
        format!("{:.3}", run.idle_share),
    ];
    cells.extend(named.iter().map(|line| named_line(run, line)));
    cells.push(or_dash(run.bytes.get("root_domain").map(ToString::to_string)));
    cells
}

/// Returns the cycles per load of a named line with the published range: `4.6K (10.0K-59.0K)`.
fn named_line(run: &Run, named: &NamedLine) -> String {
    let simulated = cycles(run, named.place).map_or_else(|| "-".to_owned(), short);
    // Published figures of another machine do not apply to this one.
    match run.published.as_ref().and_then(|_| named.published(&run.mitigation)) {
        None => simulated,
        Some(None) => format!("{simulated} (gone)"),
        Some(Some((low, high))) => format!("{simulated} ({}-{})", short(low), short(high)),
    }
}

/// Returns the cycles per load over all lines of a place, weighted by misses.
fn cycles(run: &Run, place: Place) -> Option<f64> {
    let has_field = |line: &Line, names: &[&str]| line.fields.iter().any(|field| names.contains(&field.field.as_str()));
    let belongs = |line: &&Line| match place {
        Place::Line(object, number) => line.object == object && line.line == number,
        Place::Object(object) => line.object == object,
        Place::Field(object, names) => line.object == object && has_field(line, names),
    };
    let lines: Vec<&Line> = run.lines.iter().filter(belongs).collect();
    let loads = |line: &Line| line.misses as f64;
    let misses: f64 = lines.iter().map(|line| loads(line)).sum();
    (misses > 0.0).then(|| lines.iter().map(|line| line.cycles_per_load.mean * loads(line)).sum::<f64>() / misses)
}

/// Returns the unit that a run's metric counts: `frame`.
fn unit(run: &Run) -> String {
    run.metric.counted().unwrap_or_else(|| "unit".to_owned())
}

/// Renders the activity of each role's tasks, beside that measured of FFmpeg.
#[must_use]
pub fn render_roles(run: &Run, width: usize) -> String {
    let mut columns = Columns::new(&[
        ("role", Align::Left),
        ("activations", Align::Right),
        ("measured", Align::Right),
        ("burst [us]", Align::Right),
        ("measured", Align::Right),
        ("wakes", Align::Right),
        ("switches", Align::Right),
        ("futex calls", Align::Right),
        ("migrations", Align::Right),
    ]);
    let cells = |role: &Role| {
        let number = |figure: f64| format!("{figure:.2}");
        let measured = measured_role(&role.name);
        let mut cells = vec![role.name.clone(), number(role.activations)];
        cells.push(measured.map_or_else(|| "-".to_owned(), |measured| format!("{}", measured.activations)));
        cells.push(number(role.burst_micros));
        cells.push(measured.map_or_else(|| "-".to_owned(), MeasuredRole::burst));
        cells.extend([role.wakes, role.switches, role.futex_calls, role.migrations].map(number));
        cells
    };
    run.roles.iter().for_each(|role| columns.row(cells(role)));
    let sum = |what: fn(&Role) -> f64| run.roles.iter().map(what).sum::<f64>();
    let all = Role {
        name: "all".to_owned(),
        activations: sum(|role| role.activations),
        burst_micros: sum(|role| role.activations * role.burst_micros)
            / sum(|role| role.activations).max(f64::MIN_POSITIVE),
        wakes: sum(|role| role.wakes),
        switches: sum(|role| role.switches),
        futex_calls: sum(|role| role.futex_calls),
        priority_changes: sum(|role| role.priority_changes),
        migrations: sum(|role| role.migrations),
    };
    columns.row(cells(&all));
    let mut text = format!("{} {}, {}: per {}\n", run.workload, run.host, run.mitigation, unit(run));
    text.push_str(&columns.render(width));
    if run.workload == "ffmpeg" {
        text.push_str(MEASURED_FRAME);
    }
    text.push_str(&format!("wakeups per {}, by roles\n", unit(run)));
    let mut pairs = Columns::new(&[("waker", Align::Left), ("woken", Align::Left), ("times", Align::Right)]);
    for (waker, woken, times) in &run.wakes {
        pairs.row(vec![waker.clone(), woken.clone(), format!("{times:.2}")]);
    }
    text.push_str(&pairs.render(width));
    text
}
