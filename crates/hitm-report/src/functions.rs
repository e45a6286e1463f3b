//! Names of functions by place in the source, from a table that the build generates.

/// A file, and its functions: first line, last line, name.
type File = (&'static str, &'static [(usize, usize, &'static str)]);

/// Every source file of the workspace, in order.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// The innermost function around `line` of `file`, a path from the crate's folder on.
#[must_use]
pub fn function_at(file: &str, line: u32) -> Option<&'static str> {
    let index = FILES.binary_search_by(|(name, _)| (*name).cmp(file)).ok()?;
    let line = line as usize;
    let around = FILES[index].1.iter().filter(|(first, last, _)| (*first..=*last).contains(&line));
    around.max_by_key(|(first, ..)| *first).map(|&(.., name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_order_of_the_search() {
        assert!(FILES.is_sorted_by(|(one, _), (other, _)| one < other));
        assert!(FILES.len() > 100, "all of the workspace's sources");
    }

    #[test]
    fn places_have_functions() {
        let text = include_str!("../../hitm-sched/src/cpupri.rs");
        let line = text.lines().position(|line| line.contains(".fetch_add(1, COUNT_ENTERED)")).expect("the add") + 1;
        assert_eq!(function_at("hitm-sched/src/cpupri.rs", line as u32), Some("set_level"));
        assert_eq!(function_at("hitm-sched/src/cpupri.rs", 1), None);
        assert_eq!(function_at("nowhere.rs", 5), None);
    }
}
