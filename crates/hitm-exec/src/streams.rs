//! Byte streams between threads of the program: pipes, and each direction of a pair of sockets.
//!
//! **Origin.** Linux's pipe with sixteen pages, and its `AF_UNIX` stream sockets, in the model that
//! the workload hackbench has of them (`hitm-workloads/src/hackbench`): the locks, the lines that
//! are copied through, and whom each call wakes. All wakeups are sync wakeups. To that come the
//! lines of the program's own buffers, partial reads and writes, and ends that are closed.
//!
//! **Differences.** As there: a spin lock stands for the pipe's mutex, pages are used in turn, and
//! a copy touches each line once. A message of a socket that is larger than a page is sent in
//! pages.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{Field, LINE, LockGuard, Memory, Mode, Placed, PlacedSlice, PlainWord, Platform, Time};
use libc::{EAGAIN, EINTR, EPIPE, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP};

use crate::access::{load_lines, settle_stores_to, store_lines};
use crate::guarded::{Guarded, Protected, kept};
use crate::signals;
use crate::start::shared;
use crate::thread::Thread;
use crate::watchers::{Watcher, Watchers};

const PAGE: usize = 4_096;

/// The capacity of a pipe in bytes: Linux's default. A write of at most a page is not divided
/// (`PIPE_BUF`).
const CAPACITY: usize = 16 * PAGE;

/// The most bytes that may be counted at the sending end of a socket: `net.core.wmem_default`.
pub(crate) const LIMIT: usize = 212_992;

/// Of a socket's message, what is counted beside its bytes: Linux's `sk_buff`, and
/// `skb_shared_info` behind the bytes, in whole lines. Both together have a power of two, at least
/// 512, or a page of their own.
const DESCRIPTOR: usize = 256;
const TRAILER: usize = 320;
const LEAST: usize = 512;

/// What a message of at most a page counts.
fn counted(bytes: usize) -> usize {
    let room = (bytes + TRAILER).next_power_of_two().max(LEAST);
    DESCRIPTOR + if room <= PAGE { room } else { LEAST + PAGE }
}

type Words = PlacedSlice<Simulated, <Simulated as Memory>::Plain<u64>>;

/// Words of a line.
const WORDS: usize = LINE / size_of::<u64>();

fn words(object: &str, lines: usize) -> Rc<Words> {
    let count = lines * WORDS;
    let fields = || vec![Field { count, ..Field::word("word", 0, size_of::<u64>(), "what is passed on") }];
    Rc::new(PlacedSlice::new(object, None, None, count, &fields, |_| PlainWord::new(0)))
}

/// The first words of `lines`, counted from the slice's start.
fn firsts(words: &Words, lines: std::ops::Range<usize>) -> impl Iterator<Item = &<Simulated as Memory>::Plain<u64>> {
    lines.map(|line| &words[line * WORDS])
}

/// A message that waits in a socket: its memory, and how much of it was read.
struct Message {
    memory: Rc<Words>,
    bytes: usize,
    read: usize,
}

/// What the lock of the reading side protects; of a pipe it is the only one.
#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// All bytes so far.
    read: usize,
    written: usize,
    messages: VecDeque<Message>,
    readers: VecDeque<&'static Thread>,
    writers: VecDeque<&'static Thread>,
    /// Those that poll the end that reads, and the end that writes.
    reading: Watchers,
    writing: Watchers,
}

/// What the lock of a socket's sending side protects.
#[derive(Default)]
struct Counted {
    bytes: usize,
    /// The memory that was freed last is at the end.
    free: Vec<Rc<Words>>,
    writers: VecDeque<&'static Thread>,
}

impl Protected for State {
    const OBJECT: &'static str = "pipe";
    const LOCK: &'static str = "protects the stream; with it moves what is counted under it";
}

impl Protected for Counted {
    const OBJECT: &'static str = "socket_sends";
    const LOCK: &'static str = "protects the byte count and the waiting writers";
}

/// How a call is made.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) thread: &'static Thread,
    pub(crate) waits: bool,
    /// When it has waited long enough.
    pub(crate) until: Option<Time>,
    pub(crate) pc: usize,
}

