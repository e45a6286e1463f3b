//! Every finding under both policies.
use hitm_lab::validate::{Bench, EXPERIMENTS};
use hitm_machine::Arbitration;

fn main() {
    let (model, only): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.contains('='));
    let model: Vec<(String, f64)> = model
        .iter()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect();
    for experiment in &EXPERIMENTS {
        if !only.is_empty() && !only.iter().any(|id| id == experiment.id) {
            continue;
        }
        println!("{} {}", experiment.id, experiment.title);
        for arbitration in [
            Arbitration::LocalFirst,
            Arbitration::Bounded(8),
            Arbitration::Bounded(16),
            Arbitration::Bounded(32),
            Arbitration::Fifo,
        ] {
            let begin = std::time::Instant::now();
            let bench = Bench { arbitration, seed: 1, look_ahead: true, model: model.clone() };
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
