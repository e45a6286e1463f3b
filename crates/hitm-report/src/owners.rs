//! Which object a field belongs to, in files of programs whose version did not say it.
//!
//! Such a file has the other object's name before that of the field:
//! `jobq of main two.c:33 #1.head`.

use crate::layout::Declared;
use crate::line::{Field, Line, Owner, is_number, kind_of};
use crate::result::ResultFile;
use crate::rules::Layout;

/// Names the owners of fields that are not of their line's object.
pub(crate) fn name(file: &mut ResultFile) {
    let is_program = file.command.first().is_some_and(|word| word == "exec");
    let is_said = |line: &Line| line.fields.iter().any(|field| field.owner.is_some());
    if !is_program || file.runs.iter().flat_map(|run| &run.lines).any(is_said) {
        return;
    }
    for run in &mut file.runs {
        let known = Known { declared: &file.declared, lines: &run.lines };
        let owners: Vec<Option<Owner>> =
            run.lines.iter().flat_map(|line| line.fields.iter().map(|field| known.owner(line, field))).collect();
        let fields = run.lines.iter_mut().flat_map(|line| &mut line.fields);
        fields.zip(owners).for_each(|(field, owner)| field.owner = owner);
    }
}

/// What a file tells of objects.
struct Known<'a> {
    declared: &'a [Declared],
    lines: &'a [Line],
}

