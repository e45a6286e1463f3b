//! Whether the directory keeps its own invariants: for tests.

use super::super::line::{NO_THREAD, State};
#[cfg(test)]
use super::super::protocol;
use super::Directory;

impl Directory {
    /// Returns a line as `cpu` sees it, once nothing is under way to it.
    #[cfg(test)]
    pub(in crate::coherence) fn seen_by(&self, cpu: u32, line: u32) -> protocol::State {
        use protocol::State as Seen;
        let core = self.latencies.core_of(cpu);
        let entry = &self.lines[line as usize];
        match entry.state() {
            State::Uncached => Seen::Uncached,
            State::Owned(owner) if owner != core => {
                if entry.dirty {
                    Seen::OtherModified
                } else {
                    Seen::Other
                }
            }
            State::Owned(_) if entry.thread == NO_THREAD => Seen::Core,
            State::Owned(_) if u32::from(entry.thread) != cpu => Seen::Sibling,
            State::Owned(_) => {
                if entry.dirty {
                    Seen::OwnModified
                } else {
                    Seen::Own
                }
            }
            State::Shared => {
                if self.lacks(cpu, line) {
                    Seen::SharedByOthers
                } else {
                    Seen::Shared
                }
            }
        }
    }

    /// Panics when a line breaks an invariant of the module's documentation: for tests.
    ///
    /// # Panics
    /// As said.
    pub fn check(&self) {
        for (index, line) in self.lines.iter().enumerate() {
            let is_owned = matches!(line.state(), State::Owned(_));
            assert!(is_owned || line.thread == NO_THREAD, "line {index} has a writer and no owner");
            let Some(contended) = self.contended.get(line.contended as usize) else { continue };
            let valid: Vec<u32> = contended.copies.valid().collect();
            assert_eq!(contended.copies.count_valid() as usize, valid.len(), "line {index}: valid copies");
            assert_eq!(line.wanted, !contended.queue.is_empty(), "line {index}: whether somebody waits");
            match line.state() {
                State::Uncached => {}
                State::Owned(owner) => assert_eq!(valid, [owner], "line {index} is owned by one core"),
                State::Shared => assert!(valid.len() >= 2, "line {index} is shared by {valid:?}"),
            }
            if line.state() != State::Uncached {
                let mut domains: Vec<(u32, u32)> = Vec::new();
                for domain in 0..self.latencies.domains() {
                    let count = valid.iter().filter(|&&core| self.latencies.domain_of(core) == domain).count();
                    domains.extend((count > 0).then_some((domain as u32, count as u32)));
                }
                let known = contended.domains.iter().map(|copies| (copies.domain, copies.count));
                assert!(known.eq(domains.iter().copied()), "line {index}: copies in domains {domains:?}");
            }
        }
        self.check_places();
    }

    /// Every copy stands in a cache, and every cache has copies.
    fn check_places(&self) {
        let Some(caches) = &self.caches else { return };
        caches.check();
        for index in 0..self.lines.len() as u32 {
            for core in self.cores_with(index) {
                let domain = self.latencies.domain_of(core);
                let (in_core, in_level_3) = (caches.level(core, index).is_some(), caches.level_3(domain).has(index));
                assert!(in_core || in_level_3, "line {index}: the copy of core {core} is nowhere");
                let owned = matches!(self.lines[index as usize].state(), State::Owned(_));
                assert!(!(owned && in_core && in_level_3), "line {index}: core {core} has it, and level 3 too");
            }
        }
        for core in 0..self.latencies.cores() as u32 {
            for line in caches.of_core(core).lines() {
                assert!(self.cores_with(line).contains(&core), "core {core} has line {line} and no copy of it");
            }
        }
        for domain in 0..self.latencies.domains() {
            for line in caches.level_3(domain).lines() {
                let here = self.cores_with(line).iter().any(|&core| self.latencies.domain_of(core) == domain);
                assert!(here, "level 3 of domain {domain} has line {line} and nobody a copy of it");
            }
        }
    }
}
