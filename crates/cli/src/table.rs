//! Tables in the style of kubectl: columns as wide as their widest cell, three spaces between them.

/// The lines of a table with a heading; the last column is not padded.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heading.get(column).map(|cell| cell.len())).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}   "));
        format!("{}\n", padded.collect::<String>().trim_end())
    };
    let first = line(heading.to_vec());
    let rest = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(first).chain(rest).collect()
}

/// The lines of a text, each with its line break.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "1/1".to_owned()], vec!["longer".to_owned(), "0/1".to_owned()]];
        assert_eq!(table(&["NAME", "READY"], &rows), "NAME     READY\na        1/1\nlonger   0/1\n");
        assert_eq!(table(&["NAME"], &[]), "NAME\n");
    }
}