impl Call {
    /// Waits until the thread is woken.
    ///
    /// # Errors
    /// `EINTR` as [`sleep`]; `EAGAIN` if it has waited long enough before.
    pub(crate) fn sleep(&self, what: &'static str) -> Result<(), c_int> {
        if self.until.is_some_and(|until| until <= Simulated::now()) {
            return Err(EAGAIN);
        }
        sleep(self.thread, self.until, what, self.until.is_none())
    }
}

/// One direction.
pub(crate) struct Stream {
    /// Whether the ends are open. An end is closed before the locks are taken that let those know
    /// who wait; whoever begins to wait looks under a lock.
    has_reader: Cell<bool>,
    has_writer: Cell<bool>,
    /// Whether its reader has said that it reads no more.
    is_shut_for_reader: Cell<bool>,
    receives: Placed<Simulated, Guarded<State>>,
    /// Of a socket.
    sends: Option<Placed<Simulated, Guarded<Counted>>>,
    /// Of a pipe: its pages, which come into being when they are first used.
    pages: RefCell<Vec<Option<Rc<Words>>>>,
}

/// Runs `f` in the kernel; the caller has charged a system call.
pub(crate) fn in_kernel<R>(f: impl FnOnce() -> R) -> R {
    let mode = Simulated::enter(Mode::Kernel);
    let result = f();
    Simulated::enter(mode);
    result
}

/// Sleeps until the thread is woken.
///
/// # Errors
/// `EINTR` when a handler has run, unless the call is one that goes on and the handler lets it; and
/// when the thread is cancelled.
pub(crate) fn sleep(
    thread: &'static Thread,
    until: Option<Time>,
    what: &'static str,
    goes_on: bool,
) -> Result<(), c_int> {
    signals::wait(thread, until, what);
    if signals::notice(thread) && !(signals::deliver_in_call(thread) && goes_on) {
        return Err(EINTR);
    }
    Ok(())
}

/// Wakes threads that are about to find what they wait for.
pub(crate) fn wake(woken: impl IntoIterator<Item = &'static Thread>) {
    Simulated::progress();
    shared().runtime.sync_wakeups(|| woken.into_iter().for_each(Thread::wake));
}

pub(crate) fn leave(queue: &mut VecDeque<&'static Thread>, thread: &Thread) {
    queue.retain(|other| !std::ptr::eq(*other, thread));
}

impl Stream {
    /// An empty stream: a pipe, or a direction of a pair of sockets.
    pub(crate) fn new(is_socket: bool) -> Rc<Self> {
        let name = if is_socket { "socket_receives" } else { State::OBJECT };
        kept(Self {
            has_reader: Cell::new(true),
            has_writer: Cell::new(true),
            is_shut_for_reader: Cell::new(false),
            receives: Guarded::named(name, State::default()),
            sends: is_socket.then(|| Guarded::new(Counted::default())),
            pages: RefCell::new(vec![None; CAPACITY / PAGE]),
        })
    }

    /// Requires that both ends are open, for a write.
    ///
    /// # Errors
    /// `EPIPE`.
    fn require_open(&self) -> Result<(), c_int> {
        if self.has_reader.get() && self.has_writer.get() { Ok(()) } else { Err(EPIPE) }
    }

    /// Whether its reader finds the end once it has read what there is.
    fn is_ended(&self) -> bool {
        !self.has_writer.get() || self.is_shut_for_reader.get() || !self.has_reader.get()
    }

