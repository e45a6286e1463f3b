//! The start of a program: natively, or on a machine that this makes.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm::{Handle, Mitigation, Tenant};
use hitm_machine::{Arbitration, Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{Platform, Span, Time};
use hitm_topology::Topology;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::access::enter_call;
use crate::arguments::Arguments;
use crate::arranged::Layouts;
use crate::files::Files;
use crate::frames::Frames;
use crate::futex::Futexes;
use crate::heap::Heap;
use crate::leave::Outermost;
use crate::native::native;
use crate::once::Keys;
use crate::pace::PaceCosts;
use crate::pi::PiFutexes;
use crate::setting::{Setting, has_fast_path};
use crate::shared_memory::Names;
use crate::signals::Signals;
use crate::sockets::Sockets;
use crate::thread::{self, Class, Start, Threads};
use crate::timers::Timers;
use crate::{clock, last, place, quick, random, report, rseq, tls};

/// What the functions of this crate share. One host thread uses it.
pub(crate) struct Shared {
    pub(crate) setting: Setting,
    pub(crate) pace: PaceCosts,
    pub(crate) machine: &'static Machine,
    pub(crate) runtime: Handle<Simulated>,
    pub(crate) threads: Threads,
    pub(crate) futexes: Futexes,
    pub(crate) pi_futexes: PiFutexes,
    pub(crate) heap: Heap,
    pub(crate) layouts: Layouts,
    /// What the program has named.
    pub(crate) named: RefCell<Vec<report::Named>>,
    pub(crate) frames: Frames,
    pub(crate) keys: Keys,
    pub(crate) files: Files,
    pub(crate) sockets: Sockets,
    pub(crate) signals: Signals,
    pub(crate) timers: Timers,
    pub(crate) made: Names,
    /// The program's own space of concurrency ids, if its threads have any.
    pub(crate) tenant: Option<Tenant>,
    /// What the program asks the system for.
    pub(crate) random: RefCell<Xoshiro256PlusPlus>,
    /// When the second thread began.
    pub(crate) from: Cell<Option<Time>>,
    /// When the last thread but one ended.
    pub(crate) until: Cell<Option<Time>>,
    /// Whether the program has marked its measured stretch.
    is_marked: Cell<bool>,
}

struct OnHost(OnceCell<Shared>);

// SAFETY: the machine's host thread alone uses it: the functions of this crate act for the
// program's threads, which are coroutines on that thread, and leave other threads to the C library.
unsafe impl Sync for OnHost {}

static SHARED: OnHost = OnHost(OnceCell::new());

/// What the functions share.
///
/// # Panics
/// Before the machine is made.
pub(crate) fn shared() -> &'static Shared {
    SHARED.0.get().expect("the program runs on a machine")
}

/// What was asked of this run; `None` before the machine is made.
pub(crate) fn setting() -> Option<&'static Setting> {
    SHARED.0.get().map(|shared| &shared.setting)
}

unsafe extern "C-unwind" {
    /// The program's `main`: the linker renames it.
    pub(crate) fn __real_main(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
}

/// Accesses of no access by this many CPUs in a row end a run as a livelock. A program may touch
/// its own data for long without a call: this is a minute of the host.
const LIVELOCK_AFTER: u64 = 2_000_000_000;

/// The memory that a program may touch: its lines take the host about twice as much.
const PROGRAM_BYTES: usize = 16 << 30;

/// The stack of the program's first thread, as Linux's usual limit has it.
const MAIN_STACK: usize = 8 << 20;

/// Ends the process: the program does what is not simulated. `instead` is what to do.
pub(crate) fn refuse_call(call: &str, why: &str, instead: &str) -> ! {
    refuse(&format!("the program calls {call}: {why}; {instead}"))
}

/// Ends the process with a message, which `hitm exec` prints.
pub(crate) fn refuse(what: &str) -> ! {
    if !last::refused(what) {
        eprintln!("hitm: {what}");
    }
    // SAFETY: it ends the process.
    unsafe { libc::_exit(2) }
}

/// Stands for the program's `main`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __wrap_main(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    begin(argc, argv, envp);
    // SAFETY: the arguments of `main`.
    unsafe { __real_main(argc, argv, envp) }
}

