//! Calls that read from and write to sockets.

use std::ffi::c_int;
use std::rc::Rc;

use libc::{
    ENOTSOCK, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, msghdr, socklen_t,
};

use crate::cancel::point;
use crate::files::{Object, Open, on_file, read_from, simulated, vectored, write_to};
use crate::native::native;
use crate::start::refuse_call;
use crate::streams::Call;
use crate::thread::Thread;

/// Runs a call on a simulated file, if all its flags are `known`. On the program's side.
fn with_flags(
    open: (&'static Thread, Rc<Open>),
    name: &str,
    (flags, known): (c_int, c_int),
    pc: usize,
    f: impl FnOnce(&Open, Call) -> Result<usize, c_int>,
) -> isize {
    if flags & !known != 0 {
        refuse_call(name, "it has a flag that is not simulated", "use MSG_DONTWAIT, MSG_NOSIGNAL or none");
    }
    on_file(open, flags & MSG_DONTWAIT == 0, pc, f)
}

/// Reads as the flags say.
fn receive(open: &Open, call: Call, buffer: usize, bytes: usize, flags: c_int) -> Result<usize, c_int> {
    let Object::Socket(socket) = &open.object else { return Err(ENOTSOCK) };
    if flags & MSG_PEEK != 0 {
        return socket.read(call, buffer, bytes, true);
    }
    let mut done = read_from(open, call, buffer, bytes)?;
    while flags & MSG_WAITALL != 0 && done < bytes {
        match read_from(open, call, buffer + done, bytes - done) {
            Ok(0) | Err(_) => break,
            Ok(more) => done += more,
        }
    }
    Ok(done)
}

/// Writes as the flags say.
fn send_part(open: &Open, call: Call, buffer: usize, bytes: usize, flags: c_int) -> Result<usize, c_int> {
    match open.object {
        Object::Socket(_) => write_to(open, call, buffer, bytes, flags & MSG_NOSIGNAL != 0),
        _ => Err(ENOTSOCK),
    }
}

const READS: c_int = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK | MSG_WAITALL | MSG_CMSG_CLOEXEC;
const WRITES: c_int = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_recv(file: c_int, buffer: usize, bytes: usize, flags: c_int, pc: usize) -> isize {
    point(|| {
        match simulated(file) {
            // SAFETY: the program's own call: its duty.
            None => unsafe { native!(fn recv(c_int, usize, usize, c_int) -> isize)(file, buffer, bytes, flags) },
            Some(open) => {
                with_flags(open, "recv", (flags, READS), pc, |open, call| receive(open, call, buffer, bytes, flags))
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_send(file: c_int, buffer: usize, bytes: usize, flags: c_int, pc: usize) -> isize {
    point(|| {
        match simulated(file) {
            // SAFETY: the program's own call: its duty.
            None => unsafe { native!(fn send(c_int, usize, usize, c_int) -> isize)(file, buffer, bytes, flags) },
            Some(open) => {
                with_flags(open, "send", (flags, WRITES), pc, |open, call| send_part(open, call, buffer, bytes, flags))
            }
        }
    })
}

/// A stream tells no address with its bytes.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_recvfrom(
    file: c_int,
    buffer: usize,
    bytes: usize,
    flags: c_int,
    address: *mut u8,
    length: *mut socklen_t,
    pc: usize,
) -> isize {
    point(|| {
        let Some(open) = simulated(file) else {
            let native = native!(fn recvfrom(c_int, usize, usize, c_int, *mut u8, *mut socklen_t) -> isize);
            // SAFETY: the program's own call: its duty.
            return unsafe { native(file, buffer, bytes, flags, address, length) };
        };
        // SAFETY: the program's argument: null or a length.
        if let Some(length) = unsafe { length.as_mut() } {
            *length = 0;
        }
        with_flags(open, "recvfrom", (flags, READS), pc, |open, call| receive(open, call, buffer, bytes, flags))
    })
}

/// A stream has one peer, whatever address the call names.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_sendto(
    file: c_int,
    buffer: usize,
    bytes: usize,
    flags: c_int,
    address: *const u8,
    length: socklen_t,
    pc: usize,
) -> isize {
    point(|| {
        let Some(open) = simulated(file) else {
            let native = native!(fn sendto(c_int, usize, usize, c_int, *const u8, socklen_t) -> isize);
            // SAFETY: the program's own call: its duty.
            return unsafe { native(file, buffer, bytes, flags, address, length) };
        };
        with_flags(open, "sendto", (flags, WRITES), pc, |open, call| send_part(open, call, buffer, bytes, flags))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_recvmsg(file: c_int, message: *mut msghdr, flags: c_int, pc: usize) -> isize {
    point(|| {
        let Some(open) = simulated(file) else {
            // SAFETY: the program's own call: its duty.
            return unsafe { native!(fn recvmsg(c_int, *mut msghdr, c_int) -> isize)(file, message, flags) };
        };
        // SAFETY: the program's argument.
        if flags & MSG_PEEK != 0 && unsafe { (*message).msg_iovlen } > 1 {
            refuse_call("recvmsg", "MSG_PEEK with several buffers is not simulated", "give it one buffer");
        }
        // SAFETY: the program's argument.
        let message = unsafe { &mut *message };
        (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
        let (parts, count) = (message.msg_iov, message.msg_iovlen as c_int);
        with_flags(open, "recvmsg", (flags, READS), pc, |open, call| {
            vectored(open, call, parts, count, flags & MSG_WAITALL != 0, |open, call, buffer, bytes| {
                receive(open, call, buffer, bytes, flags)
            })
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_sendmsg(file: c_int, message: *const msghdr, flags: c_int, pc: usize) -> isize {
    point(|| {
        let Some(open) = simulated(file) else {
            // SAFETY: the program's own call: its duty.
            return unsafe { native!(fn sendmsg(c_int, *const msghdr, c_int) -> isize)(file, message, flags) };
        };
        // SAFETY: the program's argument.
        let message = unsafe { &*message };
        if message.msg_controllen > 0 {
            refuse_call("sendmsg", "descriptors and other control messages are not simulated", "send bytes alone");
        }
        let (parts, count) = (message.msg_iov, message.msg_iovlen as c_int);
        with_flags(open, "sendmsg", (flags, WRITES), pc, |open, call| {
            vectored(open, call, parts, count, true, |open, call, buffer, bytes| {
                send_part(open, call, buffer, bytes, flags)
            })
        })
    })
}
