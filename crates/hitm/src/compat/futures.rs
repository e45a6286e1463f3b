//! `futures::task::Spawn` for the native runtime's handle.

use futures_task::{FutureObj, Spawn, SpawnError};

use crate::runtime::Handle;

/// The task has the default options; it is detached.
impl Spawn for Handle {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.status()?;
        drop(self.spawn((), future));
        Ok(())
    }

    fn status(&self) -> Result<(), SpawnError> {
        if self.0.task_count.is_stopping() { Err(SpawnError::shutdown()) } else { Ok(()) }
    }
}
