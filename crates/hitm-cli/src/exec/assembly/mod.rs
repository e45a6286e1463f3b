//! Inline assembly of a program: before each instruction that accesses memory comes a call that
//! tells the runtime library of it.
//!
//! The compiler marks what comes from the program's `asm` statements. The assembler is asked for
//! the bytes of each statement, with labels around it, and a decoder tells what they do. So a
//! prefix may be a statement of its own, and names of instructions need not be known here. The
//! entries that are called are in `hitm-exec/src/assembly.rs`, which says how a site looks.

mod decode;
mod sequence;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use object::{Object, ObjectSection, ObjectSymbol, SectionIndex, SectionKind};

use self::decode::{Effect, Kind, NoCode};
use self::text::{Piece, Statement, Syntax};
use crate::failure::Failure;

/// An instruction that the machine does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// File and line.
    pub(crate) place: String,
    pub(crate) instruction: String,
    pub(crate) why: String,
}

/// Assembly with its calls.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// What is left as it was.
    pub(crate) unseen: Vec<Unseen>,
    /// How many calls were put in.
    pub(crate) sites: usize,
}

/// Puts calls into the compiler's assembly. `assemble` makes an object of a text, with its local
/// labels.
///
/// # Errors
/// Those of `assemble`, and when what it makes cannot be read.
pub(crate) fn rewrite(
    text: &str,
    assemble: impl FnOnce(&str) -> Result<Vec<u8>, Failure>,
) -> Result<Rewritten, Failure> {
    let pieces = text::pieces(text);
    let statements: Vec<&Statement> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Statement(statement) => Some(statement),
            Piece::Line(_) => None,
        })
        .collect();
    let bytes = if statements.is_empty() {
        Vec::new()
    } else {
        let object = assemble(&labelled(&pieces))?;
        bytes_of(&object, statements.len())
            .map_err(|error| Failure::wanting(format!("the assembler's object: {error}")))?
    };
    let mut unseen = Vec::new();
    let mut effects = effects(&statements, &bytes, &mut unseen);
    let mut rewritten = Rewritten { text: String::with_capacity(text.len()), unseen, sites: 0 };
    let mut syntax = Syntax::Att;
    let mut number = 0;
    // The last statement of a sequence of which there is a copy, and the label behind it.
    let mut copied: Option<(usize, String)> = None;
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Line(line) => {
                syntax = syntax.after(line);
                // What compilers make of their functions for these.
                match line.split_whitespace().collect::<Vec<_>>().join(" ").as_str() {
                    "pause" | "rep nop" | "rep; nop" => rewritten.call(syntax, &site("pause", None, None)),
                    "mfence" => rewritten.call(syntax, &site("fence", None, None)),
                    _ => {}
                }
                rewritten.line(line);
            }
            Piece::Statement(statement) => {
                if at == 0 || matches!(pieces[at - 1], Piece::Line(_)) {
                    let whole = text::run(&pieces[at..]);
                    if sequence::is_restartable(&whole) {
                        let behind = rewritten.copy(syntax, &whole, number);
                        copied = Some((number + whole.len() - 1, behind));
                    }
                }
                syntax = syntax.after(&statement.text);
                if let Some((effect, last)) = effects.remove(&number) {
                    rewritten.effect(syntax, &effect, statements[last]);
                }
                rewritten.line(&format!("\t{}", statement.text));
                if let Some((_, behind)) = copied.take_if(|(last, _)| *last == number) {
                    rewritten.line(&format!("{behind}:"));
                }
                number += 1;
            }
        }
    }
    Ok(rewritten)
}

/// The label before a statement, and the one behind it.
fn labels(number: usize) -> [String; 2] {
    [format!(".Lhitm_{number}_begins"), format!(".Lhitm_{number}_ends")]
}

/// The text with a label before and behind each statement of inline assembly.
fn labelled(pieces: &[Piece]) -> String {
    let mut text = String::new();
    let mut number = 0;
    for piece in pieces {
        match piece {
            Piece::Line(line) => text.push_str(line),
            Piece::Statement(statement) => {
                let [begins, ends] = labels(number);
                let _ = write!(text, "{begins}:\n\t{}\n{ends}:", statement.text);
                number += 1;
            }
        }
        text.push('\n');
    }
    text
}

/// The bytes of a statement.
#[derive(Clone, Debug)]
struct Bytes {
    section: SectionIndex,
    at: u64,
    bytes: Vec<u8>,
    /// Offsets of bytes that the linker changes.
    relocated: Vec<usize>,
}

