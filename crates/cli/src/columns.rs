//! Lays out tables whose columns fit the terminal. The least important columns are left out first.

use clap::builder::{PossibleValue, PossibleValuesParser};

/// The value of `--columns` that selects every column.
const ALL: &str = "all";
/// Spaces between two columns.
const GAP: usize = 2;
/// The text of a cell without a value.
pub(crate) const NOTHING: &str = "-";

/// A column of a table with rows of type `R`.
pub(crate) struct Column<R> {
    /// Its name, for `--columns`.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) head: &'static str,
    /// Its description, for `--help`.
    pub(crate) about: &'static str,
    /// Its rank: columns with the highest rank are left out first.
    pub(crate) rank: u8,
    /// Its text in a row; [`NOTHING`] if there is no value.
    pub(crate) cell: fn(&R) -> String,
}

/// Cells that several tables of cameras share.
pub(crate) mod cells {
    use mez_node::client::Traffic;

    use super::NOTHING;
    use crate::text::{percent, rate};

    /// Width and height of a frame. 0 stands for no frame.
    pub(crate) fn size(width: u32, height: u32) -> String {
        if width == 0 { NOTHING.into() } else { format!("{width}x{height}") }
    }

    /// The rate on the camera's link.
    pub(crate) fn crossed(traffic: Option<Traffic>) -> String {
        traffic.map_or(NOTHING.into(), |traffic| rate(traffic.crossed))
    }

    /// The rate on the link as a share of the published rate.
    pub(crate) fn share(traffic: Option<Traffic>) -> String {
        traffic.and_then(|traffic| traffic.share()).map_or(NOTHING.into(), percent)
    }
}

/// A parser of column names.
pub(crate) fn parser<R>(columns: &'static [Column<R>]) -> PossibleValuesParser {
    let all = PossibleValue::new(ALL).help("Every column");
    let named = columns.iter().map(|column| PossibleValue::new(column.name).help(column.about));
    PossibleValuesParser::new(named.chain([all]))
}

/// A table that is drawn repeatedly. Columns only become wider, so that they do not jump.
pub(crate) struct Table<R: 'static> {
    columns: &'static [Column<R>],
    /// The names of the wanted columns. If empty, those that fit.
    wanted: Vec<String>,
    widths: Vec<usize>,
}

impl<R> Table<R> {
    /// `wanted` are column names. If empty, the table shows as many columns as fit.
    pub(crate) fn new(columns: &'static [Column<R>], wanted: Vec<String>) -> Self {
        Self { columns, wanted, widths: columns.iter().map(|column| column.head.chars().count()).collect() }
    }

    /// Draws the heading and the rows, if possible within `width` characters. `None`: all columns.
    /// Returns the lines, and a function that tells whether the column with a name is shown.
    pub(crate) fn lines(&mut self, rows: &[R], width: Option<usize>) -> (Vec<String>, impl Fn(&str) -> bool) {
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| self.columns.iter().map(|column| (column.cell)(row)).collect()).collect();
        for row in &cells {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let shown = self.shown(&cells, width);
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.to_owned()).collect();
        let line = |row: &Vec<String>| {
            let cells = shown.iter().map(|at| format!("{:<width$}", row[*at], width = self.widths[*at]));
            cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
        };
        let lines = std::iter::once(&heads).chain(&cells).map(line).collect();
        let names: Vec<&str> = shown.iter().map(|at| self.columns[*at].name).collect();
        (lines, move |name| names.contains(&name))
    }

    /// The indices of the shown columns, in order.
    fn shown(&self, cells: &[Vec<String>], width: Option<usize>) -> Vec<usize> {
        let every = 0..self.columns.len();
        if !self.wanted.is_empty() {
            let is_wanted = |name: &str| self.wanted.iter().any(|wanted| wanted == name || wanted == ALL);
            return every.filter(|at| is_wanted(self.columns[*at].name)).collect();
        }
        let Some(width) = width else { return every.collect() };
        let has_values = |at: &usize| cells.iter().any(|row| row[*at] != NOTHING);
        let mut by_rank: Vec<usize> = every.filter(has_values).collect();
        by_rank.sort_by_key(|at| self.columns[*at].rank);
        let mut room = width + GAP;
        by_rank.retain(|at| {
            let takes = self.widths[*at] + GAP;
            // The first column is always shown.
            let fits = takes <= room || room == width + GAP;
            room = if fits { room.saturating_sub(takes) } else { room };
            fits
        });
        by_rank.sort_unstable();
        by_rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(&'static str, u32);

    const COLUMNS: &[Column<Row>] = &[
        Column { name: "name", head: "NAME", about: "", rank: 0, cell: |row| row.0.into() },
        Column { name: "never", head: "NEVER", about: "", rank: 1, cell: |_| NOTHING.into() },
        Column { name: "detail", head: "DETAIL", about: "", rank: 3, cell: |_| "a long detail".into() },
        Column { name: "count", head: "COUNT", about: "", rank: 2, cell: |row| row.1.to_string() },
    ];

    fn heads(wanted: &[&str], width: Option<usize>) -> String {
        let mut table = Table::new(COLUMNS, wanted.iter().map(|name| (*name).to_owned()).collect());
        table.lines(&[Row("dock/cam1", 7)], width).0[0].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn columns_are_left_out_by_importance() {
        assert_eq!(heads(&[], None), "NAME NEVER DETAIL COUNT");
        // 9 + 2 + 13 + 2 + 5 characters. A column without values is left out.
        assert_eq!(heads(&[], Some(31)), "NAME DETAIL COUNT");
        assert_eq!(heads(&[], Some(30)), "NAME COUNT");
        assert_eq!(heads(&[], Some(15)), "NAME");
        assert_eq!(heads(&[], Some(1)), "NAME");
    }

    #[test]
    fn wanted_columns_come_whatever_the_width() {
        assert_eq!(heads(&["detail", "never"], Some(5)), "NEVER DETAIL");
        assert_eq!(heads(&["all"], Some(5)), "NAME NEVER DETAIL COUNT");
    }

    /// Cells stay below their headings, even if they are shorter in the next drawing.
    #[test]
    fn columns_do_not_jump() {
        let mut table = Table::new(COLUMNS, vec!["name".into(), "count".into()]);
        let (wide, _) = table.lines(&[Row("dock/cam1", 1)], None);
        let (narrow, shows) = table.lines(&[Row("x", 1)], None);
        assert_eq!(wide, ["NAME       COUNT", "dock/cam1  1"]);
        assert_eq!(narrow, ["NAME       COUNT", "x          1"]);
        assert!(shows("count") && !shows("detail"));
    }
}
