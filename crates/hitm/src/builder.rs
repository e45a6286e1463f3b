//! [`Builder`]: the settings of a native runtime.

use std::sync::Arc;

use hitm_sched::Mitigation;
use hitm_topology::{MAX_CPUS, Topology};

use crate::native::{NativeError, NativeRuntime};
use crate::roles::Roles;

/// Sets up a [`NativeRuntime`]: by default, one thread per CPU of this machine on
/// [`Mitigation::shipped`].
///
/// ```
/// use hitm::{Handle, Native, NativeRuntime};
///
/// fn answer(handle: &Handle<Native>) -> usize {
///     40 + handle.topology().cpus()
/// }
///
/// let runtime = NativeRuntime::builder().cpus(2).build().unwrap();
/// assert_eq!(answer(runtime.handle()), 42);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Builder {
    machine: Machine,
    mitigation: Mitigation,
    roles: Option<Roles>,
    accounting: bool,
}

#[derive(Debug)]
enum Machine {
    This,
    Cpus(usize),
    Topology(Arc<Topology>),
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { machine: Machine::This, mitigation: Mitigation::shipped(), roles: None, accounting: false }
    }

    /// Makes `cpus` threads, which the operating system places.
    pub fn cpus(self, cpus: usize) -> Self {
        Self { machine: Machine::Cpus(cpus), ..self }
    }

    /// Makes one thread per CPU that this process may use, each pinned to its CPU: the default.
    pub fn this_machine(self) -> Self {
        Self { machine: Machine::This, ..self }
    }

    /// Makes one thread per CPU of `topology`. Each thread is pinned to its CPU when the topology
    /// is this machine's (`this`); otherwise the operating system places the threads.
    pub fn topology(self, topology: impl Into<Arc<Topology>>) -> Self {
        Self { machine: Machine::Topology(topology.into()), ..self }
    }

    /// Uses the scheduler of `mitigation`, for comparisons.
    pub fn mitigation(self, mitigation: &Mitigation) -> Self {
        Self { mitigation: mitigation.clone(), ..self }
    }

    /// Counts what the tasks of these roles do.
    pub fn roles(self, roles: impl Into<Option<Roles>>) -> Self {
        Self { roles: roles.into(), ..self }
    }

    /// Books time as user, kernel and idle time: see [`NativeRuntime::booked`]. It costs two clock
    /// reads per change of mode.
    pub fn accounting(self) -> Self {
        Self { accounting: true, ..self }
    }

    /// Makes the runtime.
    ///
    /// # Errors
    /// When the number of CPUs is not 1 to 8,192 ([`MAX_CPUS`]), when the topology of this machine
    /// cannot be read, or when a thread cannot be started.
    pub fn build(self) -> Result<NativeRuntime, NativeError> {
        let topology = match self.machine {
            Machine::This => Arc::new(hitm_topology::parse("this").map_err(NativeError::Topology)?),
            Machine::Cpus(cpus) if !(1..=MAX_CPUS).contains(&cpus) => {
                return Err(NativeError::Cpus { wanted: cpus });
            }
            Machine::Cpus(cpus) => {
                Arc::new(hitm_topology::parse(&format!("core:{cpus} pu:1")).map_err(NativeError::Topology)?)
            }
            Machine::Topology(topology) => topology,
        };
        NativeRuntime::new(topology, &self.mitigation, self.roles, self.accounting)
    }
}
