//! V7, locks: one lock whose sections read and write one more line, on the Xeon of the SOSP'13
//! study (figure 5, read by eye; million sections per second). As in the study, a thread pauses
//! after its release so that the others see it, and the ticket lock backs off in proportion to the
//! waiters before it.

use hitm_machine::Stalled;
use hitm_memory::Span;
use hitm_topology::CpuId;
use hitm_workloads::probe::LockKind;

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::{Program, mean_nanos};

/// The time of the contention.
const TIME: Span = Span::from_micros(400);

/// Threads, and million sections a second of MCS, ticket, and test-and-set.
const PUBLISHED: [(usize, [f64; 3]); 3] = [(10, [5.3, 4.0, 4.0]), (20, [3.0, 1.5, 0.6]), (80, [1.5, 0.3, 0.1])];

const KINDS: [(&str, LockKind); 3] =
    [("MCS", LockKind::Mcs), ("ticket", LockKind::TicketBackOff), ("test-and-set", LockKind::TestAndSet)];

/// Rates within a factor of two, and the published order.
pub(super) fn rates(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let setting = bench.machine("westmere-8x10");
    // One turn of back-off is one transfer to the next core, the study's unit.
    let turn = Span::from_nanos_f64(setting.costs.family.same_llc.value);
    let mut findings = Vec::new();
    for (count, published) in PUBLISHED {
        let cpus: Vec<CpuId> = (0..count as u32).map(CpuId).collect();
        let mut rates = Vec::new();
        for ((name, kind), published) in KINDS.into_iter().zip(published) {
            let program =
                Program::Lock { kind, time: TIME, pause: bench.pause(&setting, count), is_drawn: false, turn };
            let given = bench.give(&setting, &cpus, &program)?;
            let rate = count as f64 * 1e3 / mean_nanos(&given.measured);
            let row = format!("SOSP13 Xeon {name} lock, {count} threads");
            let curve = match name {
                "MCS" => "SOSP13 Xeon MCS lock",
                "ticket" => "SOSP13 Xeon ticket lock",
                _ => "SOSP13 Xeon test-and-set lock",
            };
            let finding = setting.finding(row, "M/s", Criterion::Factor(2.0), published, rate);
            findings.push(Finding { point: Some((curve, count)), ..finding });
            rates.push(rate);
        }
        // At 10 threads the figure does not tell ticket and test-and-set apart.
        let in_order = rates[0] >= rates[1] && (count == 10 || rates[1] >= rates[2]);
        let name = format!("SOSP13 Xeon order of locks, {count} threads");
        findings.push(setting.finding(name, "holds", Criterion::Exactly, 1.0, f64::from(u8::from(in_order))));
    }
    Ok(findings)
}
