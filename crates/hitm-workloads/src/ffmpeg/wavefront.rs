//! An encoder like x265: few pictures at once, each encoded by many workers in a wavefront of block
//! rows.
//!
//! The caller passes a picture to the lookahead and takes the frame encoder whose turn it is. It
//! waits for the picture that this frame encoder has in progress, and gives it the next picture
//! that the lookahead has decided. A frame encoder is a thread that encodes nothing itself. Row by
//! row, it waits for the rows of other pictures that motion reaches, allows its own row, and wakes
//! a worker. At the end it waits until the last row is filtered.
//!
//! **Wavefront.** A block may be encoded when the row above is two blocks ahead. A worker that
//! takes a row encodes its blocks while that holds, and leaves the row otherwise. After each block
//! it checks the row below: if no worker is there and the row could go on, the row becomes runnable
//! and a worker is woken. Rows are filtered one after the other, each when it and the next row are
//! encoded. A filtered row is published to the pictures that refer to it.
//!
//! **Origin.** x265 3.5: `wavefront.cpp`, `frameencoder.cpp`, `threadpool.cpp`. Left out:
//! distributed motion estimation, and the bonded groups in which several workers estimate one
//! picture for the lookahead.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm::Handle;
use hitm::sync::Mutex;
use hitm_memory::{AtomicWord, Placed, Platform, Time, described};

use crate::ffmpeg::encoder::{Picture, References};
use crate::ffmpeg::lookahead::{HELD_BACK, Pictures};
use crate::ffmpeg::sleepers::{Event, Sleepers};
use crate::ffmpeg::threads::{Spawner, Worker};
use crate::ffmpeg::{ENCODER_WORKER, FRAME_ENCODER, ROWS, Tally, work};

/// The rows of 64 pixels per picture.
pub(crate) const BLOCK_ROWS: u32 = 17;

/// The blocks per row.
pub(crate) const BLOCKS: u32 = 30;

/// The macroblock rows per row of blocks.
const ROWS_PER_BLOCK_ROW: u32 = ROWS / BLOCK_ROWS;

const _: () = assert!(ROWS_PER_BLOCK_ROW * BLOCK_ROWS == ROWS, "a frame has a whole number of block rows");

/// The blocks that the row above must be ahead.
const AHEAD: u32 = 2;

/// The rows below its own that a row refers to: one, and the rows that x265's search range of 57
/// pixels reaches.
const REFERENCE_REACH: u32 = 1 + 57_u32.div_ceil(64);

described! {
    /// The possible jobs of a picture: bit `2 * row` to encode a row, bit `2 * row + 1` to filter
    /// it.
    struct Bitmaps<M: Memory> as "wavefront" {
        /// The jobs for which the other rows of the same picture are far enough.
        runnable: M::Atomic<u64>,
        /// The jobs for which other pictures, or the encoding, are far enough.
        allowed: M::Atomic<u64>,
    }
}

described! {
    /// The progress of a row.
    struct RowWords<M: Memory> as "wavefront_row" {
        /// The number of encoded blocks.
        completed: M::Atomic<u32>,
    }
}

described! {
    /// The input of the lookahead.
    struct LookaheadWords<M: Memory> as "lookahead_input" {
        /// The number of pictures to decide.
        pictures: M::Atomic<u32>,
    }
}

const _: () = assert!(2 * BLOCK_ROWS <= u64::BITS, "a bitmap has two bits a row");

/// A job, as the bitmaps' bits encode it.
#[derive(Clone, Copy)]
enum Job {
    Encode(u32),
    Filter(u32),
}

impl Job {
    fn of(bit: u32) -> Self {
        if bit.is_multiple_of(2) { Self::Encode(bit / 2) } else { Self::Filter(bit / 2) }
    }

    fn bit(self) -> u64 {
        match self {
            Self::Encode(row) => 1 << (2 * row),
            Self::Filter(row) => 1 << (2 * row + 1),
        }
    }
}

struct Row<P: Platform> {
    words: Placed<P, RowWords<P>>,
    /// Whether a worker is at the row or will be. A worker locks it when it leaves the row; a
    /// worker at the row above locks it when it checks.
    active: Mutex<P, bool>,
}

