//! The progress of a picture: its rows are published under a mutex with a broadcast, and threads
//! whose pictures refer to them wait for them.

use std::sync::Arc;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::Platform;

/// The progress of one picture.
#[derive(Debug)]
pub(crate) struct Progress<P: Platform> {
    rows: Mutex<P, u32>,
    changed: Condvar<P>,
}

impl<P: Platform> Progress<P> {
    /// Makes the progress of a picture without finished rows.
    pub(crate) fn new(runtime: &Handle<P>) -> Self {
        Self { rows: Mutex::new(runtime, 0), changed: Condvar::new(runtime) }
    }

    async fn reset(&self) {
        *self.rows.lock().await = 0;
    }

    /// Publishes that `rows` rows are done.
    pub(crate) async fn announce(&self, rows: u32) {
        let mut done = self.rows.lock().await;
        *done = (*done).max(rows);
        self.changed.notify_all();
    }

    /// Waits until `rows` rows are done.
    pub(crate) async fn wait_for(&self, rows: u32) {
        let mut done = self.rows.lock().await;
        while *done < rows {
            done = self.changed.wait(done).await;
        }
    }
}

/// The memory of pictures, used in turn. A picture's memory is reused after enough later pictures
/// that no picture can refer to it any more.
pub(crate) struct Buffers<P: Platform> {
    pictures: Vec<Arc<Progress<P>>>,
    next: usize,
}

impl<P: Platform> Buffers<P> {
    /// Makes memory for `count` pictures.
    pub(crate) fn new(runtime: &Handle<P>, count: usize) -> Self {
        Self { pictures: (0..count).map(|_| Arc::new(Progress::new(runtime))).collect(), next: 0 }
    }

    /// Returns the memory of the next picture, without finished rows.
    pub(crate) async fn take(&mut self) -> Arc<Progress<P>> {
        let picture = self.pictures[self.next].clone();
        self.next = (self.next + 1) % self.pictures.len();
        picture.reset().await;
        picture
    }
}
