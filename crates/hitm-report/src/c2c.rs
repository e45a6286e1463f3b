//! The lines of a run as `perf c2c report` shows them, with two columns that no hardware has: the
//! field's name, and the store that invalidated the copy.
//!
//! Counts are exact, not samples. A read-modify-write is a load and a store, as the hardware's
//! events count a locked instruction. A load that hits is counted under Core Load Hit L1; the model
//! has no separate L2 and no fill buffer hits.

use std::fmt::Write as _;

use crate::line::UNKNOWN;
use crate::result::{InvalidatedBy, Line, Objects, Run, Site};
use crate::{brief, objects};

/// The form of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// At most 80 columns: which fields, which functions wait, and what invalidated their copies.
    #[default]
    Brief,
    /// The columns of `perf c2c report`: the Shared Data Cache Line Table, then the Pareto.
    Full,
    /// Seven columns, as in mails.
    Mail,
}

/// Renders a run's `lines` hottest lines.
#[must_use]
pub fn render(run: &Run, lines: usize, layout: Layout) -> String {
    let hottest = &run.lines[..run.lines.len().min(lines)];
    let heading = format!(
        "{}: {}, {} on {}{}{}",
        run.host,
        run.workload,
        run.mitigation,
        run.machine,
        if run.arbitration.is_empty() { String::new() } else { format!(", arbitration {}", run.arbitration) },
        if run.remote_is_node { "; remote is another node" } else { "" }
    );
    let left = run.lines.len() - hottest.len();
    let mut text = match (hottest, left) {
        // None is to be shown, which does not mean that none was contended.
        ([], 1..) => format!("{heading}\n"),
        _ => render_lines(&heading, &run.objects, hottest, run.waited(), layout),
    };
    if left > 0 {
        push(&mut text, "");
        let lines = if left == 1 { "line" } else { "lines" };
        push(&mut text, &format!("{left} more {lines}: add --lines {}", run.lines.len()));
    }
    text
}

/// Renders these lines below a heading. `waits` are the cycles waited for all lines, including
/// those that are not shown. Before the lines, the brief form has as many kinds of `objects`, if
/// one of those has more lines than are shown.
pub(crate) fn render_lines(heading: &str, objects: &[Objects], lines: &[Line], waits: f64, layout: Layout) -> String {
    let mut text = String::new();
    push(&mut text, heading);
    match layout {
        _ if lines.is_empty() => push(&mut text, "No line was contended."),
        Layout::Brief => {
            if objects::say_more(objects, lines.len()) {
                text.push_str(&objects::render(objects, lines.len(), waits));
                push(&mut text, "");
            }
            text.push_str(&brief::render(lines, waits));
        }
        Layout::Full => {
            cache_line_table(&mut text, lines);
            pareto(&mut text, lines);
        }
        Layout::Mail => mail(&mut text, lines),
    }
    text
}

fn push(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

fn title(text: &mut String, title: &str) {
    let rule = "=".repeat(49);
    push(text, &rule);
    push(text, &format!("{title:^49}"));
    push(text, &rule);
    push(text, "#");
}

fn sum(line: &Line, what: impl Fn(&Site) -> u64) -> u64 {
    line.fields.iter().flat_map(|field| &field.sites).map(what).sum()
}

fn cache_line_table(text: &mut String, lines: &[Line]) {
    title(text, "Shared Data Cache Line Table");
    push(
        text,
        "#        ----------- Cacheline ----------      Tot  ------- Load Hitm -------    Total    Total    Total  \
         --------- Stores --------  ----- Core Load Hit -----  - LLC Load Hit --  - RMT Load Hit --  --- Load Dram ----",
    );
    push(
        text,
        "# Index             Address  Node  PA cnt     Hitm    Total  LclHitm  RmtHitm  records    Loads   Stores    \
         L1Hit   L1Miss      N/A       FB       L1       L2    LclHit  LclHitm    RmtHit  RmtHitm       Lcl       Rmt  \
         Object, line",
    );
    push(
        text,
        "# .....  ..................  ....  ......  .......  .......  .......  .......  .......  .......  .......  \
         .......  .......  .......  .......  .......  .......  ........  .......  ........  .......  ........  ........  \
         ............",
    );
    let all: u64 = lines.iter().map(|line| line.hitm.both()).sum();
    for (index, line) in lines.iter().enumerate() {
        let hitm = line.hitm.both();
        let share = 100.0 * hitm as f64 / all.max(1) as f64;
        let store_hits = sum(line, |site| if site.is_store() { site.hits } else { 0 });
        let store_misses = sum(line, |site| if site.is_store() { site.misses } else { 0 });
        let load_hits = sum(line, |site| if site.is_load() { site.hits } else { 0 });
        let load = |what: fn(&Site) -> u64| sum(line, |site| if site.is_load() { what(site) } else { 0 });
        push(
            text,
            &format!(
                "{index:>7}  {:>18}  {:>4}  {:>6}  {share:>6.2}%  {hitm:>7}  {:>7}  {:>7}  {:>7}  {:>7}  {:>7}  \
                 {store_hits:>7}  {store_misses:>7}  {:>7}  {:>7}  {load_hits:>7}  {:>7}  {:>8}  {:>7}  {:>8}  {:>7}  \
                 {:>8}  {:>8}  {}, {}",
                line.address,
                "N/A",
                line.misses,
                line.hitm.local,
                line.hitm.remote,
                line.touched.loads + line.touched.stores,
                line.touched.loads,
                line.touched.stores,
                0,
                0,
                0,
                load(|site| site.clean.0),
                load(|site| site.hitm.local),
                load(|site| site.clean.1),
                load(|site| site.hitm.remote),
                load(|site| site.memory.0),
                load(|site| site.memory.1),
                line.name(),
                line.line,
            ),
        );
    }
    push(text, "");
}

/// Returns `part` of `whole` in percent.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn invalidator(invalidated_by: &[InvalidatedBy]) -> String {
    match invalidated_by.first() {
        None => "-".to_owned(),
        Some(first) => {
            let function = symbol(&first.function, &first.location);
            format!("{} in {function} ({:.0}%)", first.field, 100.0 * first.share)
        }
    }
}