/// Runs the program on a machine if that was asked for: then it does not return.
fn begin(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    place::keep();
    let setting = match Setting::of_process() {
        Ok(None) => return,
        Ok(Some(setting)) => setting,
        Err(error) => refuse(&format!("HITM_EXEC: {error}; start the program by `hitm exec`")),
    };
    if !tls::is_settable() {
        refuse("this kernel does not let a program set its FS base (Linux 5.9 or later does), which threads need");
    }
    same_addresses(argv, envp);
    // The caller of `main` is never returned to.
    random::set_at_start(setting.seed);
    let main = Arguments { count: argc, words: argv, variables: envp };
    rseq::give_up_area();
    let own = tls::base();
    // SAFETY: it reads the calling thread's id.
    let handle = unsafe { libc::pthread_self() } as usize;
    let arguments = Box::leak(Box::new((setting, main, (own, handle))));
    host_thread(64 << 20, run, std::ptr::from_mut(arguments).cast());
    park()
}

/// The same addresses in every run: starts the program again without randomisation, once.
fn same_addresses(argv: *const *const c_char, envp: *const *const c_char) {
    // SAFETY: it asks for the present value.
    let now = unsafe { libc::personality(0xffff_ffff) };
    if now < 0 || now & libc::ADDR_NO_RANDOMIZE != 0 {
        return;
    }
    // SAFETY: it sets a flag of this process.
    if unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as _) } >= 0 {
        // SAFETY: the arguments of `main`. It returns if it fails; then the program goes on.
        unsafe { libc::execve(c"/proc/self/exe".as_ptr(), argv.cast(), envp.cast()) };
    }
    eprintln!("hitm: addresses are randomised here; results may differ from run to run");
}

/// Waits for ever. The calling thread of the host lends its storage: a call of this library would
/// take it for the program's thread.
fn park() -> ! {
    let pause = native!(fn pause() -> c_int);
    loop {
        // SAFETY: it waits for a signal.
        unsafe { pause() };
    }
}

