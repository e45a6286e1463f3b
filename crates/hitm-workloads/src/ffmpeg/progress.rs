//! How far a picture is done: rows announced under a mutex with a broadcast, waited for by whoever refers to them.

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
    /// No row is done.
    pub(crate) fn new(runtime: &Handle<P>) -> Self {
        Self { rows: Mutex::new(runtime, 0), changed: Condvar::new(runtime) }
    }

    async fn reset(&self) {
        *self.rows.lock().await = 0;
    }

    /// `rows` rows are done.
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

/// Pictures' memory, used in turn: a picture's own is free again when so many later ones have come that nobody can refer to
/// it any more.
pub(crate) struct Buffers<P: Platform> {
    pictures: Vec<Arc<Progress<P>>>,
    next: usize,
}

impl<P: Platform> Buffers<P> {
    /// Memory for `count` pictures.
    pub(crate) fn new(runtime: &Handle<P>, count: usize) -> Self {
        Self { pictures: (0..count).map(|_| Arc::new(Progress::new(runtime))).collect(), next: 0 }
    }

    /// The next picture's, with no row done.
    pub(crate) async fn take(&mut self) -> Arc<Progress<P>> {
        let picture = self.pictures[self.next].clone();
        self.next = (self.next + 1) % self.pictures.len();
        picture.reset().await;
        picture
    }
}
