//! The smallest loops: the costs of one CPU's clock, caches and memory, and of a line that another
//! CPU has written.
//!
//! | loop | what it measures |
//! |---|---|
//! | [`clock_ghz`] | additions that depend on each other: one per cycle |
//! | [`look_nanos`] | a read of the clock, as probes make it |
//! | [`rmw_nanos`] | additions to a private atomic word |
//! | [`Ring::load_hits`] | independent loads of near lines |
//! | [`Ring::chase`] | loads of which each gives the address of the next |
//! | [`Written::chase`] | the same over lines that another CPU has just written |

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use hitm_memory::{Native, Platform};

/// A repetition of a loop over near lines takes about 100 us: short compared with a time slice of
/// an operating system, long compared with a read of the clock.
const STEPS: u32 = 50_000;

/// Returns the nanoseconds per step of `steps` steps of `body`.
fn timed(steps: u32, body: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    body();
    begin.elapsed().as_nanos() as f64 / f64::from(steps)
}

/// Returns the present clock rate of this CPU in gigahertz.
pub(super) fn clock_ghz() -> f64 {
    let (first, second) = (black_box(0x9E37_79B9_u64), black_box(3_u64));
    let mut value = black_box(1_u64);
    // Two operations, each of which needs the one before. Every processor of today does one per
    // cycle.
    let nanos = timed(STEPS, || {
        for _ in 0..STEPS {
            value = (value ^ first).wrapping_add(second);
        }
        black_box(value);
    });
    2.0 / nanos
}

/// Returns the nanoseconds of a read of the clock.
pub(super) fn look_nanos() -> f64 {
    const LOOKS: u32 = 2_000;
    timed(LOOKS, || (0..LOOKS).for_each(|_| _ = black_box(Native::now())))
}

/// Returns the nanoseconds of a read-modify-write on an owned line.
pub(super) fn rmw_nanos() -> f64 {
    let word = Line::default();
    timed(STEPS, || {
        for _ in 0..STEPS {
            // Relaxed: the word is private.
            black_box(word.0.fetch_add(1, Ordering::Relaxed));
        }
    })
}

/// A word on two lines of its own: prefetchers fetch pairs of lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// Lines that are visited in random order; each gives the next.
#[derive(Debug)]
pub(super) struct Ring {
    lines: Vec<Line>,
    at: u32,
}

/// The order is random within blocks of this many lines: two megabytes, which address translation
/// covers without a read of memory.
const WINDOW: usize = 1 << 14;

impl Ring {
    /// Returns as many lines as `bytes` hold, at least two. Every second line of memory is one of
    /// them.
    pub(super) fn new(bytes: usize) -> Self {
        let count = (bytes / size_of::<Line>()).max(2);
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut state = 1_u64;
        for window in order.chunks_mut(WINDOW) {
            for last in (1..window.len()).rev() {
                // The multiplier and increment of Knuth's MMIX; the upper bits are the random ones.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                window.swap(last, (state >> 33) as usize % (last + 1));
            }
        }
        let lines: Vec<Line> = std::iter::repeat_with(Line::default).take(count).collect();
        for (place, &line) in order.iter().enumerate() {
            // Relaxed: the ring is still private.
            lines[line as usize].0.store(order[(place + 1) % count], Ordering::Relaxed);
        }
        Self { lines, at: 0 }
    }

    /// Returns the nanoseconds per load of `steps` loads, from where the last ones ended.
    pub(super) fn chase(&mut self, steps: u32) -> f64 {
        let mut at = self.at;
        let nanos = timed(steps, || at = self.walk(at, steps));
        self.at = black_box(at);
        nanos
    }

    fn walk(&self, mut at: u32, steps: u32) -> u32 {
        for _ in 0..steps {
            // Relaxed: the address depends on the value that was loaded before, which orders the
            // loads.
            at = self.lines[at as usize].0.load(Ordering::Relaxed);
        }
        at
    }

    /// The same after one pass over all lines: they are then in the LLC, and the L2 has no room for
    /// them.
    pub(super) fn chase_again(&mut self, steps: u32) -> f64 {
        self.walk(self.at, self.lines.len() as u32);
        self.chase(steps)
    }

    /// Returns the nanoseconds of a load that hits, when the next load depends on it.
    pub(super) fn chase_hits(&mut self) -> f64 {
        self.chase_again(STEPS)
    }

    /// Returns the nanoseconds of a load that hits, when the next load does not depend on it. The
    /// program adds the values up.
    pub(super) fn load_hits(&mut self) -> f64 {
        let passes = STEPS / self.lines.len() as u32;
        timed(passes * self.lines.len() as u32, || {
            let mut sum = 0_u32;
            for _ in 0..passes {
                for line in black_box(&self.lines) {
                    // Relaxed: only this thread writes the ring.
                    sum = sum.wrapping_add(line.0.load(Ordering::Relaxed));
                }
            }
            black_box(sum);
        })
    }
}

/// Lines that one CPU writes and another CPU then reads.
#[derive(Debug)]
pub(super) struct Written {
    ring: Ring,
    /// Counts steps; the writer's are even.
    step: Line,
}

/// Passes over the lines in a repetition.
const PASSES: u32 = 10;

impl Written {
    /// Returns as many lines as fit into any L1, with a little room left.
    pub(super) fn new() -> Self {
        Self { ring: Ring::new(16 << 10), step: Line::default() }
    }

    fn await_step(&self, step: u32) {
        // Acquire: sees the other side's writes. Pairs with the Release in `end_step`.
        while self.step.0.load(Ordering::Acquire) != step {
            std::hint::spin_loop();
        }
    }

    fn end_step(&self, step: u32) {
        // Release: publishes this side's writes. Pairs with the Acquire in `await_step`.
        self.step.0.store(step + 1, Ordering::Release);
    }

    /// Runs participant `index` of two. The reader, 0, returns the nanoseconds per load.
    pub(super) fn chase(&self, index: usize) -> f64 {
        let count = self.ring.lines.len() as u32;
        let mut nanos = 0.0;
        for pass in 0..PASSES {
            let own = 2 * pass + u32::from(index == 0);
            self.await_step(own);
            if index == 0 {
                nanos += timed(count, || _ = black_box(self.ring.walk(0, count)));
            } else {
                for line in &self.ring.lines {
                    // Relaxed, both: the step orders the sides. The same value is stored; that is a
                    // write all the same.
                    line.0.store(line.0.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            self.end_step(own);
        }
        if index == 0 {
            // The last step has no waiter: the next repetition begins at the first. Relaxed: the
            // threads are started and joined in between.
            self.step.0.store(0, Ordering::Relaxed);
        }
        nanos / f64::from(PASSES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_visits_every_line_once() {
        for bytes in [256, 16 << 10, 5 << 20] {
            let mut ring = Ring::new(bytes);
            let count = ring.lines.len();
            let mut seen = vec![false; count];
            for _ in 0..count {
                assert!(!std::mem::replace(&mut seen[ring.at as usize], true), "twice in {count}");
                ring.at = ring.walk(ring.at, 1);
            }
            assert_eq!(ring.at, 0, "{count} lines, and around");
        }
    }
}
