//! The numbers of tasks, groups and maps. Numbers are used again.

use std::fmt;

/// The number of a task. After a task has ended, a new task may get its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The maximum number of tasks that live at once.
pub const TASKS_MAX: usize = 1 << 20;

/// A group's number. Numbers are used again after a group has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl GroupId {
    /// Returns the link of a group: its number counted from 1; 0 for none.
    pub(crate) fn link(group: Option<Self>) -> u32 {
        group.map_or(0, |group| group.0 + 1)
    }

    /// Returns the group of a link.
    pub(crate) fn of_link(link: u32) -> Option<Self> {
        link.checked_sub(1).map(Self)
    }
}

/// The number of a map. A freed map's number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub u32);
