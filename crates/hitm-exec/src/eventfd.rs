//! The counter `eventfd`.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint};

use hitm_machine::Simulated;
use hitm_memory::Placed;
use libc::{EAGAIN, EINVAL, EPOLLIN, EPOLLOUT};

use crate::access::{poke, store_lines};
use crate::cancel::point;
use crate::descriptors::begin;
use crate::files::{self, Object, Open};
use crate::guarded::{Guarded, Protected};
use crate::locks::fail;
use crate::native::native;
use crate::start::shared;
use crate::streams::{Call, in_kernel, leave, wake};
use crate::thread::{self, Thread};
use crate::watchers::{Watcher, Watchers};

/// What the lock of an `eventfd` protects.
#[derive(Default)]
struct Count {
    value: u64,
    readers: VecDeque<&'static Thread>,
    writers: VecDeque<&'static Thread>,
    watchers: Watchers,
}

impl Protected for Count {
    const OBJECT: &'static str = "eventfd";
    const LOCK: &'static str = "protects the count, which is on its line";
}

/// An `eventfd`.
pub(crate) struct Event {
    counter: Placed<Simulated, Guarded<Count>>,
    is_semaphore: bool,
}

/// The size of what is read from and written to an `eventfd`.
const COUNT: usize = size_of::<u64>();

impl Event {
    /// One that reports call `name`.
    pub(crate) fn new(name: &'static str, value: u64, is_semaphore: bool) -> Self {
        let count = Count { value, ..Count::default() };
        Self { counter: Guarded::named(name, count), is_semaphore }
    }

    /// Takes the count, or 1 of it.
    ///
    /// # Errors
    /// `EINVAL` for a short buffer, `EAGAIN`, `EINTR`.
    pub(crate) fn read(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        if bytes < COUNT {
            return Err(EINVAL);
        }
        loop {
            let taken = in_kernel(|| {
                let mut count = self.counter.lock();
                leave(&mut count.readers, call.thread);
                if count.value == 0 {
                    if call.waits {
                        count.readers.push_back(call.thread);
                    }
                    return None;
                }
                let taken = if self.is_semaphore { 1 } else { count.value };
                count.value -= taken;
                let writers = std::mem::take(&mut count.writers);
                let watchers = count.watchers.clone();
                drop(count);
                wake(writers.into_iter().chain(watchers.told(EPOLLOUT)));
                Some(taken)
            });
            match taken {
                Some(taken) => {
                    // Memory has it at once: the buffer may be on the program's stack, where the
                    // caller's next function puts something else.
                    store_lines(buffer, COUNT, call.pc);
                    poke(buffer, COUNT, taken.into());
                    return Ok(COUNT);
                }
                None if call.waits => call.sleep("an eventfd")?,
                None => return Err(EAGAIN),
            }
        }
    }

    /// Adds to the count.
    ///
    /// # Errors
    /// `EINVAL` for a short buffer or the highest number, `EAGAIN`, `EINTR`.
    pub(crate) fn write(&self, call: Call, buffer: usize, bytes: usize) -> Result<usize, c_int> {
        if bytes < COUNT {
            return Err(EINVAL);
        }
        let more = crate::access::load_on_host(buffer, COUNT, call.pc) as u64;
        if more == u64::MAX {
            return Err(EINVAL);
        }
        loop {
            let fits = in_kernel(|| {
                let mut count = self.counter.lock();
                leave(&mut count.writers, call.thread);
                let sum = count.value.checked_add(more).filter(|&sum| sum < u64::MAX);
                let Some(sum) = sum else {
                    if call.waits {
                        count.writers.push_back(call.thread);
                    }
                    return false;
                };
                count.value = sum;
                // Each reader looks whether something is left for it.
                let readers = if sum > 0 { std::mem::take(&mut count.readers) } else { VecDeque::new() };
                let watchers = count.watchers.clone();
                drop(count);
                wake(readers.into_iter().chain(watchers.told(EPOLLIN)));
                true
            });
            match fits {
                true => return Ok(COUNT),
                false if call.waits => call.sleep("an eventfd")?,
                false => return Err(EAGAIN),
            }
        }
    }

    /// Adds to the count of one that the program does not write.
    pub(crate) fn add(&self, more: u64) {
        in_kernel(|| {
            let mut count = self.counter.lock();
            count.value = count.value.saturating_add(more);
            let (readers, watchers) = (std::mem::take(&mut count.readers), count.watchers.clone());
            drop(count);
            wake(readers.into_iter().chain(watchers.told(EPOLLIN)));
        });
    }

    /// Sets the count to 0.
    pub(crate) fn take_all(&self) {
        in_kernel(|| self.counter.lock().value = 0);
    }

    /// Whether it can be read and written. `watcher` is told when this may have changed, until
    /// [`Self::unwatch`].
    pub(crate) fn ready(&self, watcher: Option<&Watcher>) -> (bool, bool) {
        let mut count = self.counter.lock();
        count.watchers.add(watcher);
        (count.value > 0, count.value < u64::MAX - 1)
    }

    pub(crate) fn unwatch(&self, watcher: &Watcher) {
        self.counter.lock().watchers.remove(watcher);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn eventfd(value: c_uint, flags: c_int) -> c_int {
    let Some(thread) = thread::current() else {
        // SAFETY: the program's own call: its duty.
        return unsafe { native!(fn eventfd(c_uint, c_int) -> c_int)(value, flags) };
    };
    if flags & !(libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) != 0 {
        return fail(EINVAL);
    }
    let is_impatient = flags & libc::EFD_NONBLOCK != 0;
    let event = begin(thread, || Event::new(Count::OBJECT, value.into(), flags & libc::EFD_SEMAPHORE != 0));
    shared().files.add(&Open::new(Object::Event(event), is_impatient))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn eventfd_read(file: c_int, value: &mut u64) -> c_int {
    let place = std::ptr::from_mut(value).expose_provenance();
    // SAFETY: the program's argument: room for a count.
    let read = point(|| unsafe { files::read(file, place, COUNT, eventfd_read as *const () as usize) });
    if read == COUNT.cast_signed() { 0 } else { -1 }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn eventfd_write(file: c_int, value: u64) -> c_int {
    let place = std::ptr::from_ref(&value).expose_provenance();
    // SAFETY: a count.
    let written = point(|| unsafe { files::write(file, place, COUNT, eventfd_write as *const () as usize) });
    if written == COUNT.cast_signed() { 0 } else { -1 }
}
