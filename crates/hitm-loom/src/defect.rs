//! Defects: a defect changes one operation of the code under test while a model runs.
//!
//! The words of [`Loom`](crate::Loom) know their callers. At every access they check whether the
//! active defect applies to it. A whole model runs on one thread of the operating system (loom's
//! threads are coroutines), so the active defect is a thread-local of that thread. Checks that run
//! side by side therefore do not see each other's defects.

use std::any::TypeId;
use std::cell::RefCell;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::Ordering;

use hitm_memory::Rmw;
use loom::thread::ThreadId;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A swap.
    Swap,
    /// A compare-exchange, successful or not.
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

/// Operations of the code under test: all operations in one file of one kind and ordering, or a
/// subset of them.
///
/// A site has no line number, so it survives edits to the file.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    file: &'static str,
    op: Op,
    order: Ordering,
    word: Option<TypeId>,
    operand: Option<u64>,
}

impl Site {
    /// Returns the operations in the source file whose path ends with the components `file`. For a
    /// compare-exchange, `order` is the ordering for success. An operation belongs to the file that
    /// calls the memory interface. A function that passes its caller on counts for its caller: the
    /// operation that takes a lock belongs to the file with the call of `lock()`, and the operation
    /// that releases it belongs to `lock.rs`.
    #[must_use]
    pub const fn new(file: &'static str, op: Op, order: Ordering) -> Self {
        Self { file, op, order, word: None, operand: None }
    }

    /// Restricts the site to words of type `T`.
    #[must_use]
    pub const fn on<T: 'static>(self) -> Self {
        Self { word: Some(TypeId::of::<T>()), ..self }
    }

    /// Restricts the site to operations that store, add, set or keep `operand`.
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
    /// Makes the operations Relaxed; removes a fence.
    #[must_use]
    pub const fn relax(site: Site) -> Self {
        Self::weaken(site, Ordering::Relaxed)
    }

    /// Gives the operations the ordering `to`: removes one half of AcqRel.
    #[must_use]
    pub const fn weaken(site: Site, to: Ordering) -> Self {
        Self { site, change: Change::Order(to) }
    }

    /// Removes the operations. A removed read-modify-write returns 0, so this is for operations
    /// whose result is not used.
    #[must_use]
    pub const fn lose(site: Site) -> Self {
        Self { site, change: Change::Lost }
    }

    /// Delays each of the operations until after the next operation of `until` on the same thread:
    /// the two operations change places. It is for operations whose result is not used, as with
    /// [`Defect::lose`].
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

/// The effect of the defect on an access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// The access happens, with this ordering.
    Performed(Ordering),
    /// The access does not happen.
    Lost,
    /// The access happens later: the caller must [`hold`](Access::hold) it.
    Held,
}

type Delayed = Box<dyn FnOnce()>;

/// The active defect on this thread of the operating system, and its effects so far.
#[derive(Default)]
struct Active {
    defect: Option<Defect>,
    applied: bool,
    /// Operations that wait for another operation of the same thread of the model.
    held: Vec<(ThreadId, Delayed)>,
}

thread_local! {
    static ACTIVE: RefCell<Active> = RefCell::default();
}

/// Makes `defect` active for the following operations of this thread; forgets the operations that
/// an earlier defect held back.
pub(crate) fn activate(defect: Option<Defect>) {
    ACTIVE.set(Active { defect, ..Active::default() });
}

/// Forgets the operations that are held back, between one execution and the next.
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

    /// Called after this access: performs the operations that were held back until then.
    pub(crate) fn release_held(&self) {
        let due = ACTIVE.with_borrow_mut(|active| {
            let Some(Defect { change: Change::DelayedUntil(until), .. }) = active.defect else { return Vec::new() };
            if !until.matches(self) {
                return Vec::new();
            }
            let thread = loom::thread::current().id();
            active.held.extract_if(.., |(holder, _)| *holder == thread).collect()
        });
        // Not within the borrow: loom may run another thread of the model in the middle of an
        // access.
        due.into_iter().for_each(|(_, perform): (ThreadId, Delayed)| perform());
    }
}
