//! Machines of another size: a smaller one takes the first CPUs, a larger one adds packages
//! (`grow`).

use std::collections::BTreeSet;

use crate::CpuId;
use crate::error::{Error, Place};
use crate::grow::grown;
use crate::limits::MAX_CPUS;
use crate::topology::Topology;

impl Topology {
    /// Returns the machine with `cpus` CPUs: the first cores of this one, or this one with packages
    /// added.
    ///
    /// Fewer CPUs are whole cores, filling one LLC after the other and one package after the other,
    /// in the order of their ids; the CPUs that stay keep their OS indices and their order. More
    /// CPUs come as copies of the packages, in turn, the last one cut like a smaller machine:
    ///
    /// - every added package is one hop from all others: their nodes are as far apart as the
    ///   closest two nodes of different packages here (20, the remote distance of ACPI's SLIT, when
    ///   there is one package alone);
    /// - a node that spans packages includes the added CPUs;
    /// - OS indices are assigned again, without holes: all first threads package by package, then
    ///   all second threads, if this machine numbers its CPUs so; else package by package, after
    ///   the CPUs of this machine.
    ///
    /// [`Topology::name`] gets the number of CPUs behind an `@`, as in `gnr-2x120@48`, unless
    /// nothing changes.
    ///
    /// # Errors
    ///
    /// When `cpus` is 0, above [`MAX_CPUS`], or would cut a core in two.
    pub fn restrict(&self, cpus: usize) -> Result<Topology, Error> {
        if cpus == self.cpus() {
            return Ok(self.clone());
        }
        if cpus == 0 || cpus > MAX_CPUS {
            let cause = format!("a machine of {cpus} CPUs cannot be had");
            return Err(Error::new(self.name(), Place::Whole, cause, format!("ask for 1 to {MAX_CPUS} CPUs")));
        }
        let (verb, mut draft) = if cpus < self.cpus() {
            let cores = cores_in_order(self, self.cpu_ids());
            let kept: BTreeSet<CpuId> = whole_cores(&cores, cpus).map_err(|cut| cut.error(self, 0))?.collect();
            let mut draft = self.to_draft();
            let mut ids = self.cpu_ids();
            draft.cpus.retain(|_| ids.next().is_some_and(|id| kept.contains(&id)));
            ("restricted", draft)
        } else {
            ("extended", grown(self, cpus)?)
        };
        draft.source = format!("{}, {verb} from {} to {cpus} CPUs", self.source, self.cpus());
        draft.name = format!("{}@{cpus}", self.name);
        draft.finish(self.name())
    }
}

/// Returns the cores of these CPUs in the order in which a smaller machine takes them: by package,
/// then LLC, then core.
pub(crate) fn cores_in_order(topology: &Topology, cpus: impl Iterator<Item = CpuId>) -> Vec<&[CpuId]> {
    let first_threads = cpus.filter(|&cpu| topology.cpu(cpu).thread == 0);
    let mut cores: Vec<&[CpuId]> = first_threads.map(|cpu| topology.siblings(cpu)).collect();
    cores.sort_by_key(|threads| {
        let cpu = topology.cpu(threads[0]);
        (cpu.package, cpu.llc, cpu.core)
    });
    cores
}

/// Returns the CPUs of the first cores, `cpus` in all.
pub(crate) fn whole_cores<'a>(
    cores: &'a [&'a [CpuId]],
    cpus: usize,
) -> Result<impl Iterator<Item = CpuId> + 'a, CutCore> {
    let mut count = 0;
    let mut taken = 0;
    while count < cpus && taken < cores.len() {
        let before = count;
        count += cores[taken].len();
        taken += 1;
        if count > cpus {
            return Err(CutCore { asked: cpus, fewer: before, more: count });
        }
    }
    Ok(cores[..taken].iter().flat_map(|threads| threads.iter().copied()))
}

/// A number of CPUs that is not a whole number of cores, and the next lower and higher valid
/// numbers.
pub(crate) struct CutCore {
    asked: usize,
    fewer: usize,
    more: usize,
}

impl CutCore {
    /// Returns the error; `whole` CPUs are added to all three numbers.
    pub(crate) fn error(self, topology: &Topology, whole: usize) -> Error {
        let [asked, fewer, more] = [self.asked, self.fewer, self.more].map(|cpus| cpus + whole);
        let choice = if fewer == 0 { format!("{more}") } else { format!("{fewer} or {more}") };
        let cause = format!("with {asked} of its CPUs a core would be cut in two");
        Error::new(topology.name(), Place::Whole, cause, format!("ask for {choice} CPUs"))
    }
}
