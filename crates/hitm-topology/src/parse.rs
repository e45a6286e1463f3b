//! Machines from a user's argument.

use std::fs;
use std::io;
use std::iter;
use std::path::Path;

use crate::error::{Error, Place, quote};
use crate::file::describe;
use crate::presets::Preset;
use crate::topology::Topology;
use crate::{presets, synthetic, sysfs, xml};

/// The longest argument: an explicit list of OS indices in a synthetic string; a path is shorter.
const ARGUMENT_BYTES_MAX: usize = crate::limits::MAX_SYNTHETIC_BYTES;

/// The name of the machine on which the program runs.
const THIS: &str = "this";

/// Returns the machine that `arg` names. The first matching form of these applies:
///
/// 1. `this`: the machine on which the program runs, as Linux describes it in `/sys`, less the CPUs
///    on which the process may not run (its affinity mask, `Cpus_allowed_list` in
///    `/proc/self/status`);
/// 2. the name of a preset, see [`presets::all`];
/// 3. a directory: a dump of Linux's `/sys`, which has `sys/devices/system/cpu`,
///    `devices/system/cpu` or `cpu` below it, or is that `cpu` directory. Its CPUs are those online
///    when it was dumped;
/// 4. a file: hwloc's XML, of format 1 to 3;
/// 5. anything else without a slash: an hwloc synthetic string, such as `pack:2 l3:3 core:40 pu:2`.
///
/// A file or directory whose name is that of a preset is written with its path, as in `./this`.
///
/// ```
/// use hitm_topology::{CpuId, parse};
///
/// let machine = parse("pack:2 [numa] l3:3 core:40 pu:2")?;
/// assert_eq!(machine.to_string(), "2 packages, 6 LLCs, 240 cores, 480 CPUs, 2 nodes");
/// assert_eq!(machine.siblings(CpuId(1)), [CpuId(0), CpuId(1)]);
///
/// let error = parse("pack:2 l3:3 chip:40").unwrap_err().to_string();
/// assert!(error.starts_with("`pack:2 l3:3 chip:40`, offset 12: `chip` is no object type"));
/// # Ok::<(), hitm_topology::Error>(())
/// ```
///
/// # Errors
///
/// When the argument is none of these, cannot be read, contradicts itself, or describes more than
/// [`MAX_CPUS`](crate::MAX_CPUS) CPUs. For any argument and any files, reading ends within seconds
/// and takes less than 256 MiB.
pub fn parse(arg: &str) -> Result<Topology, Error> {
    if arg == THIS {
        return sysfs::read_this();
    }
    if let Some(preset) = presets::find(arg) {
        return Ok(preset.topology());
    }
    if arg.len() > ARGUMENT_BYTES_MAX {
        let cause = format!("the name has {} bytes, more than {ARGUMENT_BYTES_MAX}", arg.len());
        return Err(Error::new(arg, Place::Whole, cause, "describe a smaller machine"));
    }
    let path = Path::new(arg);
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => sysfs::read_dump(arg),
        Ok(_) => xml::read_file(arg),
        // A text that is too long for a path, or has a zero byte, is not a path.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && looks_like_path(arg) => {
            let cause = format!("it cannot be read ({})", describe(&error));
            Err(Error::new(arg, Place::Whole, cause, "name a file or directory that may be read"))
        }
        Err(_) if looks_like_path(arg) => {
            Err(Error::new(arg, Place::Whole, "there is no such file or directory", "check the path"))
        }
        Err(_) if synthetic::looks_like_one(arg) => synthetic::read(arg),
        Err(_) => {
            let names: Vec<String> = presets::all().iter().map(|preset| quote(preset.name())).collect();
            let suggestion = nearest(arg).map(|name| format!("did you mean {}? otherwise ", quote(name)));
            let remedy = format!(
                "{}name one of these, `this`, or a synthetic string such as `pack:2 core:4`: {}",
                suggestion.unwrap_or_default(),
                names.join(", ")
            );
            Err(Error::new(arg, Place::Whole, "there is no such preset or file", remedy))
        }
    }
}

/// Returns the machine's name that a misspelt name most likely stands for, or `None` when no name
/// is similar.
///
/// The shortest name that begins with the text comes first: `epyc-9654` stands for
/// `epyc-9654-2x96`. Otherwise it is the name with the fewest edits, which may be at most a third
/// of its length. Case does not count. Of several equal names, the first in the list of presets is
/// returned.
fn nearest(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let names = || iter::once(THIS).chain(presets::all().iter().map(Preset::name));
    let begun = || names().filter(|name| !text.is_empty() && name.starts_with(&text)).min_by_key(|name| name.len());
    let edited = || {
        let edits = |name| strsim::osa_distance(name, &text);
        names().min_by_key(|name| edits(name)).filter(|name| 3 * edits(name) <= name.len())
    };
    begun().or_else(edited)
}

/// Whether the text can only be meant as a path: no synthetic string has a slash, or ends in a
/// file's extension.
fn looks_like_path(arg: &str) -> bool {
    arg.contains('/') || arg.ends_with(".xml")
}
