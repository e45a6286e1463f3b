//! Addresses of sockets, as programs give and get them (`struct sockaddr`).

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

use libc::{AF_INET, AF_UNIX, EAFNOSUPPORT, EFAULT, EINVAL, socklen_t};

/// Where the parts of an address lie: its port, and the address of each family.
const PORT: usize = 2;
const OF_INET: usize = 4;
const OF_INET6: usize = 8;
const BYTES_OF_INET: usize = 16;
const BYTES_OF_INET6: usize = 28;
const BYTES_OF_UNIX: usize = 110;

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// None yet; of a socket of this machine's own, none at all.
    Unnamed,
    /// A path, or an abstract name, which begins with a zero.
    Path(Vec<u8>),
    /// An address of the Internet; one of version 4 in this form in sockets of version 6 too.
    Internet(IpAddr, u16),
}

impl Address {
    /// Reads an address of the program.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` for a length that is too short, `EAFNOSUPPORT` for another family.
    ///
    /// # Safety
    /// `place` has `length` bytes, or is null.
    pub(crate) unsafe fn read(place: *const u8, length: socklen_t, family: c_int) -> Result<Self, c_int> {
        if place.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: the caller's duty.
        let bytes = unsafe { std::slice::from_raw_parts(place, length as usize) };
        let is_family = bytes.first_chunk().map(|&family| u16::from_ne_bytes(family));
        if is_family.ok_or(EINVAL)? != family as u16 {
            return Err(EAFNOSUPPORT);
        }
        let ip: IpAddr = match family {
            AF_UNIX => return Self::path(&bytes[PORT..]),
            AF_INET => part::<4>(bytes, OF_INET, BYTES_OF_INET)?.into(),
            _ => part::<16>(bytes, OF_INET6, BYTES_OF_INET6)?.into(),
        };
        let port = u16::from_be_bytes(part(bytes, PORT, OF_INET)?);
        Ok(Self::Internet(ip.to_canonical(), port))
    }

    fn path(bytes: &[u8]) -> Result<Self, c_int> {
        let name = match bytes {
            [] => return Err(EINVAL),
            [0, ..] => bytes,
            _ => bytes.split(|&byte| byte == 0).next().unwrap_or_default(),
        };
        if bytes.len() > BYTES_OF_UNIX - PORT { Err(EINVAL) } else { Ok(Self::Path(name.to_vec())) }
    }

    /// The form of a socket of `family`.
    fn to_bytes(&self, family: c_int) -> Vec<u8> {
        let mut bytes = (family as u16).to_ne_bytes().to_vec();
        match self {
            Self::Unnamed if family == AF_UNIX => {}
            Self::Unnamed => bytes.resize(if family == AF_INET { BYTES_OF_INET } else { BYTES_OF_INET6 }, 0),
            Self::Path(name) => {
                bytes.extend(name);
                // A path ends with a zero.
                bytes.extend((name.first() != Some(&0)).then_some(0));
            }
            Self::Internet(ip, port) => {
                bytes.extend(port.to_be_bytes());
                match (ip, family) {
                    (IpAddr::V4(ip), AF_INET) => {
                        bytes.extend(ip.octets());
                        bytes.resize(BYTES_OF_INET, 0);
                    }
                    (ip, _) => {
                        bytes.resize(OF_INET6, 0);
                        bytes.extend(to_version_6(*ip).octets());
                        bytes.resize(BYTES_OF_INET6, 0);
                    }
                }
            }
        }
        bytes
    }

    /// Gives it to the program, cut off at the length that it has room for, and its full length.
    ///
    /// # Errors
    /// `EFAULT` for a place without a length.
    ///
    /// # Safety
    /// `place` is null, or has as many bytes as `length` says.
    pub(crate) unsafe fn write(&self, family: c_int, place: *mut u8, length: *mut socklen_t) -> Result<(), c_int> {
        if place.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's duty.
        let length = unsafe { length.as_mut() }.ok_or(EFAULT)?;
        let bytes = self.to_bytes(family);
        let room = bytes.len().min(*length as usize);
        // SAFETY: the caller's duty: there is room for so many bytes.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), room) };
        *length = bytes.len() as socklen_t;
        Ok(())
    }
}

/// A part of an address that has `whole` bytes.
fn part<const BYTES: usize>(bytes: &[u8], at: usize, whole: usize) -> Result<[u8; BYTES], c_int> {
    let bytes = bytes.get(..whole).ok_or(EINVAL)?;
    bytes[at..].first_chunk().copied().ok_or(EINVAL)
}

fn to_version_6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED,
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Whether what is bound to `bound` gets what is sent to `ip`.
pub(crate) fn covers(bound: IpAddr, is_v6_only: bool, ip: IpAddr) -> bool {
    bound == ip
        || match bound {
            IpAddr::V4(bound) => bound.is_unspecified() && ip.is_ipv4(),
            IpAddr::V6(bound) => bound.is_unspecified() && (ip.is_ipv6() || !is_v6_only),
        }
}