/// Returns the function, or the place where the function's name is not known.
fn symbol<'a>(function: &'a str, location: &'a str) -> &'a str {
    if function == UNKNOWN { location } else { function }
}

fn pareto(text: &mut String, lines: &[Line]) {
    title(text, "Shared Cache Line Distribution Pareto");
    push(
        text,
        "#        ----- HITM -----  ------- Store Refs ------  --------- Data address ---------  \
         ---------- cycles ----------    Total       cpu",
    );
    push(
        text,
        "#   Num  RmtHitm  LclHitm   L1 Hit  L1 Miss      N/A              Offset  Node  PA cnt  rmt hitm  lcl hitm      \
         load  records       cnt  Symbol                          Source:Line                         Field                             \
         Invalidated by",
    );
    push(
        text,
        "# .....  .......  .......  .......  .......  .......  ..................  ....  ......  ........  ........  \
         ........  .......  ........  ..............................  ..................................  \
         ................................  .........",
    );
    for (number, line) in lines.iter().enumerate() {
        let hits = sum(line, |site| if site.is_store() { site.hits } else { 0 });
        let misses = sum(line, |site| if site.is_store() { site.misses } else { 0 });
        let rule = format!("  {}", "-".repeat(61));
        push(text, &rule);
        push(
            text,
            &format!(
                "{number:>7}  {:>7}  {:>7}  {hits:>7}  {misses:>7}  {:>7}  {:>18}  {}, line {}",
                line.hitm.remote,
                line.hitm.local,
                0,
                line.address,
                line.name(),
                line.line
            ),
        );
        push(text, &rule);
        for (field, site) in line.places() {
            if site.misses == 0 && site.hits == 0 {
                continue;
            }
            let store = |count: u64| if site.is_store() { count } else { 0 };
            let (remote, local, load) = site.cycles;
            push(
                text,
                &format!(
                    "{:>8} {:>7.2}%  {:>6.2}%  {:>6.2}%  {:>6.2}%  {:>6.2}%  {:>18}  {:>4}  {:>6}  {remote:>8.0}  \
                     {local:>8.0}  {load:>8.0}  {:>7}  {:>8}  {:<30}  {:<34}  {:<32}  {}",
                    "",
                    percent(site.hitm.remote, line.hitm.remote),
                    percent(site.hitm.local, line.hitm.local),
                    percent(store(site.hits), hits),
                    percent(store(site.misses), misses),
                    0.0,
                    format!("{:#x}", line.offset_of(field)),
                    "N/A",
                    1,
                    site.hits + site.misses,
                    site.cpus,
                    site.function,
                    site.location,
                    field.field,
                    invalidator(&site.invalidated_by),
                ),
            );
        }
    }
}

/// Columns of a mail's row. The store that invalidated the line has a row of its own where it does
/// not fit.
const MAIL_COLUMNS: usize = 100;

/// The column at which the function begins in a mail's row.
const SYMBOL_COLUMN: usize = 45;

fn mail(text: &mut String, lines: &[Line]) {
    let rule = "------- ------- ------ ------ ------ ------ ------------------------";
    push(text, rule);
    push(text, "Rmt     Lcl     Store  Data   Load   Total  Symbol");
    push(text, "Hitm%   Hitm%   L1 Hit% offset cycles records");
    for line in lines {
        let hits = sum(line, |site| if site.is_store() { site.hits } else { 0 });
        push(text, rule);
        let mut head = String::new();
        write!(head, "{:<7} {:<7} {hits:<6} {}", line.hitm.remote, line.hitm.local, line.address).expect("a string");
        push(text, &format!("{head}  {}, line {}", line.name(), line.line));
        push(text, rule);
        for (field, site) in line.places().filter(|(_, site)| site.misses > 0) {
            let stores = if site.is_store() { site.hits } else { 0 };
            let row = format!(
                "{:<7} {:<7} {:<6} {:<6} {:<6.0} {:<7} {:<24}  {}",
                format!("{:.2}%", percent(site.hitm.remote, line.hitm.remote)),
                format!("{:.2}%", percent(site.hitm.local, line.hitm.local)),
                format!("{:.2}%", percent(stores, hits)),
                format!("{:#x}", line.offset_of(field)),
                site.cycles.2,
                site.hits + site.misses,
                symbol(&site.function, &site.location),
                field.field,
            );
            let stolen = format!("invalidated by {}", invalidator(&site.invalidated_by));
            if row.len() + "; ".len() + stolen.len() <= MAIL_COLUMNS {
                push(text, &format!("{row}; {stolen}"));
            } else {
                push(text, &row);
                push(text, &format!("{:SYMBOL_COLUMN$}  {stolen}", ""));
            }
        }
    }
}
