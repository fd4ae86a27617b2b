//! Links of a site that mdBook has built: each leads to a file of the site, and its anchor to an element there.
//!
//! Owns the reading of `href`, `src` and `id`. Addresses of other sites are not requested.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::files::{below, has_extension};
use crate::{CheckError, Finding, read};

/// Pages that mdBook makes of all others, or for any address.
const MADE_OF_OTHERS: &[&str] = &["404.html", "print.html", "toc.html"];

/// The number of links within the site, and those that lead nowhere.
pub fn check(site: &Path) -> Result<(usize, Vec<Finding>), CheckError> {
    let mut pages = BTreeMap::new();
    for path in below(site, &[], |path| has_extension(path, &["html"]))? {
        pages.insert(path.strip_prefix(site).unwrap_or(&path).to_path_buf(), read(&path)?);
    }
    let ids: BTreeMap<&Path, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, text)| (path.as_path(), values(text, "id").map(|(_, id)| id).collect()))
        .collect();
    let (mut count, mut findings) = (0, Vec::new());
    for (page, text) in &pages {
        if MADE_OF_OTHERS.iter().any(|name| page.ends_with(name)) {
            continue;
        }
        for (line, link) in
            values(text, "href").chain(values(text, "src")).filter(|(_, link)| is_within(link))
        {
            count += 1;
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { page.clone() } else { resolved(page, target) };
            let leads = match ids.get(path.as_path()) {
                Some(ids) => anchor.is_empty() || ids.contains(anchor),
                None => site.join(&path).is_file(),
            };
            if !leads {
                let file = page.to_string_lossy().into_owned();
                findings.push(Finding {
                    file,
                    line,
                    what: format!("links to `{link}`, which does not exist"),
                });
            }
        }
    }
    Ok((count, findings))
}

/// Whether it leads to this site.
fn is_within(link: &str) -> bool {
    !link.is_empty() && !link.contains(':') && !link.starts_with("//")
}

/// The file that a link of a page means, below the site.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let link = link.split_once('?').map_or(link, |(path, _)| path);
    let mut path = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

/// The values of an attribute, with their lines.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let start = format!(" {attribute}=\"");
    text.lines().enumerate().flat_map(move |(index, line)| {
        let parts: Vec<&str> =
            line.split(&*start).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
        parts.into_iter().map(move |value| (index + 1, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_from_the_directory_of_their_page() {
        assert_eq!(resolved(Path::new("a/b.html"), "../c/d.html?x"), Path::new("c/d.html"));
        assert_eq!(resolved(Path::new("b.html"), "./d.html"), Path::new("d.html"));
    }

    #[test]
    fn attributes_have_their_line() {
        let text = "<a href=\"x\" id=\"y\">\n<a href=\"z#1\">";
        assert_eq!(values(text, "href").collect::<Vec<_>>(), [(1, "x"), (2, "z#1")]);
        assert!(is_within("z#1") && !is_within("https://example.com") && !is_within(""));
    }
}
