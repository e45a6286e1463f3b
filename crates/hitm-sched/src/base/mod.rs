//! The mechanisms that the replica of Linux and hitm's own scheduler share: tasks, lists,
//! priorities, run queues, virtual time, numbers, counts. Nothing here names
//! [`linux`](crate::linux), [`shipped`](crate::shipped) or anything above them.

pub(crate) mod attributes;
pub(crate) mod cid;
pub(crate) mod fair_words;
pub(crate) mod id_allocator;
pub(crate) mod id_bits;
pub(crate) mod idle;
pub(crate) mod journal;
pub(crate) mod list;
pub(crate) mod members;
pub(crate) mod numbers;
pub(crate) mod operation;
pub(crate) mod prio;
mod pushable;
pub(crate) mod rq;
pub(crate) mod rt_queue;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod task;
pub(crate) mod task_table;
pub(crate) mod timeline;
mod tree;
pub(crate) mod upcalls;
pub(crate) mod weight;
