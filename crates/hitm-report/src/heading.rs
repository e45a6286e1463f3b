//! What stands above a table: what was run, where, and what was fitted for it.

use crate::result::{Calibration, Host, ResultFile, Run};

/// Returns the lines above a run's table: the workload, the machine, the seeds and the costs.
pub(crate) fn heading(file: &ResultFile, run: &Run) -> String {
    let machine = file.machines.iter().find(|machine| machine.name == run.machine);
    let shape = machine.map_or(String::new(), |machine| {
        let shape = [
            (machine.packages, "package"),
            (machine.llcs, "LLC"),
            (machine.cores, "core"),
            (machine.cpus, "CPU"),
            (machine.nodes, "node"),
        ];
        format!(" ({})", shape.map(|(count, what)| counted(count, what)).join(", "))
    });
    let mut text = match run.host {
        Host::Simulated => format!(
            "{} simulated on {}{shape}, seeds {:?}, arbitration {}, coherence {}, hitm {}\n",
            run.workload, run.machine, run.seeds, run.arbitration, run.coherence, file.version
        ),
        Host::Measured => format!("{} sampled on {}{shape}, hitm {}\n", run.workload, run.machine, file.version),
        Host::Native => format!(
            "{} measured natively on {}{shape}, seeds {:?}, hitm {}\n",
            run.workload, run.machine, run.seeds, file.version
        ),
    };
    if let Some(note) = machine.and_then(|machine| machine.note.as_deref()) {
        text.push_str(&format!("note: {note}\n"));
    }
    if let Some(machine) = machine.filter(|machine| !machine.model.is_empty()) {
        let (table, count) = (&machine.cost_table, machine.model.len());
        text.push_str(&format!("costs `{table}`: {count} parameters of the model, which --json writes\n"));
    }
    text
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the lines about the parameters that were fitted for a run.
pub(crate) fn calibration(file: &ResultFile, run: &Run) -> String {
    let fits = |calibration: &&Calibration| {
        calibration.workload == run.workload
            && calibration.machine == run.machine
            && calibration.arbitration == run.arbitration
    };
    let mut text = String::new();
    for calibration in file.calibrations.iter().filter(fits) {
        text.push_str(&format!(
            "calibration: {} = {:.4} for {} (reached {:.3})\n  published by {}\n",
            calibration.parameter, calibration.value, calibration.target, calibration.reached, calibration.source
        ));
        for note in &calibration.notes {
            text.push_str(&format!("  {note}\n"));
        }
    }
    text
}
