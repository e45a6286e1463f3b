//! Sets of OS indices, in the three notations of hwloc and Linux.

use crate::limits::{MAX_MASK_BYTES, MAX_OS_INDEX};

/// A set of CPU or node OS indices, from 0 to `MAX_OS_INDEX`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct IndexSet {
    /// 64 indices per word, the lowest first. The last word is never zero, so equal sets compare
    /// equal.
    words: Vec<u64>,
}

impl IndexSet {
    pub(crate) fn insert(&mut self, index: u32) {
        let word = (index / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (index % 64);
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.words.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// Returns the members that are also in `other`.
    pub(crate) fn intersection(&self, other: &IndexSet) -> IndexSet {
        let mut words: Vec<u64> = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        IndexSet { words }
    }

    /// Reads a bitmap: hexadecimal words of 32 bits, the highest first, separated by commas.
    ///
    /// hwloc writes `0x` before each word and leaves zero words out (`0x000000ff,,0x1`), Linux
    /// writes neither prefix nor empty word (`00000000,000000ff`). The error is the cause, for a
    /// message.
    pub(crate) fn from_mask(text: &str) -> Result<IndexSet, String> {
        let text = text.trim_ascii();
        if text.len() > MAX_MASK_BYTES {
            return Err(format!("a bitmap of {} bytes is longer than {MAX_MASK_BYTES}", text.len()));
        }
        if text.starts_with("0xf...f") {
            return Err("the bitmap is infinite".to_string());
        }
        if text.is_empty() {
            return Err("the bitmap is empty".to_string());
        }
        let mut set = IndexSet::default();
        for (position, word) in text.rsplit(',').enumerate() {
            let digits = word.strip_prefix("0x").unwrap_or(word);
            if digits.is_empty() && digits.len() == word.len() {
                continue;
            }
            let hexadecimal = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let value = u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal);
            let mut rest = value.ok_or("the bitmap is not made of hexadecimal words of 32 bits")?;
            while rest != 0 {
                let index = position as u64 * 32 + u64::from(rest.trailing_zeros());
                set.insert(checked_index(index)?);
                rest &= rest - 1;
            }
        }
        Ok(set)
    }

    /// Reads a list of indices and ranges, as in `0-3,8`; blank text is the empty set.
    ///
    /// The error is the cause, for a message.
    pub(crate) fn from_list(text: &str) -> Result<IndexSet, String> {
        let text = text.trim_ascii();
        let mut set = IndexSet::default();
        if text.is_empty() {
            return Ok(set);
        }
        for range in text.split(',') {
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (list_index(first)?, list_index(last)?),
                None => {
                    set.insert(list_index(range)?);
                    continue;
                }
            };
            if first > last {
                return Err(format!("the range {first}-{last} runs backwards"));
            }
            for index in first..=last {
                set.insert(index);
            }
        }
        Ok(set)
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> IndexSet {
        let mut set = IndexSet::default();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

/// Reads an index of a list, as in `from_list`. Lists are most of the input for a large machine, so
/// this is one pass over the digits.
fn list_index(text: &str) -> Result<u32, String> {
    let mut index = 0u64;
    for byte in text.bytes() {
        if !byte.is_ascii_digit() {
            return Err(NO_LIST.to_string());
        }
        index = index.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    }
    if text.is_empty() { Err(NO_LIST.to_string()) } else { checked_index(index) }
}

const NO_LIST: &str = "the list is not made of indices and ranges such as `0-3,8`";

/// Returns `index`, if it is at most the largest OS index.
fn checked_index(index: u64) -> Result<u32, String> {
    if index > u64::from(MAX_OS_INDEX) {
        return Err(format!("index {index} is above {MAX_OS_INDEX}, the highest that is read"));
    }
    Ok(index as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: Result<IndexSet, String>) -> Result<Vec<u32>, String> {
        set.map(|set| set.iter().collect())
    }

    #[test]
    fn hwloc_bitmaps_leave_zero_words_out() {
        assert_eq!(members(IndexSet::from_mask("0x00000003,,0x80000001")), Ok(vec![0, 31, 64, 65]));
        assert_eq!(members(IndexSet::from_mask("0x00000100,0x0")), Ok(vec![40]));
        assert_eq!(members(IndexSet::from_mask("0x0")), Ok(vec![]));
    }

    #[test]
    fn linux_bitmaps_and_lists() {
        assert_eq!(members(IndexSet::from_mask("00000001,0000000f\n")), Ok(vec![0, 1, 2, 3, 32]));
        assert_eq!(members(IndexSet::from_list("0-2,7\n")), Ok(vec![0, 1, 2, 7]));
        assert_eq!(members(IndexSet::from_list("\n")), Ok(vec![]));
    }

    #[test]
    fn wrong_bitmaps_and_lists_are_refused() {
        for text in ["", "0x", "0xg", "+1", "0x1ffffffff", "1;2", "0xf...f", "0x-1"] {
            assert!(IndexSet::from_mask(text).is_err(), "{text}");
        }
        for text in ["a", "1-", "-1", "3-1", "1,,2", "+1", "99999999999999999999", "0-4294967295", "65536"] {
            assert!(IndexSet::from_list(text).is_err(), "{text}");
        }
        assert!(IndexSet::from_mask(&",".repeat(MAX_MASK_BYTES + 1)).is_err());
    }

    #[test]
    fn equal_sets_compare_equal_whatever_was_in_them() {
        let wide = IndexSet::from_list("0,100").unwrap();
        let narrow = IndexSet::from_list("0").unwrap();
        assert_eq!(wide.intersection(&narrow), narrow);
        assert_eq!(wide.intersection(&IndexSet::from_list("7").unwrap()), IndexSet::default());
        assert_eq!(IndexSet::from_mask("0x0,0x1").unwrap(), narrow);
    }
}
