//! Threads of the program: each is a coroutine in a task of the runtime, so the scheduler under it
//! is `hitm-sched`.
//!
//! **Protocol.** The task resumes the coroutine. The coroutine runs the program's code until the
//! thread waits, yields, or may be preempted; then it suspends with what it [`Wants`], which the
//! task awaits. While the machine is at other CPUs the coroutine is in the middle of a call: the
//! machine suspends the CPU that it runs on, with both stacks.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use hitm::{CpuSet, Handle, JoinHandle, Priority, SpawnOptions};
use hitm_machine::{Simulated, program};
use hitm_memory::{Mode, PathCost, Platform, Span, Time};
use hitm_sched::TaskId;
use hitm_topology::CpuId;
use rustc_hash::FxHashMap;

use crate::access::{AccessState, enter};
use crate::leave::{self, Outermost};
use crate::{cancel, mutex, once, report, rseq, signals, start, tls};

/// Why a coroutine suspends.
pub(crate) enum Wants {
    /// To be woken by [`Thread::wake`], or at a time.
    Wake(Option<Time>),
    /// To let its equals run.
    Yield,
    /// To be preempted if it must be.
    Checkpoint,
    /// To run on these CPUs.
    Cpus(CpuSet),
    /// To have this priority.
    Priority(Priority),
    /// What this future does, in its task.
    Future(std::pin::Pin<Box<dyn Future<Output = ()>>>),
    /// To end.
    Exit,
}

type Way = Yielder<(), Wants>;
type Code = Coroutine<(), Wants, (), DefaultStack>;

/// A thread of the program.
pub(crate) struct Thread {
    /// In the order of creation, from 0.
    pub(crate) number: usize,
    /// The base of its thread-local storage.
    pub(crate) base: usize,
    /// Its id for the program: see [`ids`](crate::ids).
    pub(crate) tid: Cell<i32>,
    /// The top of its stack.
    pub(crate) stack: Cell<usize>,
    /// The size of its stack, in bytes.
    pub(crate) stack_bytes: usize,
    /// What accesses keep between calls.
    pub(crate) access: RefCell<AccessState>,
    /// The way back to its task.
    way: Cell<*const Way>,
    woken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// What it waits for, for the report of a deadlock.
    pub(crate) waits_for: Cell<&'static str>,
    pub(crate) has_ended: Cell<bool>,
    /// What it returned.
    pub(crate) value: Cell<usize>,
    /// Its task, once that is made.
    task: RefCell<Option<JoinHandle<Simulated, ()>>>,
    /// The CPUs that it may run on, if the program said so.
    pub(crate) cpus: RefCell<Option<CpuSet>>,
    /// How it is scheduled.
    pub(crate) class: Cell<Class>,
    pub(crate) signals: signals::OfThread,
    pub(crate) rseq: rseq::OfThread,
    pub(crate) leaving: leave::OfThread,
    pub(crate) cancel: cancel::OfThread,
    /// The robust mutexes that it has.
    pub(crate) robust: RefCell<Vec<usize>>,
    /// The CPU that its code runs on, or is in the middle of a call on.
    pub(crate) cpu: Cell<Option<CpuId>>,
    /// Whether it has woken or made a thread since it last looked whether that is to run here.
    has_woken: Cell<bool>,
    /// Whether another thread awaits a fence of its CPU ([`membarrier`](crate::membarrier)).
    pub(crate) fence_is_due: Cell<bool>,
    /// Picoseconds that it ran until it last left its CPU, and when it was resumed since.
    ran: Cell<u64>,
    resumed: Cell<Time>,
}

thread_local! {
    /// The thread of the program that has this storage; null for the host's threads.
    static CURRENT: Cell<*const Thread> = const { Cell::new(std::ptr::null()) };
}

/// All threads of the program, which live as long as the process.
#[derive(Default)]
pub(crate) struct Threads {
    all: RefCell<Vec<&'static Thread>>,
    by_handle: RefCell<FxHashMap<usize, &'static Thread>>,
    alive: Cell<usize>,
    /// The thread that runs on each CPU.
    running: RefCell<Vec<Option<&'static Thread>>>,
}

impl Threads {
    /// `thread` runs on a CPU from now on, or none does.
    fn set_running(&self, cpu: CpuId, thread: Option<&'static Thread>) {
        let mut running = self.running.borrow_mut();
        if running.len() <= cpu.index() {
            running.resize(cpu.index() + 1, None);
        }
        running[cpu.index()] = thread;
    }

