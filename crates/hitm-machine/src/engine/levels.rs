//! Where caches have sizes: which level serves an access, who idles, and which package a page
//! belongs to.

use hitm_memory::{LINE, Mapping, PathCost};

use super::Engine;
use crate::coherence::{Distance, Grant, Kind, Level};

/// Bytes of a page: the smallest of x86, which Linux gives out one at a time.
const PAGE: usize = 4 << 10;

impl Engine {
    /// When the current CPU goes on after an access that finds its `line` at `clock`.
    #[inline]
    pub(super) fn look_up(&mut self, kind: Kind, line: u32, clock: u64) -> Option<u64> {
        if self.directory.has_capacity() {
            return self.look_up_by_level(kind, line, clock);
        }
        self.directory.hit(self.current, line, kind, clock)
    }

    /// The same where that depends on the level. Loads that level 2 serves overlap with each other
    /// and with misses, as misses do.
    #[inline(never)]
    fn look_up_by_level(&mut self, kind: Kind, line: u32, clock: u64) -> Option<u64> {
        let (done, level) = self.directory.hit_by_level(self.current, line, kind, clock)?;
        if level == Level::One {
            return Some(done);
        }
        if self.is_measured(clock) {
            self.served.level_2 += 1;
        }
        let lead = if kind == Kind::Load { self.cpu().window.miss(clock) } else { 0 };
        let least = clock + self.directory.latencies().cost_of_hit(kind);
        Some(done.saturating_sub(lead).max(least))
    }

    /// Whether a store of CPU `number` finds its line at `now`.
    pub(super) fn store_finds(&mut self, number: u32, line: u32, now: u64) -> bool {
        if !self.directory.has_capacity() {
            return self.directory.hit(number, line, Kind::Store, now).is_some();
        }
        // It was counted when it was issued.
        self.directory.hit_by_level(number, line, Kind::Store, now).is_some()
    }

    /// Whether it is certain ahead of the others which level serves the current CPU: level 1 of a
    /// core that no other thread uses and that has asked for nothing. Any other access takes part
    /// in what goes first when there is no room.
    pub(super) fn is_sure_of_level(&self, line: u32) -> bool {
        let alone = self.other_threads[self.current as usize].is_empty();
        alone && self.cpus[self.current as usize].stores.is_empty() && self.directory.is_in_level_1(self.current, line)
    }

    /// Whether `time` is in the measured stretch.
    fn is_measured(&self, time: u64) -> bool {
        (self.measured.0..=self.measured.1).contains(&time)
    }

    /// A miss that is counted was served.
    pub(super) fn count_served(&mut self, grant: &Grant) {
        let miss = &grant.miss;
        let served = &mut self.served;
        *match miss.distance {
            Distance::Memory | Distance::RemoteMemory => &mut served.memory,
            Distance::SameCore | Distance::SameLlc if miss.level_3 => &mut served.level_3,
            _ if miss.level_3 => &mut served.other_level_3,
            _ => &mut served.cores,
        } += 1;
    }

    /// The memory in `start..end` is touched for the first time, by the current CPU, which acts
    /// before everybody else: a page fault for each page of it. Out of deep idle the kernel's own
    /// lines and the translations of addresses are cold.
    pub(crate) fn first_touch(&mut self, start: usize, end: usize, mapping: Mapping) {
        let path = match mapping {
            Mapping::Anonymous => PathCost::PageFault,
            Mapping::PrivateFile => PathCost::PageCopy,
        };
        let is_cold = self.directory.is_cold(self.current, self.clock());
        let factor = if is_cold { self.paths.cold_fault_factor } else { 1.0 };
        for _ in 0..(end - start).div_ceil(PAGE) {
            self.charge_times(path, factor);
        }
        let (number, now) = (self.current, self.clock());
        let latencies = self.directory.latencies();
        let home = latencies.package_of(latencies.domain_of(latencies.core_of(number))) as u16;
        for line in start / LINE..end.div_ceil(LINE) {
            let line = self.extent.line_of(line * LINE);
            let Some(line) = line.filter(|&line| !self.is_free(line)) else { continue };
            self.directory.first_touch(line, number, home, now);
        }
    }
}
