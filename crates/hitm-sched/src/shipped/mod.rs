//! hitm's own scheduler, the mitigation `shipped`: a waiting task is advertised to the CPUs that
//! could run it. It names nothing of [`linux`](crate::linux).

pub(crate) mod announce;
pub(crate) mod floor;
pub(crate) mod hints;
pub(crate) mod ids;
pub(crate) mod near;
pub(crate) mod run_next;
pub(crate) mod searchers;
pub(crate) mod spread;
pub(crate) mod urgent;
pub(crate) mod waiting;

use hitm_memory::Memory;
use hitm_topology::Topology;

use self::run_next::RunNext;
use self::searchers::Searchers;
use self::urgent::UrgentTasks;
use self::waiting::Waiting;

/// Where real-time tasks wait and which CPUs can run them, as hitm's own scheduler knows it.
/// [`announce`] has the advertisements, [`near`] the search, [`searchers`] the idle CPUs,
/// [`urgent`] the tasks that any CPU may take, [`run_next`] those that their waker's CPU has not
/// queued.
#[derive(Debug)]
pub(crate) struct Shipped<M: Memory> {
    pub(crate) waiting: Waiting<M>,
    /// The idle CPUs, where CPUs keep the tasks that their own tasks wake.
    pub(crate) searchers: Option<Searchers<M>>,
    /// The urgent tasks that their CPUs have not begun, there too.
    pub(crate) urgent: Option<UrgentTasks<M>>,
    /// The offered tasks of each CPU, there too.
    pub(crate) run_next: Option<RunNext<M>>,
}

impl<M: Memory> Shipped<M> {
    pub(crate) fn new(topology: &Topology, keeps_wakeups: bool) -> Self {
        Self {
            waiting: Waiting::new(topology, keeps_wakeups),
            searchers: keeps_wakeups.then(|| Searchers::new(topology)),
            urgent: keeps_wakeups.then(|| UrgentTasks::new(topology)),
            run_next: keeps_wakeups.then(|| RunNext::new(topology)),
        }
    }
}
