//! The best of a few CPUs, on which a new fair task begins where CPUs keep the tasks that their own
//! tasks wake.
//!
//! **Claim.** Many tasks that one CPU or thread makes at once begin on all CPUs in turn. Tasks that
//! it makes one by one, each after the end of the last one, begin on the same CPU: what they need
//! is in that CPU's caches, and its thread has not gone to sleep yet. Each of them looks at a few
//! queues, however many CPUs there are.
//!
//! **Origin.** As an idle CPU chooses among queues: see [`CHOICES`]. Here the few are consecutive,
//! and the first one that idles is taken. A form of the original looks at all CPUs
//! ([`newcomer`](crate::fair::newcomer)).
//!
//! **Cost.** The lines with the task counts of a few queues: up to the first CPU that idles.

use hitm_memory::{CpuMask, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;
use crate::base::operation;
use crate::base::state::State;
use crate::base::stats::Count;
use crate::shipped::announce::CHOICES;

/// Returns the CPU for `id`, a fair task that was never queued and was made on `from`: the one that
/// the calling CPU has chosen last if that idles, else one of the few `active` CPUs after it.
pub(crate) fn select_new<P: Platform>(state: &State<P>, active: &CpuMask<P>, id: TaskId, from: CpuId) -> CpuId {
    let _placing = operation::PLACE.begin::<P>();
    state.stats.add(Count::Place);
    let (allowed, active) = (state.tasks.allowed(id).load(), active.load());
    let tasks_of = |cpu: CpuId| {
        state.stats.add(Count::Probe);
        state.rqs[cpu].nr_running.peek()
    };
    let last = state.last_choice();
    if allowed.contains(last) && active.contains(last) && tasks_of(last) == 0 {
        return last;
    }
    let mut best = None;
    for cpu in allowed.common_from(&active, state.after_last_choice()).take(CHOICES) {
        let tasks = tasks_of(cpu);
        if best.is_none_or(|(_, least)| tasks < least) {
            best = Some((cpu, tasks));
        }
        if tasks == 0 {
            break;
        }
    }
    let Some((cpu, _)) = best else { return from };
    state.note_choice(cpu);
    cpu
}
