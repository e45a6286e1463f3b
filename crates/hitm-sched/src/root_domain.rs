//! The root domain: the state that all CPUs of a scheduling partition share.
//!
//! This file has its fields, their orders, and the parts outside the fields. The operations are in
//! [`cpupri`](crate::cpupri), [`overload`](crate::overload) and [`push_token`](crate::push_token).
//!
//! **Origin.** Linux v6.12 to v7.1. The orders are the baseline's, patch 2's, and that of patch 3
//! as posted on top of patch 2 (Pan Deng, "[PATCH v2 0/4] sched/rt: mitigate root_domain cache line
//! contention", LKML, 2025-07-21). Fields that this scheduler does not use are padding of the same
//! size and name.
//!
//! **Layout.** Lines count from 0. The baseline's lines 0 and 2 are contended:
//!
//! | line | written by | read by |
//! |---|---|---|
//! | 0 | `refcount`: a push chain's start and end; `rto_count`: every overload set and clear | `rto_count`: every pull; `overloaded`: every enqueue and dequeue that leaves two tasks |
//! | 2 | `rto_loop_next`, `rto_loop_start`: every pull while anything is overloaded; `pri_to_cpu[0].count`: every CPU that begins or ends real-time work | the pointer `rto_mask`: every overload set and clear |

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuMask, CpuSet, Encoding, Form, Memory, Native, Placed, PlacedSlice, PlainWord, RawSpinLock,
    ScopedSets, Span, orders,
};
use hitm_topology::{CpuId, Topology};

use crate::cid::Variant;
use crate::cpupri::{Cpupri, CpupriForm};
use crate::cpupri_vecs::{Compact, CpupriVecs, Packed, Split};
use crate::fair::group::variant::GroupConfig;
use crate::fair::idle::IdleSearch;
use crate::overload::OverloadCount;
use crate::prio::Prio;
use crate::waiting::Waiting;

/// The word `rto_count`: either a count or a pointer to counts.
pub trait CountWord<M: Memory>: Send + Sync + 'static {
    /// Creates a count of 0, or a pointer with the value `pointer`.
    fn new(pointer: u64) -> Self;

    /// Returns the count, if the word is one.
    fn count(&self) -> Option<&M::Atomic<i32>>;

    /// Reads the pointer, if the word is one.
    #[track_caller]
    fn follow(&self);
}

/// `rto_count` as a count, four bytes.
#[repr(transparent)]
pub struct Counted<M: Memory>(M::Atomic<i32>);

/// `rto_count` as a pointer to an array of counts, eight bytes.
#[repr(transparent)]
pub struct Pointed<M: Memory>(M::Atomic<u64>);

impl<M: Memory> CountWord<M> for Counted<M> {
    fn new(_pointer: u64) -> Self {
        Self(M::Atomic::new(0))
    }

    #[inline(always)]
    fn count(&self) -> Option<&M::Atomic<i32>> {
        Some(&self.0)
    }

    #[inline(always)]
    fn follow(&self) {}
}

impl<M: Memory> CountWord<M> for Pointed<M> {
    fn new(pointer: u64) -> Self {
        Self(M::Atomic::new(pointer))
    }

    #[inline(always)]
    fn count(&self) -> Option<&M::Atomic<i32>> {
        None
    }

    #[inline(always)]
    #[track_caller]
    fn follow(&self) {
        // Relaxed: written at construction only.
        self.0.load(Ordering::Relaxed);
    }
}

/// The variable parts of a root domain: the placement of cpupri's vectors, and the type of the word
/// `rto_count`.
pub trait RootDomainParts<M: Memory>: Send + Sync + 'static {
    /// cpupri's counts and pointers.
    type Vecs: CpupriVecs<M>;
    /// The word `rto_count`.
    type Count: CountWord<M>;
}

/// The two choices as types.
pub struct Parts<V, C>(PhantomData<fn() -> (V, C)>);

impl<M: Memory, V: CpupriVecs<M>, C: CountWord<M>> RootDomainParts<M> for Parts<V, C> {
    type Vecs = V;
    type Count = C;
}

