//! `hackbench`: the time of the messages, and the CPUs that a wakeup looked at and the tasks that
//! it moved, by mitigation.

use crate::columns::{Align, Columns};
use crate::reordered;
use crate::result::{Conservation, Host, ResultFile, Run};

/// The workload's name.
pub const WORKLOAD: &str = "hackbench";

/// The name of the operation that counts messages.
pub const MESSAGES: &str = "message";

/// Returns the number of `times` operations per operation `of`.
fn each(run: &Run, times: &str, of: &str) -> String {
    let count = |name: &str| run.operations.get(name).copied().unwrap_or(0) as f64;
    if count(of) > 0.0 { format!("{:.2}", count(times) / count(of)) } else { "-".to_owned() }
}

/// Returns the interval as text; empty for one seed.
fn interval(run: &Run) -> String {
    let interval = run.metric.interval;
    if interval.is_finite() { format!("{interval:.4}") } else { "-".to_owned() }
}

fn head(file: &ResultFile, run: &Run) -> String {
    let Run { machine, host, arbitration, coherence, profile, .. } = run;
    let arbitration = if arbitration.is_empty() { String::new() } else { format!(", arbitration {arbitration}") };
    let coherence = if coherence.is_empty() { String::new() } else { format!(", coherence {coherence}") };
    format!("hackbench {host} on {machine}, {profile}{arbitration}{coherence}, hitm {}\n", file.version)
}

/// Renders the tables of a file, one per machine, policy and number of groups.
#[must_use]
pub fn render(file: &ResultFile, width: usize) -> String {
    let runs: Vec<&Run> = file.runs.iter().filter(|run| run.workload == WORKLOAD).collect();
    let key = |run: &Run| (run.machine.clone(), run.arbitration.clone(), run.profile.clone());
    let table = |runs: &[&Run]| {
        let mut columns = Columns::new(&[
            ("mitigation", Align::Left),
            ("time\n[s]", Align::Right),
            ("±95 %\n[s]", Align::Right),
            ("over the\nbaseline's", Align::Right),
            ("wakeups\nper message", Align::Right),
            ("CPUs examined\nper wakeup", Align::Right),
            ("migrations\nper wakeup", Align::Right),
            ("switches\nper message", Align::Right),
            ("misses per\nplaced task", Align::Right),
            ("idle\nshare", Align::Right),
            ("% idle beside\nwaiting tasks", Align::Right),
            ("at most\n[us]", Align::Right),
        ]);
        for run in runs {
            let lost =
                |text: fn(&Conservation) -> String| run.conservation.as_ref().map_or_else(|| "-".to_owned(), text);
            let placing = run.cost("place");
            let is_simulated = run.host == Host::Simulated;
            let idle = if is_simulated { format!("{:.3}", run.idle_share) } else { "-".to_owned() };
            columns.row(vec![
                run.mitigation.clone(),
                format!("{:.4}", run.metric.value),
                interval(run),
                run.relative.map_or_else(|| "-".to_owned(), |relative| format!("{relative:.3}")),
                each(run, "wake", MESSAGES),
                each(run, "probe", "wake"),
                each(run, "migration", "wake"),
                each(run, "context_switch", MESSAGES),
                placing.map_or_else(|| "-".to_owned(), |cost| format!("{:.2}", cost.misses)),
                idle,
                lost(|found| format!("{:.3}", 100.0 * found.lost_share)),
                lost(|found| format!("{:.1}", found.longest_us)),
            ]);
        }
        head(file, runs[0]) + &columns.render(width)
    };
    let loads = || runs.chunk_by(|one, other| key(one) == key(other));
    let tables: Vec<String> = loads().map(table).collect();
    tables.join("\n") + &reordered::render(loads(), width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relative::relate;
    use crate::result::Metric;

    fn run(mitigation: &str, seconds: f64, probes: u64) -> Run {
        let operations = [("wake", 50), ("probe", probes), ("migration", 5), ("context_switch", 120), (MESSAGES, 100)];
        Run {
            workload: WORKLOAD.to_owned(),
            mitigation: mitigation.to_owned(),
            machine: "clx-2x20".to_owned(),
            host: Host::Simulated,
            arbitration: "local-first".to_owned(),
            profile: "threads over pipes, 1 group of 20 and 20".to_owned(),
            metric: Metric { value: seconds, interval: 0.001, ..Metric::default() },
            conservation: Some(Conservation { lost_share: 0.004, longest_us: 83.0 }),
            operations: operations.map(|(name, times)| (name.to_owned(), times)).into(),
            ..Run::default()
        }
    }

    #[test]
    fn a_row_has_what_a_wakeup_took() {
        let mut file = ResultFile { version: "0.1.0".to_owned(), ..ResultFile::default() };
        file.runs = vec![run("baseline", 0.2, 500), run("idle-merged", 0.15, 400)];
        relate(&mut file.runs);
        expect_test::expect![[r#"
            hackbench simulated on clx-2x20, threads over pipes, 1 group of 20 and 20, arbitration local-first, hitm 0.1.0
                           time   ±95 %    over the      wakeups  CPUs examined  migrations     switches   misses per   idle  % idle beside  at most
            mitigation      [s]     [s]  baseline's  per message     per wakeup  per wakeup  per message  placed task  share  waiting tasks     [us]
            -----------  ------  ------  ----------  -----------  -------------  ----------  -----------  -----------  -----  -------------  -------
            baseline     0.2000  0.0010       1.000         0.50          10.00        0.10         1.20            -  0.000          0.400     83.0
            idle-merged  0.1500  0.0010       0.750         0.50           8.00        0.10         1.20            -  0.000          0.400     83.0
        "#]].assert_eq(&render(&file, 200));
    }
}
