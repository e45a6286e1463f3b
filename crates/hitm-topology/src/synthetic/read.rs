//! From levels to a machine.

use super::indexes;
use super::kind::{self, Kind};
use super::scan::{Level, Scanned, scan};
use crate::draft::{Draft, DraftCpu};
use crate::error::{Error, Place};
use crate::limits::{MAX_NODES, MAX_OS_INDEX};
use crate::topology::Topology;

/// Returns the machine that a synthetic string describes.
pub(crate) fn read(text: &str) -> Result<Topology, Error> {
    let mut scanned = scan(text)?;
    settle_kinds(text, &mut scanned)?;
    let machine = Machine::new(text, &scanned)?;
    let cpus = (0..machine.pus).map(|pu| machine.cpu(pu)).collect();
    let draft = Draft {
        name: text.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        source: "hwloc synthetic string".to_string(),
        model: None,
        family: None,
        excluded: 0,
        cpus,
        distances: None,
    };
    draft.finish(text)
}

/// Gives every level its type, and checks that the types make a machine.
fn settle_kinds(text: &str, scanned: &mut Scanned<'_>) -> Result<(), Error> {
    let fail = |offset: usize, cause: &str, remedy: &str| Err(Error::new(text, Place::Offset(offset), cause, remedy));
    let nodes_attached = scanned.nodes_attached > 0;
    let Some((last, inner)) = scanned.levels[1..].split_last_mut() else {
        return fail(text.len(), "the string has no level", "write at least a number of CPUs");
    };
    let untyped = inner.iter().filter(|level| level.kind.is_none()).count();
    if untyped == inner.len() {
        for (level, kind) in inner.iter_mut().zip(kind::by_count(untyped, nodes_attached)) {
            level.kind = Some(kind);
        }
    } else if let Some(level) = inner.iter().find(|level| level.kind.is_none()) {
        return fail(level.offset, "levels with and without a type are mixed", "give every level a type, or none");
    }
    last.kind.get_or_insert(Kind::Pu);
    if last.kind != Some(Kind::Pu) {
        // hwloc refuses a string without the last `pu:1`.
        let (offset, total) = (text.len(), last.total);
        scanned.levels.push(Level { offset, kind: Some(Kind::Pu), total, indexes: None, attached: 0 });
    }
    let levels = &scanned.levels[1..];
    for (at, level) in levels.iter().enumerate() {
        if level.kind == Some(Kind::Pu) && at + 1 < levels.len() {
            return fail(level.offset, "the `pu` level is not the last", "move it to the end");
        }
        if level.kind != Some(Kind::Group) && levels[..at].iter().any(|other| other.kind == level.kind) {
            return fail(
                level.offset,
                "a level of the same type stands further left",
                "use every type once, or `group`",
            );
        }
        if level.kind == Some(Kind::Node) && nodes_attached {
            return fail(level.offset, "nodes are a level and attached as well", "use one of the two");
        }
    }
    Ok(())
}

/// The levels by their meaning in this crate.
struct Machine<'a> {
    pus: usize,
    pu_indexes: Option<Vec<u32>>,
    package: Option<&'a Level<'a>>,
    llc: Option<&'a Level<'a>>,
    core: Option<&'a Level<'a>>,
    /// The objects whose CPUs share a node, and the OS index of each one's node.
    node: Option<(&'a Level<'a>, Vec<u32>)>,
}

impl<'a> Machine<'a> {
    fn new(text: &str, scanned: &'a Scanned<'a>) -> Result<Machine<'a>, Error> {
        let levels = &scanned.levels;
        let by_kind = |kind: Kind| levels.iter().find(|level| level.kind == Some(kind));
        let resolve = |level: &Level<'_>, at: usize| {
            level.indexes.map(|indexes| indexes::resolve(text, indexes, level.total, &levels[..at])).transpose()
        };
        for (at, level) in levels.iter().enumerate() {
            resolve(level, at)?;
        }
        let pus = &levels[levels.len() - 1];
        let node = match levels.iter().position(|level| level.kind == Some(Kind::Node)) {
            Some(at) => {
                let level = &levels[at];
                check_nodes(text, level.offset, level.total)?;
                Some((level, resolve(level, at)?.unwrap_or_else(|| (0..level.total as u32).collect())))
            }
            None => attached_nodes(text, scanned)?,
        };
        Ok(Machine {
            pus: pus.total,
            pu_indexes: resolve(pus, levels.len() - 1)?,
            package: by_kind(Kind::Package),
            llc: llc_level(levels),
            core: by_kind(Kind::Core),
            node,
        })
    }

    fn cpu(&self, pu: usize) -> DraftCpu {
        let part = |level: Option<&Level<'_>>, without: usize| {
            level.map_or(without, |level| pu / (self.pus / level.total)) as u32
        };
        let package = part(self.package, 0);
        DraftCpu {
            os_index: self.pu_indexes.as_ref().map_or(pu as u32, |indexes| indexes[pu]),
            core: part(self.core, pu),
            llc: part(self.llc, package as usize),
            node: self.node.as_ref().map_or(0, |(level, indexes)| indexes[part(Some(level), 0) as usize]),
            package,
        }
    }
}

fn check_nodes(text: &str, offset: usize, nodes: usize) -> Result<(), Error> {
    if nodes > MAX_NODES {
        let cause = format!("there are more than {MAX_NODES} nodes");
        return Err(Error::new(text, Place::Offset(offset), cause, "describe a machine with fewer nodes"));
    }
    Ok(())
}

/// Returns the L3 level, else the highest of the other data and unified caches.
fn llc_level<'a>(levels: &'a [Level<'a>]) -> Option<&'a Level<'a>> {
    let rank = |level: &&Level<'_>| match level.kind {
        Some(Kind::Cache { level: 3, instruction: false }) => Some(u32::MAX),
        Some(Kind::Cache { level, instruction: false }) => Some(level),
        _ => None,
    };
    levels.iter().filter(|level| rank(level).is_some()).max_by_key(rank)
}

/// Returns the innermost level with attached nodes, and for each of its objects the lowest OS index
/// of a node attached to it.
fn attached_nodes<'a>(text: &str, scanned: &'a Scanned<'a>) -> Result<Option<(&'a Level<'a>, Vec<u32>)>, Error> {
    let Some(innermost) = scanned.levels.iter().rposition(|level| level.attached > 0) else {
        return Ok(None);
    };
    let total = scanned.nodes_attached;
    let indexes = match scanned.attached_indexes {
        // Counting over levels applies to one level, and these nodes belong to several.
        Some(indexes) => indexes::resolve(text, indexes, total, &[])?,
        None => (0..total as u32).collect(),
    };
    debug_assert!(indexes.iter().all(|&index| index <= MAX_OS_INDEX));
    let level = &scanned.levels[innermost];
    // Nodes are numbered object by object, those attached further inside before those of the object
    // itself.
    let mut nodes = vec![u32::MAX; level.total];
    let mut next = 0;
    for (object, node) in nodes.iter_mut().enumerate() {
        for _ in 0..level.attached {
            *node = (*node).min(indexes[next]);
            next += 1;
        }
        for outer in scanned.levels[..innermost].iter().rev() {
            if (object + 1).is_multiple_of(level.total / outer.total) {
                next += outer.attached;
            }
        }
    }
    Ok(Some((level, nodes)))
}