orders! {
    /// The initial values of a root domain's words.
    pub fields RootDomainFields<M, P: RootDomainParts> via RootDomainTypes {
        /// CPUs that are attached, and push chains under way. Written when a chain starts and ends.
        refcount: M::Atomic<i32>,
        /// CPUs that are overloaded. Written by every overload set and clear, read by every pull.
        rto_count: P::Count,
        /// Whether some CPU has two runnable tasks. Read by every enqueue and dequeue that leaves
        /// two; written when it was 0.
        overloaded: M::Atomic<u8>,
        /// The push work's link in the interrupt's list. Written when the work is sent to a CPU.
        push_work_link: M::Atomic<u64>,
        /// The push work's state. Written when the work is claimed, begun and ended.
        push_work_flags: M::Atomic<u32>,
        /// Protects `rto_loop` and `rto_cpu`.
        rto_lock: RawSpinLock<M>,
        /// The last request that a scan has accounted for. Under `rto_lock`.
        rto_loop: M::Plain<u32>,
        /// Where the scan is; -1 while none is under way. Under `rto_lock`.
        rto_cpu: M::Plain<i32>,
        /// Counts requests. Written by every pull while anything is overloaded.
        rto_loop_next: M::Atomic<u32>,
        /// 1 while a puller starts a scan. Written, or tried, by every pull while anything is
        /// overloaded.
        rto_loop_start: M::Atomic<u32>,
        /// Pointer to the bitmap of overloaded CPUs. Read by every overload set and clear.
        rto_mask: M::Atomic<u64>,
        /// cpupri's counts and pointers.
        cpupri: P::Vecs = described,
    }

    /// The words of a root domain in any order.
    accessors RootDomainWords as "root_domain";

    /// The baseline.
    order Baseline {
        refcount,
        rto_count,
        pad rcu: [u64; 2],
        pad span: u64,
        pad online: u64,
        overloaded,
        pad overutilized: u8,
        pad hole_after_overutilized: [u8; 6],
        pad dlo_mask: u64,
        pad dlo_count: [u32; 2],
        pad dl_bw: [u64; 3],
        pad cpudl: [u64; 3],
        pad visit_cookie: u64,
        push_work_link,
        push_work_flags,
        pad push_work_cpus: u32,
        pad push_work_function: u64,
        pad push_work_waiter: u64,
        rto_lock,
        rto_loop,
        rto_cpu,
        rto_loop_next,
        rto_loop_start,
        pad hole_after_loop_start: u32,
        rto_mask,
        cpupri,
        pad pd: u64,
    }

    /// Patch 2: the words are regrouped by how they are used.
    order Reordered {
        refcount,
        rto_count,
        pad rcu: [u64; 2],
        pad span: u64,
        pad online: u64,
        pad dlo_count: [u32; 2],
        pad dl_bw: [u64; 3],
        pad cpudl: [u64; 3],
        push_work_link,
        push_work_flags,
        pad push_work_cpus: u32,
        pad push_work_function: u64,
        pad push_work_waiter: u64,
        rto_lock,
        rto_loop,
        rto_cpu,
        rto_loop_next,
        rto_loop_start,
        pad hole_after_loop_start: u32,
        pad dlo_mask: u64,
        pad visit_cookie: u64,
        line before_cpupri,
        cpupri,
        line before_pd,
        pad pd: u64,
        rto_mask,
        line before_overloaded,
        overloaded,
        pad overutilized: u8,
    }

    /// Patch 3 as posted, on top of patch 2: `rto_count` is now a pointer on the first line.
    order ReorderedCounts {
        refcount,
        pad hole_after_refcount: u32,
        pad rcu: [u64; 2],
        pad span: u64,
        pad online: u64,
        pad dlo_count: [u32; 2],
        rto_count,
        pad dl_bw: [u64; 3],
        pad cpudl: [u64; 3],
        push_work_link,
        push_work_flags,
        pad push_work_cpus: u32,
        pad push_work_function: u64,
        pad push_work_waiter: u64,
        rto_lock,
        rto_loop,
        rto_cpu,
        rto_loop_next,
        rto_loop_start,
        pad hole_after_loop_start: u32,
        pad dlo_mask: u64,
        pad visit_cookie: u64,
        line before_cpupri,
        cpupri,
        line before_pd,
        pad pd: u64,
        rto_mask,
        line before_overloaded,
        overloaded,
        pad overutilized: u8,
    }
}

/// The scopes of a root domain's split parts, and the choices of its protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootDomainConfig {
    /// cpupri's sets of CPUs.
    pub cpupri_mask: Form,
    /// cpupri's counts of CPUs.
    pub cpupri_count: Form,
    /// How split bitmaps are encoded.
    pub encoding: Encoding,
    /// The set of overloaded CPUs.
    pub rto_mask: Form,
    /// The count of overloaded CPUs.
    pub rto_count: Form,
    /// Whether a puller asks the overloaded CPUs to push, by a chain of interrupts, instead of
    /// taking their locks.
    pub push_by_interrupt: bool,
    /// Whether no push request is lost. In the original one can be lost: see
    /// [`push_token`](crate::push_token).
    pub keeps_requests: bool,
    /// Whether only waiting tasks are advertised: see [`waiting`](crate::waiting).
    pub shipped: bool,
    /// How concurrency ids are allocated.
    pub cids: Variant,
    /// How a waking fair task finds an idle CPU.
    pub idle: IdleSearch,
    /// How the load of groups is kept.
    pub groups: GroupConfig,
    /// The tick period, where ids or fair tasks need ticks.
    pub tick: Span,
}

