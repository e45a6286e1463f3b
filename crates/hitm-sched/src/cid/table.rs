//! The maps of a scheduler.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hitm_memory::{Described, Field, Lock, Placed, Platform};
use hitm_topology::Topology;

use super::owned::OwnedIds;
use super::per_cpu::{Fallback, PerCpuIds};
use super::shipped::ShippedIds;
use super::{Allocator, MapId, Variant, Walk};

/// The most maps that can live at once.
pub const MAPS_MAX: usize = 4_096;

#[derive(Debug)]
struct FreeMaps<P: Platform>(Lock<P, FreeList>);

#[derive(Debug, Default)]
struct FreeList {
    /// Maps that were used before.
    used: Vec<MapId>,
    /// The first number that never was.
    fresh: u32,
}

impl<P: Platform> Described for FreeMaps<P> {
    const OBJECT: &'static str = "map_table";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, size_of::<u32>(), "taken when a map is made or given back")]
    }
}

/// All maps of a scheduler. They are made when first needed, never freed, and used again.
#[derive(Debug)]
pub(crate) struct Maps<P: Platform> {
    variant: Variant,
    topology: Arc<Topology>,
    slots: Box<[OnceLock<Box<dyn Allocator<P>>>]>,
    free: Placed<P, FreeMaps<P>>,
    fallback: OnceLock<Arc<Placed<P, Fallback<P>>>>,
    /// Whether there ever was a map: else switches do nothing about ids.
    used: AtomicBool,
}

impl<P: Platform> Maps<P> {
    pub(crate) fn new(variant: Variant, topology: Arc<Topology>) -> Self {
        Self {
            variant,
            topology,
            slots: (0..MAPS_MAX).map(|_| OnceLock::new()).collect(),
            free: Placed::new(FreeMaps(Lock::new(FreeList::default())), None, None),
            fallback: OnceLock::new(),
            used: AtomicBool::new(false),
        }
    }

    /// Whether CPUs look at what others run, and take their ids away: then switches are fenced, and CPUs that run tasks of maps are to call
    /// [`Allocator::tick`] now and then.
    pub(crate) fn are_swept(&self) -> bool {
        matches!(self.variant, Variant::Baseline | Variant::Recent)
    }

    /// Whether a task may have a map. Of a task that has one it is true for everybody who has got hold of the task; it is no word of the
    /// machine, so that who has no maps pays nothing.
    pub(crate) fn are_used(&self) -> bool {
        // Relaxed: who has got hold of a task has synchronised with who made it, after this was set.
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, map: MapId) -> &dyn Allocator<P> {
        &**self.slots[map.0 as usize].get().expect("a map that was made")
    }

    /// A map of no tasks.
    ///
    /// # Panics
    /// When [`MAPS_MAX`] maps live.
    pub(crate) fn make(&self) -> MapId {
        // Relaxed: see `are_used`.
        self.used.store(true, Ordering::Relaxed);
        let map = {
            let mut free = self.free.0.lock();
            free.used.pop().unwrap_or_else(|| {
                let fresh = free.fresh;
                assert!((fresh as usize) < MAPS_MAX, "more than {MAPS_MAX} maps live at once");
                free.fresh += 1;
                MapId(fresh)
            })
        };
        self.slots[map.0 as usize].get_or_init(|| self.allocator(map));
        map
    }

    /// Gives a map back, of which no task is left.
    pub(crate) fn give_back(&self, map: MapId, walk: &dyn Walk<P>) {
        self.get(map).reset(walk);
        self.free.0.lock().used.push(map);
    }

    fn allocator(&self, map: MapId) -> Box<dyn Allocator<P>> {
        let fallback = || self.fallback.get_or_init(|| Arc::new(Placed::new(Fallback::new(), None, None))).clone();
        match self.variant {
            Variant::Owned => Box::new(OwnedIds::new(map, &self.topology)),
            Variant::Shipped => Box::new(ShippedIds::new(map, self.topology.clone())),
            Variant::Baseline | Variant::Recent => {
                let asks_again = self.variant == Variant::Recent;
                Box::new(PerCpuIds::new(map, &self.topology, asks_again, fallback(), P::now))
            }
        }
    }
}
