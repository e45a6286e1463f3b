//! The files that `--json` and its like write: whole or not at all.
//!
//! A file is written beside its place, under a name that no other process uses, and then moved
//! there: a reader never sees half of it, two processes with one `--json` leave the file of one of
//! them, and a failure leaves what was there. Whether that can work is found out before the run.
//! Between the two nothing is left in the folder, so that a process that is killed leaves nothing
//! behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::failure::Failure;
use crate::interrupt;

/// A place for results that can be written to.
#[derive(Debug)]
pub(crate) struct Target {
    flag: &'static str,
    path: PathBuf,
    /// Whether the file is replaced as a whole. A target that is no ordinary file (`/dev/stdout`, a
    /// pipe) is written in place.
    is_replaced: bool,
}

impl Target {
    /// Checks that `path`, the value of `flag`, can be written. A symbolic link stands for the file
    /// that it leads to.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn open(flag: &'static str, path: &Path) -> Result<Self, Failure> {
        let fail = |why: &str| Failure::new(format!("{flag} `{}`: {why}", path.display()));
        let path = match (fs::symlink_metadata(path), fs::canonicalize(path)) {
            (Ok(_), Ok(whole)) => whole,
            (Ok(_), Err(_)) => return Err(fail("it is a symbolic link that leads nowhere; name the file itself")),
            (Err(_), _) => path.to_owned(),
        };
        let metadata = fs::metadata(&path).ok();
        if metadata.as_ref().is_some_and(fs::Metadata::is_dir) || path.file_name().is_none() {
            return Err(fail("it is a folder; name a file in it"));
        }
        let is_replaced = metadata.as_ref().is_none_or(fs::Metadata::is_file);
        let target = Self { flag, path, is_replaced };
        let is_writable = if is_replaced {
            // A file that may not be written is not replaced either.
            metadata
                .map_or(Ok(()), |_| File::options().write(true).open(&target.path).map(drop))
                .and_then(|()| target.beside().map(drop))
        } else {
            File::options().write(true).open(&target.path).map(drop)
        };
        is_writable.map_err(|error| target.failure(&error))?;
        Ok(target)
    }

    /// Writes results, as text or as bytes: all of it or nothing. When the place has become
    /// unwritable, they go to the folder for temporary files, and the error says where they are.
    ///
    /// # Errors
    /// When it cannot be written where it should be.
    pub(crate) fn write(self, results: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Failure> {
        let written = if self.is_replaced {
            self.replace(results)
        } else {
            File::options().write(true).open(&self.path).and_then(|mut file| file.write_all(results.as_ref()))
        };
        written.map_err(|error| match self.rescue(results) {
            Ok(rescued) => Failure::new(format!(
                "{} `{}`: {}; the results are in `{}` instead: move them where there is room",
                self.flag,
                self.path.display(),
                plain(&error),
                rescued.display()
            )),
            Err(_) => self.failure(&error),
        })
    }

    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn replace(&self, results: &(impl AsRef<[u8]> + ?Sized)) -> io::Result<()> {
        let _whole = interrupt::hold();
        let mut beside = self.beside()?;
        beside.write_all(results.as_ref())?;
        beside.as_file().sync_all()?;
        beside.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }

    /// A new file in the target's folder, with the target's permissions; removed when dropped.
    fn beside(&self) -> io::Result<NamedTempFile> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".");
        let mut builder = Builder::new();
        builder.prefix(&name).suffix(".part");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // The umask applies, as it does to every new file.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let beside = builder.tempfile_in(folder.unwrap_or(Path::new(".")))?;
        if let Ok(metadata) = fs::metadata(&self.path) {
            beside.as_file().set_permissions(metadata.permissions())?;
        }
        Ok(beside)
    }

    /// Keeps results that cannot be written in their place.
    fn rescue(&self, results: &(impl AsRef<[u8]> + ?Sized)) -> io::Result<PathBuf> {
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push("-");
        let suffix = self.path.extension().map(|extension| format!(".{}", extension.display()));
        let mut file = Builder::new().prefix(&name).suffix(&suffix.unwrap_or_default()).tempfile()?;
        file.write_all(results.as_ref())?;
        let (_, path) = file.keep().map_err(|error| error.error)?;
        Ok(path)
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free space on its disk, or name a file elsewhere"
            }
            _ => "name a file in a folder that can be written",
        };
        Failure::new(format!("{} `{}`: {}; {advice}", self.flag, self.path.display(), plain(error)))
    }
}

/// Returns the operating system's message, without the path of the temporary file that `tempfile`
/// adds: it means nothing to the user.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" at path ").map_or(text.clone(), |(said, _)| said.to_owned())
}

/// Checks that the file of `flag` can be written, if one was given.
///
/// # Errors
/// When it cannot.
pub(crate) fn target(flag: &'static str, path: Option<&Path>) -> Result<Option<Target>, Failure> {
    path.map(|path| Target::open(flag, path)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_in_the_folder_before_results_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r.json");
        let target = Target::open("--json", &path).expect("it can be written");
        assert!(names(folder.path()).is_empty());
        target.write("whole").expect("it can be written");
        assert_eq!(names(folder.path()), ["r.json"]);
        assert_eq!(fs::read_to_string(&path).expect("the file"), "whole");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_way_of_the_temporary_file_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, folder.path().join(".r.json.part")).expect("a link");
        Target::open("--json", &folder.path().join("r.json")).expect("writable").write("results").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stands_for_its_file_which_keeps_its_permissions() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("our own file");
        symlink("file", &link).expect("a link");
        Target::open("--json", &link).expect("writable").write("after").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("the file"), "after");
        assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
        symlink("nowhere", folder.path().join("dangling")).expect("a link");
        let refused = Target::open("--json", &folder.path().join("dangling")).expect_err("it leads nowhere");
        assert!(refused.to_string().contains("leads nowhere; name the file itself"), "{refused}");
    }

    #[test]
    fn results_are_kept_elsewhere_when_their_folder_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = Target::open("--json", &folder.path().join("r.json")).expect("it can be written");
        folder.close().expect("our own folder");
        let failure = target.write("results").expect_err("the folder is gone").to_string();
        let rescued = failure.split("the results are in `").nth(1).and_then(|rest| rest.split('`').next());
        let rescued = Path::new(rescued.expect("the failure says where they are"));
        assert_eq!(fs::read_to_string(rescued).expect("the rescued file"), "results");
        fs::remove_file(rescued).expect("our own file");
    }
}
