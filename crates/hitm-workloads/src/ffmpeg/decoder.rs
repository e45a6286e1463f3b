//! The decoder's frame threads.
//!
//! The caller takes worker *k* in turn. It waits until worker *k*-1 has done its set-up, passes the
//! packet on and signals worker *k*. Once all workers are busy, it waits for the frame of the
//! oldest one. A worker sleeps until it has a packet, does the set-up and reports that. Then it
//! decodes row by row, waiting for the rows of the previous frame that motion vectors reach, and
//! publishes each row with a broadcast. At the end it publishes the whole frame and signals its
//! output.

use std::collections::VecDeque;
use std::sync::Arc;

use hitm::Handle;
use hitm::sync::{Condvar, Mutex};
use hitm_memory::Platform;

use crate::ffmpeg::progress::{Buffers, Progress};
use crate::ffmpeg::threads::{Spawner, Worker};
use crate::ffmpeg::{DECODER_FRAME, ROWS, work};

/// The rows below its own that a row refers to in the previous frame: motion of 64 pixels, an
/// assumption.
const REFERENCE_REACH: u32 = 4;

/// One frame thread, as shared by the caller and the thread.
struct FrameThread<P: Platform> {
    state: Mutex<P, State<P>>,
    input: Condvar<P>,
    output: Condvar<P>,
}

enum State<P: Platform> {
    Idle,
    /// The thread has a packet and has not begun the set-up.
    Given(Frame<P>),
    /// The thread does the set-up.
    SettingUp,
    /// The thread decodes.
    Decoding,
    /// The thread has a frame for the caller.
    Done,
}

/// A frame to be decoded.
struct Frame<P: Platform> {
    progress: Arc<Progress<P>>,
    /// The previous frame, which this frame refers to.
    reference: Option<Arc<Progress<P>>>,
}

/// The frame threads of one decoder; the decoder's thread calls it.
pub(crate) struct Decoder<P: Platform> {
    threads: Vec<Arc<FrameThread<P>>>,
    next: usize,
    busy: VecDeque<usize>,
    buffers: Buffers<P>,
    before: Option<Arc<Progress<P>>>,
}

impl<P: Platform> Decoder<P> {
    pub(crate) fn start(spawner: &mut Spawner<'_, P>, count: usize) -> Self {
        let runtime = spawner.runtime;
        let threads: Vec<_> = (0..count).map(|_| Arc::new(FrameThread::new(runtime))).collect();
        for thread in &threads {
            let thread = thread.clone();
            spawner.spawn(DECODER_FRAME, |worker| frame_thread(worker, thread));
        }
        // The frames in progress, and one that the oldest of them refers to.
        let buffers = Buffers::new(runtime, count + 2);
        Self { threads, next: 0, busy: VecDeque::new(), buffers, before: None }
    }

    /// Passes one packet to the next thread; once all are busy, waits for the oldest frame. Returns
    /// true when there is a frame.
    pub(crate) async fn decode(&mut self) -> bool {
        let count = self.threads.len();
        self.threads[(self.next + count - 1) % count].wait_until_set_up().await;
        let progress = self.buffers.take().await;
        let reference = self.before.replace(progress.clone());
        let thread = &self.threads[self.next];
        {
            let mut state = thread.state.lock().await;
            *state = State::Given(Frame { progress, reference });
            thread.input.notify_one();
        }
        self.busy.push_back(self.next);
        self.next = (self.next + 1) % count;
        if self.busy.len() < count {
            return false;
        }
        if let Some(oldest) = self.busy.pop_front() {
            self.threads[oldest].take_frame().await;
        }
        true
    }
}

impl<P: Platform> FrameThread<P> {
    fn new(runtime: &Handle<P>) -> Self {
        Self { state: Mutex::new(runtime, State::Idle), input: Condvar::new(runtime), output: Condvar::new(runtime) }
    }

    async fn wait_until_set_up(&self) {
        let mut state = self.state.lock().await;
        while matches!(*state, State::Given(_) | State::SettingUp) {
            state = self.output.wait(state).await;
        }
    }

    async fn take_frame(&self) {
        let mut state = self.state.lock().await;
        while !matches!(*state, State::Done) {
            state = self.output.wait(state).await;
        }
        *state = State::Idle;
    }

    async fn take_packet(&self) -> Frame<P> {
        let mut state = self.state.lock().await;
        loop {
            match std::mem::replace(&mut *state, State::SettingUp) {
                State::Given(frame) => return frame,
                other => *state = other,
            }
            state = self.input.wait(state).await;
        }
    }

    async fn set(&self, to: State<P>) {
        *self.state.lock().await = to;
        self.output.notify_all();
    }
}

async fn frame_thread<P: Platform>(mut worker: Worker<P>, thread: Arc<FrameThread<P>>) {
    loop {
        let frame = thread.take_packet().await;
        worker.work(work::DECODE_SETUP).await;
        thread.set(State::Decoding).await;
        for row in 0..ROWS {
            if let Some(reference) = &frame.reference {
                reference.wait_for((row + 1 + REFERENCE_REACH).min(ROWS)).await;
            }
            worker.work(work::DECODE_ROW).await;
            frame.progress.announce(row + 1).await;
        }
        thread.set(State::Done).await;
    }
}