    #[track_caller]
    fn state(&self) -> LockGuard<'_, Simulated, State> {
        self.receives.lock()
    }

    /// Calls `each` with the first word of each line that holds the bytes from `from` on.
    fn of_pages(&self, from: usize, bytes: usize, each: impl Fn(&<Simulated as Memory>::Plain<u64>)) {
        let lines = PAGE / LINE;
        for line in from / LINE..(from + bytes).div_ceil(LINE) {
            let page = line / lines % (CAPACITY / PAGE);
            let known = self.pages.borrow()[page].clone();
            let memory = known.unwrap_or_else(|| {
                let made = words("pipe_page", lines);
                self.pages.borrow_mut()[page].get_or_insert(made).clone()
            });
            firsts(&memory, line % lines..line % lines + 1).for_each(&each);
        }
    }

    /// Writes up to `bytes` bytes of the program, all of them if it may wait. On the machine's
    /// side.
    ///
    /// # Errors
    /// `EAGAIN`, `EPIPE` without a reader, `EINTR`.
    pub(crate) fn write(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        settle_stores_to(buffer, bytes);
        let mut done = 0;
        while done < bytes || bytes == 0 {
            let step = in_kernel(|| match &self.sends {
                None => self.write_to_pipe(call, buffer + done, bytes - done),
                Some(sends) => self.send(sends, call, buffer + done, (bytes - done).min(PAGE)),
            });
            match step {
                Ok(Some(step)) => done += step,
                Ok(None) if call.waits => {
                    if let Err(interrupted) = call.sleep("room in a pipe or socket") {
                        self.pass_on(call.thread);
                        return if done > 0 { Ok(done) } else { Err(interrupted) };
                    }
                }
                Ok(None) if done == 0 => return Err(EAGAIN),
                Err(error) if done == 0 => return Err(error),
                _ => break,
            }
            if bytes == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// One step: `None` when there is no room.
    fn write_to_pipe(&self, call: Call, buffer: usize, bytes: usize) -> Result<Option<usize>, c_int> {
        let mut state = self.state();
        leave(&mut state.writers, call.thread);
        self.require_open()?;
        let room = CAPACITY - (state.written - state.read);
        let step = if bytes <= PAGE { bytes } else { bytes.min(room / PAGE * PAGE) };
        if step > room || step == 0 && bytes > 0 {
            if call.waits {
                state.writers.push_back(call.thread);
            }
            return Ok(None);
        }
        let at = state.written;
        load_lines(buffer, step, call.pc);
        self.of_pages(at, step, |word| word.set(at as u64));
        state.bytes.extend(program_bytes(buffer, step));
        state.written += step;
        let reader = state.readers.pop_front();
        let has_page = state.written - state.read + PAGE <= CAPACITY;
        let writer = if has_page { state.writers.pop_front() } else { None };
        let watchers = state.reading.clone();
        drop(state);
        wake(reader.into_iter().chain(writer).chain(watchers.told(EPOLLIN)));
        Ok(Some(step))
    }

    /// One message of a socket.
    fn send(&self, sends: &Guarded<Counted>, call: Call, buffer: usize, bytes: usize) -> Result<Option<usize>, c_int> {
        let mut counts = sends.lock();
        leave(&mut counts.writers, call.thread);
        self.require_open()?;
        if bytes == 0 {
            return Ok(Some(0));
        }
        if counts.bytes >= LIMIT {
            if call.waits {
                counts.writers.push_back(call.thread);
            }
            return Ok(None);
        }
        counts.bytes += counted(bytes);
        let lines = 1 + bytes.div_ceil(LINE);
        let fitting = counts.free.iter().rposition(|memory| memory.len() >= lines * WORDS);
        let freed = fitting.map(|place| counts.free.remove(place));
        drop(counts);
        let memory = freed.unwrap_or_else(|| words("socket_buffer", lines.next_power_of_two()));
        load_lines(buffer, bytes, call.pc);
        firsts(&memory, 0..lines).for_each(|word| word.set(bytes as u64));
        let mut state = self.state();
        // Its reader was closed meanwhile, and has set the count to 0.
        self.require_open()?;
        state.bytes.extend(program_bytes(buffer, bytes));
        state.messages.push_back(Message { memory, bytes, read: 0 });
        let (reader, watchers) = (state.readers.pop_front(), state.reading.clone());
        drop(state);
        wake(reader.into_iter().chain(watchers.told(EPOLLIN)));
        Ok(Some(bytes))
    }

    /// Reads up to `bytes` bytes into the program's buffer; 0 at the end. On the machine's side.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`.
    pub(crate) fn read(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        settle_stores_to(buffer, bytes);
        loop {
            let read = in_kernel(|| match &self.sends {
                None => self.read_from_pipe(call, buffer, bytes),
                Some(sends) => self.receive(sends, call, buffer, bytes),
            });
            match read {
                Some(read) => return Ok(read),
                None if call.waits => call.sleep("bytes in a pipe or socket").inspect_err(|_| {
                    self.pass_on(call.thread);
                })?,
                None => return Err(EAGAIN),
            }
        }
    }

    /// Reads as [`Self::read`] does, and leaves the bytes where they are. They come from the
    /// state's line alone.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn peek(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        settle_stores_to(buffer, bytes);
        loop {
            let read = in_kernel(|| {
                let mut state = self.state();
                let step = self.begin_read(&mut state, call, bytes)?;
                store_lines(buffer, step, call.pc);
                give_program(buffer, state.bytes.iter().copied().take(step));
                // Another reader may take what this one has left.
                let reader = if state.bytes.is_empty() { None } else { state.readers.pop_front() };
                drop(state);
                wake(reader);
                Some(step)
            });
            match read {
                Some(read) => return Ok(read),
                None if call.waits => call.sleep("bytes in a socket").inspect_err(|_| self.pass_on(call.thread))?,
                None => return Err(EAGAIN),
            }
        }
    }

    /// A thread that was interrupted may have been woken for what is there: another takes it.
    fn pass_on(&self, thread: &Thread) {
        let mut state = self.state();
        leave(&mut state.readers, thread);
        leave(&mut state.writers, thread);
        let reader = if state.bytes.is_empty() { None } else { state.readers.pop_front() };
        let writer = state.writers.pop_front();
        drop(state);
        let sender = self.sends.as_ref().and_then(|sends| {
            let mut counts = sends.lock();
            leave(&mut counts.writers, thread);
            counts.writers.pop_front()
        });
        wake(reader.into_iter().chain(writer).chain(sender));
    }

    /// Begins a read: how many bytes there are for it, or `None` when it has to wait.
    fn begin_read(&self, state: &mut State, call: Call, bytes: usize) -> Option<usize> {
        leave(&mut state.readers, call.thread);
        let step = bytes.min(state.bytes.len());
        if step > 0 || bytes == 0 || self.is_ended() {
            return Some(step);
        }
        if call.waits {
            state.readers.push_back(call.thread);
        }
        None
    }

    fn read_from_pipe(&self, call: Call, buffer: usize, bytes: usize) -> Option<usize> {
        let mut state = self.state();
        let step = self.begin_read(&mut state, call, bytes)?;
        let at = state.read;
        self.of_pages(at, step, |word| _ = word.get());
        store_lines(buffer, step, call.pc);
        give_program(buffer, state.bytes.drain(..step));
        state.read += step;
        let empties_page = at / PAGE != state.read / PAGE || state.read == state.written;
        let writer = if empties_page { state.writers.pop_front() } else { None };
        // Another reader goes on with what is left.
        let reader = if state.bytes.is_empty() { None } else { state.readers.pop_front() };
        let watchers = if step > 0 { state.writing.clone() } else { Watchers::default() };
        drop(state);
        wake(writer.into_iter().chain(reader).chain(watchers.told(EPOLLOUT)));
        Some(step)
    }

    fn receive(&self, sends: &Guarded<Counted>, call: Call, buffer: usize, bytes: usize) -> Option<usize> {
        let mut state = self.state();
        let step = self.begin_read(&mut state, call, bytes)?;
        let (mut left, mut read) = (step, Vec::new());
        while left > 0 {
            let message = state.messages.front_mut().expect("its bytes are counted");
            let part = left.min(message.bytes - message.read);
            let first = 1 + message.read / LINE;
            message.read += part;
            left -= part;
            let lines = first..1 + message.read.div_ceil(LINE);
            let is_done = message.read == message.bytes;
            read.push((message.memory.clone(), lines, is_done.then_some(message.bytes)));
            if is_done {
                state.messages.pop_front();
            }
        }
        let taken: Vec<u8> = state.bytes.drain(..step).collect();
        let reader = if state.bytes.is_empty() { None } else { state.readers.pop_front() };
        drop(state);
        for (memory, lines, _) in &read {
            firsts(memory, 0..1).chain(firsts(memory, lines.clone())).for_each(|word| _ = word.get());
        }
        store_lines(buffer, step, call.pc);
        give_program(buffer, taken.into_iter());
        let mut counts = sends.lock();
        for (memory, _, done) in read {
            if let Some(bytes) = done {
                // A reader that was closed has set it to 0.
                counts.bytes = counts.bytes.saturating_sub(counted(bytes));
                counts.free.push(memory);
            }
        }
        let has_room = counts.bytes * 4 <= LIMIT;
        let writers = if has_room { std::mem::take(&mut counts.writers) } else { VecDeque::new() };
        drop(counts);
        let watchers = if has_room { self.state().writing.clone() } else { Watchers::default() };
        wake(writers.into_iter().chain(reader).chain(watchers.told(EPOLLOUT)));
        Some(step)
    }

    /// What its reading end finds. `watcher` is told when this may have changed, until
    /// [`Self::unwatch`].
    pub(crate) fn reading(&self, watcher: Option<&Watcher>) -> Reading {
        let mut state = self.state();
        state.reading.add(watcher);
        Reading { has_bytes: !state.bytes.is_empty(), is_ended: self.is_ended() }
    }

    /// The same of its writing end.
    pub(crate) fn writing(&self, watcher: Option<&Watcher>) -> Writing {
        let mut state = self.state();
        state.writing.add(watcher);
        let has_page = state.written - state.read + PAGE <= CAPACITY;
        drop(state);
        // After the watcher is there: who makes room tells it, or has made room before.
        let has_space = self.sends.as_ref().is_none_or(|sends| sends.lock().bytes < LIMIT);
        let (is_deaf, is_shut) = (!self.has_reader.get(), !self.has_writer.get());
        // A write that fails does not wait.
        Writing { has_room: has_space && has_page || is_deaf || is_shut, is_deaf, is_shut }
    }

    pub(crate) fn unwatch(&self, watcher: &Watcher) {
        let mut state = self.state();
        state.reading.remove(watcher);
        state.writing.remove(watcher);
    }

    /// Bytes that wait to be read.
    pub(crate) fn waiting(&self) -> usize {
        self.state().bytes.len()
    }

    /// Its reader reads no more than what there is. The writer learns it if `is_local`.
    pub(crate) fn shut_reading(&self, is_local: bool) {
        self.is_shut_for_reader.set(true);
        if is_local {
            self.has_reader.set(false);
        }
        self.tell_of_end(false);
    }

    /// The last descriptor of an end was closed, or it writes no more.
    pub(crate) fn close(&self, is_reader: bool) {
        let end = if is_reader { &self.has_reader } else { &self.has_writer };
        end.set(false);
        self.tell_of_end(is_reader);
    }

    /// Wakes all who wait, and lets go of the bytes if `is_unread`: no end reads them.
    fn tell_of_end(&self, is_unread: bool) {
        let mut state = self.state();
        if is_unread {
            state.bytes.clear();
            state.messages.clear();
        }
        let (readers, writers) = (std::mem::take(&mut state.readers), std::mem::take(&mut state.writers));
        let (reading, writing) = (state.reading.clone(), state.writing.clone());
        drop(state);
        let senders = self.sends.as_ref().map(|sends| {
            let mut counts = sends.lock();
            if is_unread {
                counts.bytes = 0;
            }
            std::mem::take(&mut counts.writers)
        });
        let told = reading.told(EPOLLIN | EPOLLRDHUP | EPOLLHUP);
        let told = told.into_iter().chain(writing.told(EPOLLOUT | EPOLLERR | EPOLLHUP));
        wake(readers.into_iter().chain(writers).chain(told).chain(senders.into_iter().flatten()));
    }
}

/// What [`Stream::reading`] finds.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) has_bytes: bool,
    /// The writing end is closed.
    pub(crate) is_ended: bool,
}

/// What [`Stream::writing`] finds.
#[derive(Clone, Copy)]
pub(crate) struct Writing {
    pub(crate) has_room: bool,
    /// The reading end is closed.
    pub(crate) is_deaf: bool,
    /// The writing end is closed.
    pub(crate) is_shut: bool,
}

/// The bytes of the program's buffer.
fn program_bytes(buffer: usize, bytes: usize) -> impl Iterator<Item = u8> {
    let from: *const u8 = std::ptr::with_exposed_provenance(buffer);
    // SAFETY: the program's buffer has so many bytes.
    (0..bytes).map(move |byte| unsafe { from.wrapping_add(byte).read() })
}

/// Fills the program's buffer.
fn give_program(buffer: usize, bytes: impl Iterator<Item = u8>) {
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(buffer);
    for (place, byte) in bytes.enumerate() {
        // SAFETY: there are no more bytes than the program's buffer has room for.
        unsafe { to.wrapping_add(place).write(byte) };
    }
}
