//! Tenants: sets of tasks that share a space of concurrency ids. Tasks index data by concurrency id
//! as they would by CPU.
//!
//! **Protocol.** A tenant is a map of the scheduler. Its handle and the cell of each of its tasks
//! keep the map alive. The last of them frees the map. By then the task ids are free too, since a
//! cell outlives its task's id.
//!
//! **No exec.** A task keeps its tenant for life. In Linux, a thread that calls `exec` leaves its
//! map for a new one while it runs. Here, the future that would continue belongs to the old
//! program. It may hold an id that [`Handle::concurrency_id`] has promised until the future next
//! waits. To continue for another tenant, a task spawns a task of that tenant and awaits it.

use std::fmt;
use std::sync::Arc;

use hitm_memory::Platform;
use hitm_sched::{MapId, Scheduler};

use crate::host::RuntimeId;
use crate::runtime::{Handle, Inner};

/// A set of tasks that share concurrency ids: see [`Handle::tenant`]. Clones refer to the same
/// tenant.
#[derive(Clone)]
pub struct Tenant(Arc<Kept>);

struct Kept {
    map: MapId,
    runtime: RuntimeId,
    owner: Box<dyn Owner>,
}

/// The scheduler that a tenant belongs to, independent of its platform.
trait Owner: Send + Sync {
    fn give_back(&self, map: MapId);
}

impl<P: Platform> Owner for Arc<Scheduler<P>> {
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
    /// Returns the tenant's map id in the scheduler.
    #[must_use]
    pub fn map(&self) -> MapId {
        self.0.map
    }

    /// Returns the tenant's map id for a task of `runtime`.
    ///
    /// # Panics
    /// When the tenant belongs to another runtime, where the id is that of another map.
    pub(crate) fn map_in(&self, runtime: RuntimeId) -> MapId {
        assert!(self.0.runtime == runtime, "the tenant belongs to another runtime");
        self.0.map
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tenant").field(&self.0.map.0).finish()
    }
}

impl<P: Platform> Handle<P> {
    /// Makes a tenant without tasks, for this runtime.
    /// [`SpawnOptions::tenant`](crate::SpawnOptions::tenant) makes a task belong to it.
    ///
    /// No two tasks of a tenant that run at the same time have the same [`Handle::concurrency_id`].
    /// Ids are small: with the default scheduler, a tenant of three tasks uses ids below three.
    /// Data indexed by concurrency id therefore needs one entry per concurrently running task,
    /// while data indexed by CPU needs one entry per CPU of the machine.
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
    /// When 4,096 tenants exist.
    #[must_use]
    pub fn tenant(&self) -> Tenant {
        let owner = Box::new(self.0.sched.clone());
        let map = self.0.in_kernel(|| self.0.sched.make_map());
        Tenant(Arc::new(Kept { map, runtime: self.0.number, owner }))
    }

    /// Returns the concurrency id of the calling task; `None` when the task has no tenant, and
    /// outside a task.
    ///
    /// The id belongs to the task until the task next waits, computes or reaches a checkpoint. Then
    /// the task may get another id, and another task may get this one. Data indexed by the id must
    /// be consistent at these points, or be protected by an atomic word or a lock that is only
    /// tried.
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
