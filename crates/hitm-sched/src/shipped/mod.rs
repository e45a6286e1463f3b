//! hitm's own scheduler, the mitigation `shipped`: a waiting task is advertised to the CPUs that
//! could run it. It names nothing of [`linux`](crate::linux).

pub(crate) mod announce;
pub(crate) mod floor;
pub(crate) mod hints;
pub(crate) mod ids;
pub(crate) mod near;
pub(crate) mod waiting;

use hitm_memory::Memory;
use hitm_topology::Topology;

use self::waiting::Waiting;

/// Where real-time tasks wait and which CPUs can run them, as hitm's own scheduler knows it.
/// [`announce`] has the advertisements, [`near`] the search.
#[derive(Debug)]
pub(crate) struct Shipped<M: Memory> {
    pub(crate) waiting: Waiting<M>,
}

impl<M: Memory> Shipped<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        Self { waiting: Waiting::new(topology) }
    }
}
