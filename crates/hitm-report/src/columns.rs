//! Aligned columns of text.

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left: words.
    Left,
    /// To the right: numbers.
    Right,
}

/// A table: heads of one or more lines, and rows with one cell per column.
#[derive(Clone, Debug)]
pub struct Columns {
    heads: Vec<(Vec<String>, Align)>,
    /// The number of first columns that name a row.
    keys: usize,
    rows: Vec<Vec<String>>,
}

/// The gap between two columns.
const GAP: &str = "  ";
/// The least width of a wrapped column. Below it the table is cut instead.
const WRAPPED_MIN: usize = 24;

impl Columns {
    /// Returns a table without rows. A head's lines are separated by `\n`.
    #[must_use]
    pub fn new(heads: &[(&str, Align)]) -> Self {
        let head = |&(text, align): &(&str, Align)| (text.split('\n').map(str::to_owned).collect(), align);
        Self { heads: heads.iter().map(head).collect(), keys: 1, rows: Vec::new() }
    }

    /// Makes the first `keys` columns the ones that name a row. The default is the first column.
    #[must_use]
    pub fn keyed_by(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.heads.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// Returns the table as text of at most `width` columns, each line ended, without trailing
    /// space.
    ///
    /// A table that is too wide is made narrower in one of two ways. When its last column holds
    /// words, the words are wrapped. Otherwise the table is cut into several, one below the other;
    /// each begins with the columns that name a row. A single column that is
    /// wider than `width` stays as it is.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let widths: Vec<usize> = (0..self.heads.len()).map(|column| self.width_of(column)).collect();
        let total = |columns: &[usize]| {
            let cells: usize = columns.iter().map(|&column| widths[column]).sum();
            cells + GAP.len() * columns.len().saturating_sub(1)
        };
        let all: Vec<usize> = (0..self.heads.len()).collect();
        if total(&all) <= width {
            return self.part(&all, &widths);
        }
        if let Some((last, others)) = all.split_last()
            && self.heads[*last].1 == Align::Left
            && total(others) + GAP.len() + WRAPPED_MIN <= width
        {
            return self.wrapped(*last, width - total(others) - GAP.len()).part(&all, &widths);
        }
        let (keys, others) = all.split_at(self.keys.min(all.len()));
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for &column in others {
            match parts.last_mut().filter(|part| total(part) + GAP.len() + widths[column] <= width) {
                Some(part) => part.push(column),
                None => parts.push(keys.iter().copied().chain([column]).collect()),
            }
        }
        let parts: Vec<String> = parts.iter().map(|part| self.part(part, &widths)).collect();
        parts.join("\n")
    }

    /// Returns the width of a column: that of its widest line or cell.
    fn width_of(&self, column: usize) -> usize {
        let head = self.heads[column].0.iter();
        let cells = self.rows.iter().map(|row| &row[column]);
        head.chain(cells).map(|text| text.chars().count()).max().unwrap_or(0)
    }

    /// Returns this table with the cells of `column` wrapped at `width`. The other cells of a new
    /// row are empty.
    fn wrapped(&self, column: usize, width: usize) -> Self {
        let mut table = Self { rows: Vec::new(), ..self.clone() };
        for row in &self.rows {
            let lines = wrap(&row[column], width);
            for (index, line) in lines.into_iter().enumerate() {
                let mut cells = if index == 0 { row.clone() } else { vec![String::new(); row.len()] };
                cells[column] = line;
                table.rows.push(cells);
            }
        }
        table
    }

    /// Returns the columns of `part` as text.
    fn part(&self, part: &[usize], widths: &[usize]) -> String {
        let lines = part.iter().map(|&column| self.heads[column].0.len()).max().unwrap_or(0);
        let mut text = String::new();
        for line in 0..lines {
            // Short heads are at the bottom.
            let cell = |column: usize| {
                let head = &self.heads[column].0;
                (line + head.len()).checked_sub(lines).and_then(|line| head.get(line)).map_or("", String::as_str)
            };
            self.push_line(&mut text, part, widths, cell);
        }
        let rules: Vec<String> =
            (0..self.heads.len()).map(|column| "-".repeat(widths[column].min(self.width_of(column)))).collect();
        self.push_line(&mut text, part, widths, |column| &rules[column]);
        for row in &self.rows {
            self.push_line(&mut text, part, widths, |column| &row[column]);
        }
        text
    }

    fn push_line<'a>(&self, text: &mut String, part: &[usize], widths: &[usize], cell: impl Fn(usize) -> &'a str) {
        let mut line = String::new();
        for (index, &column) in part.iter().enumerate() {
            if index > 0 {
                line.push_str(GAP);
            }
            let (cell, width) = (cell(column), widths[column]);
            match self.heads[column].1 {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Wraps `text` at spaces into lines of at most `width` columns; a longer word is a line of its
/// own. There is at least one line.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the start");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Wraps the lines of `text` that are longer than `width`; continuations are indented by two.
/// Lines of tables are left as they are, since [`Columns::render`] has made them fit.
#[must_use]
pub fn fit(text: &str, width: usize) -> String {
    let mut fitted = String::with_capacity(text.len());
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if line.chars().count() <= width {
            fitted.push_str(line);
        } else {
            let lines = wrap(line, width.saturating_sub(indent + 2));
            let joint = format!("\n{}", " ".repeat(indent + 2));
            fitted.push_str(&line[..indent]);
            fitted.push_str(&lines.join(&joint));
        }
        fitted.push('\n');
    }
    fitted
}

/// Returns a count in short form: `999`, `12.3K`, `4.5M`, `6.7G`.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size < 999.5 => format!("{value:.0}"),
        size if size < 999.5e3 => format!("{:.1}K", value / 1e3),
        size if size < 999.5e6 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.1}G", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Columns::new(&[("name", Align::Left), ("a\nnumber", Align::Right), ("note", Align::Left)]);
        table.row(vec!["x".into(), "1".into(), String::new()]);
        table.row(vec!["longer".into(), "12345678".into(), "yes".into()]);
        expect_test::expect![[r#"
                           a
            name      number  note
            ------  --------  ----
            x              1
            longer  12345678  yes
        "#]]
        .assert_eq(&table.render(80));
    }

    #[test]
    fn a_wide_table_is_cut_and_each_part_names_its_rows() {
        let heads = ["mitigation", "frames", "relative", "kernel share"].map(|head| (head, Align::Right));
        let mut table = Columns::new(&heads);
        table.row(["baseline", "70218", "1.000", "0.205"].map(str::to_owned).into());
        expect_test::expect![[r#"
            mitigation  frames  relative
            ----------  ------  --------
              baseline   70218     1.000

            mitigation  kernel share
            ----------  ------------
              baseline         0.205
        "#]]
        .assert_eq(&table.render(30));
    }

    #[test]
    fn words_in_the_last_column_are_wrapped() {
        let mut table = Columns::new(&[("name", Align::Left), ("what it is", Align::Left)]);
        table.row(vec!["all".into(), "patches 1 to 4 together, as one mitigation".into()]);
        expect_test::expect![[r#"
            name  what it is
            ----  ------------------------
            all   patches 1 to 4 together,
                  as one mitigation
        "#]]
        .assert_eq(&table.render(30));
    }

    #[test]
    fn counts_are_short() {
        let printed = [0.0, 999.0, 1_234.0, 999_600.0, 4_500_000.0, 6.7e9].map(short);
        assert_eq!(printed, ["0", "999", "1.2K", "1.0M", "4.5M", "6.7G"]);
    }
}