impl<P: Platform> Row<P> {
    fn completed(&self) -> u32 {
        // Acquire: in the original, publishes the blocks themselves. Pairs with the Release in
        // `complete`.
        self.words.completed.load(Ordering::Acquire)
    }

    fn complete(&self, blocks: u32) {
        // Release: pairs with the Acquire in `completed`.
        self.words.completed.store(blocks, Ordering::Release);
    }
}

/// One picture in progress: its rows, and the events of its thread.
struct FrameEncoder<P: Platform> {
    bitmaps: Placed<P, Bitmaps<P>>,
    rows: Vec<Row<P>>,
    picture: Mutex<P, Option<Picture<P>>>,
    /// Triggered when there is a picture.
    enabled: Event<P>,
    /// Triggered when all rows are filtered.
    filtered: Event<P>,
    /// Triggered when the picture is done.
    done: Event<P>,
}

impl<P: Platform> FrameEncoder<P> {
    fn new(runtime: &Handle<P>, index: usize) -> Self {
        let row = |row: u32| Row {
            words: Placed::new(RowWords { completed: P::Atomic::new(0) }, Some(row as usize), None),
            active: Mutex::new(runtime, false),
        };
        let bitmaps = Bitmaps { runnable: P::Atomic::new(0), allowed: P::Atomic::new(0) };
        Self {
            bitmaps: Placed::new(bitmaps, Some(index), None),
            rows: (0..BLOCK_ROWS).map(row).collect(),
            picture: Mutex::new(runtime, None),
            enabled: Event::new(runtime),
            filtered: Event::new(runtime),
            done: Event::new(runtime),
        }
    }

    /// Returns the jobs that can be done, as bits.
    fn ready(&self) -> u64 {
        // SeqCst, both: a worker checks them before it sleeps, see `sleepers`.
        self.bitmaps.runnable.load(Ordering::SeqCst) & self.bitmaps.allowed.load(Ordering::SeqCst)
    }

    /// Takes a job that can be done.
    fn take_job(&self) -> Option<Job> {
        loop {
            let ready = self.ready();
            if ready == 0 {
                return None;
            }
            let job = Job::of(ready.trailing_zeros());
            // Acquire: sees what was done before the job became runnable. Pairs with
            // `make_runnable`.
            if self.bitmaps.runnable.fetch_and(!job.bit(), Ordering::Acquire) & job.bit() == 0 {
                continue;
            }
            // SeqCst: as in `ready`.
            if self.bitmaps.allowed.load(Ordering::SeqCst) & job.bit() != 0 {
                return Some(job);
            }
            // Another worker has done the job that was seen. This bit is for the next picture, and
            // is not allowed yet. The bit is set and checked again, so that a task that allows the
            // job meanwhile need not wake a worker.
            self.make_runnable(job);
        }
    }

    /// Records that the rows before `job` in its own picture are far enough.
    fn make_runnable(&self, job: Job) {
        // SeqCst: visible before the search for a sleeping worker, see `sleepers`.
        self.bitmaps.runnable.fetch_or(job.bit(), Ordering::SeqCst);
    }

    /// Records that all else that `job` depends on is far enough.
    fn allow(&self, job: Job) {
        // SeqCst: as in `make_runnable`.
        self.bitmaps.allowed.fetch_or(job.bit(), Ordering::SeqCst);
    }

    /// Resets the rows for the next picture. No worker is here.
    async fn reset(&self) {
        for row in &self.rows {
            row.complete(0);
            *row.active.lock().await = false;
        }
        // Relaxed, both: no job is runnable, and an RMW makes the first row runnable.
        self.bitmaps.runnable.store(0, Ordering::Relaxed);
        self.bitmaps.allowed.store(0, Ordering::Relaxed);
    }
}

/// An encoded block, for observers.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests watch"))]
pub(crate) struct Block {
    pub(crate) frame_encoder: usize,
    pub(crate) row: u32,
    pub(crate) column: u32,
    pub(crate) began: Time,
    pub(crate) ended: Time,
}

/// A function that observes every block.
pub(crate) type Watch = fn(Block);

