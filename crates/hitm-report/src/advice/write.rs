//! Advice, for people and as a file.

use std::fmt::Write as _;

use super::{Advice, Kind, Prediction, Suggestion, Together};
use crate::columns::{fit, short};
use crate::json::json_text;

impl Prediction {
    /// Returns the gain and its interval in percent.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.interval {
            Some(interval) => format!("{:+.1} ±{:.1} %", 100.0 * self.gain, 100.0 * interval),
            None => format!("{:+.1} %", 100.0 * self.gain),
        }
    }
}

/// The words before the gain of a split, whose readers pay for their own part alone.
const LIMIT: &str = "at most ";

impl Suggestion {
    fn render(&self, number: usize, width: usize, text: &mut String) {
        let mut line = |line: String| text.push_str(&fit(&line, width));
        line(format!("{number}. {}: {}", self.object, self.title));
        let gain = match &self.predicted {
            Some(predicted) if self.kind == Kind::Split => format!("{LIMIT}{}", predicted.in_words()),
            Some(predicted) => predicted.in_words(),
            None => "not simulated".to_owned(),
        };
        let price = self.bytes.map_or_else(String::new, |bytes| format!(", {bytes:+} bytes per object"));
        line(format!("   predicted: {gain}{price}; {:.1} % of the waits", 100.0 * self.share));
        for own in &self.evidence {
            let (functions, writers) = (own.functions.join(", "), own.writers.join(", "));
            let cpus = if own.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", own.cpus) };
            line(format!(
                "   {} in {functions} waits {} cycles on {cpus} after {} is written in {writers}",
                own.waits,
                short(own.cycles),
                own.written,
            ));
        }
        // Lines of a source are not wrapped.
        for line in self.diff.iter().flat_map(|diff| diff.lines()) {
            writeln!(text, "{}", format!("   | {line}").trim_end()).expect("a string");
        }
        for worse in self.predicted.iter().flat_map(|predicted| &predicted.worse) {
            let (before, after) = worse.cycles;
            let words = format!(
                "   worse: {}, {} cycles per unit of work, before {}",
                worse.field,
                short(after),
                short(before)
            );
            text.push_str(&fit(&words, width));
        }
    }
}

impl Together {
    fn render(&self, width: usize, text: &mut String) {
        let mut line = |line: String| text.push_str(&fit(&line, width));
        line("\none on another, the largest gain first; what gains beyond its interval is kept".to_owned());
        for (index, step) in self.steps.iter().enumerate() {
            let verdict = if step.is_kept { "kept" } else { "left out" };
            let gain = match &step.predicted {
                Some(predicted) => format!("{verdict}, {}", predicted.in_words()),
                None => format!("{verdict}: it contradicts one that is kept"),
            };
            line(format!("{}. {}: {}", index + 1, step.object, step.title));
            line(format!("   {gain}"));
        }
        let limit = if self.is_limit { LIMIT } else { "" };
        line(match &self.predicted {
            Some(predicted) => format!("together: {limit}{}, {:+} bytes", predicted.in_words(), self.bytes),
            None => "together: none gains beyond its interval".to_owned(),
        });
    }
}

impl Advice {
    /// Returns the text for people, in `width` columns.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut text = fit(&format!("advice on {}", self.subject), width);
        if !self.seeds.is_empty() {
            let pairs = match self.seeds.len() {
                1 => "1 pair of runs".to_owned(),
                seeds => format!("{seeds} pairs of runs, each"),
            };
            writeln!(text, "gain: {}, {pairs} with the same random seed", self.metric).expect("a string");
        }
        if self.suggestions.is_empty() {
            let why = "no object has fields that wait for each other's writes by half a percent of all waits or more";
            writeln!(text, "No layout is suggested: {why}.").expect("a string");
        }
        let is_shown = |own: &&Suggestion| self.seeds.is_empty() || own.predicted.is_some();
        let shown = self.suggestions.iter().filter(is_shown).count();
        for (index, suggestion) in self.suggestions.iter().filter(is_shown).enumerate() {
            text.push('\n');
            suggestion.render(index + 1, width, &mut text);
        }
        if shown < self.suggestions.len() {
            let left = self.suggestions.len() - shown;
            let words = "not simulated: --try N simulates N of them, and --try 0 shows all";
            writeln!(text, "\n{left} more {} {words}", if left == 1 { "was" } else { "were" }).expect("a string");
        }
        if !self.controls.is_empty() {
            text.push_str("\nadvisors without a reason, to compare with\n");
        }
        for (index, control) in self.controls.iter().enumerate() {
            control.render(index + 1, width, &mut text);
        }
        if let Some(together) = &self.together {
            together.render(width, &mut text);
        }
        text
    }

    /// Returns the file's text as JSON, ended by a line feed.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }
}
