//! A service with a critical and a batch tenant, on this runtime and on Tokio in turns, under the
//! same load; prints the critical tenant's latencies. `cargo run --release -p hitm-compat-tests
//! --features libraries --example service -- ROUNDS`, 3 by default.
//!
//! It measures the time from a request to its answer in a client thread of this process. The client
//! threads compete with the service for the CPUs. It does not show a network.

use std::io;
use std::time::Duration;

use hitm_compat_tests::load::{Load, Outcome, run};
use hitm_compat_tests::on_hitm::Class;
use hitm_compat_tests::{on_hitm, on_tokio};

const LOAD: Load = Load { lasts: Duration::from_secs(5), period: Duration::from_millis(2), batch: 8 };

/// A contender's name, and one round of it on so many CPUs.
type Contender = (&'static str, fn(usize) -> io::Result<Outcome>);

const CONTENDERS: [Contender; 5] = [
    ("hitm, real-time", |cpus| on_hitm(cpus, Class::RealTime)),
    ("hitm, short turns", |cpus| on_hitm(cpus, Class::ShortTurns)),
    ("hitm, apart", |cpus| on_hitm(cpus, Class::Apart)),
    ("tokio", |cpus| on_tokio(cpus, false)),
    ("tokio, apart", |cpus| on_tokio(cpus, true)),
];

fn on_hitm(cpus: usize, class: Class) -> io::Result<Outcome> {
    let service = on_hitm::Service::start(cpus, class)?;
    run(service.addresses, LOAD)
}

fn on_tokio(cpus: usize, apart: bool) -> io::Result<Outcome> {
    let service = on_tokio::Service::start(cpus, apart)?;
    run(service.addresses, LOAD)
}

fn main() -> io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    println!("{cpus} CPUs, {} batch connections, a critical request every {:?}", LOAD.batch, LOAD.period);
    println!("critical tenant, us               p50       p90       p99     p99.9       max   batch/s");
    let mut sums = CONTENDERS.map(|_| Outcome::default());
    for round in 1..=rounds {
        for ((name, serve), sum) in CONTENDERS.iter().zip(&mut sums) {
            let outcome = serve(cpus)?;
            line(&format!("{name}, round {round}"), &outcome);
            sum.critical.extend(&outcome.critical);
            sum.batch_per_second += outcome.batch_per_second / f64::from(rounds);
        }
    }
    for ((name, _), sum) in CONTENDERS.iter().zip(&mut sums) {
        sum.critical.sort_unstable();
        line(&format!("{name}, all"), sum);
    }
    let names: String = CONTENDERS.iter().map(|(name, _)| format!(" {name:<17}")).collect();
    println!("\nrequests{}", names.trim_end());
    let histograms = sums.each_ref().map(Outcome::histogram);
    let most = histograms.iter().flatten().copied().max().unwrap_or(1).max(1);
    for bucket in (0..histograms[0].len()).filter(|&bucket| histograms.iter().any(|own| own[bucket] > 0)) {
        let bar = |own: &Vec<u64>| {
            let bar = "#".repeat((own[bucket] * 10).div_ceil(most) as usize);
            format!(" {:>6} {bar:<10}", own[bucket])
        };
        println!("{:>8}{}", 1_u64 << bucket, histograms.iter().map(bar).collect::<String>().trim_end());
    }
    Ok(())
}

fn line(name: &str, outcome: &Outcome) {
    let micros = |rank| outcome.quantile(rank).as_micros();
    print!("{name:<27}");
    for rank in [0.5, 0.9, 0.99, 0.999, 1.0] {
        print!("{:>10}", micros(rank));
    }
    println!("{:>10.0}", outcome.batch_per_second);
}