/// 250 ticks per second, as in Debian's and Ubuntu's kernels up to 2024.
const TICK: Span = Span::from_micros(4_000);

impl RootDomainConfig {
    /// Returns whether a pull takes other queues' locks, so that the puller's own lock may be
    /// released meanwhile.
    pub(crate) fn lets_go_to_pull(&self) -> bool {
        self.shipped || !self.push_by_interrupt
    }
}

impl Default for RootDomainConfig {
    fn default() -> Self {
        Self {
            cpupri_mask: Form::WHOLE,
            cpupri_count: Form::WHOLE,
            encoding: Encoding::ForeignOnes,
            rto_mask: Form::WHOLE,
            rto_count: Form::WHOLE,
            push_by_interrupt: true,
            keeps_requests: false,
            shipped: false,
            cids: Variant::Baseline,
            idle: IdleSearch::Baseline,
            groups: GroupConfig::default(),
            tick: TICK,
        }
    }
}

/// A root domain: its words, and the data that their pointers lead to.
#[derive(Debug)]
pub struct RootDomain<M: Memory, R> {
    words: Placed<M, R>,
    /// The parts of cpupri outside the words.
    pub(crate) cpupri: Cpupri<M>,
    pub(crate) rto_mask: ScopedSets<M>,
    pub(crate) rto_counts: OverloadCount<M>,
    /// The word that stands for `rto_count` in orders where that is a pointer.
    no_count: PlacedSlice<M, M::Atomic<i32>>,
    /// CPUs that may get tasks.
    pub(crate) active: CpuMask<M>,
    pub(crate) config: RootDomainConfig,
    /// The advertisements of waiting tasks, if [`RootDomainConfig::shipped`].
    pub(crate) waiting: Option<Waiting<M>>,
}

impl<M: Memory, R: RootDomainWords<M>> RootDomain<M, R> {
    /// Creates a root domain of all CPUs of `topology`, none of them online yet.
    #[must_use]
    pub fn new(topology: &Topology, config: RootDomainConfig) -> Self {
        let encoding = config.encoding;
        let form = CpupriForm { mask: config.cpupri_mask, count: config.cpupri_count, encoding };
        let (cpupri, vecs) = Cpupri::new(topology, form);
        let rto_mask = ScopedSets::new("rto_mask_bits", "cpus", 1, topology, config.rto_mask, encoding);
        let words = R::from_fields(RootDomainFields {
            refcount: M::Atomic::new(topology.cpus() as i32),
            rto_count: <R::Part as RootDomainParts<M>>::Count::new(0),
            overloaded: M::Atomic::new(0),
            push_work_link: M::Atomic::new(0),
            push_work_flags: M::Atomic::new(0),
            rto_lock: RawSpinLock::new(),
            rto_loop: M::Plain::new(0),
            rto_cpu: M::Plain::new(-1),
            rto_loop_next: M::Atomic::new(0),
            rto_loop_start: M::Atomic::new(0),
            rto_mask: M::Atomic::new(rto_mask.pointer_to(0)),
            cpupri: vecs,
        });
        let no_fields = || Vec::new();
        Self {
            words: Placed::new(words, None, None),
            cpupri,
            rto_mask,
            rto_counts: OverloadCount::new(topology, config.rto_count),
            no_count: PlacedSlice::new("rto_count_unused", None, None, 1, &no_fields, |_| M::Atomic::new(0)),
            active: CpuMask::new("cpu_active_mask", None, topology, &CpuSet::new()),
            config,
            waiting: config.shipped.then(|| Waiting::new(topology)),
        }
    }

    /// Returns the words.
    #[inline(always)]
    pub fn words(&self) -> &R {
        &self.words
    }

    /// Returns cpupri's vectors.
    #[inline(always)]
    pub(crate) fn vecs(&self) -> &<R::Part as RootDomainParts<M>>::Vecs {
        self.words.cpupri()
    }

