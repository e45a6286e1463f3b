//! Slices of groups: a tenant with short turns is served sooner, and all have the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hitm::{Handle, Priority, Span, Time};
use hitm_machine::Simulated;

use crate::groups::within;
use crate::host::{Host, Setup, simulate};
use crate::stage::{joined, sum_of};

every_host!(a_crowd_whose_slices_change_ends);

async fn a_crowd_whose_slices_change_ends<H: Host>(handle: Handle<H>) {
    let outer = handle.group("outer").slice(Duration::from_millis(100)).unwrap();
    let groups = [outer.group("inner"), outer.deadline_group("requests"), handle.group("other"), outer.clone()];
    let tasks: Vec<_> = (0..40_usize)
        .map(|number| {
            let (clock, group) = (handle.clone(), groups[number % 4].clone());
            handle.spawn(within(&group), async move {
                for turn in 0..3 {
                    let slice = Span::from_micros(100 << ((number + turn) % 8));
                    group.slice(slice).expect("a slice");
                    clock.compute(Span::from_micros(30)).await;
                    clock.yield_now().await;
                }
                number
            })
        })
        .collect();
    assert_eq!(sum_of(tasks).await, (0..40).sum::<usize>());
    let refused = outer.slice(Duration::from_micros(99)).unwrap_err();
    assert_eq!(refused.to_string(), "a group's slice is 0.1 ms to 100 ms, not 0.099 ms");
}

const MILLIS: u64 = 1_000;

/// The loads of all groups are known by then.
const FROM: Time = Time::from_picos(400 * MILLIS * 1_000_000);

/// How many requests come, one every 2 ms.
const REQUESTS: u64 = 400;

/// Three batch tenants with two tasks each want both CPUs all the time. A fourth tenant needs a
/// tenth of one CPU: each 2 ms a request wakes a task of it, which works for 200 us. Returns the
/// median and the 99th percentile of the time from the wakeup until the request begins, and the
/// CPU time that the batch tenants had, all in microseconds.
fn served(slices: Option<[u64; 2]>) -> ([u64; 2], u64) {
    let setup = Setup { mitigation: "shipped", ..Setup::of("core:2 pu:1") };
    let serve = move |handle: Handle<Simulated>| async move {
        handle.set_priority(Priority::fifo(90));
        let answers = handle.group("answers");
        if let Some([short, _]) = slices {
            answers.slice(Span::from_micros(short)).expect("a slice");
        }
        let (end, had) = (FROM + Span::from_micros(REQUESTS * 2 * MILLIS), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for tenant in [handle.group("one"), handle.group("two"), handle.group("three")] {
            if let Some([_, long]) = slices {
                tenant.slice(Span::from_micros(long)).expect("a slice");
            }
            for _ in 0..2 {
                let (clock, had) = (handle.clone(), had.clone());
                tasks.push(handle.spawn(within(&tenant), async move {
                    while clock.now() < end {
                        clock.compute(Span::from_micros(50)).await;
                        // Relaxed: one host thread runs the machine.
                        had.fetch_add(if clock.now() > FROM { 50 } else { 0 }, Ordering::Relaxed);
                    }
                }));
            }
        }
        let clock = handle.clone();
        let served = handle.spawn(within(&answers), async move {
            let mut waits = Vec::new();
            for request in 0..REQUESTS {
                let comes = FROM + Span::from_micros(request * 2 * MILLIS);
                clock.sleep_until(comes).await;
                waits.push(clock.now().since(comes).as_picos() / 1_000_000);
                clock.compute(Span::from_micros(200)).await;
            }
            waits.sort_unstable();
            [waits[waits.len() / 2], waits[waits.len() * 99 / 100]]
        });
        let waits = joined(served).await;
        for task in tasks {
            joined(task).await;
        }
        (waits, had.load(Ordering::Relaxed))
    };
    simulate(setup, serve).result
}

#[test]
fn a_tenant_with_short_turns_is_served_sooner_at_the_cost_of_no_one() {
    let ([_, equal], had_equal) = served(None);
    assert!(equal > 1_000, "{equal} us: it waits for a turn of another tenant");
    // A tenant whose turns are the longest is interrupted at once only where it has had its share.
    for (slices, most) in [([100, 1_400], 50), ([100, 20_000], 200)] {
        let ([_, waited], had) = served(Some(slices));
        eprintln!("slices {slices:?} us: p99 {waited} us, not {equal}; the others had {had} us, not {had_equal}");
        assert!(waited <= most, "slices {slices:?}: {waited} us");
        assert!(had.abs_diff(had_equal) < had_equal / 200, "slices {slices:?}: the others had {had}, not {had_equal}");
    }
}
