//! The index of decisions (`docs/decisions/README.md`) has a row for each page, with the number and title that the page has.
//!
//! Owns the reading of titles and rows. Whether links lead anywhere is checked in `links.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::{below, has_extension};
use crate::{CheckError, Finding, read};

const FOLDER: &str = "docs/decisions";
const INDEX: &str = "docs/decisions/README.md";
/// What a decision can be; a superseded one may name the page that replaces it.
const STATUSES: [&str; 2] = ["in force", "superseded"];

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let mut pages = BTreeMap::new();
    for path in below(&root.join(FOLDER), &[], |path| has_extension(path, &["md"]))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != "README.md" {
            pages.insert(name, read(&path)?.lines().next().unwrap_or_default().to_owned());
        }
    }
    Ok(compare(&pages, &read(&root.join(INDEX))?))
}

/// `pages` has the first line of each page by its file name.
fn compare(pages: &BTreeMap<String, String>, index: &str) -> Vec<Finding> {
    let rows: BTreeMap<&str, Row<'_>> = index.lines().enumerate().filter_map(row).collect();
    let mut findings = Vec::new();
    for (file, heading) in pages {
        match rows.get(file.as_str()) {
            None => findings.push(problem(0, format!("has no row for {file}"))),
            Some(row) if *heading != format!("# {}: {}", row.number, row.title) => {
                findings.push(problem(row.line, format!("{file} has the title `{heading}`")));
            }
            Some(row) if !STATUSES.iter().any(|status| row.status.starts_with(status)) => {
                let allowed = STATUSES.join("`, `");
                findings.push(problem(row.line, format!("the status of {file} is none of `{allowed}`")));
            }
            Some(_) => {}
        }
    }
    let gone = rows.iter().filter(|(file, _)| !pages.contains_key(**file));
    findings.extend(gone.map(|(file, row)| problem(row.line, format!("names {file}, which does not exist"))));
    findings
}

struct Row<'a> {
    line: usize,
    number: &'a str,
    title: &'a str,
    status: &'a str,
}

/// `| [0001](0001-name.md) | title | status |`
fn row((index, line): (usize, &str)) -> Option<(&str, Row<'_>)> {
    let cells: Vec<&str> = line.strip_prefix("| [")?.strip_suffix(" |")?.split(" | ").collect();
    let [link, title, status] = cells[..] else { return None };
    let (number, file) = link.strip_suffix(')')?.split_once("](")?;
    Some((file, Row { line: index + 1, number, title, status }))
}

fn problem(line: usize, what: String) -> Finding {
    Finding { file: INDEX.to_owned(), line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [(&str, &str); 2] = [("0001-a.md", "# 0001: Do a"), ("0002-b.md", "# 0002: Do b")];

    fn whats(index: &str) -> Vec<String> {
        let pages = PAGES.map(|(file, heading)| (file.to_owned(), heading.to_owned())).into();
        compare(&pages, index).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_index_with_every_page_is_accepted() {
        let index =
            "| [0001](0001-a.md) | Do a | in force |\n| [0002](0002-b.md) | Do b | superseded by 0003 |\n";
        assert!(whats(index).is_empty());
    }

    #[test]
    fn missing_pages_other_titles_and_unknown_statuses_are_reported() {
        assert_eq!(whats("| [0001](0001-a.md) | Do a | in force |\n"), ["has no row for 0002-b.md"]);
        let renamed = "| [0001](0001-a.md) | Do c | in force |\n| [0002](0002-b.md) | Do b | maybe |\n";
        let expected = [
            "0001-a.md has the title `# 0001: Do a`",
            "the status of 0002-b.md is none of `in force`, `superseded`",
        ];
        assert_eq!(whats(renamed), expected);
        let gone = "| [0001](0001-a.md) | Do a | in force |\n| [0002](0002-b.md) | Do b | in force |\n| [0003](0003-c.md) | C | in force |\n";
        assert_eq!(whats(gone), ["names 0003-c.md, which does not exist"]);
    }
}