    /// The thread that runs on the CPU that runs.
    fn running_here(&self) -> Option<&'static Thread> {
        *self.running.borrow().get(Simulated::current_cpu().index())?
    }

    /// How many there have been.
    pub(crate) fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// How many have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.alive.get()
    }

    /// The thread of a `pthread_t`.
    pub(crate) fn of_handle(&self, handle: usize) -> Option<&'static Thread> {
        self.by_handle.borrow().get(&handle).copied()
    }

    /// The thread of an id. Ids of threads that have ended are given again.
    pub(crate) fn of_tid(&self, tid: i32) -> Option<&'static Thread> {
        let all = self.all.borrow();
        all.iter().find(|thread| thread.tid.get() == tid && !thread.has_ended.get()).copied()
    }

    /// The program's first thread.
    pub(crate) fn first(&self) -> Option<&'static Thread> {
        self.all.borrow().first().copied()
    }

    /// Calls `f` with each.
    pub(crate) fn each(&self, f: impl FnMut(&&'static Thread)) {
        self.all.borrow().iter().for_each(f);
    }
}

/// The calling thread of the program; none where the program runs natively and on the host's own
/// threads.
#[inline]
pub(crate) fn current() -> Option<&'static Thread> {
    let thread = CURRENT.get();
    // SAFETY: `begin` leaks threads.
    unsafe { thread.as_ref() }
}

/// This library has found a fault of its own: what its thread still calls is not simulated any
/// more, as it would find the state of that call.
pub(crate) fn leave_machine() {
    CURRENT.set(std::ptr::null());
}

/// The same at the beginning of a call: handlers of signals that are due run first.
#[inline]
pub(crate) fn at_call() -> Option<&'static Thread> {
    let thread = current()?;
    signals::deliver_due(thread);
    Some(thread)
}

/// A coroutine may go from one CPU of the machine to another: all are on one host thread.
struct OnOneThread<T>(T);

// SAFETY: the machine and all that runs on it have one host thread, which alone polls tasks.
unsafe impl<T> Send for OnOneThread<T> {}

/// What a thread is started with.
pub(crate) struct Start {
    /// The base of its thread-local storage.
    pub(crate) base: usize,
    /// Its `pthread_t`.
    pub(crate) handle: usize,
    pub(crate) stack_bytes: usize,
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) class: Class,
    /// The signals that it blocks.
    pub(crate) mask: signals::Set,
}

/// Starts a thread that runs `main`.
///
/// # Errors
/// When the host has no memory for the stack.
pub(crate) fn begin(runtime: &Handle<Simulated>, start: Start, main: Outermost) -> std::io::Result<&'static Thread> {
    let Start { base, handle, stack_bytes, cpus, class, mask } = start;
    let threads = &start::shared().threads;
    let stack = DefaultStack::new(stack_bytes)?;
    let top = corosensei::stack::Stack::base(&stack).get();
    let thread: &'static Thread = Box::leak(Box::new(Thread {
        number: threads.count(),
        base,
        tid: Cell::new(0),
        stack: Cell::new(top),
        stack_bytes,
        access: RefCell::new(AccessState::new(top)),
        way: Cell::new(std::ptr::null()),
        woken: Cell::new(false),
        waker: RefCell::new(None),
        waits_for: Cell::new("its start"),
        has_ended: Cell::new(false),
        value: Cell::new(0),
        task: RefCell::new(None),
        cpus: RefCell::new(cpus.clone()),
        class: Cell::new(class),
        signals: signals::OfThread::new(mask),
        rseq: rseq::OfThread::new(base),
        leaving: leave::OfThread::new(),
        cancel: cancel::OfThread::default(),
        robust: RefCell::default(),
        cpu: Cell::new(None),
        has_woken: Cell::new(false),
        fence_is_due: Cell::new(false),
        ran: Cell::new(0),
        resumed: Cell::new(Time::from_picos(0)),
    }));
    threads.all.borrow_mut().push(thread);
    threads.by_handle.borrow_mut().insert(handle, thread);
    threads.alive.set(threads.alive.get() + 1);
    let code = Code::with_stack(stack, move |way: &Way, ()| {
        thread.way.set(way);
        thread.waits_for.set("runs");
        let value = tls::with_base(thread.base, || {
            CURRENT.set(thread);
            let value = main.run();
            once::end_thread();
            value
        });
        // Its last store takes effect behind those before it.
        drop(enter(thread));
        mutex::end_thread(thread);
        program::fence();
        thread.value.set(value);
    });
    let code = OnOneThread(code);
    let own = runtime.clone();
    let tenant = start::shared().tenant.clone();
    let options = SpawnOptions { priority: class.priority(), cpus, tenant, ..SpawnOptions::default() };
    let task = async move {
        let code = code;
        drive(&own, thread, code.0).await;
    };
    let task = runtime.spawn(options, OnOneThreadFuture(Box::pin(task)));
    thread.tid.set(tid_of(task.id()));
    note_wake();
    *thread.task.borrow_mut() = Some(task);
    Ok(thread)
}

