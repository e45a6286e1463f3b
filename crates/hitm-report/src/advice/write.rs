//! Advice, for people and as a file.

use std::fmt::Write as _;

use super::{Advice, Kind, Prediction, Suggestion};
use crate::columns::short;
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

impl Suggestion {
    fn render(&self, number: usize, text: &mut String) {
        let gain = self.predicted.as_ref().map_or_else(|| "not simulated".to_owned(), Prediction::in_words);
        let limit = if self.kind == Kind::Split { "at most " } else { "" };
        writeln!(text, "{number}. {}: {}", self.object, self.title).expect("a string");
        let price = self.bytes.map_or_else(String::new, |bytes| format!(", {bytes:+} bytes per object"));
        writeln!(text, "   predicted: {limit}{gain}{price}; {:.1} % of the waits", 100.0 * self.share)
            .expect("a string");
        for own in &self.evidence {
            let (functions, writers) = (own.functions.join(", "), own.writers.join(", "));
            writeln!(
                text,
                "   {} in {functions} waits {} cycles after {} is written in {writers}; {} CPUs",
                own.waits,
                short(own.cycles),
                own.written,
                own.cpus
            )
            .expect("a string");
        }
        for line in self.diff.iter().flat_map(|diff| diff.lines()) {
            writeln!(text, "{}", format!("   | {line}").trim_end()).expect("a string");
        }
        for worse in self.predicted.iter().flat_map(|predicted| &predicted.worse) {
            let (before, after) = worse.cycles;
            writeln!(
                text,
                "   worse: {}, {} cycles per unit of work, before {}",
                worse.field,
                short(after),
                short(before)
            )
            .expect("a string");
        }
    }
}

impl Advice {
    /// Returns the text for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!("advice on {}\n", self.subject);
        if !self.seeds.is_empty() {
            let seeds = self.seeds.len();
            writeln!(text, "gain: {}, {seeds} pairs of runs with the same random seed", self.metric).expect("a string");
        }
        if self.suggestions.is_empty() {
            text.push_str("No layout is suggested: no field's waits follow writes of another.\n");
        }
        let is_shown = |own: &&Suggestion| self.seeds.is_empty() || own.predicted.is_some();
        let shown = self.suggestions.iter().filter(is_shown).count();
        for (index, suggestion) in self.suggestions.iter().filter(is_shown).enumerate() {
            text.push('\n');
            suggestion.render(index + 1, &mut text);
        }
        if shown < self.suggestions.len() {
            let left = self.suggestions.len() - shown;
            writeln!(text, "\n{left} more were not simulated: --try 0 shows them").expect("a string");
        }
        if !self.controls.is_empty() {
            text.push_str("\nadvisors without a reason, to compare with\n");
        }
        for (index, control) in self.controls.iter().enumerate() {
            control.render(index + 1, &mut text);
        }
        text
    }

    /// Returns the file's text as JSON, ended by a line feed.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }
}
