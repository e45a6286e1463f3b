//! The types of levels.

/// The type of a level's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Groups, tiles and modules, which have no counterpart in this crate.
    Group,
    Package,
    Die,
    Node,
    Cache {
        level: u32,
        instruction: bool,
    },
    Core,
    Pu,
}

const L3: Kind = Kind::Cache { level: 3, instruction: false };
const L2: Kind = Kind::Cache { level: 2, instruction: false };
const L1: Kind = Kind::Cache { level: 1, instruction: false };
const L1I: Kind = Kind::Cache { level: 1, instruction: true };

/// The shortest abbreviation that hwloc accepts.
const ABBREVIATION_MIN: usize = 2;

/// Returns the type of a name or its abbreviation.
pub(super) fn by_name(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    let is = |word: &str| name.len() >= ABBREVIATION_MIN && word.starts_with(&name);
    if is("numanode") || is("node") {
        Some(Kind::Node)
    } else if is("package") || is("socket") {
        Some(Kind::Package)
    } else if is("die") {
        Some(Kind::Die)
    } else if is("core") {
        Some(Kind::Core)
    } else if is("pu") {
        Some(Kind::Pu)
    } else if is("tile") || is("module") || is("group") || is_numbered_group(&name) {
        Some(Kind::Group)
    } else {
        cache(&name)
    }
}

/// Whether a name is like `group0` or `group12`: hwloc numbers groups by their depth.
fn is_numbered_group(name: &str) -> bool {
    name.strip_prefix("group").is_some_and(|digits| digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the cache of a name like `l1`, `l3u` or `l1icache`, in lower case.
fn cache(name: &str) -> Option<Kind> {
    let rest = name.strip_prefix('l')?;
    let level = rest.chars().next()?.to_digit(10)?;
    let mut rest = &rest[1..];
    let mut instruction = false;
    for suffix in ['i', 'd', 'u'] {
        if let Some(after) = rest.strip_prefix(suffix) {
            instruction = suffix == 'i';
            rest = after;
            break;
        }
    }
    let levels = if instruction { 1..=3 } else { 1..=5 };
    (levels.contains(&level) && "cache".starts_with(rest)).then_some(Kind::Cache { level, instruction })
}

/// Returns the types of levels written as bare numbers, from the outermost to the one above the
/// PUs.
///
/// hwloc fills the available levels in this order of importance: a node (unless nodes are
/// attached), a package, a core, L2, L1, L3, L1i, groups.
pub(super) fn by_count(levels: usize, nodes_attached: bool) -> Vec<Kind> {
    let mut left = levels;
    let mut take = |most: usize| {
        let taken = left.min(most);
        left -= taken;
        taken
    };
    let nodes = take(usize::from(!nodes_attached));
    let packages = take(1);
    let cores = take(1);
    let caches: &[Kind] = match take(4) {
        0 => &[],
        1 => &[L2],
        2 => &[L2, L1],
        3 => &[L3, L2, L1],
        _ => &[L3, L2, L1, L1I],
    };
    let groups = left;
    let mut kinds = vec![Kind::Group; groups];
    kinds.extend(vec![Kind::Package; packages]);
    kinds.extend(vec![Kind::Node; nodes]);
    kinds.extend(caches);
    kinds.extend(vec![Kind::Core; cores]);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_short_and_in_any_case() {
        for name in ["pa", "Package", "SOCKET", "so"] {
            assert_eq!(by_name(name), Some(Kind::Package), "{name}");
        }
        for name in ["nu", "numa", "NUMANode", "node", "no"] {
            assert_eq!(by_name(name), Some(Kind::Node), "{name}");
        }
        for name in ["l3", "L3u", "L3Cache", "l3ucache"] {
            assert_eq!(by_name(name), Some(L3), "{name}");
        }
        assert_eq!(by_name("L1iCache"), Some(L1I));
        assert_eq!(by_name("Group12"), Some(Kind::Group));
        for name in ["", "p", "packages", "l", "l0", "l6", "l4i", "l3x", "machine", "misc", "memcache", "groupx"] {
            assert_eq!(by_name(name), None, "{name}");
        }
    }

    #[test]
    fn bare_numbers_get_types_by_importance() {
        assert_eq!(by_count(0, false), []);
        assert_eq!(by_count(1, false), [Kind::Node]);
        assert_eq!(by_count(2, false), [Kind::Package, Kind::Node]);
        assert_eq!(by_count(3, true), [Kind::Package, L2, Kind::Core]);
        assert_eq!(by_count(4, false), [Kind::Package, Kind::Node, L2, Kind::Core]);
        assert_eq!(by_count(8, false).iter().filter(|kind| **kind == Kind::Group).count(), 1);
    }
}
