//! A service with a critical and a batch tenant, on this runtime and on Tokio in turns, under the
//! same load; prints the critical tenant's latencies. `cargo run --release -p hitm-compat-tests
//! --features libraries --example service -- ROUNDS SECONDS CONNECTIONS PERIOD NAME`. By default
//! there are 3 rounds of 5 seconds, with 8 batch connections, and a critical request every 2000 us,
//! for each of the contenders. NAME is that of one of them: `tokio, apart`.
//!
//! `hitm exec` runs it on simulated machines: short rounds, and more connections for more CPUs. Its
//! report is of the first round.
//!
//! It measures the time from a request to its answer in a client thread of this process. The client
//! threads compete with the service for the CPUs. It does not show a network.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use hitm_compat_tests::load::{Load, Outcome, run};
use hitm_compat_tests::on_hitm::Class;
use hitm_compat_tests::{on_hitm, on_tokio};

#[path = "../../hitm/examples/measuring/mod.rs"]
mod measuring;

/// A contender's name, and one round of it on so many CPUs.
type Contender = (&'static str, fn(usize, Load) -> io::Result<Outcome>);

const CONTENDERS: [Contender; 5] = [
    ("hitm, real-time", |cpus, load| on_hitm(cpus, load, Class::RealTime)),
    ("hitm, short turns", |cpus, load| on_hitm(cpus, load, Class::ShortTurns)),
    ("hitm, apart", |cpus, load| on_hitm(cpus, load, Class::Apart)),
    ("tokio", |cpus, load| on_tokio(cpus, load, false)),
    ("tokio, apart", |cpus, load| on_tokio(cpus, load, true)),
];

fn on_hitm(cpus: usize, load: Load, class: Class) -> io::Result<Outcome> {
    let service = on_hitm::Service::start(cpus, class)?;
    run(service.addresses, load)
}

fn on_tokio(cpus: usize, load: Load, apart: bool) -> io::Result<Outcome> {
    let service = on_tokio::Service::start(cpus, apart)?;
    run(service.addresses, load)
}

/// An argument of the command, or what it is without.
///
/// # Panics
/// When it is no such number.
fn argument<T: FromStr>(place: usize, usual: T) -> T {
    std::env::args().nth(place).map_or(usual, |word| {
        word.parse().unwrap_or_else(|_| {
            panic!("argument {place} is no number: {word}; give ROUNDS SECONDS CONNECTIONS PERIOD NAME")
        })
    })
}

/// # Panics
/// When an argument is wrong.
fn main() -> io::Result<()> {
    let rounds = argument(1, 3);
    let lasts = Duration::try_from_secs_f64(argument(2, 5.0)).map_err(io::Error::other)?;
    let begins = || {
        measuring::do_not_wait_for_workers();
        measuring::hitm_begin();
    };
    let ends = || measuring::hitm_end();
    let period = Duration::from_micros(argument(4, 2_000));
    let load = Load { lasts, batch: argument(3, 8), period, begins, ends };
    let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    println!("{cpus} CPUs, {} batch connections, a critical request every {:?}", load.batch, load.period);
    println!("critical tenant, us               p50       p90       p99     p99.9       max   batch/s");
    let name = std::env::args().nth(5);
    let contenders = CONTENDERS.iter().filter(|(own, _)| name.as_deref().is_none_or(|name| name == *own));
    let mut all: Vec<_> = contenders.map(|contender| (contender, Outcome::default())).collect();
    assert!(!all.is_empty(), "argument 5 names no contender; give one of {:?}", CONTENDERS.map(|(name, _)| name));
    for round in 1..=rounds {
        for ((name, serve), sum) in &mut all {
            let outcome = serve(cpus, load)?;
            line(&format!("{name}, round {round}"), &outcome);
            sum.critical.extend(&outcome.critical);
            sum.batch_per_second += outcome.batch_per_second / f64::from(rounds);
        }
    }
    for ((name, _), sum) in &mut all {
        sum.critical.sort_unstable();
        line(&format!("{name}, all"), sum);
    }
    let names: String = all.iter().map(|((name, _), _)| format!(" {name:<17}")).collect();
    println!("\nrequests{}", names.trim_end());
    let histograms: Vec<_> = all.iter().map(|(_, outcome)| outcome.histogram()).collect();
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
