//! The fair class: tasks without a real-time priority share what the real-time ones leave, by
//! weight.
//!
//! **Claim.** Tasks that are queued on one CPU get of its fair time what their [weights](weight)
//! say, and none of them is ever further from that than about a slice. Whatever real-time tasks do,
//! a CPU with fair tasks that wait runs them for 50 ms of each second ([`server`]).
//!
//! **Origin.** Stoica and Abdel-Wahab, "Earliest eligible virtual deadline first", 1995, as Linux
//! has it since v6.6; the rules here are those of v6.12, with the slice of v6.15. A task's virtual
//! runtime grows by 1024 / weight of the time that it runs. It is *eligible* while that is not
//! above the queue's weighted average; of those that are, the one with the earliest virtual
//! deadline runs. A deadline is a slice, divided by the weight, after the virtual runtime at which
//! the slice began. How far a task is from the average, its *lag*, is kept while it sleeps, and
//! bounded.
//!
//! **What is left out.** Slices of a task's own, and with them the preemption for shorter slices;
//! idle-priority tasks; tasks that stay queued after they went to sleep until they are eligible
//! again (v6.12's delayed dequeue: here a lag below zero is kept over the sleep instead, as v6.6 to
//! v6.11 do); averages of load and utilisation but those of [groups](group), so balance counts
//! tasks and their weights. A difference: a slice ends by a timer of its own, where the original by
//! default ends it at the next tick.
//!
//! | file | holds |
//! |---|---|
//! | [`weight`] | nice levels and their weights |
//! | [`group`] | groups: their queues and entities, and the way up and down through them |
//! | [`load`] | averages that forget by halves |
//! | [`words`] | what stands in shared memory |
//! | [`tree`] | the tree that a queue keeps its tasks in |
//! | [`timeline`] | virtual time: who is eligible, who is next |
//! | [`class`] | what the scheduler's operations do with a fair task |
//! | [`server`] | what real-time tasks must leave |
//! | [`idle`] | where a task that wakes runs: the search for an idle CPU |
//! | [`newcomer`] | where a new task begins |
//! | [`places`] | what that search keeps |
//! | [`scan`] | the masks of that search |
//! | [`idle_mask`] | which CPUs idle, for searches that read that instead of queues |
//! | [`balance`] | CPUs with little to do get tasks of others |
//! | [`check`] | what must hold of all that |
//!
//! **Who pays.** All words are made when the first fair task is ([`class::Fair`]): a scheduler of
//! real-time tasks alone has none, and reads none.

pub mod weight;

pub mod group;

mod load;

pub mod words;

pub(crate) mod tree;

pub(crate) mod timeline;

pub(crate) mod class;

pub(crate) mod server;

pub mod idle;

pub(crate) mod places;

mod newcomer;

mod scan;

mod idle_mask;

mod balance;

pub mod check;