/// The pool, and all that its workers share.
struct Pool<P: Platform> {
    sleepers: Sleepers<P>,
    frames: Vec<FrameEncoder<P>>,
    lookahead: Placed<P, LookaheadWords<P>>,
    decided: Pictures<P>,
    tally: Arc<Tally>,
    watch: Watch,
}

impl<P: Platform> Pool<P> {
    fn has_work(&self) -> bool {
        // SeqCst: a worker checks this before it sleeps, see `sleepers`.
        self.frames.iter().any(|frame| frame.ready() != 0) || self.lookahead.pictures.load(Ordering::SeqCst) > 0
    }

    /// Does one job; returns false when there is none.
    async fn work(&self, worker: &mut Worker<P>) -> bool {
        for (index, frame) in self.frames.iter().enumerate() {
            match frame.take_job() {
                Some(Job::Encode(row)) => self.encode_row(worker, index, row).await,
                Some(Job::Filter(row)) => self.filter_row(worker, frame, row).await,
                None => continue,
            }
            return true;
        }
        self.decide(worker).await
    }

    /// Encodes blocks of a row until the row ends or the row above is not far enough.
    async fn encode_row(&self, worker: &mut Worker<P>, index: usize, number: u32) {
        let frame = &self.frames[index];
        let row = &frame.rows[number as usize];
        for column in row.completed()..BLOCKS {
            let began = worker.runtime.now();
            worker.work(work::WAVEFRONT_BLOCK).await;
            let completed = column + 1;
            let ended = worker.runtime.now();
            (self.watch)(Block { frame_encoder: index, row: number, column, began, ended });
            row.complete(completed);
            self.look_below(frame, number, completed).await;
            if number > 0 && completed < BLOCKS {
                let mut active = row.active.lock().await;
                // The worker at the row above checks `active` under this lock after it has
                // completed a block.
                if frame.rows[number as usize - 1].completed() < (completed + AHEAD).min(BLOCKS) {
                    *active = false;
                    return;
                }
            }
        }
        self.tally.rows.add(&worker.runtime, u64::from(ROWS_PER_BLOCK_ROW));
        self.allow_filters(frame, number).await;
    }

    /// Lets the row below go on after row `number` has `completed` blocks, if no worker is there.
    async fn look_below(&self, frame: &FrameEncoder<P>, number: u32, completed: u32) {
        let Some(below) = frame.rows.get(number as usize + 1) else { return };
        {
            let mut active = below.active.lock().await;
            let at = below.completed();
            if *active || at == BLOCKS || completed < (at + AHEAD).min(BLOCKS) {
                return;
            }
            *active = true;
            frame.make_runnable(Job::Encode(number + 1));
        }
        self.sleepers.wake_one().await;
    }

    /// Allows filters after row `number` is encoded: that of the row above; after the last row,
    /// also its own.
    async fn allow_filters(&self, frame: &FrameEncoder<P>, number: u32) {
        if let Some(above) = number.checked_sub(1) {
            frame.allow(Job::Filter(above));
            if above == 0 {
                frame.make_runnable(Job::Filter(0));
            }
            self.sleepers.wake_one().await;
        }
        if number + 1 == BLOCK_ROWS {
            frame.allow(Job::Filter(number));
            self.sleepers.wake_one().await;
        }
    }

    async fn filter_row(&self, worker: &mut Worker<P>, frame: &FrameEncoder<P>, row: u32) {
        worker.work(work::WAVEFRONT_FILTER).await;
        let progress = frame.picture.lock().await.as_ref().and_then(|picture| picture.progress.clone());
        if let Some(progress) = progress {
            progress.announce(row + 1).await;
        }
        if row + 1 == BLOCK_ROWS {
            frame.filtered.trigger().await;
        } else {
            // This worker takes its next job after this, so it wakes no other worker.
            frame.make_runnable(Job::Filter(row + 1));
        }
    }

