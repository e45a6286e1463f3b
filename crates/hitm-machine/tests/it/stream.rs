//! The pinned stream that the benchmark replays: it is the one that its documentation describes,
//! since figures of different days are comparable only while it is; and its result has the same
//! bytes whatever the host.

#[path = "../../benches/pinned/mod.rs"]
mod pinned;

use std::sync::Arc;
use std::thread;

use hitm_machine::{Arbitration, Config, Kind};

use self::pinned::{Access, CPUS, LINES, OWN, SHARED, stream};

#[test]
fn the_pinned_stream_has_the_documented_shape() {
    let stream = stream();
    assert_eq!(stream.len(), 16_384);
    let count = |is: &dyn Fn(&Access) -> bool| stream.iter().filter(|access| is(access)).count();
    assert_eq!(count(&|access| access.cpu >= CPUS || access.line as usize >= LINES), 0);
    let of_all = |access: &Access| access.line < SHARED;
    let own = |access: &Access| !of_all(access) && (access.line - SHARED) / OWN == access.cpu;
    assert_eq!([count(&of_all), count(&own)], [1_915, 13_117]);
    let kinds = [Kind::Load, Kind::Store, Kind::Rmw];
    assert_eq!(kinds.map(|kind| count(&|access| access.kind == kind)), [9_572, 4_278, 2_534]);
    assert_eq!(kinds.map(|kind| count(&|access| of_all(access) && access.kind == kind)), [780, 359, 776]);
    let bursts = 1 + stream.windows(2).filter(|pair| pair[0].cpu != pair[1].cpu).count();
    assert_eq!(bursts, 1_368, "of about twelve accesses");
    assert_eq!(count(&|access| access.gap > 0), 5_547);
    assert_eq!(stream.iter().map(|access| access.gap).sum::<u64>(), 332_412, "nanoseconds of work");
    // FNV-1a (Fowler, Noll, Vo 1991) of the bytes: what no share above tells.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let bytes = include_bytes!("../../benches/pinned/stream.bin");
    assert_eq!(bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash), 0x984c_112b_d7ac_b4f9);
}

/// All that the machine counted, as text.
fn replay(config: Config) -> String {
    let topology = Arc::new(hitm_topology::parse("gnr-2x120").expect("a preset"));
    let (machine, main) = pinned::machine(&topology, config, &stream(), 2);
    machine.run(main).expect("the stream ends");
    machine.check();
    let mut results = machine.results();
    // How often the host switched is no result of the model.
    results.totals.resumes = 0;
    format!("{results:?}")
}

#[test]
fn look_ahead_and_host_threads_change_no_byte_of_the_streams_result() {
    for arbitration in [Arbitration::LocalFirst, Arbitration::Fifo] {
        let config = move || Config { arbitration, ..Config::default() };
        let alone = replay(config());
        assert!(alone == replay(Config { look_ahead: false, ..config() }), "{arbitration:?}: without look-ahead");
        let others: Vec<_> = (0..3).map(|_| thread::spawn(move || replay(config()))).collect();
        for other in others {
            assert!(alone == other.join().expect("no panic"), "{arbitration:?}: beside other host threads");
        }
    }
}
