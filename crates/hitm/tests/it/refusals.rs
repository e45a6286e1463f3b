//! Native runtimes that cannot be made: the error says why.

use hitm::{NativeError, NativeRuntime};

#[test]
fn a_runtime_has_at_least_one_cpu_and_at_most_as_many_as_a_machine() {
    for cpus in [0, 8_193, usize::MAX] {
        let error = NativeRuntime::with_cpus(cpus).unwrap_err();
        assert!(matches!(error, NativeError::Cpus { wanted } if wanted == cpus), "{error:?}");
        let says = format!("a runtime has one thread per CPU and 1 to 8192 CPUs, not {cpus}");
        assert_eq!(error.to_string(), says);
    }
}
