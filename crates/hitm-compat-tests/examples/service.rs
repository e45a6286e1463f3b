//! A service with a critical and a batch tenant, on this runtime and on Tokio in turns, under the
//! same load; prints the critical tenant's latencies. `cargo run --release -p hitm-compat-tests
//! --features libraries --example service -- ROUNDS`, 3 by default.
//!
//! It measures the time from a request to its answer in a client thread of this process. The client
//! threads compete with the service for the CPUs. It does not show a network.

use std::time::Duration;

use hitm_compat_tests::load::{Load, Outcome, run};
use hitm_compat_tests::{on_hitm, on_tokio};

fn main() -> std::io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let load = Load { lasts: Duration::from_secs(5), period: Duration::from_millis(2), batch: 8 };
    println!("{cpus} CPUs, {} batch connections, a critical request every {:?}", load.batch, load.period);
    println!("critical tenant, us          p50       p90       p99     p99.9       max   batch/s");
    let mut sums = [Outcome::default(), Outcome::default()];
    for round in 1..=rounds {
        let hitm = on_hitm::Service::start(cpus)?;
        let on_hitm = run(hitm.addresses, load)?;
        drop(hitm);
        let tokio = on_tokio::Service::start(cpus)?;
        let on_tokio = run(tokio.addresses, load)?;
        drop(tokio);
        for ((name, sum), outcome) in ["hitm", "tokio"].iter().zip(&mut sums).zip([on_hitm, on_tokio]) {
            line(&format!("{name}, round {round}"), &outcome);
            sum.critical.extend(&outcome.critical);
            sum.batch_per_second += outcome.batch_per_second / f64::from(rounds);
        }
    }
    for (name, sum) in ["hitm", "tokio"].iter().zip(&mut sums) {
        sum.critical.sort_unstable();
        line(&format!("{name}, all"), sum);
    }
    println!("\ncritical requests by latency  hitm                        tokio");
    let [hitm, tokio] = sums.each_ref().map(Outcome::histogram);
    let most = hitm.iter().chain(&tokio).copied().max().unwrap_or(1).max(1);
    for bucket in (0..hitm.len()).filter(|&bucket| hitm[bucket] + tokio[bucket] > 0) {
        let bar = |count: u64| "#".repeat((count * 20).div_ceil(most) as usize);
        let (hitm, tokio) = (hitm[bucket], tokio[bucket]);
        println!("up to {:>9} us  {hitm:>6} {:<20}  {tokio:>6} {}", 1_u64 << bucket, bar(hitm), bar(tokio));
    }
    Ok(())
}

fn line(name: &str, outcome: &Outcome) {
    let micros = |rank| outcome.quantile(rank).as_micros();
    print!("{name:<22}");
    for rank in [0.5, 0.9, 0.99, 0.999, 1.0] {
        print!("{:>10}", micros(rank));
    }
    println!("{:>10.0}", outcome.batch_per_second);
}
