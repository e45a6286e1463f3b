//! The C library's own functions, for what runs natively.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library that this crate has one of the same name for.
pub(crate) struct Native {
    name: &'static CStr,
    /// The version of the symbol; the default one if empty.
    version: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Native {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, version: c"", address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The condition variables of before 2003 have the same names.
    pub(crate) const fn with_version(name: &'static CStr, version: &'static CStr) -> Self {
        Self { name, version, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function's address.
    pub(crate) fn get(&self) -> *mut c_void {
        // Relaxed: whoever finds the address writes the same one.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let (name, version) = (self.name.as_ptr(), self.version.as_ptr());
        let found = if self.version.is_empty() {
            // SAFETY: the name is a C string.
            unsafe { libc::dlsym(libc::RTLD_NEXT, name) }
        } else {
            // SAFETY: both are C strings.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, name, version) }
        };
        assert!(!found.is_null(), "the C library has no {:?}", self.name);
        // Relaxed: as above.
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

impl Native {
    /// The function, of type `F`. Only [`native!`] calls this, with the type that it was given.
    pub(crate) fn function<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function's address") };
        let address = self.get();
        // SAFETY: the C library's function of this name has the type that `native!` was given.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

/// Returns the C library's function: `native!(fn usleep(c_uint) -> c_int)(micros)`.
macro_rules! native {
    (fn $name:ident($($argument:ty),*) -> $result:ty) => {
        native!(@ $crate::native::Native::new(crate::native::c_name!($name)), fn($($argument),*) -> $result)
    };
    ($version:literal fn $name:ident($($argument:ty),*) -> $result:ty) => {
        native!(@ $crate::native::Native::with_version(crate::native::c_name!($name), $version), fn($($argument),*) -> $result)
    };
    // It may unwind its caller.
    (unwinding fn $name:ident($($argument:ty),*) -> $result:ty) => {
        native!(@ $crate::native::Native::new($crate::native::c_name!($name)), "C-unwind" fn($($argument),*) -> $result)
    };
    (@ $native:expr, $($abi:literal)? fn($($argument:ty),*) -> $result:ty) => {{
        static NATIVE: $crate::native::Native = $native;
        NATIVE.function::<native!(@type $($abi)? fn($($argument),*) -> $result)>()
    }};
    (@type fn($($argument:ty),*) -> $result:ty) => { unsafe extern "C" fn($($argument),*) -> $result };
    (@type $abi:literal fn($($argument:ty),*) -> $result:ty) => { unsafe extern $abi fn($($argument),*) -> $result };
}
pub(crate) use native;

/// An identifier as a C string.
macro_rules! c_name {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name has no zero"),
        }
    };
}
pub(crate) use c_name;
