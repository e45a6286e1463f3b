//! New layouts of an object: which fields leave their lines, and with which others.

use std::collections::BTreeSet;
use std::sync::Arc;

use hitm_machine::{Arrangement, Piece};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{Layout, Spot};

/// Bytes of a line.
const LINE: usize = hitm_memory::LINE;

/// A layout that differs from an object's own in some fields.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Plan {
    /// The object.
    pub object: String,
    /// The fields that leave their places. Each group starts a line; its fields follow each other.
    /// All other fields stay where they are.
    pub groups: Vec<Vec<String>>,
    /// Fields that each part of the machine has on a line of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Parts>,
}

/// Fields that are split.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Parts {
    /// The fields.
    pub fields: Vec<String>,
    /// The parts: `node`, `llc`, `core`.
    pub scope: String,
}

impl Plan {
    /// Returns where the bytes of an object of `size` bytes lie under this plan. `part_of` gives
    /// the part of each CPU, by the name of a scope.
    ///
    /// # Errors
    /// When it moves a field that the object does not have, or has twice.
    pub fn arrangement(
        &self,
        layout: &Layout,
        size: usize,
        part_of: &dyn Fn(&str) -> Arc<[u32]>,
    ) -> Result<Arrangement, String> {
        Self::combined(&[self], layout, size, part_of)
    }

    /// Returns where the bytes lie under several plans for one object. A group that an earlier plan
    /// has moved as well stays where that put it. What is split is split wherever it lies.
    ///
    /// # Errors
    /// As [`arrangement`](Self::arrangement), and when plans contradict each other: one moves some
    /// fields of a group to one line, and another only a part of them.
    pub fn combined(
        plans: &[&Self],
        layout: &Layout,
        size: usize,
        part_of: &dyn Fn(&str) -> Arc<[u32]>,
    ) -> Result<Arrangement, String> {
        let mut end = size.next_multiple_of(LINE);
        let mut moved: Vec<Piece> = Vec::new();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for plan in plans {
            for group in &plan.groups {
                match group.iter().filter(|name| known.contains(name.as_str())).count() {
                    0 => {}
                    count if count == group.len() => continue,
                    _ => return Err(format!("`{}`: two plans put `{}` on different lines", plan.object, group[0])),
                }
                let mut at = end;
                for name in group {
                    let spot = layout.fields.iter().find(|spot| spot.name == *name);
                    let spot = spot.ok_or_else(|| format!("`{}` has no field `{name}`", plan.object))?;
                    at = at.next_multiple_of(alignment(spot));
                    moved.push(Piece { from: spot.offset as usize, bytes: spot.bytes as usize, to: at });
                    at += spot.bytes as usize;
                }
                end = at.next_multiple_of(LINE);
            }
            known.extend(plan.moved().map(String::as_str));
        }
        moved.sort_by_key(|piece| piece.from);
        let object = &layout.object;
        let mut pieces = Vec::new();
        let mut next = 0;
        for piece in moved {
            if piece.from < next {
                return Err(format!("`{object}`: two fields that move overlap at byte {}", piece.from));
            }
            pieces.push(Piece { from: next, bytes: piece.from - next, to: next });
            next = piece.from + piece.bytes;
            pieces.push(piece);
        }
        pieces.push(Piece { from: next, bytes: size.saturating_sub(next), to: next });
        let mut arranged = Arrangement::new(pieces).map_err(|error| format!("`{object}`: {error}"))?;
        let mut divided: Vec<(usize, usize)> = Vec::new();
        for parts in plans.iter().filter_map(|plan| plan.split.as_ref()) {
            let parts_of = part_of(&parts.scope);
            for (from, bytes) in chunks(layout, &parts.fields) {
                if divided.iter().any(|&(other, length)| from < other + length && other < from + bytes) {
                    return Err(format!("`{object}`: two plans split byte {from}"));
                }
                divided.push((from, bytes));
                arranged = arranged.split(from, bytes, parts_of.clone());
            }
        }
        Ok(arranged)
    }

    /// Returns the fields that move.
    pub fn moved(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().flatten()
    }
}

