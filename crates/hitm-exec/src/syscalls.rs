//! Raw system calls of the program; code that it makes, which is refused; and pinned memory.

use std::ffi::{c_int, c_long, c_uint, c_void};

use hitm_machine::{Simulated, program};
use hitm_memory::{PathCost, Platform};
use libc::{EAGAIN, EINTR, EINVAL, ENOSYS, ETIMEDOUT};

use crate::access::{enter_call, poke, update_on_host};
use crate::cpus::sched_yield;
use crate::eventfd::eventfd;
use crate::futex::{self, Ended};
use crate::locks::fail;
use crate::native::native;
use crate::processes::{ANOTHER, CHILD};
use crate::signals::{self, tgkill};
use crate::sockets::socket;
use crate::start::{refuse_call, shared};
use crate::thread::{self, Thread};
use crate::tls::on_host;
use crate::{clock, files, ids, membarrier, pi, random, rseq};

/// Makes `syscall` hand over its caller: see [`stubs`](crate::stubs).
#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_syscall(number: c_long, words: &[usize; 6], pc: usize) -> c_long {
    let [a, b, c, d, e, f] = *words;
    let Some(thread) = thread::at_call() else {
        // SAFETY: the program's own call.
        let result = unsafe { natively(number, *words) };
        if number == libc::SYS_membarrier && result == 0 {
            membarrier::note(a as c_int);
        }
        return result;
    };
    let result = match number {
        libc::SYS_gettid => Ok(thread.tid.get().into()),
        libc::SYS_getpid => Ok(ids::process().into()),
        libc::SYS_futex => Futex { thread, word: a, value: c as u32, other: e, last: f as u32, pc }.call(b as c_int, d),
        libc::SYS_tgkill => {
            // SAFETY: it is the call's own function.
            return unsafe { tgkill(a as c_int, b as c_int, c as c_int) }.into();
        }
        libc::SYS_rseq => rseq::call(thread, a, b, c, d as u32),
        libc::SYS_membarrier => membarrier::call(thread, a as c_int, b as c_int, c as c_int),
        libc::SYS_getcpu => Ok(cpu_and_node(thread, a, b)),
        // SAFETY: it is the call's own function.
        libc::SYS_eventfd => return unsafe { eventfd(a as c_uint, 0) }.into(),
        // SAFETY: as above.
        libc::SYS_eventfd2 => return unsafe { eventfd(a as c_uint, b as c_int) }.into(),
        // SAFETY: as above.
        libc::SYS_socket => return unsafe { socket(a as c_int, b as c_int, c as c_int) }.into(),
        libc::SYS_sched_yield => {
            // SAFETY: it is the call's own function.
            return unsafe { sched_yield() }.into();
        }
        libc::SYS_getrandom => {
            let buffer = std::ptr::with_exposed_provenance_mut(a);
            on_host(|| {
                enter_call(thread);
                // SAFETY: the program's buffer.
                unsafe { random::fill(buffer, b) };
            });
            Ok(b as c_long)
        }
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            refuse_call("clone", "a process or thread by a raw system call is not simulated", "use pthread_create")
        }
        // The machine's fair class has no slices of single threads.
        libc::SYS_sched_setattr | libc::SYS_sched_getattr => Err(ENOSYS),
        libc::SYS_io_uring_setup => {
            refuse_call("io_uring_setup", "I/O by rings is not simulated", "use read and write")
        }
        libc::SYS_execve | libc::SYS_execveat => refuse_call("execve", ANOTHER, CHILD),
        _ => {
            if is_simulated(a)
                && let Some(result) = on_descriptor(number, words, pc)
            {
                return result;
            }
            // The host's kernel runs it, in no simulated time but that of a system call.
            on_host(|| {
                enter_call(thread);
                program::fence();
                Simulated::charge(PathCost::SystemCall);
            });
            // SAFETY: the program's own call.
            return unsafe { natively(number, *words) };
        }
    };
    thread.end_call();
    signals::deliver_due(thread);
    result.unwrap_or_else(|error| fail(error).into())
}

