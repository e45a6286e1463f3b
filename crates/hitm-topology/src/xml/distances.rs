//! Distance matrices.

use super::attributes::{Attributes, EXPORT_AGAIN, Fault};
use super::tree::Node;
use crate::draft::NodeDistances;
use crate::error::quote;
use crate::limits::MAX_NODES;

/// Bit of `kind` in format 2: the values are latencies (`HWLOC_DISTANCES_KIND_MEANS_LATENCY`,
/// hwloc/distances.h).
const KIND_LATENCY: u32 = 1 << 2;

/// A matrix that is being read.
pub(super) struct Matrix {
    /// Its offset in the file.
    pub(super) offset: usize,
    objects: usize,
    rows: Rows,
    values: Vec<f64>,
}

/// The objects of the rows and columns.
enum Rows {
    /// Format 1: all objects of a depth of the tree, in the order of the file. Values are multiples
    /// of `base`.
    Depth { depth: usize, base: f64 },
    /// Format 2 and 3: these nodes, by `os_index` or by `gp_index`.
    Nodes { indexes: Vec<u64>, by_os_index: bool, named: bool },
}

impl Matrix {
    /// Begins a matrix of format 1; `depth` is that of the enclosing object.
    pub(super) fn of_depth(attributes: &Attributes<'_>, offset: usize, depth: usize) -> Result<Option<Matrix>, Fault> {
        let objects = objects(attributes)?;
        attributes.require("relative_depth")?;
        attributes.require("latency_base")?;
        let relative: usize = attributes.number("relative_depth", "a number of levels")?.unwrap_or(0);
        let base = attributes.number("latency_base", "a number")?.unwrap_or(1.0);
        let rows = Rows::Depth { depth: depth.saturating_add(relative), base };
        Ok((objects <= MAX_NODES).then_some(Matrix { offset, objects, rows, values: Vec::new() }))
    }

    /// Begins a matrix of format 2 or 3; `None` when it has no latencies between nodes.
    pub(super) fn of_type(attributes: &Attributes<'_>, offset: usize) -> Result<Option<Matrix>, Fault> {
        attributes.require("kind")?;
        let kind: u32 = attributes.number("kind", "a number")?.unwrap_or(0);
        if attributes.require("type")? != "NUMANode" || kind & KIND_LATENCY == 0 {
            return Ok(None);
        }
        let objects = objects(attributes)?;
        if objects > MAX_NODES {
            let cause = format!("a distance matrix between {objects} nodes is larger than {MAX_NODES}");
            return Err((cause, "describe a machine with fewer nodes".to_string()));
        }
        let by_os_index = match attributes.get("indexing") {
            None | Some("os") => true,
            Some("gp") => false,
            Some(other) => {
                return Err((
                    format!("`indexing={}` is neither `os` nor `gp`", quote(other).trim_matches('`')),
                    EXPORT_AGAIN.into(),
                ));
            }
        };
        let named = attributes.get("name") == Some("NUMALatency");
        let rows = Rows::Nodes { indexes: Vec::new(), by_os_index, named };
        Ok(Some(Matrix { offset, objects, rows, values: Vec::new() }))
    }

    /// Adds one value of format 1.
    pub(super) fn push_latency(&mut self, attributes: &Attributes<'_>) -> Result<(), Fault> {
        attributes.require("value")?;
        let value = attributes.number("value", "a number")?.unwrap_or(f64::NAN);
        self.push_value(value)
    }

    /// Adds values of format 2, separated by blanks.
    pub(super) fn push_values(&mut self, text: &str) -> Result<(), Fault> {
        for word in text.split_ascii_whitespace() {
            let value = word
                .parse()
                .map_err(|_| (format!("the distance {} is not a number", quote(word)), EXPORT_AGAIN.to_string()))?;
            self.push_value(value)?;
        }
        Ok(())
    }

    fn push_value(&mut self, value: f64) -> Result<(), Fault> {
        if self.values.len() == self.objects * self.objects {
            return Err((self.surplus("values", self.objects * self.objects), EXPORT_AGAIN.to_string()));
        }
        self.values.push(value);
        Ok(())
    }

    /// Adds indices of format 2, separated by blanks.
    pub(super) fn push_indexes(&mut self, text: &str) -> Result<(), Fault> {
        for word in text.split_ascii_whitespace() {
            let index = word
                .parse()
                .map_err(|_| (format!("the index {} is not a number", quote(word)), EXPORT_AGAIN.to_string()))?;
            let Rows::Nodes { indexes, .. } = &mut self.rows else { return Ok(()) };
            if indexes.len() == self.objects {
                return Err((self.surplus("indices", self.objects), EXPORT_AGAIN.to_string()));
            }
            indexes.push(index);
        }
        Ok(())
    }

    fn surplus(&self, what: &str, most: usize) -> String {
        format!("the distance matrix has more {what} than the {most} of {} objects", self.objects)
    }

    /// Returns the suitability of the matrix as distances between all nodes; `None` if it is
    /// unsuitable.
    pub(super) fn rank(&self, nodes: &[Node]) -> Option<u32> {
        match &self.rows {
            Rows::Depth { depth, .. } => {
                let fits = self.objects == nodes.len() && nodes.iter().all(|node| node.depth == *depth);
                fits.then_some(0)
            }
            Rows::Nodes { named, .. } => Some(u32::from(*named)),
        }
    }

    /// Returns the matrix by the nodes' OS indices.
    pub(super) fn finish(self, nodes: &[Node]) -> Result<NodeDistances, Fault> {
        let export = |cause: String| (cause, EXPORT_AGAIN.to_string());
        let (rows, factor) = match self.rows {
            Rows::Depth { base, .. } => (nodes.iter().map(|node| node.os_index).collect(), base),
            Rows::Nodes { indexes, by_os_index, .. } => {
                if indexes.len() != self.objects {
                    let cause =
                        format!("the distance matrix has {} indices for {} objects", indexes.len(), self.objects);
                    return Err(export(cause));
                }
                let by_index = |&index: &u64| {
                    let node = nodes
                        .iter()
                        .find(|node| index == if by_os_index { u64::from(node.os_index) } else { node.gp_index });
                    node.map(|node| node.os_index)
                        .ok_or_else(|| export(format!("the distance matrix is about a node {index} that is not there")))
                };
                (indexes.iter().map(by_index).collect::<Result<Vec<u32>, Fault>>()?, 1.0)
            }
        };
        let values = self.values.into_iter().map(|value| value * factor).collect();
        NodeDistances::new(rows, values).map_err(export)
    }
}

fn objects(attributes: &Attributes<'_>) -> Result<usize, Fault> {
    attributes.require("nbobjs")?;
    Ok(attributes.number("nbobjs", "a number of objects")?.unwrap_or(0))
}