/// Returns the bytes of fields, with neighbours of one line joined: start and number.
fn chunks(layout: &Layout, names: &[String]) -> Vec<(usize, usize)> {
    let mut chunks: Vec<(usize, usize)> = Vec::new();
    let mut is_joined = false;
    for spot in &layout.fields {
        let (from, bytes) = (spot.offset as usize, (spot.bytes as usize).min(LINE - spot.offset as usize % LINE));
        if !names.contains(&spot.name) {
            is_joined = false;
            continue;
        }
        match chunks.last_mut() {
            Some((start, all)) if is_joined && *start / LINE == from / LINE => *all = from + bytes - *start,
            _ => chunks.push((from, bytes)),
        }
        is_joined = true;
    }
    chunks
}

/// Returns the alignment of a field: that of its offset, but not more than its words need.
fn alignment(spot: &Spot) -> usize {
    let of_offset = 1_usize << spot.offset.trailing_zeros().min(4);
    of_offset.min(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let spot = |name: &str, offset, bytes| Spot { name: name.to_owned(), offset, bytes, is_used: true };
        let fields = vec![spot("a", 0, 8), spot("b", 8, 4), spot("c", 12, 4), spot("d", 16, 8)];
        Layout { object: "o".to_owned(), fields, ..Layout::default() }
    }

    #[test]
    fn groups_start_lines_and_the_rest_stays() {
        let groups = vec![vec!["d".into(), "b".into()], vec!["a".into()]];
        let plan = Plan { object: "o".to_owned(), groups, split: None };
        let arrangement = plan.arrangement(&layout(), 24, &|_| Arc::new([])).unwrap();
        assert_eq!([0, 8, 12, 16].map(|offset| arrangement.to(offset, 0)), [128, 72, 12, 64]);
        assert_eq!((arrangement.size(), arrangement.placed_size()), (24, 136));
    }

    #[test]
    fn neighbours_are_split_together() {
        let parts = Parts { fields: vec!["b".into(), "c".into()], scope: "node".into() };
        let plan = Plan { object: "o".to_owned(), groups: Vec::new(), split: Some(parts) };
        let arrangement = plan.arrangement(&layout(), 24, &|_| Arc::new([0, 1])).unwrap();
        assert_eq!([0, 1].map(|cpu| (arrangement.to(8, cpu), arrangement.to(12, cpu))), [(72, 76), (136, 140)]);
    }

    #[test]
    fn what_is_no_field_is_said() {
        let plan = |name: &str| Plan {
            object: "o".to_owned(),
            groups: vec![vec![name.into()], vec![name.into()]],
            split: None,
        };
        let part_of = |_: &str| -> Arc<[u32]> { Arc::new([]) };
        assert!(plan("e").arrangement(&layout(), 24, &part_of).unwrap_err().contains("has no field `e`"));
        assert!(plan("a").arrangement(&layout(), 24, &part_of).unwrap_err().contains("overlap"));
    }

    #[test]
    fn plans_are_combined_unless_they_contradict_each_other() {
        let part_of = |_: &str| -> Arc<[u32]> { Arc::new([0, 1]) };
        let moves = |groups: &[&[&str]]| Plan {
            object: "o".to_owned(),
            groups: groups.iter().map(|group| group.iter().map(|&name| name.to_owned()).collect()).collect(),
            split: None,
        };
        let split = |name: &str, scope: &str| Plan {
            split: Some(Parts { fields: vec![name.to_owned()], scope: scope.to_owned() }),
            ..moves(&[])
        };
        let places = |plans: &[&Plan]| {
            let arranged = Plan::combined(plans, &layout(), 24, &part_of)?;
            Ok::<_, String>([0, 8, 12, 16].map(|offset| (arranged.to(offset, 0), arranged.to(offset, 1))))
        };
        let both = places(&[&moves(&[&["a"]]), &moves(&[&["a"], &["d", "b"]])]).unwrap();
        assert_eq!(both, [64, 136, 12, 128].map(|to| (to, to)), "`a` stays where the first plan put it");
        let divided = places(&[&moves(&[&["a"]]), &split("d", "node")]).unwrap();
        assert_eq!(divided, [(64, 64), (8, 8), (12, 12), (144, 208)]);
        let whole = moves(&[&["a", "b"]]);
        assert!(places(&[&moves(&[&["a"]]), &whole]).unwrap_err().contains("different lines"));
        assert!(places(&[&split("d", "node"), &split("d", "llc")]).unwrap_err().contains("split byte 16"));
    }
}
