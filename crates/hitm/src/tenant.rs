//! Tenants: tasks whose concurrency ids tell them apart, so that they index data by them as by CPUs.
//!
//! **Protocol.** A tenant is the scheduler's map, kept by its handle and by the cell of every task of it. The last of them gives it back:
//! by then the numbers of its tasks were given back, since a cell outlives its task's number.
//!
//! **No exec.** A task is of one tenant for life. In Linux a thread that calls `exec` leaves its map for a new one while it runs; here the
//! future that would go on is the old program's, and it may hold an id that [`Handle::concurrency_id`] has promised it until it next waits.
//! Whoever is to go on for another tenant spawns a task of that one and awaits it.

use std::fmt;
use std::sync::Arc;

use hitm_memory::Platform;
use hitm_sched::cid::MapId;
use hitm_sched::scheduler::Scheduling;

use crate::runtime::{Handle, Inner};

/// Tasks that share concurrency ids: see [`Handle::tenant`]. Clones are the same tenant.
#[derive(Clone)]
pub struct Tenant(Arc<Kept>);

struct Kept {
    map: MapId,
    owner: Box<dyn Owner>,
}

/// A scheduler, whatever it runs on.
trait Owner: Send + Sync {
    fn give_back(&self, map: MapId);
}

impl<P: Platform> Owner for Arc<dyn Scheduling<P>> {
    fn give_back(&self, map: MapId) {
        self.free_map(map);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.owner.give_back(self.map);
    }
}

impl Tenant {
    /// Its number at the scheduler.
    #[must_use]
    pub fn map(&self) -> MapId {
        self.0.map
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tenant").field(&self.0.map.0).finish()
    }
}

impl<P: Platform> Handle<P> {
    /// A tenant of no tasks; [`SpawnOptions::tenant`](crate::SpawnOptions::tenant) makes tasks its own. It is for this runtime alone.
    ///
    /// Of the tasks of a tenant that run at the same time no two have the same [`Handle::concurrency_id`], and ids are small: of a
    /// tenant of three tasks they are below three, with the default scheduler. So data that is indexed by them takes room for
    /// as many as run at once, where data by CPU takes room for every CPU of the machine.
    ///
    /// ```
    /// use hitm::{NativeRuntime, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let id = runtime.run(|handle| async move {
    ///     let tenant = handle.tenant();
    ///     let me = handle.clone();
    ///     let options = SpawnOptions { tenant: Some(tenant), ..SpawnOptions::default() };
    ///     handle.spawn(options, async move { me.concurrency_id() }).await.unwrap()
    /// });
    /// assert_eq!(id.unwrap(), Some(0), "it is the only task of its tenant");
    /// ```
    ///
    /// # Panics
    /// When 4,096 tenants live.
    #[must_use]
    pub fn tenant(&self) -> Tenant {
        let owner = Box::new(self.0.sched.clone());
        let map = self.0.in_kernel(|| self.0.sched.make_map());
        Tenant(Arc::new(Kept { map, owner }))
    }

    /// The concurrency id of the task that calls; none when it has no tenant, and outside a task.
    ///
    /// It is the task's own until the task next waits, computes or checks; after that it may have another one, and this one may be
    /// another task's. What is kept by it must therefore be whole at those points, or say so (an atomic word, a lock that is tried).
    #[must_use]
    pub fn concurrency_id(&self) -> Option<u32> {
        self.0.concurrency_id()
    }
}

impl<P: Platform> Inner<P> {
    fn concurrency_id(&self) -> Option<u32> {
        if self.host.is_cpu() { self.sched.cid() } else { None }
    }
}
