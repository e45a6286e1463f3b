//! Layouts of the program's data that are tried: see [`hitm_machine::Arrangement`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use hitm_machine::{Arrangement, Piece, program};
use serde::Deserialize;

/// Memory of the program whose bytes lie elsewhere for the model.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Arranged {
    /// Where the variable begins; 0 for blocks of the heap.
    address: usize,
    /// Of blocks: the code that asks for them, or one of its callers.
    pc: usize,
    /// Bytes of the variable or the block.
    size: usize,
    /// From, bytes, to.
    pieces: Vec<(usize, usize, usize)>,
    /// Of what is split: from, bytes, and the part of each CPU.
    splits: Vec<(usize, usize, Vec<u32>)>,
    /// Whether all bytes stay where they are: what a layout is compared with, told in as many
    /// words, so that the program's own data lies at the same addresses.
    is_kept: bool,
}

/// The layouts of blocks of the heap, and the blocks that have one.
pub(crate) struct Layouts {
    of_blocks: Vec<(Arranged, Arc<Arrangement>)>,
    /// Size by address.
    present: RefCell<BTreeMap<usize, usize>>,
}

impl Layouts {
    /// Lays the variables out, on the machine that this thread has entered.
    ///
    /// # Errors
    /// When pieces are no arrangement of their memory.
    pub(crate) fn new(all: &[Arranged]) -> Result<Self, String> {
        let mut of_blocks = Vec::new();
        for own in all {
            let pieces = own.pieces.iter().map(|&(from, bytes, to)| {
                let to = if own.is_kept { from } else { to };
                Piece { from, bytes, to }
            });
            let pieces = pieces.collect();
            let arrangement = Arrangement::new(pieces).map_err(|error| error.to_string())?;
            if arrangement.size() != own.size {
                return Err(format!("its pieces have {} bytes, not {}", arrangement.size(), own.size));
            }
            let split = |all: Arrangement, (from, bytes, parts): &(usize, usize, Vec<u32>)| {
                all.split(*from, *bytes, parts.as_slice().into())
            };
            let splits = own.splits.iter().filter(|_| !own.is_kept);
            let arrangement = Arc::new(splits.fold(arrangement, split));
            if own.address == 0 {
                of_blocks.push((own.clone(), arrangement));
            } else {
                program::arrange(own.address, &arrangement);
            }
        }
        Ok(Self { of_blocks, present: RefCell::default() })
    }

    /// A block was made by these callers.
    pub(crate) fn begin(&self, address: usize, size: usize, pcs: &[usize]) {
        let made_here = |(own, _): &&(Arranged, Arc<Arrangement>)| own.size == size && pcs.contains(&own.pc);
        if let Some((_, arrangement)) = self.of_blocks.iter().find(made_here) {
            program::arrange(address, arrangement);
            self.present.borrow_mut().insert(address, size);
        }
    }

    /// A block is given back.
    pub(crate) fn end(&self, address: usize) {
        if let Some(size) = self.present.borrow_mut().remove(&address) {
            program::forget(address, address + size);
        }
    }
}
