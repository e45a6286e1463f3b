//! Options of sockets. Those that concern a network are kept and do nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;

use hitm_machine::Simulated;
use hitm_memory::{Platform, Time};
use libc::{EFAULT, EINVAL, ENOPROTOOPT, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, socklen_t, timeval};

use crate::clock;
use crate::locks::{call, or_failed};
use crate::native::native;
use crate::sockets::{Socket, with_socket};
use crate::streams::LIMIT;

/// The options that a program has set: level and name, and the bytes of the value.
#[derive(Default)]
pub(crate) struct Options(RefCell<BTreeMap<(c_int, c_int), Vec<u8>>>);

impl Options {
    fn get(&self, level: c_int, name: c_int) -> Option<Vec<u8>> {
        self.0.borrow().get(&(level, name)).cloned()
    }

    fn is_set(&self, level: c_int, name: c_int) -> bool {
        self.get(level, name).is_some_and(|value| value.iter().any(|&byte| byte != 0))
    }

    /// Whether other sockets may have its name too.
    pub(crate) fn shares_port(&self) -> bool {
        self.is_set(SOL_SOCKET, libc::SO_REUSEPORT)
    }

    /// Whether it does not get what is sent to addresses of version 4.
    pub(crate) fn is_v6_only(&self) -> bool {
        self.is_set(IPPROTO_IPV6, libc::IPV6_V6ONLY)
    }

    fn until(&self, name: c_int) -> Option<Time> {
        let value = self.get(SOL_SOCKET, name)?;
        let part = |at: usize| value.get(at..)?.first_chunk().map(|&part| i64::from_ne_bytes(part));
        let nanos = clock::val_nanos(&timeval { tv_sec: part(0)?, tv_usec: part(8)? });
        (nanos > 0).then(|| Simulated::now() + clock::scaled(nanos))
    }

    /// When a read that begins now has waited long enough.
    pub(crate) fn read_until(&self) -> Option<Time> {
        self.until(libc::SO_RCVTIMEO)
    }

    /// The same of a write.
    pub(crate) fn write_until(&self) -> Option<Time> {
        self.until(libc::SO_SNDTIMEO)
    }
}

/// The value of an option that was not set.
fn usual(socket: &Socket, level: c_int, name: c_int) -> Result<Vec<u8>, c_int> {
    let number = match (level, name) {
        (SOL_SOCKET, libc::SO_ERROR) => socket.take_error(),
        (SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (SOL_SOCKET, libc::SO_DOMAIN) => socket.family(),
        (SOL_SOCKET, libc::SO_PROTOCOL) => {
            if socket.family() == libc::AF_UNIX {
                0
            } else {
                IPPROTO_TCP
            }
        }
        (SOL_SOCKET, libc::SO_ACCEPTCONN) => socket.is_listening().into(),
        (SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => LIMIT as c_int,
        (SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => return Ok(vec![0; size_of::<timeval>()]),
        (SOL_SOCKET, libc::SO_LINGER) => return Ok(vec![0; size_of::<libc::linger>()]),
        (
            SOL_SOCKET,
            libc::SO_REUSEADDR | libc::SO_REUSEPORT | libc::SO_KEEPALIVE | libc::SO_BROADCAST | libc::SO_OOBINLINE,
        )
        | (IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK | libc::TCP_QUICKACK)
        | (IPPROTO_IPV6, libc::IPV6_V6ONLY) => 0,
        _ => return Err(ENOPROTOOPT),
    };
    Ok(number.to_ne_bytes().to_vec())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(file: c_int, level: c_int, name: c_int, value: *const u8, length: socklen_t) -> c_int {
    let native = native!(fn setsockopt(c_int, c_int, c_int, *const u8, socklen_t) -> c_int);
    or_failed(call!(native(file, level, name, value, length), |_thread| {
        with_socket(file, |socket, _| {
            if value.is_null() {
                return Err(EFAULT);
            }
            // SAFETY: the program's argument: so many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(value, length as usize) };
            if bytes.len() < size_of::<c_int>() {
                return Err(EINVAL);
            }
            socket.options.0.borrow_mut().insert((level, name), bytes.to_vec());
            Ok(())
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    file: c_int,
    level: c_int,
    name: c_int,
    value: *mut u8,
    length: *mut socklen_t,
) -> c_int {
    let native = native!(fn getsockopt(c_int, c_int, c_int, *mut u8, *mut socklen_t) -> c_int);
    or_failed(call!(native(file, level, name, value, length), |_thread| {
        with_socket(file, |socket, _| {
            // SAFETY: the program's argument.
            let length = unsafe { length.as_mut() }.ok_or(EFAULT)?;
            let bytes = match socket.options.get(level, name) {
                Some(bytes) => bytes,
                None => usual(socket, level, name)?,
            };
            let room = bytes.len().min(*length as usize);
            // SAFETY: the program's argument: room for so many bytes.
            unsafe { value.copy_from_nonoverlapping(bytes.as_ptr(), room) };
            *length = room as socklen_t;
            Ok(())
        })
    }))
}
