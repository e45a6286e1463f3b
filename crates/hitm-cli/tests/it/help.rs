//! Help, as a reader without a terminal sees it.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect_file;

use crate::command::{read_checked, stdout_of, workspace};

/// Every command, as the help texts name them.
fn verbs() -> Vec<String> {
    let mut verbs = vec![String::new()];
    let mut next = 0;
    while let Some(verb) = verbs.get(next).cloned() {
        let text = stdout_of(&format!("{verb} --help"));
        let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // What a command is for may go on in further lines, farther to the right.
        let names = commands.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        verbs.extend(names.filter(|&name| name != "help").map(|name| format!("{verb} {name}").trim().to_owned()));
        next += 1;
    }
    for known in ["run tbench", "run probe mask", "sweep cyclic", "layout"] {
        assert!(verbs.iter().any(|verb| verb == known), "{known}");
    }
    verbs
}

/// The examples at the end of a help text.
fn examples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip_while(|line| *line != "Examples:").skip(1)
}

/// Splits a help text before every option and every heading.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if is_option(line) || line.starts_with(|first: char| first.is_alphabetic()) {
            parts.push(String::new());
        }
        parts.last_mut().expect("it has one from the start").push_str(line);
    }
    parts
}

/// Whether a part of a help text begins with an option, as in `  -h, --help` or `      --seed <N>`.
/// What is said of an option is farther to the right.
fn is_option(part: &str) -> bool {
    ["  -", "      --"].iter().any(|begin| part.starts_with(begin))
}

/// The options of several commands that are the same in all of them: each once, in the order of
/// their first lines.
fn shared_options(texts: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut by_option: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in texts.values().flat_map(|text| parts(text)).filter(|part| is_option(part)) {
        let option = part.lines().next().unwrap_or_default().to_owned();
        // The last option before a heading or the end has another number of empty lines after it.
        by_option.entry(option).or_default().push(part.trim_end().to_owned());
    }
    let shared = by_option.into_values().filter(|all| all.len() > 1 && all.iter().all(|part| *part == all[0]));
    shared.map(|mut all| all.swap_remove(0)).collect()
}

/// Of an option that commands share, the snapshot of a command has the first line only. The whole
/// is once in `data/shared_options.txt`.
#[test]
fn help_is_as_recorded() {
    let texts: BTreeMap<String, String> =
        verbs().into_iter().map(|verb| (verb.clone(), stdout_of(&format!("{verb} --help")))).collect();
    let shared = shared_options(&texts);
    let all: Vec<&str> = shared.iter().map(String::as_str).collect();
    expect_file!["data/shared_options.txt"].assert_eq(&(all.join("\n\n") + "\n"));
    for (verb, text) in &texts {
        let own = parts(text).into_iter().map(|part| match shared.contains(part.trim_end()) {
            true => part.split_inclusive('\n').next().unwrap_or_default().to_owned(),
            false => part,
        });
        let file = if verb.is_empty() { "hitm".to_owned() } else { verb.replace([' ', '_'], "-") };
        expect_file![format!("data/help/{file}.txt")].assert_eq(&own.collect::<String>());
    }
}

#[test]
fn every_command_has_help_with_examples() {
    for verb in verbs() {
        let text = stdout_of(&format!("{verb} --help"));
        let examples: Vec<&str> = examples(&text).collect();
        assert!(!examples.is_empty(), "{verb}");
        // One that is too long goes on in the next line, where it cannot be copied.
        assert!(examples.iter().all(|line| line.starts_with("  hitm ")), "{verb}: {examples:#?}");
        assert!(text.lines().all(|line| line.len() <= 120), "{verb}");
    }
}

#[test]
fn short_help_fits_a_screen() {
    for verb in verbs() {
        let text = stdout_of(&format!("{verb} -h"));
        assert!(text.lines().count() <= 60, "{verb}: {} lines", text.lines().count());
    }
}

/// Every example of every help text is a command that parses.
#[test]
fn examples_are_commands() {
    for verb in verbs() {
        let text = stdout_of(&format!("{verb} --help"));
        for example in examples(&text).filter_map(|line| line.trim().strip_prefix("hitm ")) {
            // What follows is for the shell, or for the reader.
            let command = example.split("  ").next().and_then(|text| text.split(['>', '|']).next()).unwrap_or(example);
            // With `--help` at its end nothing runs, but the options before it are parsed.
            // What follows a program or a compiler's name is theirs.
            let verb = command.split(' ').next().filter(|verb| ["exec", "cc", "c++", "cargo", "watch"].contains(verb));
            let help = stdout_of(&format!("{} --help", verb.unwrap_or(command)));
            assert!(help.contains("Usage: hitm"), "{example}");
        }
    }
}

#[test]
fn the_version_is_one_line() {
    assert_eq!(stdout_of("--version"), format!("hitm {}\n", env!("CARGO_PKG_VERSION")));
}

/// The committed schema is the one that the command prints, and a saved result agrees with it.
#[test]
fn the_schema_is_the_committed_one() {
    expect_test::expect_file![workspace("docs/result.schema.json")].assert_eq(&stdout_of("schema"));
    read_checked(&workspace("results/ffmpeg.json"), "run");
}

#[test]
fn completions_and_manual_pages_are_of_every_command() {
    let script = stdout_of("completions bash");
    let page = stdout_of("man");
    for verb in [
        "run",
        "exec",
        "cc",
        "sweep",
        "job",
        "list",
        "c2c",
        "compare",
        "check",
        "advise",
        "validate",
        "layout",
        "schema",
        "completions",
        "man",
    ] {
        assert!(
            script.contains(&format!("hitm__subcmd__{verb}")) || script.contains(&format!("hitm__{verb}")),
            "{verb}"
        );
        assert!(page.contains(&format!("hitm\\-{verb}(1)")), "{verb}: {page}");
    }
    let folder = crate::command::folder();
    let ended = crate::command::end(crate::command::hitm().arg("man").arg("--to").arg(folder.path()));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(folder.path().join("hitm-run-ffmpeg.1").is_file());
    let ended = crate::command::run(["man", "--to", "missing-folder"]);
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
}
