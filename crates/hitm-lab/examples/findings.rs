//! Every finding under both policies.
use hitm_lab::validate::{Bench, EXPERIMENTS};
use hitm_machine::Arbitration;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    for experiment in &EXPERIMENTS {
        if !only.is_empty() && !only.iter().any(|id| id == experiment.id) {
            continue;
        }
        println!("{} {}", experiment.id, experiment.title);
        for arbitration in [Arbitration::LocalFirst, Arbitration::Fifo] {
            let begin = std::time::Instant::now();
            let bench = Bench { arbitration, seed: 1, look_ahead: true, model: Vec::new() };
            for f in experiment.run(&bench).unwrap() {
                println!(
                    "  {:11} {:48} {:9.2} {:9.2} {:+6.1} % {}",
                    arbitration.name(),
                    f.name,
                    f.published,
                    f.simulated,
                    100.0 * f.error(),
                    f.verdict().word()
                );
            }
            println!("  {:.2} s", begin.elapsed().as_secs_f64());
        }
    }
}
