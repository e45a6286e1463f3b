//! The command line as a result file keeps it.

use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// The options that results do not depend on: output files, and the number of host threads.
const WHERE_TO: [&str; 7] = ["json", "csv", "plot", "state", "jobs", "results", "emit_jobs"];

static WORDS: OnceLock<Vec<String>> = OnceLock::new();

/// Keeps the words of this process' command line.
pub(crate) fn keep(command: &mut Command, matches: &ArgMatches) {
    // A process has one command line: a second call changes nothing.
    let _kept = WORDS.set(words(command, matches));
}

/// Returns the words that were kept.
pub(crate) fn kept() -> Vec<String> {
    WORDS.get().cloned().unwrap_or_default()
}

/// Returns the words of a command line in one form, however it was typed: the verbs, the options in
/// the order of the help, and what stands alone.
pub(crate) fn words(command: &mut Command, matches: &ArgMatches) -> Vec<String> {
    // Only then do the commands of each verb have the options that all share.
    command.build();
    let (mut command, mut matches) = (&*command, matches);
    let mut words = Vec::new();
    while let Some((verb, inner)) = matches.subcommand() {
        let Some(next) = command.find_subcommand(verb) else { break };
        words.push(verb.to_owned());
        (command, matches) = (next, inner);
    }
    let was_given = |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let given = command.get_arguments().filter(was_given);
    let (alone, options): (Vec<&Arg>, Vec<&Arg>) = given.partition(|arg| arg.is_positional());
    for arg in options.into_iter().filter(|arg| !WHERE_TO.contains(&arg.get_id().as_str())) {
        let name = format!("--{}", arg.get_long().unwrap_or_else(|| arg.get_id().as_str()));
        for values in occurrences(arg, matches) {
            words.push(name.clone());
            words.extend(values);
        }
    }
    words.extend(alone.into_iter().flat_map(|arg| occurrences(arg, matches)).flatten());
    words
}

/// Returns the values of each time that `arg` was given, as they were typed.
fn occurrences(arg: &Arg, matches: &ArgMatches) -> Vec<Vec<String>> {
    if !arg.get_action().takes_values() {
        return vec![Vec::new()];
    }
    let raw = matches.get_raw_occurrences(arg.get_id().as_str()).into_iter().flatten();
    raw.map(|values| {
        let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        match arg.get_value_delimiter() {
            Some(between) => vec![values.join(&between.to_string())],
            None => values,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[track_caller]
    fn check(typed: &str, kept: &str) {
        let mut command = crate::Hitm::command();
        let matches = command.clone().try_get_matches_from(typed.split(' ')).expect("a right command line");
        assert_eq!(words(&mut command, &matches).join(" "), kept);
    }

    #[test]
    fn what_changes_no_result_is_not_kept() {
        check("hitm run ffmpeg --jobs 3 --json a.json --seed 2", "run ffmpeg --seed 2");
        check("hitm run ffmpeg --json=a.json --seed 2 --jobs=1", "run ffmpeg --seed 2");
        check("hitm sweep cyclic --state=a --csv b --plot c --seeds 2", "sweep cyclic --seeds 2");
        check("hitm sweep cyclic --results a --emit-jobs b --seeds 2", "sweep cyclic --seeds 2");
    }

    #[test]
    fn one_form_stands_for_all() {
        let kept = "run ffmpeg --machine a --machine b --cpus 2,4 --arbitration fifo --seed 2";
        check(&format!("hitm {kept}"), kept);
        check("hitm run ffmpeg --seed=2 --machine a --arbitration fifo --cpus=2,4 --machine b", kept);
    }

    #[test]
    fn a_program_keeps_its_own_options() {
        check("hitm exec --json r.json -- ./a --json b -x 3", "exec ./a --json b -x 3");
    }
}
