//! What `hitm exec`, `hitm cc` and `hitm cargo` share: the compilers, the runtime library, the
//! program's run as it tells it, and names for addresses.

mod arguments;
pub(crate) mod assembler;
mod assembly;
pub(crate) mod cargo;
pub(crate) mod check;
pub(crate) mod compiler;
mod frames;
pub(crate) mod last;
mod library;
pub(crate) mod located;
pub(crate) mod modules;
pub(crate) mod names;
mod rust_names;
mod symbols;
pub(crate) mod through;
pub(crate) mod told;
mod types;
