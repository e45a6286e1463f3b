//! Restartable sequences: which `asm` statements have one.
//!
//! A sequence is described in a section of its own, `__rseq_cs`, which every program that follows
//! librseq writes within the statement. A native run executes a copy of the statement that has no
//! calls.

use super::text::Statement;

/// The section of descriptions, as debuggers expect it.
const SECTION: &str = "__rseq_cs";

/// Whether the statements of one `asm` have a sequence that can stand in the text twice: labels of
/// digits can, others cannot.
pub(super) fn is_restartable(statements: &[&Statement]) -> bool {
    let mut has_section = false;
    for statement in statements {
        let name = statement.name();
        has_section |= matches!(name, ".pushsection" | ".section")
            && statement.text[name.len()..].trim_start().trim_start_matches('"').starts_with(SECTION);
        if statement.is_label() && !statement.text.trim_end_matches(':').bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        if name == ".macro" {
            return false;
        }
    }
    has_section
}

#[cfg(test)]
mod tests {
    use super::is_restartable;
    use crate::exec::assembly::text::{Piece, pieces, run};

    fn check(statements: &str, expected: bool) {
        let pieces = pieces(&format!("#APP\n{statements}\n#NO_APP\n"));
        let begin = pieces.iter().position(|piece| matches!(piece, Piece::Statement(_))).expect("a statement");
        assert_eq!(is_restartable(&run(&pieces[begin..])), expected, "{statements}");
    }

    #[test]
    fn sequences_are_told_by_their_section() {
        check(".pushsection __rseq_cs, \"aw\"\n3: .quad 1f, 2f - 1f, 4f\n.popsection\n1: nop; 2:", true);
        check(".section \"__rseq_cs\", \"aw\"\n.previous", true);
        check(".pushsection __rseq_failure, \"ax\"\n4: nop\n.popsection", false);
        check("incq __rseq_cs(%rip)", false);
        // It would stand there twice.
        check(".pushsection __rseq_cs\n.popsection\n.Lbegin7: nop", false);
        check(".pushsection __rseq_cs\n.popsection\n.macro m\nnop\n.endm", false);
    }
}
