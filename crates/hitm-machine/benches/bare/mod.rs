//! The bare loop: as many switches between as many stacks as a machine did, and one load for each
//! of its accesses, each at the place that the load before it named, in a table as large as the
//! machine's table of lines. No simulated machine of this kind can be faster.

// The machine's own stacks, whose tops are spread over cache sets.
#[expect(dead_code, reason = "a machine keeps stacks for the next one; this loop makes its own")]
#[path = "../../src/stack.rs"]
mod stack;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use corosensei::{Coroutine, CoroutineResult};

use self::stack::ColouredStack;

/// The multiplier of MMIX (Knuth 1997, 3.3.4): its period modulo a power of two is full.
const STEP: usize = 6_364_136_223_846_793_005;

/// The next of `0..size`, a power of two; `size` steps visit all.
fn next(at: usize, size: usize) -> usize {
    at.wrapping_mul(STEP).wrapping_add(1) & (size - 1)
}

/// Seconds of the bare loop.
pub(crate) fn seconds(stacks: u32, switches: u64, accesses: u64, table_bytes: usize) -> f64 {
    let entries = (table_bytes / hitm_memory::LINE).next_power_of_two().max(64);
    // An entry is a line of the host: what is loaded is the first word of it.
    let line = |at: usize| [next(at, entries), 0, 0, 0, 0, 0, 0, 0];
    let table: Rc<[[usize; 8]]> = (0..entries).map(line).collect();
    let place = Rc::new(Cell::new(0));
    let loads = Rc::new(Cell::new(0));
    let body = |cpu: u32| {
        let (table, place, loads) = (table.clone(), place.clone(), loads.clone());
        let stack = ColouredStack::new(cpu).expect("memory for a stack");
        Coroutine::<bool, (), (), _>::with_stack(stack, move |yielder, mut again| {
            while again {
                for _ in 0..loads.get() {
                    place.set(table[place.get()][0]);
                }
                again = yielder.suspend(());
            }
        })
    };
    let mut coroutines: Vec<_> = (0..stacks).map(body).collect();
    let begin = Instant::now();
    let (mut cpu, mut done) = (0, 0);
    for switch in 0..switches {
        let due = accesses * (switch + 1) / switches;
        loads.set(due - done);
        done = due;
        coroutines[cpu].resume(true);
        // Neither round robin, which a prefetcher knows, nor a draw that costs.
        cpu = (cpu + 181) % stacks as usize;
    }
    let seconds = begin.elapsed().as_secs_f64();
    std::hint::black_box(place.get());
    for mut coroutine in coroutines {
        let ended = coroutine.resume(false);
        assert!(matches!(ended, CoroutineResult::Return(())), "a stack was never used");
    }
    seconds
}
