//! One CPU writes and all others wait to see the value: measures the delay of each reader.
//!
//! The delay is the time from just before the store to just after the load that returned the value.
//! McKenney, "Is Parallel Programming Hard, And, If So, What Can You Do About It?", measures in
//! this way how long CPUs disagree about a value.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use hitm_memory::{AtomicWord, Placed, Platform, Span, Time, described};
use hitm_topology::CpuId;

use super::timing::{Share, Start};
use super::{Measured, Probe};

/// The rounds before those that count, in which lines move to their steady state.
const WARM_UP: u32 = 4;

described! {
    /// The word.
    struct News<M: Memory> as "probe_news" {
        /// The round, counted from 0. One CPU writes it; all others read it.
        value: M::Atomic<u32>,
    }
}

/// The word, and the times at which the participants saw its values.
pub struct WriterReaders<P: Platform> {
    news: Placed<P, News<P>>,
    start: Start<P>,
    rounds: u32,
    gap: Span,
    /// For each participant: when it wrote or saw each round, or `NEVER` when it missed the round.
    seen: Mutex<Vec<Vec<Time>>>,
}

impl<P: Platform> WriterReaders<P> {
    /// Makes a probe in which participant 0 writes `rounds` times and works for `gap` before each
    /// write, so that all other participants wait; the others read.
    #[must_use]
    pub fn new(participants: usize, rounds: u32, gap: Span) -> Self {
        Self {
            news: Placed::new(News { value: P::Atomic::new(0) }, None, None),
            start: Start::new(participants),
            rounds,
            gap,
            seen: Mutex::new(vec![Vec::new(); participants]),
        }
    }

    fn write(&self) -> Vec<Time> {
        let round = |round: u32| {
            P::delay(self.gap);
            let before = P::now();
            // Release: as for a writer that publishes data by it. Pairs with the Acquire of the
            // readers' spin.
            self.news.value.store(round + 1, Ordering::Release);
            before
        };
        (0..self.rounds + WARM_UP).map(round).collect()
    }

    fn read(&self) -> Vec<Time> {
        let last = self.rounds + WARM_UP;
        let mut times = vec![Time::NEVER; last as usize];
        let mut seen = 0;
        while seen < last {
            seen = P::spin_while(&self.news.value, |value| value == seen);
            times[seen as usize - 1] = P::now();
        }
        times
    }
}

impl<P: Platform> Probe<P> for WriterReaders<P> {
    /// Runs a participant. Operations are rounds written, or seen.
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        let begin = self.start.wait();
        let times = if index == 0 { self.write() } else { self.read() };
        let span = P::now().since(begin);
        let with_warm_up = times.iter().filter(|time| **time != Time::NEVER).count() as u64;
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[index] = times;
        let share = Share { operations: with_warm_up, span, with_warm_up };
        let (reads, writes) = if index == 0 { (Share::default(), share) } else { (share, Share::default()) };
        Measured { operations: with_warm_up, span, with_warm_up, reads, writes }
    }

    /// Returns the reader and its delay for each round that a reader saw, in order of readers and
    /// rounds.
    fn delays(&self) -> Vec<(usize, Span)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((written, readers)) = seen.split_first() else { return Vec::new() };
        let of_reader = |(reader, own): (usize, &Vec<Time>)| {
            let times = written.iter().zip(own.clone()).skip(WARM_UP as usize);
            let seen = times.filter(|(_, read)| *read != Time::NEVER);
            seen.map(|(&written, read)| (reader + 1, read.since(written))).collect::<Vec<_>>()
        };
        readers.iter().enumerate().flat_map(of_reader).collect()
    }
}