/// A future that is polled on one host thread.
struct OnOneThreadFuture(std::pin::Pin<Box<dyn Future<Output = ()>>>);

// SAFETY: as for `OnOneThread`.
unsafe impl Send for OnOneThreadFuture {}

impl Future for OnOneThreadFuture {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

/// Runs a thread from its first instruction to its last.
async fn drive(runtime: &Handle<Simulated>, thread: &'static Thread, mut code: Code) {
    // It may run before `begin` has its handle.
    thread.tid.set(runtime.task_id().map_or(0, tid_of));
    loop {
        thread.resumed.set(Simulated::now());
        thread.rseq.goes_on();
        let cpu = Simulated::current_cpu();
        thread.cpu.set(Some(cpu));
        start::shared().threads.set_running(cpu, Some(thread));
        let left = code.resume(());
        start::shared().threads.set_running(cpu, None);
        // It has made a fence before it left, as every switch is one.
        thread.cpu.set(None);
        thread.fence_is_due.set(false);
        // The scheduler looks now.
        thread.has_woken.set(false);
        thread.ran.set(thread.ran_until_now().as_picos());
        match left {
            CoroutineResult::Return(()) | CoroutineResult::Yield(Wants::Exit) => break,
            CoroutineResult::Yield(Wants::Wake(until)) => thread.wait(runtime, until).await,
            CoroutineResult::Yield(Wants::Yield) => runtime.yield_now().await,
            CoroutineResult::Yield(Wants::Checkpoint) => runtime.checkpoint().await,
            CoroutineResult::Yield(Wants::Cpus(cpus)) => {
                runtime.set_cpus(&cpus);
                // It leaves the CPU if it must.
                runtime.checkpoint().await;
            }
            CoroutineResult::Yield(Wants::Priority(priority)) => {
                runtime.set_priority(priority);
                runtime.checkpoint().await;
            }
            CoroutineResult::Yield(Wants::Future(future)) => future.await,
        }
    }
    // The stack of a thread that exits in the middle of its code was unwound by the program.
    std::mem::forget(code);
    thread.has_ended.set(true);
    let threads = &start::shared().threads;
    threads.alive.set(threads.alive.get() - 1);
    start::thread_ended(Simulated::now());
    crate::futex::wake_all(std::ptr::from_ref(thread).addr());
    if threads.alive() == 0 {
        report::write(None);
        // SAFETY: the process ends as it does when its last thread exits.
        unsafe { libc::exit(0) };
    }
}

/// The thread that runs here has woken or made another one.
pub(crate) fn note_wake() {
    if let Some(thread) = start::shared().threads.running_here() {
        thread.has_woken.set(true);
    }
}

/// The id of a thread whose task has this number. In the words of PI mutexes the runtime writes the
/// same.
fn tid_of(task: TaskId) -> i32 {
    task.0.cast_signed() + 1
}

/// A policy and its level, as POSIX has them; the level of a fair policy is its nice level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) policy: i32,
    pub(crate) level: i32,
}

impl Class {
    pub(crate) const USUAL: Self = Self { policy: libc::SCHED_OTHER, level: 0 };

    /// The class of `policy` and a real-time priority, which is 0 for fair policies; none if there
    /// is none such. A fair one has the nice level of `before`.
    pub(crate) fn of(policy: i32, priority: i32, before: Self) -> Option<Self> {
        let policy = policy & !libc::SCHED_RESET_ON_FORK;
        match policy {
            libc::SCHED_FIFO | libc::SCHED_RR if (1..=99).contains(&priority) => Some(Self { policy, level: priority }),
            libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE if priority == 0 => {
                Some(Self { policy, level: if before.is_real_time() { 0 } else { before.level } })
            }
            _ => None,
        }
    }

