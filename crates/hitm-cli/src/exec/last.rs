//! What a program tells that ends without a result: what is not simulated, or a crash.

use serde::Deserialize;

use super::names::Names;
use super::through::Through;

/// The first line of what is told (`hitm-exec/src/last.rs` writes it).
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Last {
    /// The program does what is not simulated.
    Refused(String),
    /// It accessed memory that it may not. The lines after this are the mappings of its memory.
    Crash { code: u64, address: u64, thread: Option<usize> },
}

/// Returns the words for it, if it is that. Its place is told as reports tell theirs.
pub(crate) fn last_words(text: &str, through: &Through) -> Option<String> {
    let (first, maps) = text.split_once('\n').unwrap_or((text, ""));
    match serde_json::from_str(first).ok()? {
        Last::Refused(why) => Some(match why.strip_prefix("the program ") {
            Some(rest) => format!("it {rest}"),
            None => why,
        }),
        Last::Crash { code, address, thread } => {
            let thread = match thread {
                None => "the library of `hitm`".to_owned(),
                Some(0) => "the main thread".to_owned(),
                Some(number) => format!("thread {number}"),
            };
            if code == address {
                return Some(format!("segmentation fault of {thread}: it went to {code:#x}, where no code is"));
            }
            let place = named(maps, code, through).unwrap_or_else(|| format!("code at {code:#x}"));
            Some(format!("segmentation fault of {thread} in {place}: it accessed address {address:#x}"))
        }
    }
}

/// The function with the code at an address, with its source line.
fn named(maps: &str, code: u64, through: &Through) -> Option<String> {
    let mapped = maps.lines().filter_map(|line| {
        let (from, until) = line.split(' ').next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        // A path may have spaces.
        Some((hex(from)?..hex(until)?, &line[line.find('/')?..]))
    });
    let mapped: Vec<_> = mapped.collect();
    let (_, path) = mapped.iter().find(|(range, _)| range.contains(&code))?;
    let base = mapped.iter().find(|(_, other)| other == path)?.0.start;
    // Calls are named by the address that they return to.
    let code = Names::of(path, through).code(code - base + 1)?;
    Some(match code.location.as_str() {
        "?" => code.function,
        location => format!("{} ({location})", code.function),
    })
}