/// Runs a call on a descriptor that leads to something simulated. `None` if the call has no
/// descriptor first.
fn on_descriptor(number: c_long, &[file, buffer, bytes, ..]: &[usize; 6], pc: usize) -> Option<c_long> {
    let file = file as c_int;
    Some(match number {
        // SAFETY: the program's own call: its duty.
        libc::SYS_read => unsafe { files::read(file, buffer, bytes, pc) as c_long },
        // SAFETY: as above.
        libc::SYS_write => unsafe { files::write(file, buffer, bytes, pc) as c_long },
        // SAFETY: as above.
        libc::SYS_close => unsafe { files::close(file).into() },
        libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_dup
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_fcntl
        | libc::SYS_epoll_ctl
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_sendto
        | libc::SYS_recvfrom
        | libc::SYS_sendmsg
        | libc::SYS_recvmsg
        | libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_connect
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_getsockname
        | libc::SYS_getpeername
        | libc::SYS_setsockopt
        | libc::SYS_getsockopt
        | libc::SYS_timerfd_settime
        | libc::SYS_timerfd_gettime
        | libc::SYS_shutdown
        | libc::SYS_ioctl => {
            let why = "a raw system call on a simulated pipe, socket, eventfd or epoll is not simulated";
            refuse_call("syscall", why, "use the C library's function")
        }
        _ => return None,
    })
}

/// Whether the first word of a call is a descriptor that leads to something simulated.
fn is_simulated(word: usize) -> bool {
    on_host(|| shared().files.get(word as c_int).is_some())
}

/// `getcpu`: writes the calling CPU, and its node.
fn cpu_and_node(thread: &Thread, cpu: usize, node: usize) -> c_long {
    on_host(|| {
        enter_call(thread);
        let (own, topology) = (Simulated::current_cpu(), shared().runtime.topology());
        let values = [(cpu, own.0), (node, topology.node_os_index(topology.cpu(own).node))];
        for (place, value) in values.into_iter().filter(|&(place, _)| place != 0) {
            poke(place, 4, value.into());
        }
    });
    0
}

unsafe fn natively(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    // SAFETY: the caller's duty.
    unsafe { native!(fn syscall(c_long, usize, usize, usize, usize, usize, usize) -> c_long)(number, a, b, c, d, e, f) }
}

/// The arguments of a futex call.
struct Futex {
    thread: &'static Thread,
    word: usize,
    value: u32,
    /// The second word.
    other: usize,
    last: u32,
    pc: usize,
}