impl Known<'_> {
    /// Returns what a field belongs to, if that is not its line's object.
    fn owner(&self, line: &Line, field: &Field) -> Option<Owner> {
        let at = line.address.0?.checked_add(line.offset_of(field))?;
        let end = end_of_object(&field.field).or_else(|| self.end_of_variable(line, &field.field, at))?;
        let (object, name) = divided(&field.field, end);
        let start = self.start(object, at, name);
        let offset = u32::try_from(at - start).ok()?;
        Some(Owner { object: object.to_owned(), field: name.to_owned(), offset })
    }

    /// Returns where the name of a variable ends that has the byte at an address, unless that is
    /// the line's object.
    fn end_of_variable(&self, line: &Line, name: &str, at: u64) -> Option<usize> {
        let mut variables = self.variables(at);
        let is_before = |own: &&Declared| {
            let rest = name.strip_prefix(own.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let own = variables.find(is_before).filter(|own| own.name != line.object)?;
        // The line's object may have a field of this name.
        let is_here = |other: &Declared| other.name == line.object;
        (!self.variables(at).any(is_here)).then_some(own.name.len())
    }

    /// Returns the variables that have the byte at an address.
    fn variables(&self, at: u64) -> impl Iterator<Item = &Declared> {
        let has = move |own: &&Declared| {
            own.address.0.and_then(|start| at.checked_sub(start)).is_some_and(|within| within < own.size as u64)
        };
        self.declared.iter().filter(has)
    }

    /// Returns where an object begins whose field `name` lies at `at`; if nothing says it, there.
    fn start(&self, object: &str, at: u64, name: &str) -> u64 {
        let of_line = || self.lines.iter().find(|line| line.object == object)?.start();
        let of_variable = || self.variables(at).find(|own| own.name == object)?.address.0;
        let of_type = || {
            let kind = kind_of(object)?;
            let own = self.declared.iter().find(|own| own.name == kind && own.address.0.is_none())?;
            let (number, name) = element(name);
            let spots = Layout::declared(own).fields;
            let spot = spots.iter().find(|spot| spot.name == name)?;
            number.checked_mul(own.size as u64)?.checked_add(spot.offset).and_then(|within| at.checked_sub(within))
        };
        of_line().or_else(of_variable).or_else(of_type).filter(|&start| start <= at).unwrap_or(at)
    }
}

/// Returns the number of an element and the name in it: 3 and `next` of `[3].next`.
fn element(name: &str) -> (u64, &str) {
    let parts = name.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let number = parts.and_then(|(number, rest)| Some((number.parse().ok()?, rest.trim_start_matches('.'))));
    number.unwrap_or((0, name))
}

/// Divides a name where the object's ends. A value without fields has its own name.
fn divided(name: &str, end: usize) -> (&str, &str) {
    let (object, field) = name.split_at(end);
    match field.strip_prefix('.') {
        Some(field) => (object, field),
        None => (object, kind_of(object).unwrap_or(object)),
    }
}

/// Returns where the object's name ends in the name of a field of another object than the line's,
/// if its form says that it is one.
fn end_of_object(name: &str) -> Option<usize> {
    // A block of the heap: `ring of main ring.c:30 #2`.
    let of_block = name.match_indices(" #").find_map(|(at, mark)| {
        let number = name[at + mark.len()..].split('.').next()?;
        is_number(number).then_some(at + mark.len() + number.len())
    });
    // What has no type has bytes. A field of the line's object has no dot before them.
    let of_bytes = || name.rsplit_once(".+").filter(|(_, byte)| is_number(byte)).map(|(object, _)| object.len());
    // A variable of a function or of a thread, and what lies on a stack.
    let of_code = || {
        let from = name.find(" of ")?;
        let (mut depth, mut last) = (0, ' ');
        let end = name[from..].find(|c: char| {
            match c {
                '(' | '<' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                '>' if last != '-' => depth -= 1,
                _ => {}
            }
            last = c;
            depth == 0 && c == '.'
        });
        Some(end.map_or(name.len(), |end| from + end))
    };
    of_block.or_else(of_bytes).or_else(of_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Rules, Subject, judge};

    #[test]
    fn an_object_ends_where_its_form_says() {
        for (name, expect) in [
            ("jobq of main two.c:33 #1.head", Some(("jobq of main two.c:33 #1", "head"))),
            ("block #12.[3].next", Some(("block #12", "[3].next"))),
            ("own of thread 3", Some(("own of thread 3", "own"))),
            ("thread-local storage of thread 1.-8", Some(("thread-local storage of thread 1", "-8"))),
            ("jobs of main(int, char**)::<lambda()>.next", Some(("jobs of main(int, char**)::<lambda()>", "next"))),
            ("sum of add(char const*, ...).all", Some(("sum of add(char const*, ...)", "all"))),
            ("memory at 0x7f00.+8", Some(("memory at 0x7f00", "+8"))),
            ("slots[3].value", None),
            ("slots+8", None),
        ] {
            assert_eq!(end_of_object(name).map(|end| divided(name, end)), expect, "{name}");
        }
    }

    /// A file without owners, with two lines of two objects: blocks, and variables.
    fn earlier() -> ResultFile {
        let field = |name: &str, offset: u32| {
            format!(
                r#"{{"field": "{name}", "offset": {offset}, "hitm_local": 0, "hitm_remote": 0, "loads": 9, "stores": 9,
                    "sites": [{{"function": "work", "location": "two.c:9", "share": 1.0, "misses": 100,
                        "hitm_local": 0, "hitm_remote": 0, "cycles": [0.0, 0.0, 50.0]}}], "invalidated_by": []}}"#
            )
        };
        let line = |object: &str, object_at: u64, fields: &[String]| -> Line {
            let text = format!(
                r#"{{"object": "{object}", "line": 0, "address": "{:#x}", "object_at": "{object_at:#x}", "loads": 9,
                    "stores": 9, "misses": 100, "ownership_transfers": 0, "hitm_local": 0, "hitm_remote": 0,
                    "cycles_per_load": {{"mean": 0, "p50": 0, "p99": 0, "max": 0}}, "fields": [{}]}}"#,
                object_at & !63,
                fields.join(",")
            );
            serde_json::from_str(&text).expect("a line")
        };
        let heap = ["limit", "jobq of main two.c:33 #1.head", "jobq of main two.c:33 #1.tail"];
        let heap: Vec<String> = heap.iter().zip([0, 32, 40]).map(|(name, offset)| field(name, offset)).collect();
        let data = [field("flag", 0), field("ring.head", 32), field("ring.tail", 40)];
        let lines = vec![line("opts of main two.c:32 #0", 0x7d0, &heap), line("flag", 0x1000, &data)];
        let word = |name: &str, offset: u32| format!(r#"{{"name": "{name}", "offset": {offset}, "size": 8}}"#);
        let pair = format!("{}, {}", word("head", 0), word("tail", 8));
        let declared = |name: &str, address: &str, size: u64, fields: &str| -> Declared {
            let text = format!(r#"{{"name": "{name}", {address} "size": {size}, "fields": [{fields}]}}"#);
            serde_json::from_str(&text).expect("a declaration")
        };
        ResultFile {
            command: vec!["exec".to_owned()],
            runs: vec![crate::result::Run { lines, operations: [("turn".to_owned(), 9)].into(), ..Default::default() }],
            declared: vec![
                declared("flag", r#""address": "0x1000","#, 8, &word("flag", 0)),
                declared("jobq", r#""address": "0x3000","#, 8, &word("jobq", 0)),
                declared("ring", r#""address": "0x1020","#, 16, &pair),
                declared("jobq", "", 16, &pair),
                declared("idle", r#""address": "0x3008","#, 8, &word("idle", 0)),
                declared("idle", "", 16, &pair),
            ],
            ..ResultFile::default()
        }
    }

    #[test]
    fn owners_are_found_by_names_and_places() {
        let mut file = earlier();
        name(&mut file);
        let fields = file.runs[0].lines.iter().flat_map(|line| &line.fields);
        let owners: Vec<_> = fields.map(|field| field.owner.clone()).collect();
        let owner = |object: &str, field: &str, offset| {
            Some(Owner { object: object.to_owned(), field: field.to_owned(), offset })
        };
        let jobq = |field, offset| owner("jobq of main two.c:33 #1", field, offset);
        let expect = [None, jobq("head", 0), jobq("tail", 8), None, owner("ring", "head", 0), owner("ring", "tail", 8)];
        assert_eq!(owners, expect);
        let kept = file.clone();
        name(&mut file);
        assert_eq!(file, kept);
    }

    #[test]
    fn a_name_that_begins_as_another_is_not_of_it() {
        let mut file = earlier();
        let line = &mut file.runs[0].lines[1];
        let by = |name: &str| {
            let (field, function) = (name.to_owned(), "work".to_owned());
            vec![crate::line::InvalidatedBy { field, function, location: String::new(), share: 1.0 }]
        };
        line.object = "flag".to_owned();
        for (field, (name, written)) in line.fields.iter_mut().zip([
            ("flag", "ring2.head"),
            ("ring.head", "ring2.head"),
            ("ring2.head", "ring2.head"),
        ]) {
            (field.field, field.invalidated_by) = (name.to_owned(), by(written));
        }
        file.declared[2].size = 8;
        file.declared.push(Declared {
            name: "ring2".into(),
            address: crate::line::Address(Some(0x1028)),
            ..file.declared[2].clone()
        });
        name(&mut file);
        let parts = file.runs[0].lines[1].by_object();
        let shown = parts.iter().map(|part| (part.object.as_str(), part.fields[0].invalidated_by[0].field.as_str()));
        assert_eq!(shown.collect::<Vec<_>>(), [("flag", "ring2.head"), ("ring", "ring2.head"), ("ring2", "head")]);
        // The highest addresses are of lines, too.
        let line = &mut file.runs[0].lines[1];
        (line.address, line.object_at) = (crate::line::Address(Some(u64::MAX)), crate::line::Address(Some(u64::MAX)));
        assert_eq!(line.by_object().len(), 3);
    }

    #[test]
    fn rules_know_each_object_of_an_earlier_file() {
        let file = ResultFile::read(&ResultFile { schema: crate::result::SCHEMA.to_owned(), ..earlier() }.write());
        let file = file.expect("it is one");
        let run = &file.runs[0];
        let known: Vec<Layout> = file.declared.iter().map(Layout::declared).collect();
        let layouts = Layout::of_run(run, &known);
        for (rule, expect) in [
            ("waits = { at_most = 5, fields = [\"jobq.head\"] }", Ok(false)),
            ("waits = { at_most = 20, fields = [\"ring.*\"] }", Ok(true)),
            ("waits = { at_most = 5, fields = [\"ring.tail\"] }", Ok(false)),
            ("written = { per = \"turn\", at_most = 0.5, objects = [\"ring\"] }", Ok(false)),
            ("written = { per = \"turn\", at_most = 1, objects = [\"ring\", \"flag\"] }", Ok(true)),
            // No CPU waits for what `idle` points to.
            ("waits = { at_most = 5, fields = [\"idle.head\"] }", Ok(true)),
            ("waits = { at_most = 5, fields = [\"opts.head\"] }", Err(())),
            ("apart = [\"opts.limit\", \"jobq.tail\"]", Ok(false)),
            ("apart = [\"jobq.head\", \"ring.head\"]", Ok(true)),
        ] {
            let rules = Rules::read(&format!("[[rule]]\nname = \"it\"\n{rule}\n")).expect("a rule");
            let subject = Subject { name: "a run", layouts: &layouts, run: Some((run, &file)) };
            let judged = judge(&rules.all[0], subject, &|_| unreachable!());
            assert_eq!(judged.map(|all| all[0].holds).map_err(|_| ()), expect, "{rule}");
        }
    }
}