    /// Returns the count of overloaded CPUs at machine scope.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn whole_rto_count(&self) -> &M::Atomic<i32> {
        self.words.rto_count().follow();
        self.words.rto_count().count().unwrap_or(&self.no_count[0])
    }

    /// Returns the bytes of the words, as the originals state them, and the bytes with everything
    /// that the words' pointers lead to.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        let words = size_of::<R>();
        let waiting = self.waiting.as_ref().map_or(0, Waiting::bytes);
        (words, words + self.cpupri.bytes() + self.rto_mask.bytes() + self.rto_counts.bytes() + waiting)
    }

    /// Returns the advertisements of waiting tasks.
    ///
    /// # Panics
    /// When they are not kept: see [`RootDomainConfig::shipped`].
    #[inline(always)]
    pub(crate) fn waiting(&self) -> &Waiting<M> {
        self.waiting.as_ref().expect("only `shipped` advertises waiting tasks")
    }

    /// Returns the CPUs that may get tasks.
    #[must_use]
    pub fn active(&self) -> &CpuMask<M> {
        &self.active
    }

    /// Sets the priority that `cpu` now runs at. The caller holds the run queue lock of `cpu`.
    pub(crate) fn set_level(&self, cpu: CpuId, prio: Option<Prio>) {
        if !self.config.shipped {
            self.cpupri.set(self.vecs(), cpu, prio);
        }
    }

    /// Marks whether `cpu` may get tasks.
    #[track_caller]
    pub(crate) fn set_active(&self, cpu: CpuId, active: bool) {
        let mut cpus = self.active.load();
        if active {
            cpus.insert(cpu)
        } else {
            cpus.remove(cpu)
        }
        self.active.store(&cpus);
    }
}

type NativeBaseline<V> = Baseline<Native, Parts<V, Counted<Native>>>;
type NativeReordered<V> = Reordered<Native, Parts<V, Counted<Native>>>;
type NativeReorderedCounts<V> = ReorderedCounts<Native, Parts<V, Pointed<Native>>>;

/// Asserts the offsets and the size of an order.
macro_rules! assert_order {
    ($order:ty, $size:literal, $($field:ident @ $offset:literal),+ $(,)?) => {
        const _: () = assert!(size_of::<$order>() == $size, "the original's size");
        $(const _: () = assert!(offset_of!($order, $field) == $offset, "the original's offset");)+
    };
}

// Mechanisms 2.1, 2.2, 2.3 and 2.4 of the reference. Sizes there use the original's alignment, 8
// bytes unless a field forces a line. Ours are whole lines where a field starts a line.
assert_order!(
    NativeBaseline<Packed<Native>>, 1_816,
    refcount @ 0, rto_count @ 4, rcu @ 8, span @ 24, online @ 32, overloaded @ 40, overutilized @ 41, dlo_mask @ 48,
    dlo_count @ 56, dl_bw @ 64, cpudl @ 88, visit_cookie @ 112, push_work_link @ 120, push_work_flags @ 128,
    push_work_function @ 136, push_work_waiter @ 144, rto_lock @ 152, rto_loop @ 156, rto_cpu @ 160,
    rto_loop_next @ 164, rto_loop_start @ 168, rto_mask @ 176, cpupri @ 184, pd @ 1_808,
);
assert_order!(NativeBaseline<Split<Native>>, 13_248, rto_mask @ 176, cpupri @ 192, pd @ 13_184);
assert_order!(
    NativeReordered<Packed<Native>>, 1_984,
    refcount @ 0, rto_count @ 4, rcu @ 8, span @ 24, online @ 32, dlo_count @ 40, dl_bw @ 48, cpudl @ 72,
    push_work_link @ 96, push_work_flags @ 104, rto_lock @ 128, rto_loop @ 132, rto_cpu @ 136, rto_loop_next @ 140,
    rto_loop_start @ 144, dlo_mask @ 152, visit_cookie @ 160, cpupri @ 192, pd @ 1_856, rto_mask @ 1_864,
    overloaded @ 1_920, overutilized @ 1_921,
);
assert_order!(NativeReordered<Split<Native>>, 13_312, cpupri @ 192, pd @ 13_184, overloaded @ 13_248);
assert_order!(
    NativeReorderedCounts<Packed<Native>>, 1_984,
    rto_count @ 48, dl_bw @ 56, cpudl @ 80, push_work_link @ 104, rto_lock @ 136, rto_loop @ 140, rto_cpu @ 144,
    rto_loop_next @ 148, rto_loop_start @ 152, dlo_mask @ 160, visit_cookie @ 168, cpupri @ 192, pd @ 1_856,
    overloaded @ 1_920,
);
assert_order!(NativeReorderedCounts<Split<Native>>, 13_312, cpupri @ 192, pd @ 13_184, overloaded @ 13_248);
assert_order!(NativeBaseline<Compact<Native>>, 1_600, cpupri @ 192, pd @ 1_536);
