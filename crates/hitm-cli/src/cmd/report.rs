//! `hitm report`: a page of result files, and their tables.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use hitm_report::html::{Document, page};
use hitm_report::result::ResultFile;
use hitm_report::tables::{TABLES, Table};

use crate::cmd::c2c::BYTES_MAX;
use crate::failure::Failure;
use crate::output::{self, Target};

/// Write a page to look at: where the time goes, each line's bytes and who invalidates whom, each
/// object's layout with its heat, the machine, curves, and what changed between two runs.
///
/// The page is one HTML file. It needs no network, and opens from disk in any browser.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm run ffmpeg --json result.json\n  hitm report result.json -o result.html\n  hitm report before.json after.json -o both.html\n  hitm report curve.json result.json -o curve.html\n  hitm report result.json --csv tables\n  hitm run ffmpeg --html result.html"
)]
pub(crate) struct Report {
    /// Files that `--json` of `run`, `exec`, `probe` or `sweep` wrote; all go into one page.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the page to this file [default: the first FILE with the ending `.html`, unless tables
    /// are written].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the counts to this folder as comma-separated values, one file for each table: see
    /// `hitm list tables`.
    #[arg(long, value_name = "FOLDER")]
    csv: Option<PathBuf>,
    /// Write the same tables to this folder as Parquet.
    #[arg(long, value_name = "FOLDER")]
    parquet: Option<PathBuf>,
}

/// Reads a result file or a sweep.
fn read(path: &Path) -> Result<Document, Failure> {
    let fail = |why: String| Failure::new(format!("result file `{}`: {why}", path.display()));
    let again = |error: std::io::Error| fail(format!("{error}; give a file that `--json` wrote"));
    let mut text = String::new();
    File::open(path).map_err(again)?.take(BYTES_MAX).read_to_string(&mut text).map_err(again)?;
    Document::read(&text).map_err(|error| fail(error.to_string()))
}

impl Report {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let documents: Vec<(String, Document)> =
            self.files.iter().map(|path| Ok((name(path), read(path)?))).collect::<Result<_, Failure>>()?;
        let has_tables = self.csv.is_some() || self.parquet.is_some();
        let page_at = self.output.or_else(|| (!has_tables).then(|| self.files[0].with_extension("html")));
        let page_to = page_at.map(|path| Target::open("--output", &path)).transpose()?;
        let mut files: Vec<(String, ResultFile)> = Vec::new();
        for (name, document) in &documents {
            match document {
                Document::Result(file) => files.push((name.clone(), ResultFile::clone(file))),
                Document::Sweep(_) if has_tables => {
                    let why = "it is a sweep, whose table `hitm sweep --csv` writes; leave it out";
                    return Err(Failure::new(format!("result file `{name}`: {why}")));
                }
                Document::Sweep(_) => {}
            }
        }
        if let Some(folder) = &self.csv {
            write_tables("--csv", folder, "csv", |table| Ok(table.csv(&files).into_bytes()))?;
        }
        if let Some(folder) = &self.parquet {
            write_tables("--parquet", folder, "parquet", |table| parquet(table, &files))?;
        }
        page_to.map_or(Ok(()), |target| target.write(&page(&documents)))
    }
}

/// Writes each table to a file of `folder`, which is made if it is not there.
fn write_tables(
    flag: &'static str,
    folder: &Path,
    ending: &str,
    bytes: impl Fn(&Table) -> Result<Vec<u8>, Failure>,
) -> Result<(), Failure> {
    let fail =
        |error: std::io::Error| Failure::new(format!("{flag} `{}`: {error}; name another folder", folder.display()));
    std::fs::create_dir_all(folder).map_err(fail)?;
    for table in &TABLES {
        let path = folder.join(format!("{}.{ending}", table.name));
        Target::open(flag, &path)?.write(&bytes(table)?)?;
    }
    Ok(())
}

#[cfg(feature = "parquet")]
fn parquet(table: &Table, files: &[(String, ResultFile)]) -> Result<Vec<u8>, Failure> {
    table.parquet(files).map_err(|error| Failure::new(format!("--parquet: {}: {error}; take --csv", table.name)))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Table, _: &[(String, ResultFile)]) -> Result<Vec<u8>, Failure> {
    Err(Failure::new("--parquet: this hitm was built without it; build with `--features parquet`, or take --csv"))
}

/// Returns the name by which a page calls a file.
fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Checks that the file of `--html` can be written, if one was given.
///
/// # Errors
/// When it cannot.
pub(crate) fn target(path: Option<&Path>) -> Result<Option<Target>, Failure> {
    output::target("--html", path)
}

/// Writes the page of these documents to where `--html` says, if it says so.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(
    target: Option<Target>,
    documents: impl FnOnce() -> Vec<(String, Document)>,
) -> Result<(), Failure> {
    target.map_or(Ok(()), |target| target.write(&page(&documents())))
}

/// Returns a result file as a page shows it.
pub(crate) fn shown(path: &Path, file: &ResultFile) -> (String, Document) {
    (name(path), Document::Result(Box::new(file.clone())))
}
