//! The machine on which the tests run.

use hitm_topology::parse;

use crate::invariants;

/// `Cpus_allowed_list` of this process, where Linux shows it.
fn allowed() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1
    };
    Some(list.trim().split(',').map(count).sum())
}

#[test]
fn this_machine_has_the_cpus_that_the_process_may_use() {
    if !std::path::Path::new("/sys/devices/system/cpu").is_dir() {
        let error = parse("this").unwrap_err().to_string();
        assert!(error.starts_with("`this`: there is no `/sys/devices/system/cpu` here"), "{error}");
        return;
    }
    let machine = parse("this").unwrap();
    invariants::check(&machine);
    assert_eq!((machine.name(), machine.source()), ("this", "Linux sysfs of this machine"));
    if let Some(allowed) = allowed() {
        assert_eq!(machine.cpus(), allowed);
    }
}

#[test]
fn this_machine_as_a_dump_has_the_same_shape() {
    let (Ok(this), Ok(dump)) = (parse("this"), parse("/sys/devices/system")) else { return };
    // A dump has no affinity, so it may have more CPUs.
    assert_eq!(dump.cpus() + dump.excluded(), this.cpus() + this.excluded());
    for cpu in this.cpu_ids() {
        let place = this.cpu(cpu);
        let other = dump.cpu(dump.cpu_by_os_index(place.os_index).unwrap());
        assert_eq!(dump.node_os_index(other.node), this.node_os_index(place.node));
    }
}
