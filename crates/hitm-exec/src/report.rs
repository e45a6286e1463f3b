//! What `hitm exec` is told at the end: what the machine counted, in the form of a result file, and
//! what only this process knows of addresses. `hitm exec` finds the names, from the program's debug
//! information.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_void};

use hitm_machine::{LineResult, Results, Simulated, Timeline, program};
use hitm_memory::Platform;
use hitm_report::functions::Functions;
use hitm_report::objects;
use hitm_report::result::Run;
use serde::Serialize;

use crate::access::enter;
use crate::frames::Frame;
use crate::heap::Block;
use crate::start::shared;
use crate::thread::{self, Thread};
use crate::tls::{on_host, with_base};

/// Files with thread-local variables that are told, at most.
const MODULES: usize = 64;

/// Lines that are told: those that were waited for longest.
const LINES: usize = 100;

/// Lines of which only the waits are told, for sums by kind of object.
const SUMMED: usize = 4_096;

/// See [`Told::waits`].
type Waits = (u64, usize, u64, u64, u64, f64);

/// See `hitm-cli/src/exec/told.rs`, which reads it.
#[derive(Serialize)]
struct Told {
    /// Its `objects` are the machine's own.
    run: Run,
    /// The places of `waits`: function and location.
    places: Vec<(String, String)>,
    /// What the threads waited for: the address, the place, misses, those that a near core and a
    /// remote one answered which had modified the line, and cycles.
    waits: Vec<Waits>,
    /// What each CPU did when, where that was asked for.
    timeline: Option<Timeline>,
    threads: usize,
    stalled: Option<String>,
    /// Simulated seconds from the start of the program to its end.
    seconds: f64,
    /// From the start of the second thread to the end of the last thread but one.
    measured_seconds: Option<f64>,
    /// Times that a thread waited in place of a loop.
    spins: u64,
    /// Basic blocks that ran.
    blocks: u64,
    modules: Vec<Module>,
    /// The blocks of the heap that have one of the lines.
    heap: Vec<Block>,
    /// Memory that lies elsewhere for the model: where it lies, its bytes, and where it is.
    moved: Vec<(usize, usize, usize)>,
    /// What the program has named itself.
    named: Vec<Named>,
    /// By thread: the top of its stack, and the base of its thread-local storage.
    threads_at: Vec<(usize, usize)>,
    /// Where the thread-local variables of files lie.
    storage: Vec<Storage>,
    /// The functions in which threads were made.
    frames: Vec<Frame>,
}

/// Memory to which the program has given a name.
#[derive(Serialize)]
pub(crate) struct Named {
    address: usize,
    size: usize,
    name: String,
}

impl Named {
    pub(crate) fn new(address: usize, size: usize, name: &str) -> Self {
        Self { address, size, name: name.to_owned() }
    }
}

/// The program names `size` bytes (`hitm.h`).
#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_name(memory: *const c_void, size: usize, name: *const c_char) {
    if thread::current().is_some() {
        // SAFETY: the program's argument is a string.
        let name = unsafe { CStr::from_ptr(name) };
        on_host(|| {
            shared().named.borrow_mut().push(Named::new(memory.addr(), size, &name.to_string_lossy()));
        });
    }
}

extern "C" fn at_exit() {
    let thread = thread::current();
    on_host(|| {
        if let Some(thread) = thread {
            drop(enter(thread));
            program::fence();
        }
        write(None);
    });
}

/// Writes the report when the program exits.
pub(crate) fn register() {
    // SAFETY: the function may run at any exit.
    unsafe { libc::atexit(at_exit) };
}

