//! What became of rules: for people, and in the forms that services of continuous integration show.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Judged, Verdict};
use crate::json::json_text;

impl Verdict {
    /// Returns where the rule was judged: the subject, and the size of line if it matters.
    #[must_use]
    pub fn place(&self) -> String {
        match self.line_bytes {
            Some(bytes) => format!("{}, lines of {bytes} bytes", self.subject),
            None => self.subject.clone(),
        }
    }

    /// Returns what was found, and below it what shows it.
    fn text(&self) -> String {
        format!("{}\n{}", self.found, self.excerpt)
    }
}

impl Judged {
    /// Returns the text for people: what is broken, with what shows it, then what holds.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        for verdict in self.broken() {
            writeln!(text, "broken: {} ({}:{})", verdict.rule, self.rules, verdict.at).expect("a string");
            writeln!(text, "  {}: {}", verdict.place(), verdict.found).expect("a string");
            for line in verdict.excerpt.lines() {
                writeln!(text, "{}", format!("    {line}").trim_end()).expect("a string");
            }
            text.push('\n');
        }
        for verdict in self.verdicts.iter().filter(|verdict| verdict.holds) {
            writeln!(text, "holds: {}, {}: {}", verdict.rule, verdict.place(), verdict.found).expect("a string");
        }
        writeln!(text, "{}", self.summary()).expect("a string");
        text
    }

    /// Returns the numbers of verdicts.
    #[must_use]
    pub fn summary(&self) -> String {
        let broken = self.broken().count();
        format!("{}: {} of {} hold", self.rules, self.verdicts.len() - broken, self.verdicts.len())
    }

    /// Returns the file's text as JSON, ended by a line feed.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }

    /// Returns the same as JUnit's XML.
    #[must_use]
    pub fn junit(&self) -> String {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let (tests, failures) = (self.verdicts.len(), self.broken().count());
        let name = xml(&self.rules);
        writeln!(text, "<testsuites tests=\"{tests}\" failures=\"{failures}\">").expect("a string");
        writeln!(text, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">").expect("a string");
        for verdict in &self.verdicts {
            let (class, case) = (xml(&verdict.place()), xml(&verdict.rule));
            let head =
                format!("    <testcase classname=\"{class}\" name=\"{case}\" file=\"{name}\" line=\"{}\"", verdict.at);
            if verdict.holds {
                writeln!(text, "{head}/>").expect("a string");
            } else {
                let (found, all) = (xml(&verdict.found), xml(&verdict.text()));
                writeln!(text, "{head}>\n      <failure message=\"{found}\">{all}</failure>\n    </testcase>")
                    .expect("a string");
            }
        }
        text + "  </testsuite>\n</testsuites>\n"
    }

    /// Returns the broken rules as SARIF 2.1.0.
    #[must_use]
    pub fn sarif(&self, version: &str) -> String {
        let mut names: Vec<&str> = self.verdicts.iter().map(|verdict| verdict.rule.as_str()).collect();
        names.dedup();
        let rules: Vec<Value> =
            names.iter().map(|name| json!({ "id": name, "shortDescription": { "text": name } })).collect();
        let result = |verdict: &Verdict| {
            let message = format!("{}: {}", verdict.place(), verdict.text());
            let place = json!({
                "artifactLocation": { "uri": self.rules },
                "region": { "startLine": verdict.at },
            });
            json!({
                "ruleId": verdict.rule,
                "level": "error",
                "message": { "text": message },
                "locations": [{ "physicalLocation": place }],
            })
        };
        let results: Vec<Value> = self.broken().map(result).collect();
        let driver = json!({ "name": "hitm check", "semanticVersion": version, "rules": rules });
        json_text(&json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{ "tool": { "driver": driver }, "results": results }],
        }))
    }
}

/// Returns a text as it may stand in XML. Characters that XML cannot have are left out.
fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(char),
            '\u{fffe}' | '\u{ffff}' => {}
            char if char.is_control() => {}
            char => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::xml;

    #[test]
    fn hostile_names_are_text() {
        assert_eq!(xml("</failure><a b=\"&\u{1b}\">"), "&lt;/failure&gt;&lt;a b=&quot;&amp;&quot;&gt;");
    }
}