    /// Decides one picture's type; returns false when there is no picture.
    async fn decide(&self, worker: &mut Worker<P>) -> bool {
        let pictures = &self.lookahead.pictures;
        // Relaxed: the exchange below validates the value.
        let mut found = pictures.load(Ordering::Relaxed);
        loop {
            if found == 0 {
                return false;
            }
            // Acquire: sees the picture. Pairs with the add in `Wavefront::encode`. Relaxed on
            // failure: the loop tries again.
            match pictures.compare_exchange(found, found - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        worker.work(work::WAVEFRONT_DECISION).await;
        self.decided.put(1).await;
        true
    }
}

async fn pool_worker<P: Platform>(mut worker: Worker<P>, pool: Arc<Pool<P>>, index: usize) {
    loop {
        if !pool.work(&mut worker).await {
            pool.sleepers.sleep(index, || pool.has_work()).await;
        }
    }
}

async fn frame_encoder<P: Platform>(pool: Arc<Pool<P>>, index: usize) {
    let frame = &pool.frames[index];
    loop {
        frame.enabled.wait().await;
        let references = frame.picture.lock().await.as_ref().map(|picture| picture.references.clone());
        frame.reset().await;
        for row in 0..BLOCK_ROWS {
            for reference in references.iter().flatten() {
                reference.wait_for((row + 1 + REFERENCE_REACH).min(BLOCK_ROWS)).await;
            }
            frame.allow(Job::Encode(row));
            if row == 0 {
                *frame.rows[0].active.lock().await = true;
                frame.make_runnable(Job::Encode(0));
            }
            pool.sleepers.wake_one().await;
        }
        frame.filtered.wait().await;
        frame.done.trigger().await;
    }
}

/// The encoder; its own thread calls it.
pub(crate) struct Wavefront<P: Platform> {
    pool: Arc<Pool<P>>,
    /// Whether each frame encoder has a picture.
    busy: Vec<bool>,
    turn: usize,
    /// The pictures that the lookahead has received and not returned.
    inside: usize,
    next: u64,
    references: References<P>,
}

impl<P: Platform> Wavefront<P> {
    pub(crate) fn start(
        spawner: &mut Spawner<'_, P>,
        workers: usize,
        frame_encoders: usize,
        tally: &Arc<Tally>,
        watch: Watch,
    ) -> Self {
        let runtime = spawner.runtime;
        let pool = Arc::new(Pool {
            sleepers: Sleepers::new(runtime, workers),
            frames: (0..frame_encoders).map(|index| FrameEncoder::new(runtime, index)).collect(),
            lookahead: Placed::new(LookaheadWords { pictures: P::Atomic::new(0) }, None, None),
            decided: Pictures::new(runtime),
            tally: tally.clone(),
            watch,
        });
        for index in 0..workers {
            let pool = pool.clone();
            spawner.spawn(ENCODER_WORKER, |worker| pool_worker(worker, pool, index));
        }
        for index in 0..frame_encoders {
            let pool = pool.clone();
            spawner.spawn(FRAME_ENCODER, |_| frame_encoder(pool, index));
        }
        let references = References::new(runtime, frame_encoders);
        Self { pool, busy: vec![false; frame_encoders], turn: 0, inside: 0, next: 0, references }
    }

    /// Takes a picture; returns true when an encoded one is ready.
    pub(crate) async fn encode(&mut self, caller: &mut Worker<P>) -> bool {
        // SeqCst: visible before the search for a sleeping worker, see `sleepers`.
        self.pool.lookahead.pictures.fetch_add(1, Ordering::SeqCst);
        self.pool.sleepers.wake_one().await;
        self.inside += 1;
        caller.work(work::ENCODE_CALL).await;
        if self.inside <= HELD_BACK {
            return false;
        }
        let turn = self.turn;
        self.turn = (turn + 1) % self.busy.len();
        let frame = &self.pool.frames[turn];
        if self.busy[turn] {
            frame.done.wait().await;
        }
        self.pool.decided.take_one().await;
        self.inside -= 1;
        let picture = self.references.next(self.next).await;
        self.next += 1;
        *frame.picture.lock().await = Some(picture);
        frame.enabled.trigger().await;
        std::mem::replace(&mut self.busy[turn], true)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use hitm::{Mitigation, Span};
    use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};

    use super::*;
    use crate::ffmpeg::{self, ENCODER, Profile};
    use crate::meter::{Meter, Window};

    thread_local! {
        /// The blocks that the machine on this thread has encoded.
        static SEEN: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
    }

    /// Encodes on a machine until `pictures` pictures are ready; returns all encoded blocks.
    fn encode(machine: &str, workers: usize, frame_encoders: usize, pictures: u32, seed: u64) -> Vec<Block> {
        let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
        let costs = Costs::of(&topology, CostSet::Linux);
        let machine = Machine::new(topology.clone(), costs, Config { seed, check_races: true, ..Config::default() });
        let runtime = machine.enter(|| Handle::<Simulated>::new(topology.clone(), &Mitigation::baseline(), None));
        SEEN.take();
        let handle = runtime.clone();
        let window = Window { warm_up: Span::ZERO, measured: Span::from_micros(1_000_000) };
        let config = ffmpeg::Config {
            profile: Profile::X265Like,
            scale: false,
            threads_for: None,
            burst_factor: 0.01,
            seed,
            window,
        };
        let ended = machine.run(move |cpu| {
            if cpu.index() == 0 {
                let cpus = handle.topology().cpu_ids().collect();
                let mut spawner = Spawner { runtime: &handle, config, cpus: &cpus, stream: 0 };
                let tally = Arc::new(Tally { rows: Meter::new(window), frames: 0.into() });
                let watch = |block| SEEN.with_borrow_mut(|seen| seen.push(block));
                let mut encoder = Wavefront::start(&mut spawner, workers, frame_encoders, &tally, watch);
                spawner.spawn(ENCODER, |mut worker| async move {
                    let mut out = 0;
                    while out < pictures {
                        out += u32::from(encoder.encode(&mut worker).await);
                    }
                    worker.runtime.shutdown();
                });
            }
            handle.run_cpu(cpu);
        });
        ended.expect("the pictures come out");
        assert_eq!(machine.races(), [""; 0]);
        SEEN.take()
    }

    #[test]
    fn a_block_follows_two_blocks_of_the_row_above() {
        for (machine, workers, frame_encoders) in [("core:4 pu:2", 8, 3), ("core:2 pu:1", 8, 2), ("core:3 pu:1", 1, 1)]
        {
            let blocks = encode(machine, workers, frame_encoders, 9, 7);
            // For each frame encoder and place: the times of its pictures, one after the other.
            let mut times = BTreeMap::<_, Vec<(Time, Time)>>::new();
            for &Block { frame_encoder, row, column, began, ended } in &blocks {
                times.entry((frame_encoder, row, column)).or_default().push((began, ended));
            }
            let ended = |place: (usize, u32, u32), picture: usize| times[&place][picture].1;
            for (&(encoder, row, column), pictures) in &times {
                for (picture, &(began, _)) in pictures.iter().enumerate() {
                    let place = (encoder, row, column, picture);
                    if let Some(before) = column.checked_sub(1) {
                        assert!(began >= ended((encoder, row, before), picture), "{place:?}");
                    }
                    if let Some(above) = row.checked_sub(1) {
                        let needed = (column + AHEAD - 1).min(BLOCKS - 1);
                        assert!(began >= ended((encoder, above, needed), picture), "{place:?}");
                    }
                }
            }
            let last = (BLOCK_ROWS - 1, BLOCKS - 1);
            let done: usize = (0..frame_encoders).map(|encoder| times[&(encoder, last.0, last.1)].len()).sum();
            assert!(done >= 9, "{done} pictures were encoded to the end");
        }
    }

    #[test]
    fn rows_are_encoded_side_by_side() {
        let blocks = encode("core:4 pu:2", 8, 1, 4, 1);
        let at_once = |block: &Block| {
            let others = blocks.iter().filter(|other| other.began <= block.began && block.began < other.ended);
            others.count()
        };
        let most = blocks.iter().map(at_once).max();
        assert!(most >= Some(5), "{most:?} blocks at once");
        let alone = encode("core:4 pu:2", 1, 1, 4, 1);
        assert!(alone.iter().zip(&alone[1..]).all(|(one, next)| one.ended <= next.began), "one worker has one block");
    }
}
