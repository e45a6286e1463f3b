//! The service with two tenants, under a small load.

use std::time::Duration;

use hitm_compat_tests::load::{Client, Load, run};
use hitm_compat_tests::on_hitm::Class;
use hitm_compat_tests::{on_hitm, on_tokio, work};

const LOAD: Load =
    Load { lasts: Duration::from_millis(600), period: Duration::from_millis(2), batch: 4, begins: || {}, ends: || {} };

#[test]
fn both_tenants_are_served() {
    for class in [Class::RealTime, Class::ShortTurns, Class::Apart] {
        let service = on_hitm::Service::start(2, class).expect("sockets");
        let outcome = run(service.addresses, LOAD).expect("no connection fails");
        assert!(outcome.critical.len() > 5, "{class:?}: {} critical requests", outcome.critical.len());
        assert!(outcome.batch_per_second > 0.0, "{class:?}");
        // Four batch connections on two CPUs: an answer takes two requests' computation at least.
        // The critical tenant does not wait for it.
        let (batch, median) = (work::BATCH_PIECE * work::BATCH_PIECES * 2, outcome.quantile(0.5));
        assert!(median < batch, "{class:?}: the median is {median:?}, a batch answer {batch:?}");
        let page = service.handle().metrics().expect("they are on").to_string();
        assert!(page.contains("hitm_group_throttled_total{group=\"batch\"} 0\n"), "{page}");
    }
}

#[test]
fn a_late_request_is_told_so() {
    let service = on_hitm::Service::start(1, Class::RealTime).expect("sockets");
    let mut client = Client::connect(service.addresses.critical).expect("a connection");
    assert_eq!(client.get("/").expect("an answer"), 200);
    assert_eq!(client.get("/slow").expect("an answer"), 503);
    assert_eq!(client.get("/").expect("an answer"), 200, "the connection goes on");
}

/// A limit of the batch tenant leaves the critical tenant alone.
#[test]
fn a_limit_throttles_the_batch_tenant() {
    let service = on_hitm::Service::start(2, Class::RealTime).expect("sockets");
    let millis = Duration::from_millis;
    service.batch.limit(millis(10), millis(100)).expect("a limit");
    let outcome = run(service.addresses, LOAD).expect("no connection fails");
    assert!(service.batch.throttling().throttles > 0);
    // A tenth of a CPU is 50 requests of 2 ms per second; as much again for the slices that CPUs
    // keep.
    assert!(outcome.batch_per_second < 100.0, "{} batch requests per second", outcome.batch_per_second);
    assert_eq!(outcome.late, 0);
}

#[test]
fn tokio_serves_the_same() {
    for apart in [false, true] {
        let service = on_tokio::Service::start(2, apart).expect("sockets");
        let outcome = run(service.addresses, LOAD).expect("no connection fails");
        assert!(outcome.critical.len() > 5 && outcome.batch_per_second > 0.0, "apart {apart}: {outcome:?}");
    }
}
