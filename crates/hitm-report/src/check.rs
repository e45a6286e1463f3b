//! What of a program the machine would not see: the form of `hitm exec --check --json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `schema` in a file.
pub const SCHEMA: &str = "hitm-check/1";

/// What is found in a program's file.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Checked {
    /// The form of this file.
    pub schema: String,
    /// The program, as it was named.
    pub program: String,
    /// Whether the runtime library is linked; without it the program does not run on a machine.
    pub is_linked: bool,
    /// Functions that are instrumented.
    pub functions: usize,
    /// Functions that are not, and that access other memory than their stack.
    pub unseen_functions: Vec<UnseenFunction>,
    /// Inline assembly that was left out.
    pub unseen_assembly: Vec<UnseenAssembly>,
    /// Shared libraries beside the C library's own.
    pub libraries: Vec<Library>,
    /// Call sites of instrumented functions.
    pub calls: usize,
    /// Those whose function is in a shared library.
    pub calls_of_libraries: usize,
    /// How often each such function is called, the most frequent first.
    pub called: Vec<(String, usize)>,
    /// Calls of what makes processes or code, with what it is.
    pub risks: Vec<Risk>,
}

/// A function that is not instrumented.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct UnseenFunction {
    /// Its name in the program.
    pub name: String,
    /// Instructions that access memory.
    pub accesses: usize,
    /// Those with a lock prefix, and exchanges.
    pub atomic: usize,
}

/// Inline assembly that was left out.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct UnseenAssembly {
    /// File and line.
    pub place: String,
    /// Its text.
    pub instruction: String,
    /// Why it was not understood.
    pub why: String,
}

/// A shared library that the program is linked with.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Library {
    /// Its name in the program.
    pub name: String,
    /// The file that would be loaded now.
    pub file: Option<String>,
    /// Whether the machine sees it.
    pub state: LibraryState,
}

/// Whether the machine sees a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibraryState {
    /// It calls the runtime library: `hitm cc` made it.
    Seen,
    /// It does not.
    Unseen,
    /// There is no file that would be loaded.
    NotFound,
}

/// A call that cannot be simulated.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Risk {
    /// What is called.
    pub function: String,
    /// What is not simulated.
    pub why: String,
    /// Call sites.
    pub calls: usize,
}

impl Checked {
    /// Nothing is found yet in `program`.
    #[must_use]
    pub fn new(program: String) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            program,
            is_linked: false,
            functions: 0,
            unseen_functions: Vec::new(),
            unseen_assembly: Vec::new(),
            libraries: Vec::new(),
            calls: 0,
            calls_of_libraries: 0,
            called: Vec::new(),
            risks: Vec::new(),
        }
    }

    /// Returns whether the machine sees all of the program's own code.
    #[must_use]
    pub fn is_all_seen(&self) -> bool {
        self.is_linked && self.unseen_functions.is_empty() && self.unseen_assembly.is_empty() && self.risks.is_empty()
    }

    /// Returns the file's text.
    #[must_use]
    pub fn write(&self) -> String {
        crate::json::json_text(self)
    }

    /// Returns what is found, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}: {} functions are instrumented\n", self.program, self.functions);
        if !self.is_linked {
            text += "the runtime library is not linked: link the program with `hitm cc`\n";
        }
        if !self.unseen_functions.is_empty() {
            text += "functions that are not instrumented, whose accesses are not seen:\n";
        }
        for UnseenFunction { name, accesses, atomic } in &self.unseen_functions {
            text += &format!("  {name}: {accesses} accesses, {atomic} atomic\n");
        }
        if !self.unseen_assembly.is_empty() {
            text += "inline assembly that was left out:\n";
        }
        for UnseenAssembly { place, instruction, why } in &self.unseen_assembly {
            text += &format!("  {place}: `{instruction}`: {why}\n");
        }
        for Risk { function, why, calls } in &self.risks {
            text += &format!("{function} is called at {calls} places: {why}\n");
        }
        for (state, what) in [
            (LibraryState::Seen, "shared libraries that are seen"),
            (LibraryState::Unseen, "shared libraries that `hitm cc` did not make, whose accesses are not seen"),
            (LibraryState::NotFound, "shared libraries that were not found"),
        ] {
            let names = self.libraries.iter().filter(|library| library.state == state);
            let names: Vec<&str> = names.map(|library| library.name.as_str()).collect();
            if !names.is_empty() {
                text += &format!("{what}: {}\n", names.join(", "));
            }
        }
        if self.calls > 0 {
            let share = 100.0 * self.calls_of_libraries as f64 / self.calls as f64;
            let most: Vec<String> =
                self.called.iter().take(8).map(|(name, calls)| format!("{name} ({calls})")).collect();
            let most = if most.is_empty() { String::new() } else { format!(": {}", most.join(", ")) };
            text += &format!(
                "{} of {} call sites ({share:.0} %) call shared libraries{most}\n",
                self.calls_of_libraries, self.calls
            );
        }
        if self.is_all_seen() {
            text += "all of the program's own code is seen\n";
        }
        text
    }
}