/// Starts a thread of the host.
pub(crate) fn host_thread(
    stack: usize,
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> usize {
    let create = native!(fn pthread_create(*mut usize, *const c_void, extern "C" fn(*mut c_void) -> *mut c_void, *mut c_void) -> c_int);
    // SAFETY: zeroes are a value of this type, which the next call sets.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: it sets the attributes.
    unsafe { libc::pthread_attr_init(&raw mut attributes) };
    // SAFETY: they are set.
    unsafe { libc::pthread_attr_setstacksize(&raw mut attributes, stack) };
    let mut handle = 0;
    // SAFETY: `main` takes this argument.
    let failed = unsafe { create(&raw mut handle, (&raw const attributes).cast(), main, argument) };
    if failed != 0 {
        let count = SHARED.0.get().map_or(0, |shared| shared.threads.count());
        let error = std::io::Error::from_raw_os_error(failed);
        refuse(&format!(
            "the program has made {count} threads, and this host has no room for another: {error}; give it fewer, or \
             raise the limits of this host (`ulimit -u`, `ulimit -v`, the memory of its container)"
        ));
    }
    handle
}

/// A thread of the host that lends its thread-local storage to a thread of the program.
pub(crate) struct Lender {
    base: AtomicUsize,
}

impl Lender {
    /// Makes one. Returns base and handle.
    pub(crate) fn start() -> (usize, usize) {
        let lender: &'static Self = Box::leak(Box::new(Self { base: AtomicUsize::new(0) }));
        // The storage itself is at the top of the stack.
        let handle = host_thread(256 << 10, Self::lend, std::ptr::from_ref(lender).cast_mut().cast());
        loop {
            // Acquire: pairs with the Release in `lend`.
            let base = lender.base.load(Ordering::Acquire);
            if base != 0 {
                return (base, handle);
            }
            std::thread::yield_now();
        }
    }

    extern "C" fn lend(lender: *mut c_void) -> *mut c_void {
        // SAFETY: `start` leaked it.
        let lender = unsafe { &*lender.cast::<Self>() };
        rseq::give_up_area();
        // Release: pairs with the Acquire in `start`.
        lender.base.store(tls::base(), Ordering::Release);
        park()
    }
}

/// From now on a panic of this library ends the process with its message, as what is refused. It is
/// written natively: a simulated write would find the state of the call that panics, and wait for
/// ever.
fn report_faults() {
    std::panic::set_hook(Box::new(|fault| {
        thread::leave_machine();
        let message = fault.payload_as_str().unwrap_or("a panic").replace('\n', " ");
        let place = fault.location().map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
        refuse(&format!("{message}{place}"))
    }));
}

/// The machine's host thread.
extern "C" fn run(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: `__wrap_main` leaked it.
    let (setting, main, identity) = unsafe { &*arguments.cast::<(Setting, Arguments, (usize, usize))>() };
    tls::adopt_host();
    report_faults();
    let machine = make(setting);
    // SAFETY: the arguments of `main`; the program's first thread has not begun.
    let (main, named) = unsafe { main.moved() };
    shared().named.borrow_mut().extend(named);
    let (base, handle) = *identity;
    report::register();
    clock::trap_time_stamps();
    let ended = machine.run(move |cpu| {
        let runtime = &shared().runtime;
        if cpu.index() == 0 {
            let start = Start { base, handle, stack_bytes: MAIN_STACK, cpus: None, class: Class::USUAL, mask: 0 };
            if let Err(error) = thread::begin(runtime, start, Outermost::Program(main)) {
                refuse(&format!("no memory for the first thread: {error}"));
            }
        }
        runtime.run_cpu(cpu);
    });
    if let Err(stalled) = ended {
        let mut text = format!("{stalled}");
        shared().threads.each(|thread| {
            if !thread.has_ended.get() {
                text += &format!("\n  thread {}: {}", thread.number, thread.waits_for.get());
            }
        });
        report::write(Some(&text));
        eprintln!("hitm: {text}");
        // SAFETY: it ends the process.
        unsafe { libc::_exit(3) }
    }
    park()
}

/// Keeps what each CPU does when, if that was asked for.
fn keep_timeline(machine: &Machine, setting: &Setting) {
    if let Some((from, until)) = setting.timeline {
        machine.keep_timeline(Time::from_picos(from), Time::from_picos(until));
    }
}

/// The layouts that are tried.
fn layouts(setting: &Setting, machine: &Machine) -> Layouts {
    match machine.enter(|| Layouts::new(&setting.arranged)) {
        Ok(layouts) => layouts,
        Err(error) => refuse(&format!("a layout to try: {error}")),
    }
}

/// The machine that is asked for.
fn topology_of(setting: &Setting) -> Arc<Topology> {
    let whole = match hitm_topology::parse(&setting.machine) {
        Ok(whole) => whole,
        Err(error) => refuse(&format!("machine `{}`: {error}", setting.machine)),
    };
    match whole.restrict(setting.cpus) {
        Ok(topology) => Arc::new(topology),
        Err(error) => refuse(&format!("machine `{}` with {} CPUs: {error}", setting.machine, setting.cpus)),
    }
}

fn make(setting: &Setting) -> &'static Machine {
    let topology = topology_of(setting);
    let mitigation = match Mitigation::parse(&setting.mitigation) {
        Ok(mitigation) => mitigation,
        Err(error) => refuse(&format!("mitigation `{}`: {error}", setting.mitigation)),
    };
    let bound = setting.arbitration.strip_prefix("local-first:").and_then(|bound| bound.parse().ok());
    let arbitration = match (setting.arbitration.as_str(), bound) {
        ("fifo", _) => Arbitration::Fifo,
        (_, Some(bound)) => Arbitration::Bounded(bound),
        _ => Arbitration::LocalFirst,
    };
    let mut costs = Costs::of(&topology, CostSet::Linux);
    for (name, value) in &setting.model {
        if let Err(error) = costs.set(name, *value) {
            refuse(&format!("parameter `{name}` of the model: {error}"));
        }
    }
    let config = Config {
        seed: setting.seed,
        arbitration,
        livelock_after: LIVELOCK_AFTER,
        fast_path: has_fast_path(),
        // From when the second thread begins.
        measure_from: Span::from_picos(u64::MAX),
        program_bytes: PROGRAM_BYTES,
        ..Config::default()
    };
    let pace = PaceCosts::new(setting, &costs);
    let machine: &'static Machine = Box::leak(Box::new(Machine::new(topology.clone(), costs, config)));
    quick::use_permit(machine.open_to_program(Span::from_nanos_f64(setting.issue_ns)), pace.block());
    keep_timeline(machine, setting);
    // Every CPU of the machine may have an arena of the allocator, as on such a machine.
    // SAFETY: it sets a parameter of the allocator.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 8 * topology.cpus() as c_int) };
    let runtime = machine.enter(|| Handle::<Simulated>::new(topology.clone(), &mitigation, None));
    let tenant = setting.mm_cid.then(|| machine.enter(|| runtime.tenant()));
    let shared = Shared {
        setting: setting.clone(),
        pace,
        machine,
        runtime,
        threads: Threads::default(),
        futexes: machine.enter(|| Futexes::new(&topology)),
        pi_futexes: PiFutexes::default(),
        heap: Heap::default(),
        layouts: layouts(setting, machine),
        named: RefCell::default(),
        frames: Frames::default(),
        keys: Keys::default(),
        files: Files::default(),
        sockets: Sockets::default(),
        signals: Signals::default(),
        timers: Timers::default(),
        made: Names::default(),
        tenant,
        random: RefCell::new(Xoshiro256PlusPlus::seed_from_u64(setting.seed)),
        from: Cell::new(None),
        until: Cell::new(None),
        is_marked: Cell::new(false),
    };
    if SHARED.0.set(shared).is_err() {
        refuse("the program's `main` was called twice");
    }
    machine
}

