//! [`Operation`]: what a program does, as a scope whose accesses are counted together.

use std::marker::PhantomData;

use crate::memory::Memory;

/// A kind of work of a program, such as a search, by its name in reports.
///
/// ```
/// use hitm_memory::{Native, Operation};
///
/// const SEARCH: Operation = Operation::new("search");
///
/// fn search() {
///     let _search = SEARCH.begin::<Native>();
///     // What this function and its callees access counts for the search.
/// }
/// # search();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(&'static str);

impl Operation {
    /// Returns the operation of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Begins the operation on the calling CPU. It ends when the result is dropped; then the one in
    /// which it began goes on. Accesses count for the innermost operation. Natively this compiles
    /// to nothing.
    #[inline(always)]
    pub fn begin<M: Memory>(self) -> OperationScope<M> {
        OperationScope { before: M::set_operation(Some(self)), memory: PhantomData }
    }
}

/// An operation that has begun.
#[derive(Debug)]
#[must_use = "the operation ends when this is dropped"]
pub struct OperationScope<M: Memory> {
    before: Option<Operation>,
    /// It belongs to the CPU on which it began.
    memory: PhantomData<*const M>,
}

impl<M: Memory> Drop for OperationScope<M> {
    #[inline(always)]
    fn drop(&mut self) {
        M::set_operation(self.before);
    }
}
