//! Aligned columns of text.

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table: heads of one or more lines, rows of as many cells.
#[derive(Clone, Debug)]
pub struct Columns {
    heads: Vec<(Vec<String>, Align)>,
    rows: Vec<Vec<String>>,
}

/// Between two columns.
const GAP: &str = "  ";

impl Columns {
    /// A table without rows. A head's lines are separated by `\n`.
    #[must_use]
    pub fn new(heads: &[(&str, Align)]) -> Self {
        let head = |&(text, align): &(&str, Align)| (text.split('\n').map(str::to_owned).collect(), align);
        Self { heads: heads.iter().map(head).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.heads.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// The table as text, each line ended, without trailing space.
    #[must_use]
    pub fn render(&self) -> String {
        let lines = self.heads.iter().map(|(head, _)| head.len()).max().unwrap_or(0);
        let width = |column: usize| {
            let head = self.heads[column].0.iter();
            let cells = self.rows.iter().map(|row| &row[column]);
            head.chain(cells).map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let mut text = String::new();
        for line in 0..lines {
            // Short heads stand at the bottom.
            let cell =
                |head: &Vec<String>| (line + head.len()).checked_sub(lines).and_then(|line| head.get(line).cloned());
            let cells: Vec<String> = self.heads.iter().map(|(head, _)| cell(head).unwrap_or_default()).collect();
            self.push_line(&mut text, &widths, &cells);
        }
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        self.push_line(&mut text, &widths, &rule);
        for row in &self.rows {
            self.push_line(&mut text, &widths, row);
        }
        text
    }

    fn push_line(&self, text: &mut String, widths: &[usize], cells: &[String]) {
        let mut line = String::new();
        for ((cell, &width), (_, align)) in cells.iter().zip(widths).zip(&self.heads) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// A count as people read it: `999`, `12.3K`, `4.5M`, `6.7G`.
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
        .assert_eq(&table.render());
    }

    #[test]
    fn counts_are_short() {
        let printed = [0.0, 999.0, 1_234.0, 999_600.0, 4_500_000.0, 6.7e9].map(short);
        assert_eq!(printed, ["0", "999", "1.2K", "1.0M", "4.5M", "6.7G"]);
    }
}