/// The program says that the measured stretch begins (`hitm.h`).
#[unsafe(no_mangle)]
extern "C" fn hitm_begin() {
    mark(|| {
        Simulated::measure_from_now();
        shared().from.set(Some(Simulated::now()));
    });
}

/// The program says that the measured stretch ends.
#[unsafe(no_mangle)]
extern "C" fn hitm_end() {
    mark(|| {
        Simulated::measure_until_now();
        shared().until.set(Some(Simulated::now()));
    });
}

/// Follows a mark. There is one measured stretch: after its end, marks have no effect.
fn mark(f: impl FnOnce()) {
    if let Some(thread) = thread::current() {
        tls::on_host(|| {
            enter_call(thread);
            let is_over = shared().is_marked.get() && shared().until.get().is_some();
            if !is_over {
                shared().is_marked.set(true);
                goes_on();
                f();
            }
        });
    }
}

/// The program's second thread is about to begin, if it is that.
pub(crate) fn thread_begins() {
    let shared = shared();
    if shared.from.get().is_none() && !shared.is_marked.get() {
        Simulated::measure_from_now();
        shared.from.set(Some(Simulated::now()));
    } else if !shared.is_marked.get() {
        goes_on();
    }
}

/// The end of a thread was not the end of the measured stretch.
fn goes_on() {
    if shared().until.take().is_some() {
        Simulated::end_tail();
    }
}

/// A thread has ended.
pub(crate) fn thread_ended(now: Time) {
    let shared = shared();
    // With the last thread ends what came after the stretch.
    if shared.threads.alive() == 1 && !shared.is_marked.get() {
        Simulated::begin_tail();
        shared.until.set(Some(now));
    }
}
