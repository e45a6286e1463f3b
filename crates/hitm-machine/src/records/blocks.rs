//! Many short lists in one vector: a list that grows moves to a larger block, and the next list of
//! its size takes the block that it leaves. A list takes four bytes beside its entries.

/// Bits of a [`Block`] for its size; the others are for its start, in pairs of entries.
const SIZE_BITS: u32 = 6;

/// Where a list lies, and how long it may become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block(u32);

impl Block {
    /// Of no entry.
    pub(super) const EMPTY: Self = Self(0);

    /// The number of entries of each size.
    // A table: it is asked for at each access.
    const ENTRIES: [u32; 1 << SIZE_BITS] = {
        let mut entries = [0; 1 << SIZE_BITS];
        let mut size = 0;
        // Larger ones have more entries than a number of one has bits for.
        while size < 62 {
            entries[size] = Self::entries_of(size as u32) as u32;
            size += 1;
        }
        entries
    };

    /// The number of entries of each size: 0, 2, 4, 6, 8, 12, 16, 24 and so on.
    const fn entries_of(size: u32) -> usize {
        match size {
            0 | 1 => 2 * size as usize,
            _ => (2 + (size as usize & 1)) << (size / 2),
        }
    }

    /// The smallest size with so many entries.
    fn size_for(entries: usize) -> u32 {
        let size = Self::ENTRIES.iter().position(|&of_size| of_size as usize >= entries);
        size.expect("fewer than 2^31 entries") as u32
    }

    #[inline]
    fn size(self) -> u32 {
        self.0 & ((1 << SIZE_BITS) - 1)
    }

    /// The index of its first entry among all.
    #[inline]
    pub(super) fn start(self) -> usize {
        (self.0 >> SIZE_BITS) as usize * 2
    }

    /// The number of entries.
    #[inline]
    pub(super) fn len(self) -> usize {
        Self::ENTRIES[self.size() as usize] as usize
    }
}

/// Blocks of entries.
#[derive(Clone, Debug)]
pub(super) struct Blocks<T> {
    all: Vec<T>,
    /// By size: blocks that lists have left.
    left: [Vec<Block>; 1 << SIZE_BITS],
    /// What an entry is that nothing was written to.
    unused: T,
}

impl<T: Copy> Blocks<T> {
    pub(super) fn new(unused: T) -> Self {
        // Two that nothing is written to: the empty block begins there.
        Self { all: vec![unused; 2], left: [const { Vec::new() }; 1 << SIZE_BITS], unused }
    }

    /// A block of at least so many unused entries.
    ///
    /// # Panics
    /// When there are 134 million entries.
    pub(super) fn take(&mut self, entries: usize) -> Block {
        if entries == 0 {
            return Block::EMPTY;
        }
        let size = Block::size_for(entries);
        if let Some(block) = self.left[size as usize].pop() {
            let unused = self.unused;
            self.of_mut(block).fill(unused);
            return block;
        }
        let start = self.all.len() / 2;
        assert!(start < 1 << (u32::BITS - SIZE_BITS), "the records of accesses are full");
        self.all.resize(self.all.len() + Block::entries_of(size), self.unused);
        Block((start as u32) << SIZE_BITS | size)
    }

    /// Moves a list to a block of at least so many entries, which is longer.
    pub(super) fn grow(&mut self, block: Block, entries: usize) -> Block {
        let grown = self.take(entries);
        self.all.copy_within(block.start()..block.start() + block.len(), grown.start());
        self.give_back(block);
        grown
    }

    /// The block holds no list any more.
    pub(super) fn give_back(&mut self, block: Block) {
        if block != Block::EMPTY {
            self.left[block.size() as usize].push(block);
        }
    }

    #[inline]
    pub(super) fn of(&self, block: Block) -> &[T] {
        &self.all[block.start()..][..block.len()]
    }

    #[inline]
    pub(super) fn of_mut(&mut self, block: Block) -> &mut [T] {
        &mut self.all[block.start()..][..block.len()]
    }

    /// Entry `index` of all: see [`Block::start`].
    #[inline]
    pub(super) fn entry(&self, index: usize) -> T {
        self.all[index]
    }

    /// Entry `index` of a block.
    #[inline]
    pub(super) fn at(&mut self, block: Block, index: usize) -> &mut T {
        debug_assert!(index < block.len(), "an entry outside its block");
        &mut self.all[block.start() + index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_a_half_at_most() {
        let sizes: Vec<usize> = (0..10).map(Block::entries_of).collect();
        assert_eq!(sizes, [0, 2, 4, 6, 8, 12, 16, 24, 32, 48]);
        for entries in 0..100 {
            let size = Block::size_for(entries);
            let smaller = size.checked_sub(1).map_or(0, Block::entries_of);
            assert!(Block::entries_of(size) >= entries && (entries == 0 || smaller < entries));
        }
    }

    #[test]
    fn a_list_that_grows_keeps_its_entries_and_leaves_its_block() {
        let mut blocks = Blocks::new(0_u32);
        let (one, two) = (blocks.take(3), blocks.take(2));
        blocks.of_mut(one).copy_from_slice(&[1, 2, 3, 4]);
        *blocks.at(two, 1) = 9;
        let grown = blocks.grow(one, 5);
        assert_eq!(blocks.of(grown), [1, 2, 3, 4, 0, 0]);
        let three = blocks.take(4);
        assert_eq!((blocks.of(three), blocks.of(two)), ([0; 4].as_slice(), [0, 9].as_slice()));
        assert_eq!(blocks.all.len(), 14, "the third list has the block of the first");
        let none = blocks.take(0);
        assert_eq!((blocks.of(none).len(), blocks.all.len()), (0, 14));
    }
}
