//! The cores with a copy of a contended line, and the invalidators of the others' copies.

use super::{AccessId, NO_ACCESS};

/// Cores in a list that is searched; beyond it, a table by core. Two or three cores touch most
/// lines.
const LISTED: usize = 12;

/// The state of one core's copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    core: u32,
    valid: bool,
    /// The access that invalidated it, while it is not valid.
    invalidator: AccessId,
    /// When it arrived, while it is valid.
    since: u64,
}

/// The copies of one line.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// A list of cores, or a table by core once there are more than [`LISTED`].
    known: Vec<Copy>,
    cores: usize,
    /// The cores whose copies are valid.
    valid: Vec<u32>,
}

impl Copies {
    /// A line that `core` has alone since `since`, on a machine of `cores`.
    pub(super) fn new(cores: usize, core: u32, since: u64) -> Self {
        let copy = Copy { core, valid: true, invalidator: NO_ACCESS, since };
        Self { known: vec![copy], cores, valid: vec![core] }
    }

    fn is_table(&self) -> bool {
        self.known.len() > LISTED
    }

    fn find(&self, core: u32) -> Option<&Copy> {
        if self.is_table() {
            return Some(&self.known[core as usize]);
        }
        self.known.iter().find(|copy| copy.core == core)
    }

    fn entry(&mut self, core: u32) -> &mut Copy {
        let absent = |core| Copy { core, valid: false, invalidator: NO_ACCESS, since: 0 };
        if self.is_table() {
            return &mut self.known[core as usize];
        }
        if let Some(index) = self.known.iter().position(|copy| copy.core == core) {
            return &mut self.known[index];
        }
        if self.known.len() < LISTED.min(self.cores) {
            self.known.push(absent(core));
            return self.known.last_mut().expect("just pushed");
        }
        // A table is longer than any list, also on a machine of few cores.
        let mut table: Vec<Copy> = (0..self.cores.max(LISTED + 1) as u32).map(absent).collect();
        for copy in &self.known {
            table[copy.core as usize] = *copy;
        }
        self.known = table;
        &mut self.known[core as usize]
    }

    /// Returns since when `core` has a valid copy.
    pub(super) fn since(&self, core: u32) -> Option<u64> {
        self.find(core).filter(|copy| copy.valid).map(|copy| copy.since)
    }

    /// Returns the access that invalidated the copy of `core`.
    pub(super) fn invalidator(&self, core: u32) -> AccessId {
        self.find(core).map_or(NO_ACCESS, |copy| copy.invalidator)
    }

    /// Returns the cores with a valid copy.
    pub(super) fn valid(&self) -> &[u32] {
        &self.valid
    }

    /// `core` gets a copy at `since`.
    pub(super) fn add(&mut self, core: u32, since: u64) {
        let copy = self.entry(core);
        debug_assert!(!copy.valid, "core {core} had a copy");
        (copy.valid, copy.since, copy.invalidator) = (true, since, NO_ACCESS);
        self.valid.push(core);
    }

    /// `core` has no valid copy any more, and no store invalidated it.
    pub(super) fn drop(&mut self, core: u32) {
        let copy = self.entry(core);
        debug_assert!(copy.valid, "core {core} had no copy");
        (copy.valid, copy.invalidator) = (false, NO_ACCESS);
        self.valid.retain(|&known| known != core);
    }

    /// `core` gets the only copy at `since`; `invalidator` invalidates all others.
    pub(super) fn take(&mut self, core: u32, since: u64, invalidator: AccessId) {
        for index in 0..self.valid.len() {
            let loser = self.valid[index];
            let copy = self.entry(loser);
            (copy.valid, copy.invalidator) = (false, invalidator);
        }
        self.valid.clear();
        let copy = self.entry(core);
        (copy.valid, copy.since, copy.invalidator) = (true, since, NO_ACCESS);
        self.valid.push(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_into_a_table_and_forgets_nothing() {
        let mut copies = Copies::new(40, 7, 1);
        for core in (0..40).filter(|&core| core != 7) {
            copies.add(core, u64::from(core) + 100);
        }
        assert_eq!(copies.valid().len(), 40);
        assert_eq!((copies.since(7), copies.since(39)), (Some(1), Some(139)));
        copies.take(3, 500, 77);
        assert_eq!(copies.valid(), [3]);
        assert_eq!((copies.since(3), copies.since(7)), (Some(500), None));
        assert_eq!((copies.invalidator(3), copies.invalidator(7), copies.invalidator(39)), (NO_ACCESS, 77, 77));
    }

    #[test]
    fn a_copy_that_is_dropped_was_not_taken() {
        let mut copies = Copies::new(4, 0, 1);
        copies.add(1, 2);
        copies.add(2, 3);
        copies.drop(1);
        assert_eq!((copies.valid(), copies.since(1), copies.invalidator(1)), ([0, 2].as_slice(), None, NO_ACCESS));
        copies.add(1, 9);
        assert_eq!(copies.since(1), Some(9));
    }

    #[test]
    fn a_machine_of_few_cores_stays_a_list() {
        let mut copies = Copies::new(2, 0, 0);
        copies.take(1, 1, 5);
        copies.take(0, 2, 6);
        assert_eq!((copies.invalidator(1), copies.valid()), (6, [0].as_slice()));
        assert!(!copies.is_table());
    }
}
