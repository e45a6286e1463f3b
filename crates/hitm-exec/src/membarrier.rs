//! `membarrier`: one thread makes every CPU that runs a thread of the program execute a full fence.
//!
//! **Origin.** Linux's system call: an interrupt to each such CPU, whose end the caller awaits. A
//! CPU that runs no thread of the program gets none, as a switch is a fence.
//!
//! **Here** an interrupted thread makes its fence at its next call, and may be preempted there. So
//! a thread in a restartable sequence restarts it, whichever command it was: the kernel does that
//! for one command alone.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI32, Ordering};

use hitm_machine::{Simulated, program};
use hitm_memory::{Mode, PathCost, Platform};
use hitm_topology::CpuId;
use libc::{EINVAL, EPERM};

use crate::access::enter_call;
use crate::start::shared;
use crate::thread::Thread;
use crate::tls::on_host;

/// The commands. Those that register a process have the next bit.
const GLOBAL: c_int = 1;
const GLOBAL_EXPEDITED: c_int = 1 << 1;
const PRIVATE: c_int = 1 << 3;
const PRIVATE_CORE: c_int = 1 << 5;
const PRIVATE_RSEQ: c_int = 1 << 7;
const KNOWN: c_int = GLOBAL | ((GLOBAL_EXPEDITED | PRIVATE | PRIVATE_CORE | PRIVATE_RSEQ) * 3);

/// `MEMBARRIER_CMD_FLAG_CPU`: one CPU alone.
const ONE_CPU: c_int = 1;

/// How often the caller looks whether all are done, in picoseconds.
const LOOK: u64 = 50_000;

/// The commands that the process has registered for. Constructors register before there is a
/// machine.
static REGISTERED: AtomicI32 = AtomicI32::new(0);

/// A command has succeeded: it may have been a registration.
pub(crate) fn note(command: c_int) {
    // Relaxed: constructors, and later the machine, have one thread.
    REGISTERED.fetch_or(command >> 1 & KNOWN, Ordering::Relaxed);
}

/// The system call.
///
/// # Errors
/// As Linux's.
pub(crate) fn call(thread: &Thread, command: c_int, flags: c_int, cpu: c_int) -> Result<c_long, c_int> {
    on_host(|| {
        enter_call(thread);
        program::fence();
        // Relaxed: see `note`.
        let registered = REGISTERED.load(Ordering::Relaxed);
        let one = flags == ONE_CPU && command == PRIVATE_RSEQ;
        if flags != 0 && !one {
            return Err(EINVAL);
        }
        match command {
            0 => {
                Simulated::charge(PathCost::SystemCall);
                return Ok(KNOWN.into());
            }
            GLOBAL | GLOBAL_EXPEDITED => {}
            PRIVATE | PRIVATE_CORE | PRIVATE_RSEQ if registered & command == 0 => return Err(EPERM),
            PRIVATE | PRIVATE_CORE | PRIVATE_RSEQ => {}
            _ if command.count_ones() == 1 && command & KNOWN != 0 => {
                Simulated::charge(PathCost::SystemCall);
                note(command);
                return Ok(0);
            }
            _ => return Err(EINVAL),
        }
        let cpu = u32::try_from(cpu).ok().filter(|_| one).map(CpuId);
        let mode = Simulated::enter(Mode::Kernel);
        Simulated::charge(PathCost::SystemCall);
        everywhere(thread, cpu);
        Simulated::enter(mode);
        Ok(0)
    })
}

/// Makes the CPUs that run threads of the program execute a fence: all, or one. Ends when they
/// have.
fn everywhere(thread: &Thread, one: Option<CpuId>) {
    let mut asked = Vec::new();
    shared().threads.each(|&other| {
        let is_meant = other.cpu.get().is_some_and(|cpu| one.is_none_or(|one| one == cpu));
        if is_meant && !std::ptr::eq(other, thread) {
            other.fence_is_due.set(true);
            other.attend_soon();
            shared().runtime.interrupt(other.task_id());
            asked.push(other);
        }
    });
    while asked.iter().any(|other| other.fence_is_due.get()) {
        // Another thread may await a fence of this CPU.
        thread.fence_is_due.set(false);
        program::fence();
        program::execute(LOOK);
        // The others come up to this CPU's time.
        Simulated::settle();
    }
    program::fence();
}
