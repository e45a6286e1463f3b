//! What is fitted is kept, and fitted again when something changes that it depends on.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{end, folder, hitm, words};

const LINE: &str =
    "run ffmpeg --machine core:4 --quick --mitigation all --seeds 1 --warm-up 100us --duration 100us --jobs 1";

/// What a line prints that keeps its calibrations in `folder`.
fn printed(folder: &Path, rest: &str) -> String {
    let ended = end(hitm().env("HITM_CACHE", folder).args(words(&format!("{LINE} {rest}"))));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{rest}");
    ended.stdout
}

fn kept(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect()
}

#[test]
fn a_calibration_is_kept_until_something_changes() {
    let folder = folder();
    let folder = folder.path().join("made");
    let without = end(hitm().args(words(LINE))).stdout;
    let first = printed(&folder, "");
    assert_eq!(first, without, "what is kept changes nothing");
    let files = kept(&folder);
    let [file] = files.as_slice() else { panic!("one calibration: {files:?}") };
    let whole = fs::read_to_string(file).expect("a calibration");
    assert_eq!(printed(&folder, ""), first);

    // A value that no fit would give shows that it is taken, also by the whole run.
    let mut changed: serde_json::Value = serde_json::from_str(&whole).expect("JSON");
    changed["value"] = 3.25.into();
    fs::write(file, changed.to_string()).expect("it can be written");
    assert!(printed(&folder, "").contains("calibrated: --burst-factor 3.2500 "));
    assert!(printed(&folder, "--duration 50us").contains("--burst-factor 3.2500 "), "the fit has its own stretches");

    // Neither of another seed, nor of another model.
    for rest in ["--seed 2", "--model llc_read_ns=40", "--arbitration fifo"] {
        let before = kept(&folder).len();
        assert!(!printed(&folder, rest).contains("3.2500"), "{rest}");
        assert_eq!(kept(&folder).len(), before + 1, "{rest}");
    }

    // What cannot be read is made again.
    fs::write(file, &whole[..whole.len() / 2]).expect("it can be written");
    assert_eq!(printed(&folder, ""), first);
    assert_eq!(fs::read_to_string(file).expect("a calibration"), whole);
}

#[test]
fn a_folder_that_cannot_be_made_takes_nothing_from_the_run() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("it can be written");
    assert!(printed(&file.join("under"), "").contains("calibrated: --burst-factor "));
}
