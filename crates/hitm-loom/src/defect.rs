//! Defects: one operation of the code under test, changed while a model runs.
//!
//! The words of [`Loom`](crate::Loom) know where they are called from and ask, at every access, whether a defect is meant
//! for it. A whole model runs on one thread of the operating system (loom's threads are coroutines), so the active defect
//! is a thread-local of that thread: checks that run side by side do not see each other's.

use std::any::TypeId;
use std::cell::RefCell;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::Ordering;

use hitm_memory::Rmw;
use loom::thread::ThreadId;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A swap.
    Swap,
    /// A compare-exchange, whether it succeeds or not.
    CompareExchange,
    /// A fetch-add.
    Add,
    /// A fetch-sub.
    Sub,
    /// A fetch-or.
    Or,
    /// A fetch-and.
    And,
    /// A fetch-xor.
    Xor,
    /// A fetch-max.
    Max,
    /// A fetch-min.
    Min,
    /// A fence.
    Fence,
}

impl From<Rmw> for Op {
    fn from(operation: Rmw) -> Self {
        match operation {
            Rmw::Swap => Self::Swap,
            Rmw::Add => Self::Add,
            Rmw::Sub => Self::Sub,
            Rmw::Max => Self::Max,
            Rmw::Min => Self::Min,
            Rmw::Or => Self::Or,
            Rmw::And => Self::And,
            Rmw::Xor => Self::Xor,
        }
    }
}

/// Operations of the code under test: all those in one file of one kind and ordering, or fewer of them.
///
/// Lines are no part of it, so that a site survives edits to the file.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    file: &'static str,
    op: Op,
    order: Ordering,
    word: Option<TypeId>,
    operand: Option<u64>,
}

impl Site {
    /// The operations in the source file whose path ends with the components `file`; of a compare-exchange, `order` is the
    /// one for success. An operation is in the file that calls the seam, or that calls what passes its caller on: a lock
    /// is taken where `lock()` stands, and let go in `lock.rs`.
    #[must_use]
    pub const fn new(file: &'static str, op: Op, order: Ordering) -> Self {
        Self { file, op, order, word: None, operand: None }
    }

    /// Of these, those on words of type `T`.
    #[must_use]
    pub const fn on<T: 'static>(self) -> Self {
        Self { word: Some(TypeId::of::<T>()), ..self }
    }

    /// Of these, those that store, add, set or keep `operand`.
    #[must_use]
    pub const fn with(self, operand: u64) -> Self {
        Self { operand: Some(operand), ..self }
    }

    fn matches(&self, access: &Access) -> bool {
        self.op == access.op
            && self.order == access.order
            && self.word.is_none_or(|word| word == access.word)
            && self.operand.is_none_or(|operand| Some(operand) == access.operand)
            && Path::new(access.location.file()).ends_with(self.file)
    }
}

/// A change to the operations of a [`Site`].
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    site: Site,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Order(Ordering),
    Lost,
    DelayedUntil(Site),
}

impl Defect {
    /// The operations are Relaxed; a fence is gone.
    #[must_use]
    pub const fn relax(site: Site) -> Self {
        Self::weaken(site, Ordering::Relaxed)
    }

    /// The operations have the ordering `to`: takes away one half of AcqRel.
    #[must_use]
    pub const fn weaken(site: Site, to: Ordering) -> Self {
        Self { site, change: Change::Order(to) }
    }

    /// The operations do not happen. A read-modify-write that is lost returns 0, so this is for those whose result
    /// nobody looks at.
    #[must_use]
    pub const fn lose(site: Site) -> Self {
        Self { site, change: Change::Lost }
    }

    /// Each of the operations happens only after the next one of `until` on the same thread: two operations swap places.
    /// For those whose result nobody looks at, as with [`Defect::lose`].
    #[must_use]
    pub const fn delay(site: Site, until: Site) -> Self {
        Self { site, change: Change::DelayedUntil(until) }
    }
}

/// One access of the code under test.
pub(crate) struct Access {
    op: Op,
    order: Ordering,
    word: TypeId,
    operand: Option<u64>,
    location: &'static Location<'static>,
}

/// What becomes of an access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It happens, with this ordering.
    Performed(Ordering),
    /// It does not happen.
    Lost,
    /// It happens later: the caller must [`hold`](Access::hold) it.
    Held,
}

type Delayed = Box<dyn FnOnce()>;

/// The defect that is active on this thread of the operating system, and what it did.
#[derive(Default)]
struct Active {
    defect: Option<Defect>,
    applied: bool,
    /// Operations that wait for another one of the same thread of the model.
    held: Vec<(ThreadId, Delayed)>,
}

thread_local! {
    static ACTIVE: RefCell<Active> = RefCell::default();
}

/// Makes `defect` active for what this thread does next; what an earlier one held back is forgotten.
pub(crate) fn activate(defect: Option<Defect>) {
    ACTIVE.set(Active { defect, ..Active::default() });
}

/// Forgets what is held back, between one execution and the next.
pub(crate) fn forget_held() {
    ACTIVE.with_borrow_mut(|active| active.held.clear());
}

/// Whether the active defect changed anything.
pub(crate) fn was_applied() -> bool {
    ACTIVE.with_borrow(|active| active.applied)
}

impl Access {
    #[track_caller]
    pub(crate) fn new<T: 'static>(op: Op, order: Ordering, operand: Option<u64>) -> Self {
        Self { op, order, word: TypeId::of::<T>(), operand, location: Location::caller() }
    }

    pub(crate) fn fate(&self) -> Fate {
        ACTIVE.with_borrow_mut(|active| {
            let Some(defect) = active.defect.filter(|defect| defect.site.matches(self)) else {
                return Fate::Performed(self.order);
            };
            active.applied = true;
            match defect.change {
                Change::Order(order) => Fate::Performed(order),
                Change::Lost => Fate::Lost,
                Change::DelayedUntil(_) => Fate::Held,
            }
        })
    }

    /// Keeps `perform` for later.
    pub(crate) fn hold(&self, perform: impl FnOnce() + 'static) {
        let thread = loom::thread::current().id();
        ACTIVE.with_borrow_mut(|active| active.held.push((thread, Box::new(perform))));
    }

    /// This access has happened: performs what was held back until then.
    pub(crate) fn release_held(&self) {
        let due = ACTIVE.with_borrow_mut(|active| {
            let Some(Defect { change: Change::DelayedUntil(until), .. }) = active.defect else { return Vec::new() };
            if !until.matches(self) {
                return Vec::new();
            }
            let thread = loom::thread::current().id();
            active.held.extract_if(.., |(holder, _)| *holder == thread).collect()
        });
        // Outside of the borrow: loom may run another thread of the model in the middle of an access.
        due.into_iter().for_each(|(_, perform): (ThreadId, Delayed)| perform());
    }
}
