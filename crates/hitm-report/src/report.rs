//! [`Report`]: the contended lines of a machine's results, for other programs.

use std::fmt;
use std::io;

use hitm_functions::Table;
use hitm_machine::{LineResult, Results};

use crate::c2c::{self, Layout};
use crate::functions::Functions;
use crate::line::Line;
use crate::objects;

/// The default number of lines in a report.
const LINES: usize = 10;

/// Makes reports of a machine's counters.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::Ordering;
/// use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
/// use hitm_memory::{AtomicWord, Memory, Placed, described};
/// use hitm_report::ToReport;
///
/// described! {
///     struct Counter<M: Memory> as "counter" { count: M::Atomic<u64> }
/// }
///
/// let topology = Arc::new(hitm_topology::parse("pack:2 core:4 pu:1").unwrap());
/// let costs = Costs::of(&topology, CostSet::Linux);
/// let machine = Machine::new(topology, costs, Config::default());
/// let counter = machine.enter(|| {
///     Placed::<Simulated, _>::new(Counter::<Simulated> { count: AtomicWord::new(0) }, None, None)
/// });
/// machine.run(move |_| { counter.count.fetch_add(1, Ordering::Relaxed); }).unwrap();
/// println!("{}", machine.results().report().title("a counter of eight CPUs").lines(1));
/// ```
pub trait ToReport {
    /// Returns a report of the lines with the longest waits.
    fn report(&self) -> Report<'_>;
}

impl ToReport for Results {
    fn report(&self) -> Report<'_> {
        Report {
            results: self,
            title: "Contended lines, most waited for first".to_owned(),
            lines: LINES,
            object: None,
            layout: Layout::Brief,
            functions: Functions::from_sources(),
        }
    }
}

/// A report, written by [`write`](Self::write), or as text by [`Display`](fmt::Display).
#[derive(Clone, Debug)]
pub struct Report<'a> {
    results: &'a Results,
    title: String,
    lines: usize,
    object: Option<String>,
    layout: Layout,
    functions: Functions,
}

impl Report<'_> {
    /// Sets the first line of the text.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: title.into(), ..self }
    }

    /// Sets the number of lines; the default is ten.
    #[must_use]
    pub fn lines(self, lines: usize) -> Self {
        Self { lines, ..self }
    }

    /// Shows only the lines of the objects of this name.
    #[must_use]
    pub fn object(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }

    /// Sets the form; the default is [`Layout::Brief`], which fits 80 columns.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Adds the functions of a crate whose sources are not on the machine that writes the report:
    /// its table `FUNCTIONS`. The functions of `hitm-memory` and `hitm-machine` are known, and so
    /// are those of readable sources.
    #[must_use]
    pub fn functions(mut self, table: Table) -> Self {
        self.functions.add(table);
        self
    }

    /// Writes the text.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut impl io::Write) -> io::Result<()> {
        write!(to, "{self}")
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |line: &&LineResult| self.object.as_ref().is_none_or(|object| line.object == *object);
        let hottest = self.results.hottest(usize::MAX).into_iter().filter(shown).take(self.lines);
        let lines: Vec<Line> = hottest.map(|line| Line::of(self.results, line, &self.functions)).collect();
        let waited = self.results.cycles(self.results.waited());
        let objects = match (&self.object, self.layout) {
            (None, Layout::Brief) => objects::of_results(self.results, &self.results.lines, &self.functions),
            _ => Vec::new(),
        };
        f.write_str(&c2c::render_lines(&self.title, &objects, &lines, waited, self.layout))
    }
}
