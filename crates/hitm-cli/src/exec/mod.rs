//! What `hitm exec` and `hitm cc` share: the program's run as it tells it, and names for addresses.

pub(crate) mod compiler;
pub(crate) mod names;
pub(crate) mod told;
