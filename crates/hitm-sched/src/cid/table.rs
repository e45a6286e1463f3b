//! The table of a scheduler's maps.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hitm_memory::{Placed, Platform};
use hitm_topology::Topology;

use crate::base::cid::{Allocator, Walk};
use crate::base::id_allocator::{IdAllocator, Numbered};
use crate::base::numbers::MapId;
use crate::cid::Variant;
use crate::linux::cid::owned::OwnedIds;
use crate::linux::cid::per_cpu::{Fallback, PerCpuIds};
use crate::shipped::ids::ShippedIds;

/// The maximum number of maps that live at once.
pub const MAPS_MAX: usize = 4_096;

#[derive(Debug)]
enum Slots {}

impl Numbered for Slots {
    const OBJECT: &'static str = "map_table";
    const LOCK: &'static str = "taken when a map is made or given back";
    const PLURAL: &'static str = "maps";
    const MAX: usize = MAPS_MAX;
    /// Maps are created and freed rarely.
    const IN_MAGAZINE: usize = 0;
}

/// All maps of a scheduler. A map's words are created when first needed. They are never freed, but
/// used again.
#[derive(Debug)]
pub(crate) struct Maps<P: Platform> {
    variant: Variant,
    topology: Arc<Topology>,
    maps: Box<[OnceLock<Box<dyn Allocator<P>>>]>,
    slots: IdAllocator<P, Slots>,
    fallback: OnceLock<Arc<Placed<P, Fallback<P>>>>,
    /// Whether there ever was a map. Before that, switches ignore ids.
    used: AtomicBool,
}

impl<P: Platform> Maps<P> {
    pub(crate) fn new(variant: Variant, topology: Arc<Topology>) -> Self {
        Self {
            variant,
            slots: IdAllocator::new(&topology),
            topology,
            maps: (0..MAPS_MAX).map(|_| OnceLock::new()).collect(),
            fallback: OnceLock::new(),
            used: AtomicBool::new(false),
        }
    }

    /// Returns whether CPUs check each other's running maps and take ids away. If so, switches are
    /// fenced, and CPUs that run tasks of maps must call [`Allocator::tick`] from time to time.
    pub(crate) fn are_swept(&self) -> bool {
        matches!(self.variant, Variant::Baseline | Variant::Recent)
    }

    /// Returns whether a task may have a map. For a task that has one, it is true on every CPU that
    /// has a handle of the task. It is no word of the machine, so programs without maps pay
    /// nothing.
    pub(crate) fn are_used(&self) -> bool {
        // Relaxed: a CPU that has a handle of a task has synchronised with the task's creator,
        // after this was set.
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, map: MapId) -> &dyn Allocator<P> {
        &**self.maps[map.0 as usize].get().expect("a map that was made")
    }

    /// Creates a map without tasks.
    ///
    /// # Panics
    /// When [`MAPS_MAX`] maps live.
    pub(crate) fn make(&self) -> MapId {
        // Relaxed: see `are_used`.
        self.used.store(true, Ordering::Relaxed);
        let map = MapId(self.slots.take(P::current_cpu()));
        self.maps[map.0 as usize].get_or_init(|| self.allocator(map));
        map
    }

    /// Frees a map that has no task left.
    pub(crate) fn give_back(&self, map: MapId, walk: &dyn Walk<P>) {
        self.get(map).reset(walk);
        self.slots.give_back(map.0, P::current_cpu());
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