/// What the statements are assembled to: `None` where it is no code.
fn bytes_of(object: &[u8], count: usize) -> object::Result<Vec<Option<Bytes>>> {
    let file = object::File::parse(object)?;
    let places: BTreeMap<&str, (SectionIndex, u64)> = file
        .symbols()
        .filter_map(|symbol| Some((symbol.name().ok()?, (symbol.section_index()?, symbol.address()))))
        .collect();
    let mut all = Vec::new();
    for number in 0..count {
        let [begins, ends] = labels(number);
        let (Some(&(section, at)), Some(&(other, end))) = (places.get(&*begins), places.get(&*ends)) else {
            // In a part that is left out (`.if`).
            all.push(None);
            continue;
        };
        let found = file.section_by_index(section)?;
        if found.kind() != SectionKind::Text || section != other || end <= at {
            all.push(None);
            continue;
        }
        let bytes = found.data_range(at, end - at)?.unwrap_or_default().to_vec();
        let relocated =
            found.relocations().filter(|(place, _)| (at..end).contains(place)).map(|(place, _)| (place - at) as usize);
        all.push(Some(Bytes { section, at, bytes, relocated: relocated.collect() }));
    }
    Ok(all)
}

/// Directives after which what follows lies elsewhere: the bytes between their labels are not
/// theirs.
const ELSEWHERE: [&str; 8] =
    [".section", ".pushsection", ".popsection", ".previous", ".subsection", ".text", ".data", ".org"];

/// The effects of instructions, by the number of the statement that each begins with; with that of
/// the one that it ends with. What cannot be told to the machine is added to `unseen`.
fn effects(
    statements: &[&Statement],
    bytes: &[Option<Bytes>],
    unseen: &mut Vec<Unseen>,
) -> BTreeMap<usize, (Effect, usize)> {
    let mut effects = BTreeMap::new();
    // An instruction of several statements: the first of them, its bytes, and whether a label is
    // among them.
    let mut open: Option<(usize, Bytes, bool)> = None;
    let mut tell = |first: usize, last: usize, why: &str| {
        let words: Vec<&str> = statements[first..=last].iter().map(|statement| statement.text.as_str()).collect();
        let instruction = words.join("; ").lines().next().unwrap_or("").to_owned();
        unseen.push(Unseen { place: statements[last].place.clone(), instruction, why: why.to_owned() });
    };
    for (number, statement) in statements.iter().enumerate() {
        if matches!(statement.name(), ".code32" | ".code16" | ".code16gcc") {
            tell(number, number, "it is not 64-bit code");
        }
        if statement.is_label()
            && let Some((.., has_label)) = &mut open
        {
            *has_label = true;
        }
        let Some(own) = bytes.get(number).and_then(Option::as_ref) else { continue };
        if ELSEWHERE.contains(&statement.name()) {
            continue;
        }
        let (first, whole, has_label) = match open.take() {
            None => (number, own.clone(), false),
            Some((first, mut whole, has_label)) => {
                if (whole.section, whole.at + whole.bytes.len() as u64) != (own.section, own.at) {
                    tell(first, first, "its bytes are no instruction");
                    (number, own.clone(), false)
                } else {
                    let before = whole.bytes.len();
                    whole.relocated.extend(own.relocated.iter().map(|at| at + before));
                    whole.bytes.extend(&own.bytes);
                    (first, whole, has_label)
                }
            }
        };
        let decoded = match decode::decode(&whole.bytes) {
            Ok(decoded) => decoded,
            Err(NoCode::Incomplete) => {
                open = Some((first, whole, has_label));
                continue;
            }
            Err(NoCode::Invalid) => {
                tell(first, number, "its bytes are no instruction");
                continue;
            }
        };
        let is_relocated = |range: std::ops::Range<usize>| whole.relocated.iter().any(|at| range.contains(at));
        let all: Vec<Effect> = decoded.iter().map(|one| one.effect(is_relocated)).collect();
        match &all[..] {
            all if all.iter().all(|effect| *effect == Effect::Nothing) => {}
            [Effect::Unknown(why)] => tell(first, number, why),
            [_] if has_label => tell(first, number, "a label is between its prefix and the rest"),
            [effect] => {
                effects.insert(first, (effect.clone(), number));
            }
            _ => tell(first, number, "it stands for several instructions; write them one by one"),
        }
    }
    if let Some((first, ..)) = open {
        tell(first, first, "its bytes are no instruction");
    }
    effects
}

