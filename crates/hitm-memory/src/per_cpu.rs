//! One object a CPU, each on lines and on the node of its own.

use std::ops::Index;

use hitm_topology::{CpuId, Topology};

use crate::field::Described;
use crate::memory::Memory;
use crate::placed::Placed;

/// One `T` for each CPU of a topology, placed on the CPU's node.
#[derive(Debug)]
pub struct PerCpu<M: Memory, T> {
    values: Box<[Placed<M, T>]>,
}

impl<M: Memory, T: Described> PerCpu<M, T> {
    /// Places `make(cpu)` for every CPU.
    #[must_use]
    pub fn new(topology: &Topology, mut make: impl FnMut(CpuId) -> T) -> Self {
        let place = |cpu: CpuId| Placed::new(make(cpu), Some(cpu.index()), Some(topology.cpu(cpu).node));
        Self { values: topology.cpu_ids().map(place).collect() }
    }
}

impl<M: Memory, T> PerCpu<M, T> {
    /// The objects in CPU order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|value| &**value)
    }
}

impl<M: Memory, T> Index<CpuId> for PerCpu<M, T> {
    type Output = T;

    #[inline]
    fn index(&self, cpu: CpuId) -> &T {
        &self.values[cpu.index()]
    }
}
