//! Links of documents, and paths of documents in comments, lead to files of this repository, and links with `#` to a heading.

use std::path::{Path, PathBuf};

use crate::files::{below, has_extension};
use crate::source::Source;
use crate::{CheckError, Finding, read};

/// Documents outside of `docs/`.
const TOP: [&str; 4] = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];

pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<Finding>, CheckError> {
    let mut documents: Vec<PathBuf> = TOP.iter().map(|name| root.join(name)).collect();
    documents.extend(below(&root.join("docs"), &[], |path| has_extension(path, &["md", "tsv"]))?);
    let mut findings = Vec::new();
    for document in documents {
        let directory = document.parent().unwrap_or(root);
        let exists = |target: &str| directory.join(target).exists();
        let name = document.strip_prefix(root).unwrap_or(&document).to_string_lossy();
        let text = read(&document)?;
        findings.extend(broken_links(&name, &text, exists));
        findings.extend(broken_anchors(&name, &text, |target| match target {
            "" => Some(text.clone()),
            other => read(&directory.join(other)).ok(),
        }));
    }
    let is_file = |path: &str| root.join(path).is_file();
    findings.extend(sources.iter().flat_map(|source| broken_paths(source, is_file)));
    Ok(findings)
}

fn broken_links(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let links = lines.flat_map(|(index, line)| links(line).map(move |link| (index + 1, link)));
    let broken = links.filter(|(_, link)| !exists(link));
    broken.map(|(line, link)| finding(file, line, link)).collect()
}

/// The targets of links to other files: `[text](target#heading)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let files = targets.map(|target| target.split_once('#').map_or(target, |(file, _)| file));
    files.filter(|file| !file.is_empty() && !file.contains(':') && !file.contains(' '))
}

/// Links to headings that a document does not have. A document that cannot be read is found by `broken_links`.
fn broken_anchors(file: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let targets = text.lines().enumerate().flat_map(|(index, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.filter_map(move |(target, _)| Some((index + 1, target.split_once('#')?)))
    });
    let is_document = |path: &str| path.is_empty() || (path.ends_with(".md") && !path.contains(':'));
    let broken = targets.filter(|(_, (path, anchor))| {
        is_document(path) && read(path).is_some_and(|text| !anchors(&text).any(|known| known == **anchor))
    });
    broken.map(|(line, (path, anchor))| finding(file, line, &format!("{path}#{anchor}"))).collect()
}

/// The anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> impl Iterator<Item = String> + '_ {
    let outside = text.split("```").step_by(2).flat_map(str::lines);
    outside.filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#').trim()))
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn broken_paths(source: &Source, is_file: impl Fn(&str) -> bool) -> Vec<Finding> {
    let paths = source.numbered().flat_map(|(number, line)| {
        let is_of_path = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let words = line.comment.split(move |c: char| !is_of_path(c)).map(|word| word.trim_end_matches('.'));
        words
            .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
            .map(move |path| (number, path))
    });
    let broken = paths.filter(|(_, path)| !is_file(path));
    broken.map(|(line, path)| finding(&source.path, line, path)).collect()
}

fn finding(file: &str, line: usize, target: &str) -> Finding {
    Finding { file: file.to_owned(), line, what: format!("names `{target}`, which does not exist") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_to_a_missing_file_is_found_and_addresses_and_headings_are_not() {
        let text = "[a](a.md#x) [b](gone.md)\n[c](https://example.com/c) [d](#d)\n";
        let found = broken_links("docs/x.md", text, |target| target == "a.md");
        assert_eq!(found, [finding("docs/x.md", 1, "gone.md")]);
    }

    #[test]
    fn link_to_a_missing_heading_is_found() {
        let other = "# A `kubelet why` B\n\n```sh\n# no heading\n```\n## Two, three\n";
        let text = "# Here\n[a](a.md#a-kubelet-why-b) [b](a.md#two-three) [c](#here)\n[d](a.md#no-heading) [e](#there)\n";
        let read = |path: &str| Some(if path.is_empty() { text } else { other }.to_owned());
        let found = broken_anchors("docs/x.md", text, read);
        assert_eq!(found, [finding("docs/x.md", 3, "a.md#no-heading"), finding("docs/x.md", 3, "#there")]);
    }

    #[test]
    fn comment_that_names_a_missing_document_is_found() {
        let text = "//! A page (docs/a.md).\n// See docs/gone.md.\nlet path = \"docs/other.md\";\n";
        let source = Source::new("crates/agent/src/a.rs", text);
        let found = broken_paths(&source, |path| path == "docs/a.md");
        assert_eq!(found, [finding("crates/agent/src/a.rs", 2, "docs/gone.md")]);
    }
}