/// Writes the report; `stalled` is why the machine stopped, if it did.
pub(crate) fn write(stalled: Option<&str>) {
    let shared = shared();
    // The C library's clocks may read the time-stamp counter.
    // SAFETY: it sets a flag of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_ENABLE) };
    let now = Simulated::now();
    let results = shared.machine.results();
    let functions = Functions::of(&[
        hitm_memory::FUNCTIONS,
        hitm_machine::FUNCTIONS,
        hitm_sched::FUNCTIONS,
        hitm::FUNCTIONS,
        crate::FUNCTIONS,
    ]);
    let mut run = Run::counted(&results, &functions, LINES);
    let own = results.lines.iter().filter(|line| line.object != program::OBJECT);
    run.objects = objects::of_results(&results, own, &functions);
    let summed: Vec<&LineResult> =
        results.hottest(SUMMED).into_iter().filter(|line| line.object == program::OBJECT).collect();
    let (places, waits) = waits_of(&results, &summed, &functions);
    for (count, times) in shared.runtime.diagnostics().stats().sums() {
        *run.operations.entry(count.name().to_owned()).or_default() += times;
    }
    let (mut spins, mut blocks, mut threads_at, mut storage) = (0, 0, Vec::new(), Vec::new());
    shared.threads.each(|thread| {
        // A thread that is in the middle of a call has its state borrowed.
        if let Ok(state) = thread.access.try_borrow() {
            spins += state.spins;
            blocks += state.blocks;
        }
        threads_at.push((thread.stack.get(), thread.base));
        storage_of(thread, &mut storage);
    });
    let mut heap: BTreeMap<u64, Block> = BTreeMap::new();
    for line in summed {
        let address = line.address as usize;
        for byte in (address..address + hitm_memory::LINE).step_by(8) {
            let Some(byte) = shared.machine.enter(|| program::host_of(byte)) else { continue };
            heap.extend(shared.heap.find(byte, now).map(|block| (block.number, block)));
        }
    }
    let told = Told {
        run,
        places,
        waits,
        timeline: shared.machine.timeline(),
        threads: shared.threads.count(),
        stalled: stalled.map(str::to_owned),
        seconds: now.as_secs_f64(),
        measured_seconds: shared.from.get().map(|from| shared.until.get().unwrap_or(now).since(from).as_secs_f64()),
        spins,
        blocks,
        modules: modules(),
        heap: heap.into_values().collect(),
        moved: shared.machine.enter(program::moved),
        named: shared.named.take(),
        threads_at,
        storage,
        frames: shared.frames.take(),
    };
    let path = &shared.setting.output;
    let written =
        serde_json::to_string(&told).map_err(std::io::Error::from).and_then(|text| std::fs::write(path, text));
    if let Err(error) = written {
        eprintln!("hitm: {path}: {error}; the run's result is lost");
    }
}

/// Returns the places where threads waited for `lines`, and the waits: see [`Told`].
fn waits_of(results: &Results, lines: &[&LineResult], functions: &Functions) -> (Vec<(String, String)>, Vec<Waits>) {
    let (mut places, mut numbers, mut waits) = (Vec::new(), HashMap::new(), Vec::new());
    for line in lines {
        for access in line.accesses.iter().filter(|access| access.missed.is_some()) {
            let number = *numbers.entry(&*access.place).or_insert_with(|| {
                places.push(functions.told(&access.place));
                places.len() - 1
            });
            let misses = access.misses();
            let address = line.address + u64::from(access.offset);
            let (hitm, cycles) = (misses.hitm, results.cycles(misses.wait));
            waits.push((address, number, misses.count(), hitm.local, hitm.remote, cycles.round()));
        }
    }
    (places, waits)
}

/// Where the thread-local variables of a file begin, in one thread.
#[derive(Clone, Copy, Serialize)]
struct Storage {
    thread: usize,
    /// An address in the file.
    module: usize,
    address: usize,
}

/// Adds what a thread has of the files' thread-local variables. Those that it has not touched are
/// nowhere, where a library was loaded after the program's start.
fn storage_of(thread: &Thread, all: &mut Vec<Storage>) {
    /// What the callback fills: it may not ask for memory with the thread's storage.
    struct Found {
        places: [(usize, usize); MODULES],
        count: usize,
    }

    extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands it over, for this call.
        let info = unsafe { &*info };
        // SAFETY: the caller below hands over its own, which nothing else uses meanwhile.
        let found = unsafe { &mut *found.cast::<Found>() };
        if !info.dlpi_tls_data.is_null()
            && let Some(place) = found.places.get_mut(found.count)
        {
            *place = (info.dlpi_phdr.addr(), info.dlpi_tls_data.addr());
            found.count += 1;
        }
        0
    }

    let mut found = Found { places: [(0, 0); MODULES], count: 0 };
    with_base(thread.base, || {
        // SAFETY: the callback is called within this call alone, with a `Found`.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) }
    });
    let places = found.places[..found.count].iter();
    all.extend(places.map(|&(module, address)| Storage { thread: thread.number, module, address }));
}

/// A file that was loaded.
#[derive(Serialize)]
struct Module {
    path: String,
    /// Where its first byte lies in memory.
    base: usize,
    /// The end of its last part.
    end: usize,
}

/// The program's file, which comes first, and its shared libraries.
fn modules() -> Vec<Module> {
    let executable =
        std::fs::read_link("/proc/self/exe").map_or_else(|_| String::new(), |path| path.display().to_string());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut modules: Vec<Module> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(offset)) = (words.next(), words.nth(1)) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)) else { continue };
        // A path may have spaces.
        let path = line.find('/').map_or("", |at| &line[at..]);
        match modules.last_mut() {
            // Zeroed variables lie behind the file's parts, in a part without a name.
            Some(module) if module.path == path || path.is_empty() && module.end == start => module.end = end,
            _ if path.is_empty() || offset != "00000000" => {}
            _ => modules.push(Module { path: path.to_owned(), base: start, end }),
        }
    }
    modules.sort_by_key(|module| module.path != executable);
    modules
}
