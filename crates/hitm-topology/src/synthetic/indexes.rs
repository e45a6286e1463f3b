//! OS indices of a level: a list, or an order of counting over the levels above.

use super::kind;
use super::scan::{IndexText, Level};
use crate::error::{Error, Place, quote};
use crate::limits::MAX_OS_INDEX;

/// One loop of an interleaving: `count` objects that are `step` apart.
#[derive(Clone, Copy)]
struct Loop {
    step: usize,
    count: usize,
}

/// Returns the OS index of each of the `total` objects of a level, in the order of the machine.
///
/// `above` are the levels above this one, the machine first.
pub(super) fn resolve(
    input: &str,
    indexes: IndexText<'_>,
    total: usize,
    above: &[Level<'_>],
) -> Result<Vec<u32>, Error> {
    let resolver = Resolver { input, indexes, total };
    let text = indexes.text;
    let list = text.bytes().all(|b| b.is_ascii_digit() || b == b',');
    let values = if list {
        resolver.list()?
    } else {
        let loops =
            if text.starts_with(|c: char| c.is_ascii_digit()) { resolver.loops()? } else { resolver.types(above)? };
        resolver.interleave(loops)?
    };
    let mut sorted = values.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => resolver.fail(
            indexes.text,
            format!("index {} comes twice", pair[0]),
            "give every object an index of its own",
        ),
        None => Ok(values),
    }
}

struct Resolver<'a> {
    input: &'a str,
    indexes: IndexText<'a>,
    total: usize,
}

impl<'a> Resolver<'a> {
    /// Returns an error at `part`, which is a piece of the attribute's own text.
    fn fail<T>(&self, part: &str, cause: impl Into<String>, remedy: &str) -> Result<T, Error> {
        let inside = (part.as_ptr() as usize).wrapping_sub(self.indexes.text.as_ptr() as usize);
        Err(Error::new(self.input, Place::Offset(self.indexes.offset + inside), cause, remedy))
    }

    /// Reads a list such as `0,2,1,3`.
    fn list(&self) -> Result<Vec<u32>, Error> {
        let mut values = Vec::new();
        for part in self.indexes.text.split(',') {
            match part.parse::<u32>() {
                Ok(value) if value <= MAX_OS_INDEX => values.push(value),
                Ok(_) => {
                    return self.fail(part, format!("index {part} is above {MAX_OS_INDEX}"), "use smaller indices");
                }
                Err(_) => {
                    return self.fail(
                        part,
                        format!("{} is no index", quote(part)),
                        "write numbers separated by commas",
                    );
                }
            }
        }
        if values.len() != self.total {
            let cause = format!("{} indices are given where the level has {} objects", values.len(), self.total);
            return self.fail(self.indexes.text, cause, "give one index for each object");
        }
        Ok(values)
    }

    /// Reads loops such as `4*2:1*4`.
    fn loops(&self) -> Result<Vec<Loop>, Error> {
        let mut loops = Vec::new();
        for part in self.indexes.text.split(':') {
            let number = |text: &str| text.parse().ok().filter(|value| (1..=self.total).contains(value));
            let pair = part.split_once('*').and_then(|(step, count)| Some((number(step)?, number(count)?)));
            let Some((step, count)) = pair else {
                let cause = format!("{} is no loop over {} objects", quote(part), self.total);
                return self.fail(part, cause, "write step and count of each loop, as in `4*2:1*4`");
            };
            loops.push(Loop { step, count });
        }
        Ok(loops)
    }

    /// Reads types such as `numa:core`.
    fn types(&self, above: &[Level<'_>]) -> Result<Vec<Loop>, Error> {
        let mut chosen: Vec<usize> = Vec::new();
        for part in self.indexes.text.split(':') {
            let kind = kind::by_name(part);
            let level = above.iter().position(|level| kind.is_some() && level.kind == kind);
            let Some(level) = level else {
                let cause = format!("there is no level of type {} above", quote(part));
                return self.fail(part, cause, "name a level that stands further left");
            };
            if chosen.contains(&level) {
                return self.fail(part, format!("{} comes twice", quote(part)), "name every level once");
            }
            chosen.push(level);
        }
        let loops = chosen.iter().map(|&level| {
            let outer = chosen.iter().copied().filter(|&other| other < level).max().unwrap_or(0);
            Loop { step: self.total / above[level].total, count: above[level].total / above[outer].total }
        });
        Ok(loops.collect())
    }

    /// Counts over the loops in turn, the first one fastest.
    fn interleave(&self, mut loops: Vec<Loop>) -> Result<Vec<u32>, Error> {
        let covered = loops.iter().fold(1usize, |product, one| product.saturating_mul(one.count));
        let smallest = loops.iter().map(|one| one.step).min().unwrap_or(self.total);
        if covered != self.total {
            // The innermost loop may be left out.
            if !self.total.is_multiple_of(covered) || smallest != self.total / covered {
                let cause = format!("the loops cover {covered} objects where the level has {}", self.total);
                return self.fail(self.indexes.text, cause, "make the counts multiply to that number");
            }
            loops.push(Loop { step: 1, count: smallest });
        }
        let value = |object: usize| {
            let (value, _) = loops.iter().fold((0, 1), |(value, weight), one| {
                (value + object / one.step % one.count * weight, weight * one.count)
            });
            value as u32
        };
        Ok((0..self.total).map(value).collect())
    }
}