/// A call of the entry `name` of the runtime library: with the address of an operand, and another
/// word that it takes.
fn site(name: &str, operand: Option<(&str, bool)>, pushed: Option<&str>) -> String {
    let mut text = "\tpushq\t%rdi\n".to_owned();
    if let Some((operand, in_storage)) = operand {
        let _ = writeln!(text, "\tleaq\t{operand}, %rdi");
        if in_storage {
            // The first word of the storage is its own address (ELF Handling For Thread-Local
            // Storage, 3.4.6).
            text += "\tpushq\t%rsi\n\tmovq\t%fs:0, %rsi\n\tleaq\t(%rdi,%rsi), %rdi\n\tpopq\t%rsi\n";
        }
    }
    if let Some(pushed) = pushed {
        let _ = writeln!(text, "\tpushq\t{pushed}");
    }
    // Not through the procedure linkage table: at its first call it changes registers.
    let _ = writeln!(text, "\tcall\t*hitm_asm_{name}@GOTPCREL(%rip)");
    if pushed.is_some() {
        text += "\tleaq\t8(%rsp), %rsp\n";
    }
    text + "\tpopq\t%rdi\n"
}

/// What the site has pushed when it computes the operand's address.
const PUSHED: i64 = 8;

impl Rewritten {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn call(&mut self, syntax: Syntax, site: &str) {
        self.sites += 1;
        match syntax {
            Syntax::Att => self.text.push_str(site),
            Syntax::Intel(directive) => {
                let _ = write!(self.text, "\t.att_syntax prefix\n{site}\t{directive}\n");
            }
        }
    }

    /// Puts a copy of the statements before them, for a native run: the kernel does not restart a
    /// thread that it finds in a call, and leaves its stack as it was there. Returns the label that
    /// is to stand behind the statements themselves.
    fn copy(&mut self, syntax: Syntax, statements: &[&Statement], number: usize) -> String {
        let [simulated, behind] = [format!(".Lhitm_{number}_simulated"), format!(".Lhitm_{number}_behind")];
        self.call(syntax, &format!("\tcall\t*hitm_asm_is_simulated@GOTPCREL(%rip)\n\tjne\t{simulated}\n"));
        for statement in statements {
            self.line(&format!("\t{}", statement.text));
        }
        self.line(&format!("\tjmp\t{behind}\n{simulated}:"));
        behind
    }

    /// Tells the machine of an instruction, the last statement of which is `last`.
    fn effect(&mut self, syntax: Syntax, effect: &Effect, last: &Statement) {
        let site = match effect {
            Effect::Nothing | Effect::Unknown(_) => return,
            Effect::Fence => site("fence", None, None),
            Effect::Pause => site("pause", None, None),
            Effect::Copy { size, repeats } => site(&format!("copy{size}"), None, Some(count(*repeats))),
            Effect::Fill { size, repeats } => site(&format!("fill{size}"), None, Some(count(*repeats))),
            Effect::Access { kind, size, operand } => {
                let of_symbol = || text::operand(&last.text).filter(|text| !text.contains("sp)"));
                let address = operand.text(PUSHED).or_else(|| of_symbol().filter(|_| syntax == Syntax::Att));
                let Some(address) = address else {
                    let why = "the operand in memory is not found; write it in AT&T syntax";
                    let (place, instruction) = (last.place.clone(), last.text.clone());
                    return self.unseen.push(Unseen { place, instruction, why: why.to_owned() });
                };
                let address = Some((&*address, operand.in_storage));
                match (kind, size) {
                    (Kind::Load, 1 | 2 | 4 | 8 | 16) => site(&format!("load{size}"), address, None),
                    (Kind::Store, 1 | 2 | 4 | 8 | 16) => site(&format!("store{size}"), address, None),
                    (Kind::Update, _) => site(&format!("update{size}"), address, None),
                    (Kind::Rmw, _) => site(&format!("rmw{size}"), address, None),
                    (Kind::Load, _) => site("wide_load", address, Some(&format!("${size}"))),
                    (Kind::Store, _) => site("wide_store", address, Some(&format!("${size}"))),
                }
            }
        };
        self.call(syntax, &site);
    }
}

/// How many elements a string instruction accesses.
fn count(repeats: bool) -> &'static str {
    if repeats { "%rcx" } else { "$1" }
}
