//! The fair class: tasks without a real-time priority share the time that real-time tasks leave, by
//! weight.
//!
//! **Claim.** Tasks that are queued on one CPU get the part of its fair time that their
//! [weights](crate::base::weight) give, and each is at most about the longest slice away from it;
//! the tasks of a group may run [by deadline](crate::base::timeline) instead. Whatever real-time
//! tasks do, a CPU on which fair tasks wait runs them for 50 ms of each second ([`server`]).
//!
//! **Origin.** Stoica and Abdel-Wahab, "Earliest eligible virtual deadline first", 1995, as Linux
//! has it since v6.6; the rules are those of v6.12, with the slice of v6.15. A task's virtual
//! runtime grows by 1024 / weight of the time that it runs. A task is *eligible* while its virtual
//! runtime is at most the queue's weighted average. Of the eligible tasks, the one with the
//! earliest virtual deadline runs. A deadline is the virtual runtime at the start of the slice plus
//! the slice divided by the weight. The distance of a task from the average, its *lag*, is kept
//! while the task sleeps, and bounded.
//!
//! **What is left out.** Slices per task: a [group](group::slice) may have one. Idle-priority tasks.
//! Delayed dequeue, v6.12's way to keep a sleeping task queued until it is eligible: a negative lag
//! is kept over the sleep instead, as in v6.6 to v6.11. Only where groups have slices, the negative
//! lag of a group shrinks while it sleeps. Load and utilisation averages, apart from those of
//! [groups](group): balance counts tasks and their weights. One difference: a slice ends at a timer
//! of its own; in the original it ends by default at the next tick.
//!
//! | file | contents |
//! |---|---|
//! | [`class`] | the type [`Fair`](class::Fair), and the scheduler's operations on a fair task |
//! | [`group`] | the type [`Groups`](group::Groups): what groups have on each CPU, and their limits |
//! | [`levels`] | the way up and down through a CPU's queue and the queues of its groups |
//! | [`weigh`] | the weights of groups' entities |
//! | [`throttle`] | groups that have used up their quota |
//! | [`server`] | the time that real-time tasks must leave |
//! | [`select`] | where a waking task runs, by one of the searches of [`idle`] |
//! | [`newcomer`] | where a new task begins |
//! | [`offered`] | tasks that wait in the ring of their CPU |
//! | [`idleness`] | what a CPU records when it begins to idle and when it stops |
//! | [`balance`] | CPUs with little to do pull tasks of others |
//! | [`check`] | the invariants of all of these |
//!
//! **Roles.** The scheduler calls methods of `Fair` and `Groups`, and passes what they work on: the
//! queues and tasks ([`State`](crate::base::state::State)), the root domain, the ids. What concerns
//! tasks of any class, such as a move to another CPU, they ask of it by
//! [`Upcalls`](crate::base::upcalls::Upcalls).
//!
//! [`base`](crate::base) has what is below: nice levels and weights, the words, the tree of a
//! queue's tasks, and [virtual time](crate::base::timeline).
//!
//! **Memory.** All words are made when the first fair task is made ([`class::Fair`]): a scheduler
//! of real-time tasks alone has none and reads none.

mod balance;
pub(crate) mod check;
pub(crate) mod class;
pub(crate) mod group;
pub(crate) mod idle;
mod idleness;
mod levels;
pub(crate) mod newcomer;
pub(crate) mod offered;
mod select;
mod server;
mod throttle;
mod weigh;
