//! Locates and reads the files of a dump.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{cpuinfo, cpus, nodes};
use crate::draft::Draft;
use crate::error::{Error, Place, one_line, quote};
use crate::file::{Content, describe, name_of, read_text};
use crate::index_set::IndexSet;
use crate::limits::{MAX_OS_INDEX, MAX_SYSFS_BYTES, MAX_SYSFS_TOTAL_BYTES};
use crate::topology::Topology;

/// The largest number of directory entries that are read: four times the possible CPUs.
const ENTRIES_MAX: usize = 4 * (MAX_OS_INDEX as usize + 1);

/// Returns the machine that a dumped tree describes.
pub(crate) fn read_dump(path: &str) -> Result<Topology, Error> {
    let directory = Path::new(path);
    let below = ["sys/devices/system", "devices/system", ""].map(|below| directory.join(below));
    let system = below.into_iter().find(|system| system.join("cpu").is_dir());
    let is_cpu_directory =
        || ["cpu0", "online", "present", "possible"].iter().any(|name| directory.join(name).exists());
    let system =
        system.or_else(|| is_cpu_directory().then(|| directory.join("..")).filter(|_| is_named_cpu(directory)));
    let Some(system) = system else {
        let cause = "neither `sys/devices/system/cpu` nor `devices/system/cpu` nor `cpu` is in this directory";
        return Err(Error::new(path, Place::Whole, cause, "name a copy of Linux's `/sys`, or an hwloc XML file"));
    };
    let dump = Dump {
        input: path,
        system,
        cpuinfo: directory.join("proc/cpuinfo"),
        allowed: None,
        budget: Cell::new(MAX_SYSFS_TOTAL_BYTES),
    };
    dump.topology(name_of(path), "Linux sysfs dump".to_string())
}

/// Whether the directory is the `cpu` of its parent, so that `../node` describes the same machine.
fn is_named_cpu(directory: &Path) -> bool {
    fs::canonicalize(directory).is_ok_and(|path| path.file_name().is_some_and(|name| name == "cpu"))
}

/// A tree of files about one machine.
pub(super) struct Dump<'a> {
    /// The name of the input in errors.
    pub(super) input: &'a str,
    /// The directory with `cpu` and `node`.
    pub(super) system: PathBuf,
    pub(super) cpuinfo: PathBuf,
    /// The CPUs that may be used; `None` for all.
    pub(super) allowed: Option<IndexSet>,
    /// The number of bytes that may still be read.
    pub(super) budget: Cell<usize>,
}

