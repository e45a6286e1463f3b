//! The processor, from `/proc/cpuinfo` on x86. Other architectures write other keys, and the
//! processor stays unknown.

use std::path::Path;

use crate::error::one_line;
use crate::family::PartialFamily;
use crate::file::read_front;
use crate::limits::MAX_CPUINFO_BYTES;

/// The processor of the first CPU.
#[derive(Default)]
pub(super) struct Processor {
    pub(super) model: Option<String>,
    pub(super) family: PartialFamily,
}

/// Unknown when the file cannot be read.
pub(super) fn read(path: &Path) -> Processor {
    read_front(path, MAX_CPUINFO_BYTES).map(|text| first_entry(&text)).unwrap_or_default()
}

fn first_entry(text: &str) -> Processor {
    let mut processor = Processor::default();
    for line in text.lines().skip_while(|line| line.trim().is_empty()).take_while(|line| !line.trim().is_empty()) {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "vendor_id" => processor.family.vendor = Some(one_line(value)),
            "cpu family" => processor.family.family = value.parse().ok(),
            "model" => processor.family.model = value.parse().ok(),
            "stepping" => processor.family.stepping = value.parse().ok(),
            "model name" => processor.model = Some(one_line(value)),
            _ => {}
        }
    }
    processor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_counts() {
        let text = "\nprocessor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nmodel name\t: A: B\nstepping\t: 6\n\n\
                    processor\t: 1\nmodel name\t: C\n";
        let processor = first_entry(text);
        assert_eq!(processor.model.as_deref(), Some("A: B"));
        let family = processor.family.complete().unwrap();
        assert_eq!(
            (family.vendor.as_str(), family.family, family.model, family.stepping),
            ("GenuineIntel", 6, 106, Some(6))
        );
        assert!(first_entry("").family.complete().is_none());
    }
}
