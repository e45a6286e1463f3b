//! Slices of groups: a tenant with short turns is served sooner, and all have the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hitm::{Handle, Priority, Span, SpawnOptions, Time};
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

/// How many requests come, one in each 2 ms.
const REQUESTS: u64 = 400;

/// Four tenants with 50 tasks each want both CPUs all the time. A fifth tenant, of another weight,
/// has a task that wakes once in 2 ms and hardly computes. Returns the median and the longest of
/// the times from a wakeup until the task runs, and the CPU time that the four had, in
/// microseconds. The slices are those of the fifth and of the four.
fn served(weight: u32, slices: Option<[u64; 2]>) -> ([u64; 2], u64) {
    let setup = Setup { mitigation: "shipped", ..Setup::of("core:2 pu:1") };
    let serve = move |handle: Handle<Simulated>| async move {
        handle.set_priority(Priority::fifo(90));
        let end = FROM + Span::from_micros(REQUESTS * 2 * MILLIS);
        let had = Arc::new(AtomicU64::new(0));
        let tenant = |name: &str, number: usize| {
            let tenant = handle.group(name);
            if let Some(slices) = slices {
                tenant.slice(Span::from_micros(slices[number])).expect("a slice");
            }
            tenant
        };
        let hog = |within_tenant: SpawnOptions| {
            let (clock, had) = (handle.clone(), had.clone());
            handle.spawn(within_tenant, async move {
                while clock.now() < end {
                    clock.compute(Span::from_micros(100)).await;
                    let counts = clock.now() > FROM && clock.now() <= end;
                    // Relaxed: one host thread runs the machine.
                    had.fetch_add(if counts { 100 } else { 0 }, Ordering::Relaxed);
                }
            })
        };
        let tenants = ["one", "two", "three", "four"].map(|name| tenant(name, 1));
        let hogs: Vec<_> = tenants.iter().flat_map(|tenant| (0..50).map(|_| hog(within(tenant)))).collect();
        let answers = tenant("answers", 0).weight(weight).expect("a weight");
        let clock = handle.clone();
        let served = handle.spawn(within(&answers), async move {
            let mut waits = Vec::new();
            for request in 0..REQUESTS {
                // Anywhere in the turns of the others.
                let comes = FROM + Span::from_micros(request * 2 * MILLIS + request * 7_919 % 1_990);
                clock.sleep_until(comes).await;
                waits.push(clock.now().since(comes).as_picos() / 1_000_000);
                clock.compute(Span::from_micros(2)).await;
            }
            waits.sort_unstable();
            [waits[waits.len() / 2], waits[waits.len() - 1]]
        });
        let waits = joined(served).await;
        for task in hogs {
            joined(task).await;
        }
        (waits, had.load(Ordering::Relaxed))
    };
    simulate(setup, serve).result
}

/// A turn divided by the share of a CPU is 300 us and 120 us, beside half of each other tenant. The
/// longest wait may be twice that: the spread of the others over the CPUs changes.
#[test]
fn a_tenant_with_short_turns_is_served_sooner_at_the_cost_of_no_one() {
    for (weight, longest) in [(100, 600), (1_000, 300)] {
        let (default, had_by_default) = served(weight, None);
        assert!(default[1] > 2 * longest, "{default:?} us: it waits for turns of the others");
        for long in [1_400, 20_000] {
            let (waits, had) = served(weight, Some([100, long]));
            eprintln!(
                "weight {weight}, slices of 100 and {long} us: median and longest wait {waits:?} us, not {default:?}"
            );
            assert!(waits[1] <= longest, "weight {weight}, slices of 100 and {long} us: {waits:?} us");
            // A stretch of 100 us per task may be under way at the end, and does not count.
            assert!(had.abs_diff(had_by_default) < had / 100, "the others had {had}, not {had_by_default}");
        }
    }
}
