//! The results of `hitm exec` as tables and curves.

use hitm_report::columns::{Align, Columns, short};
use hitm_report::plot::{Plot, Series};
use hitm_report::result::{ResultFile, Run};
use hitm_report::sweep::quoted;

use super::runs::Row;
use super::{ENDED, Exec};

/// Whether a result is a figure that the program printed; else it is a time.
fn is_figure(run: &Run) -> bool {
    run.metric.unit.is_empty()
}

/// A result: tenths of a microsecond, or four digits of a figure that may have any size.
fn digits(run: &Run, value: f64) -> String {
    let before = if value == 0.0 { 1 } else { 1 + value.abs().log10().floor() as i32 };
    let after = if is_figure(run) { (4 - before).clamp(0, 9) as usize } else { 1 };
    format!("{value:.after$}")
}

impl Exec {
    pub(super) fn table(&self, file: &ResultFile, rows: &[Row<'_>]) -> String {
        let is_sweep = !self.sweep.is_empty();
        let first = &file.runs[0];
        let head = if is_figure(first) { first.metric.name.clone() } else { "time\n[us]".to_owned() };
        let threads = rows[0].told[0].threads;
        let mut text = String::new();
        for machine in &file.machines {
            let threads = if is_sweep { String::new() } else { format!(", {threads} threads") };
            text += &format!("{}, simulated on {} ({} CPUs){threads}\n", self.shown(), machine.name, machine.cpus);
            let mut heads = vec![
                ("mitigation", Align::Left),
                ("arbitration", Align::Left),
                (&head, Align::Right),
                ("±95 %", Align::Right),
                ("over the\nbaseline", Align::Right),
                ("accesses", Align::Right),
                ("misses", Align::Right),
                ("kernel\nshare", Align::Right),
                ("idle", Align::Right),
            ];
            if is_sweep {
                heads.insert(0, ("N", Align::Right));
            }
            let mut columns = Columns::new(&heads);
            for (run, row) in file.runs.iter().zip(rows).filter(|(run, _)| run.machine == machine.name) {
                let mut cells = vec![
                    run.mitigation.clone(),
                    run.arbitration.clone(),
                    digits(run, run.metric.value),
                    if run.seeds.len() > 1 { digits(run, run.metric.interval) } else { "-".to_owned() },
                    run.relative.map_or_else(|| "-".to_owned(), |relative| format!("{relative:.3}")),
                    short(run.accesses as f64),
                    short(run.misses as f64),
                    format!("{:.3}", run.kernel_share),
                    format!("{:.3}", run.idle_share),
                ];
                if let Some(number) = row.case.number {
                    cells.insert(0, number.to_string());
                }
                columns.row(cells);
            }
            text += &columns.render(crate::terminal::width());
            text.push('\n');
        }
        // The first one is in the head. How programs ended is told of all.
        let others = file.runs[1..].iter().flat_map(|run| &run.notes).filter(|note| note.starts_with(ENDED));
        let mut notes: Vec<&String> = first.notes.iter().skip(1).collect();
        for note in others {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        text.extend(notes.into_iter().map(|note| format!("{note}\n")));
        text
    }

    /// The results as comma-separated values with a head. Missing values are empty.
    pub(super) fn csv(&self, file: &ResultFile, rows: &[Row<'_>]) -> String {
        let figure = if is_figure(&file.runs[0]) { "figure" } else { "time_us" };
        let mut text = format!(
            "program,N,machine,arbitration,mitigation,{figure},interval,relative,relative_interval,\
                        kernel_share,idle_share,accesses,misses\n"
        );
        for (run, row) in file.runs.iter().zip(rows) {
            let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
            let cells = [
                quoted(&self.shown()),
                row.case.number.map_or_else(String::new, |number| number.to_string()),
                quoted(&run.machine),
                run.arbitration.clone(),
                run.mitigation.clone(),
                run.metric.value.to_string(),
                if run.seeds.len() > 1 { run.metric.interval.to_string() } else { String::new() },
                optional(run.relative),
                optional(run.relative_interval),
                run.kernel_share.to_string(),
                run.idle_share.to_string(),
                run.accesses.to_string(),
                run.misses.to_string(),
            ];
            text += &(cells.join(",") + "\n");
        }
        text
    }

    /// The results over the numbers of the sweep, one curve per machine, policy and mitigation.
    pub(super) fn curve(&self, file: &ResultFile, rows: &[Row<'_>]) -> Plot {
        let mut series: Vec<Series> = Vec::new();
        let several = |of: fn(&Run) -> &str| file.runs.iter().any(|run| of(run) != of(&file.runs[0]));
        let (policies, machines) = (several(|run| &run.arbitration), several(|run| &run.machine));
        for (run, row) in file.runs.iter().zip(rows) {
            let mut name = run.mitigation.clone();
            for part in [policies.then_some(&run.arbitration), machines.then_some(&run.machine)].into_iter().flatten() {
                name += &format!(", {part}");
            }
            let point = (row.case.number.unwrap_or(0) as f64, run.metric.value);
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name, points: vec![point], circles: false }),
            }
        }
        Plot {
            title: format!("{}, simulated", self.shown()),
            x_label: "N".to_owned(),
            y_label: if is_figure(&file.runs[0]) { file.runs[0].metric.name.clone() } else { "time [us]".to_owned() },
            series,
        }
    }
}