impl Dump<'_> {
    pub(super) fn topology(&self, name: String, source: String) -> Result<Topology, Error> {
        let existing = self.numbered("cpu", "cpu")?;
        let online = match self.list("cpu/online")? {
            Some(online) => online,
            None => self.online_one_by_one(&existing)?,
        };
        let present = match self.list("cpu/present")? {
            Some(present) => present,
            None => existing.iter().copied().collect(),
        };
        let all: BTreeSet<u32> = present.iter().chain(online.iter()).collect();
        let used = match &self.allowed {
            Some(allowed) => online.intersection(allowed),
            None => online.clone(),
        };
        if let Some(missing) = used.iter().find(|cpu| !existing.contains(cpu)) {
            let cause = format!("CPU {missing} is online and has no directory `cpu/cpu{missing}`");
            return Err(Error::new(
                self.input,
                Place::Whole,
                cause,
                "dump the tree again, with all of `/sys/devices/system`",
            ));
        }
        let mut places = cpus::read(self, &used, &online)?;
        let nodes = nodes::read(self, &used, &mut places)?;
        let processor = cpuinfo::read(&self.cpuinfo);
        let draft = Draft {
            name,
            source,
            model: processor.model,
            family: processor.family.complete(),
            excluded: all.len() - used.len(),
            cpus: places,
            distances: nodes,
        };
        draft.finish(self.input)
    }

    /// Kernels before 2.6.26 have no list of the CPUs that are online, and a dump may lack it.
    fn online_one_by_one(&self, existing: &BTreeSet<u32>) -> Result<IndexSet, Error> {
        let mut online = IndexSet::default();
        for &cpu in existing {
            if self.text(&format!("cpu/cpu{cpu}/online"))?.is_none_or(|text| text.trim_ascii() != "0") {
                online.insert(cpu);
            }
        }
        Ok(online)
    }

    /// Returns the N of all directories `KIND/PREFIXN`; none if there is no such directory.
    pub(super) fn numbered(&self, kind: &str, prefix: &str) -> Result<BTreeSet<u32>, Error> {
        let mut found = BTreeSet::new();
        let Ok(entries) = fs::read_dir(self.system.join(kind)) else { return Ok(found) };
        for (count, entry) in entries.enumerate() {
            if count >= ENTRIES_MAX {
                return self.fail(kind, format!("it has more than {ENTRIES_MAX} entries"));
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.fail(kind, format!("it cannot be read ({})", describe(&error))),
            };
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix(prefix));
            let Some(digits) = digits.filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
            else {
                continue;
            };
            match digits.parse::<u32>() {
                Ok(number) if number <= MAX_OS_INDEX => found.insert(number),
                _ => {
                    return self
                        .fail(kind, format!("the number of `{prefix}{}` is above {MAX_OS_INDEX}", one_line(digits)));
                }
            };
        }
        Ok(found)
    }

    /// Returns the text of a file below the system directory; `None` if there is none.
    pub(super) fn text(&self, file: &str) -> Result<Option<String>, Error> {
        match read_text(&self.system.join(file), MAX_SYSFS_BYTES) {
            Content::Text(mut text) => match self.budget.get().checked_sub(text.len()) {
                Some(left) => {
                    self.budget.set(left);
                    // Kernels of around 2010 end some files with a zero byte.
                    text.truncate(text.trim_end_matches('\0').len());
                    Ok(Some(text))
                }
                None => {
                    self.fail(file, format!("the files up to this one have more than {MAX_SYSFS_TOTAL_BYTES} bytes"))
                }
            },
            Content::Missing => Ok(None),
            Content::Failed(cause) => self.fail(file, cause),
        }
    }

    /// Returns the set that a file lists, as in `0-3,8`.
    pub(super) fn list(&self, file: &str) -> Result<Option<IndexSet>, Error> {
        let text = self.text(file)?;
        text.map(|text| IndexSet::from_list(&text).or_else(|cause| self.fail(file, cause))).transpose()
    }

    /// Returns the set of a bitmap file, as in `00000000,0000010f`.
    fn mask(&self, file: &str) -> Result<Option<IndexSet>, Error> {
        let text = self.text(file)?;
        text.map(|text| IndexSet::from_mask(&text).or_else(|cause| self.fail(file, cause))).transpose()
    }

    /// Returns the set of the first of these files that exists and is not empty, and that file's
    /// name. Files with `list` in their name are lists, others bitmaps.
    pub(super) fn first_set(&self, directory: &str, files: &[&str]) -> Result<Option<(String, IndexSet)>, Error> {
        for name in files {
            let file = format!("{directory}/{name}");
            let set = if name.ends_with("list") { self.list(&file)? } else { self.mask(&file)? };
            if let Some(set) = set.filter(|set| set.len() > 0) {
                return Ok(Some((file, set)));
            }
        }
        Ok(None)
    }

    /// Returns the number in a file; `None` if there is no file, or it has -1 for "unknown".
    pub(super) fn number(&self, file: &str) -> Result<Option<u32>, Error> {
        let Some(text) = self.text(file)? else { return Ok(None) };
        match text.trim_ascii().parse::<i64>() {
            Ok(-1) => Ok(None),
            Ok(number) if u32::try_from(number).is_ok() => Ok(Some(number as u32)),
            _ => self.fail(file, format!("{} is not a number from 0", quote(text.trim_ascii()))),
        }
    }

    pub(super) fn fail<T>(&self, file: &str, cause: impl Into<String>) -> Result<T, Error> {
        let remedy = "correct the file, or dump the tree again";
        Err(Error::new(self.input, Place::File(file.to_string()), cause, remedy))
    }
}