    pub(crate) fn is_real_time(self) -> bool {
        matches!(self.policy, libc::SCHED_FIFO | libc::SCHED_RR)
    }

    /// The scheduler's form. `SCHED_IDLE` is the least weight of the fair class.
    pub(crate) fn priority(self) -> Priority {
        match self.policy {
            libc::SCHED_FIFO => Priority::fifo(self.level as u8),
            libc::SCHED_RR => Priority::round_robin(self.level as u8),
            libc::SCHED_IDLE => Priority::fair(19),
            _ => Priority::fair(self.level as i8),
        }
    }
}

impl Thread {
    /// Its task's number.
    pub(crate) fn task_id(&self) -> TaskId {
        TaskId((self.tid.get() - 1).cast_unsigned())
    }

    /// The time that it ran on CPUs; for the thread that runs, until now.
    pub(crate) fn ran_until_now(&self) -> Span {
        Span::from_picos(self.ran.get()) + Simulated::now().since(self.resumed.get())
    }

    /// The time that it ran on CPUs until it last left one.
    pub(crate) fn ran(&self) -> Span {
        Span::from_picos(self.ran.get())
    }

    /// Suspends the calling coroutine, which is this thread's, on the machine's side.
    pub(crate) fn leave(&self, wants: Wants) {
        // SAFETY: the way back is that of the coroutine that runs, which is on its stack.
        let way = unsafe { &*self.way.get() };
        way.suspend(wants);
    }

    async fn wait(&self, runtime: &Handle<Simulated>, until: Option<Time>) {
        let mut sleep = pin!(until.map(|until| runtime.sleep_until(until)));
        poll_fn(|context| {
            if self.woken.take() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            match sleep.as_mut().as_pin_mut() {
                Some(sleep) => sleep.poll(context),
                None => Poll::Pending,
            }
        })
        .await;
    }

    /// Ends the wait of a thread that [`Wants::Wake`], or its next one.
    pub(crate) fn wake(&self) {
        self.woken.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
            note_wake();
        }
    }

    /// The end of a call. A thread that has woken another one looks whether it must make way for
    /// it, as on every way out of the kernel: no interrupt comes where both have one CPU. On the
    /// program's side.
    #[inline]
    pub(crate) fn end_call(&self) {
        if self.has_woken.get() {
            tls::on_host(|| self.make_way_for_woken());
        }
    }

    #[cold]
    fn make_way_for_woken(&self) {
        // As in `attend`.
        program::fence();
        self.fence_is_due.set(false);
        self.leave(Wants::Checkpoint);
        signals::notice(self);
    }

    /// The thread looks for interrupts at its next access. It may be in the middle of one: then at
    /// one of the next.
    pub(crate) fn attend_soon(&self) {
        if let Ok(mut access) = self.access.try_borrow_mut() {
            access.until_attend = 1;
        }
    }

    /// Looks for interrupts, if that is due at one of the next two accesses. Returns whether it
    /// has. Called on the machine's side.
    pub(crate) fn attend_if_soon(&self) -> bool {
        let is_soon = self.access.borrow().until_attend <= 2;
        if is_soon {
            self.attend_soon();
            drop(enter(self));
        }
        is_soon
    }

    /// Lets the thread be preempted if it must be. Called on the machine's side.
    pub(crate) fn attend(&self) {
        if Simulated::interrupt_pending() {
            // It may go on on another CPU, which does not see what waits in this one's buffer.
            program::fence();
            self.fence_is_due.set(false);
            self.leave(Wants::Checkpoint);
            signals::notice(self);
        }
    }
}

impl Thread {
    /// Changes the CPUs of another thread.
    pub(crate) fn set_cpus(&self, cpus: &CpuSet) {
        if let Some(task) = &*self.task.borrow() {
            start::shared().runtime.set_cpus_of(task, cpus);
        }
    }

    /// Changes the priority of another thread.
    pub(crate) fn set_priority_of_other(&self, priority: Priority) {
        if let Some(task) = &*self.task.borrow() {
            start::shared().runtime.set_priority_of(task, priority);
        }
    }
}

/// Runs `f` in the kernel: its time is kernel time, and a system call is charged.
pub(crate) fn system_call<R>(f: impl FnOnce() -> R) -> R {
    let mode = Simulated::enter(Mode::Kernel);
    Simulated::charge(PathCost::SystemCall);
    let result = f();
    Simulated::enter(mode);
    result
}