impl Futex {
    /// Called on the program's side.
    fn call(&self, operation: c_int, fourth: usize) -> Result<c_long, c_int> {
        on_host(|| {
            enter_call(self.thread);
            self.on_host(operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME), fourth)
        })
    }

    fn on_host(&self, command: c_int, fourth: usize) -> Result<c_long, c_int> {
        let timeout = std::ptr::with_exposed_provenance(fourth);
        match command {
            libc::FUTEX_WAIT => self.wait(futex::ANY, clock::after(timeout)),
            libc::FUTEX_WAIT_BITSET => self.wait(self.last, clock::deadline(timeout)),
            libc::FUTEX_WAKE => Ok(futex::wake(self.word, self.value as usize) as c_long),
            libc::FUTEX_WAKE_BITSET => Ok(futex::wake_bits(self.word, self.value as usize, self.last) as c_long),
            libc::FUTEX_REQUEUE => {
                let (woken, _) = self.requeue(fourth, None)?;
                Ok(woken as c_long)
            }
            libc::FUTEX_CMP_REQUEUE => {
                let (woken, moved) = self.requeue(fourth, Some(self.last))?;
                Ok((woken + moved) as c_long)
            }
            libc::FUTEX_WAKE_OP => Ok(self.wake_op(fourth)? as c_long),
            libc::FUTEX_LOCK_PI | LOCK_PI2 => pi::lock(self.thread, self.word, clock::deadline(timeout)).map(|()| 0),
            libc::FUTEX_TRYLOCK_PI => pi::try_lock(self.word).map(|()| 0),
            libc::FUTEX_UNLOCK_PI => pi::unlock(self.thread, self.word, self.pc).map(|()| 0),
            _ => Err(ENOSYS),
        }
    }

    fn wait(&self, bits: u32, until: Option<hitm_memory::Time>) -> Result<c_long, c_int> {
        if bits == 0 {
            return Err(EINVAL);
        }
        match futex::wait_for_bits(self.thread, self.word, (self.value, bits), until, self.pc, "a futex") {
            Ended::Woken => Ok(0),
            Ended::Changed => Err(EAGAIN),
            Ended::TimedOut => Err(ETIMEDOUT),
            Ended::Interrupted { restarts: true } => self.wait(bits, until),
            Ended::Interrupted { .. } => Err(EINTR),
        }
    }

    fn requeue(&self, moved: usize, expected: Option<u32>) -> Result<(usize, usize), c_int> {
        futex::requeue((self.word, self.other), (self.value as usize, moved), expected, self.pc)
    }

    /// Changes the second word, and wakes at the first, and at the second if it held what the
    /// operation names. The bits are those of futex(2).
    fn wake_op(&self, at_other: usize) -> Result<usize, c_int> {
        let (operation, compare) = (self.last >> 28, self.last >> 24 & 0xf);
        let signed = |bits: u32| (bits << 20).cast_signed() >> 20;
        let (argument, bound) = (signed(self.last >> 12 & 0xfff), signed(self.last & 0xfff));
        let argument = if operation & 8 == 0 { argument } else { 1_i32.wrapping_shl(argument as u32) };
        let change = |old: i32| match operation & 7 {
            0 => Ok(argument),
            1 => Ok(old.wrapping_add(argument)),
            2 => Ok(old | argument),
            3 => Ok(old & !argument),
            4 => Ok(old ^ argument),
            _ => Err(ENOSYS),
        };
        change(0)?;
        let old = update_on_host(self.other, 4, self.pc, |old| {
            u128::from(change(old as u32 as i32).unwrap_or_default().cast_unsigned())
        });
        let old = old as u32 as i32;
        let wakes_other = match compare {
            0 => old == bound,
            1 => old != bound,
            2 => old < bound,
            3 => old <= bound,
            4 => old > bound,
            5 => old >= bound,
            _ => return Err(ENOSYS),
        };
        let woken = futex::wake(self.word, self.value as usize);
        Ok(woken + if wakes_other { futex::wake(self.other, at_other) } else { 0 })
    }
}

/// `FUTEX_LOCK_PI2`: as `FUTEX_LOCK_PI`, on another clock; all clocks here are one.
const LOCK_PI2: c_int = 13;

/// Code that is made while the program runs has no calls for its accesses.
fn refuse_code(call: &str, protection: c_int) {
    if thread::current().is_none() {
        return;
    }
    if protection & libc::PROT_EXEC != 0 {
        refuse_call(
            call,
            "memory for code that is made at run time (PROT_EXEC), whose accesses would not be seen",
            "turn the program's just-in-time compiler off",
        );
    }
}

type Map = *mut c_void;

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(at: Map, bytes: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> Map {
    refuse_code("mmap", protection);
    // SAFETY: the program's own call: its duty.
    unsafe { native!(fn mmap(Map, usize, c_int, c_int, c_int, i64) -> Map)(at, bytes, protection, flags, file, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: Map, bytes: usize, protection: c_int) -> c_int {
    refuse_code("mprotect", protection);
    // SAFETY: the program's own call: its duty.
    unsafe { native!(fn mprotect(Map, usize, c_int) -> c_int)(at, bytes, protection) }
}

/// The memory of a machine is always there: calls that pin it do nothing.
macro_rules! pinned {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            match thread::current() {
                // SAFETY: the program's own call: its duty.
                None => unsafe { native!(fn $name($($kind),*) -> c_int)($($argument),*) },
                Some(_) => 0,
            }
        }
    )*};
}

pinned! {
    mlock(at: usize, bytes: usize);
    munlock(at: usize, bytes: usize);
    mlockall(flags: c_int);
    munlockall();
}
