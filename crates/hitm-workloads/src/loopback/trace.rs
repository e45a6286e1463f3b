//! The requests of a `tbench` client: the mix of operations in dbench 4.0's recorded trace.
//!
//! **Origin.** Counts and sizes are those of dbench 4.0's `client.txt` with 458,344 operations.
//! **Differences.** Messages are drawn independently by their share, while the trace has an order.
//! Names have 20 bytes, and a directory listing has 20 entries (assumptions: those of the trace
//! differ).

use super::socket::Message;
use crate::bursts::Bursts;

/// The mean counted payload per operation in bytes: the bytes read and written, divided by all
/// operations of the trace.
pub const COUNTED_BYTES: f64 = 5_428.0;

const NAME: usize = 20;
const ENTRIES: usize = 20;

/// The operations of fixed size: the count in the trace, the bytes of the request and the bytes of
/// the reply.
const FIXED: [(u32, usize, usize); 11] = [
    (79_230, 74 + 2 * NAME, 87),
    (71_814, 55 + 2 * NAME, 71),
    (58_200, 47, 39),
    (27_765, 59 + 2 * NAME, 39 + 90 * ENTRIES),
    (16_000, 43 + 2 * NAME, 39),
    (13_168, 59, 71),
    (12_585, 59, 71),
    (6_454, 71, 47),
    (5_553, 41, 39),
    (3_355, 47 + 4 * NAME, 39),
    (516, 51, 39),
];

/// The number of reads, and the reads of each size in thousandths; the rest are small.
const READS: u32 = 124_199;
const READ_SIZES: [(u32, usize); 6] = [(670, 4_096), (130, 61_440), (37, 2_048), (37, 8_192), (16, 16_384), (110, 512)];

/// The number of writes and their sizes, as for reads.
const WRITES: u32 = 39_502;
const WRITE_SIZES: [(u32, usize); 6] = [(320, 65_536), (250, 4_096), (190, 1), (40, 2_048), (30, 8_192), (170, 16_384)];

/// The mix: the request of each operation, with the cumulative count of the operations up to it.
#[derive(Clone, Debug)]
pub(super) struct Mix(Vec<(u64, Message)>);

impl Mix {
    pub(super) fn new() -> Self {
        let fixed = FIXED.iter().map(|&(count, bytes, wanted)| (count, Message { bytes, wanted }));
        let read = |&(share, size): &(u32, usize)| (READS * share / 1_000, Message { bytes: 59, wanted: 59 + size });
        let write = |&(share, size): &(u32, usize)| (WRITES * share / 1_000, Message { bytes: 59 + size, wanted: 55 });
        let all = fixed.chain(READ_SIZES.iter().map(read)).chain(WRITE_SIZES.iter().map(write));
        let mut sum = 0;
        let up_to = |(count, operation): (u32, Message)| {
            sum += u64::from(count);
            (sum, operation)
        };
        Self(all.map(up_to).collect())
    }

    pub(super) fn draw(&self, random: &mut Bursts) -> Message {
        let all = self.0.last().map_or(0, |&(sum, _)| sum);
        let drawn = random.below(all);
        self.0[self.0.partition_point(|&(sum, _)| sum <= drawn)].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_drawn_by_their_share() {
        let mix = Mix::new();
        let mut random = Bursts::new(1, 1, 1.0);
        let drawn: Vec<Message> = (0..100_000).map(|_| mix.draw(&mut random)).collect();
        let share = |is: fn(&Message) -> bool| drawn.iter().filter(|operation| is(operation)).count() as f64 / 1e5;
        assert!((share(|operation| operation.wanted == 59 + 4_096) - 0.271 * 0.67).abs() < 0.005);
        assert!((share(|operation| operation.wanted == 87) - 0.173).abs() < 0.005);
        assert!((share(|operation| operation.bytes == 59 + 65_536) - 0.086 * 0.32).abs() < 0.003);
    }

    #[test]
    fn sizes_are_near_those_of_the_trace() {
        let mean = |sizes: &[(u32, usize)]| {
            let sum: usize = sizes.iter().map(|&(share, size)| share as usize * size).sum();
            assert_eq!(sizes.iter().map(|&(share, _)| share).sum::<u32>(), 1_000);
            sum as f64 / 1_000.0
        };
        let (read, write) = (mean(&READ_SIZES), mean(&WRITE_SIZES));
        assert!((read / 11_853.0 - 1.0).abs() < 0.1, "{read}");
        assert!((write / 25_720.0 - 1.0).abs() < 0.1, "{write}");
        let fixed: u32 = FIXED.iter().map(|&(count, ..)| count).sum();
        let counted = (f64::from(READS) * read + f64::from(WRITES) * write) / f64::from(fixed + READS + WRITES);
        assert!((counted / COUNTED_BYTES - 1.0).abs() < 0.1, "{counted}");
    }
}
