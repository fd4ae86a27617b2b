//! Writes the linker script that places functions that an idle node does not execute after all others (docs/decisions/0034).
//!
//! The kernel maps a program in blocks of sixteen pages around each page that is touched. Where functions that run and
//! functions that do not alternate, all of them become resident. A function that is not in the script stays where it was, so
//! that a new function costs its own size at most.
//!
//! Owns: reading callgrind's traces and the output of `nm`, and finding the shortest prefixes of names that cover nothing that
//! ran. `scripts/cold-code` runs the kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use xtask::mangled::{self, Part};

/// Prefixes that cover fewer bytes get no line.
const MIN_BYTES: u64 = 512;
const SCRIPT: &str = "crates/kubelet/cold-code.ld";
const HEAD: &str = "/* Written by scripts/cold-code: functions that no node ran, those that only a member of a cluster ran, and those\n   that ran when something changed, by the prefixes of their names. The linker places them behind all others, where\n   they use no memory until they run. */\n";

/// Why the script was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ColdCodeError {
    #[error("failed to read or write {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the traces contain no function of the program: {0} symbols, {1} executed names")]
    NothingRan(usize, usize),
}

/// A function of the program. Several may share an address, if the linker merged identical code.
#[derive(Debug)]
struct Symbol {
    address: u64,
    bytes: u64,
    name: String,
}

/// A name as it is in every build of the same source.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    text: String,
    /// Where a prefix may end: behind the names of crates, modules, types and functions.
    cuts: Vec<usize>,
}

/// The functions that ran.
#[derive(Debug, Default)]
struct Ran {
    ever: BTreeSet<String>,
    /// On a node that is no member of a cluster.
    standalone: BTreeSet<String>,
    /// While nothing changed.
    idle: BTreeSet<String>,
}

impl Ran {
    /// From callgrind's files. Their names begin with `member` for a kubelet that is a member of a cluster, with `idle` for times in
    /// which nothing changed, and with anything else otherwise.
    fn read(traces: &[PathBuf]) -> Result<Self, ColdCodeError> {
        let mut ran = Self::default();
        for trace in traces {
            let names = names_that_ran(&read(trace)?);
            let kind = trace.file_name().map_or(&b""[..], |name| name.as_encoded_bytes());
            if kind.starts_with(b"idle") {
                ran.idle.extend(names.iter().cloned());
            } else if !kind.starts_with(b"member") {
                ran.standalone.extend(names.iter().cloned());
            }
            ran.ever.extend(names);
        }
        Ok(ran)
    }
}

/// A section of the program, and the prefixes of what is in it with the number of bytes that each covers.
type Section = (&'static str, BTreeMap<String, u64>);

/// Reads the output of `nm --print-size` and callgrind's files, and writes the script.
pub(crate) fn rewrite(listing: &Path, traces: &[PathBuf], root: &Path) -> Result<String, ColdCodeError> {
    let symbols: Vec<Symbol> = read(listing)?.lines().filter_map(symbol).collect();
    let ran = Ran::read(traces)?;
    if !symbols.iter().any(|symbol| ran.idle.contains(&symbol.name)) {
        return Err(ColdCodeError::NothingRan(symbols.len(), ran.idle.len()));
    }
    let sections = [
        (".text.cold", cold_prefixes(&symbols, &ran.ever)),
        (".text.member", cold_prefixes(&symbols, &ran.standalone.union(&ran.idle).cloned().collect())),
        (".text.busy", cold_prefixes(&symbols, &ran.idle)),
    ];
    let path = root.join(SCRIPT);
    std::fs::write(&path, script(&sections))
        .map_err(|source| ColdCodeError::File { path: path.clone(), source })?;
    let [cold, without_member, all] = sections.map(|(_, prefixes)| prefixes.values().sum::<u64>() / 1024);
    Ok(format!(
        "wrote {}: {cold} KiB run on no node, {without_member} KiB at most as a member of a cluster, {all} KiB on no idle node",
        path.display(),
    ))
}

fn read(path: &Path) -> Result<String, ColdCodeError> {
    let text = std::fs::read(path).map_err(|source| ColdCodeError::File { path: path.to_owned(), source })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn symbol(line: &str) -> Option<Symbol> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [address, bytes, kind, name] = fields[..] else { return None };
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_code = matches!(kind, "t" | "T" | "w" | "W");
    is_code.then_some(Symbol { address: number(address)?, bytes: number(bytes)?, name: name.to_owned() })
}

/// Reads lines such as `fn=(12) name`; the name is given only where the number is used first. `'2` marks a second level of
/// recursion.
fn names_that_ran(trace: &str) -> BTreeSet<String> {
    let calls =
        trace.lines().filter_map(|line| line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")));
    let names = calls.filter_map(|rest| rest.split_once(") ").map(|(_, name)| name));
    names.map(|name| name.split_once('\'').map_or(name, |(name, _)| name).to_owned()).collect()
}

/// The prefixes with the number of bytes that each covers.
fn cold_prefixes(symbols: &[Symbol], ran: &BTreeSet<String>) -> BTreeMap<String, u64> {
    let warm: BTreeSet<u64> =
        symbols.iter().filter(|symbol| ran.contains(&symbol.name)).map(|symbol| symbol.address).collect();
    let (warm, cold): (Vec<&Symbol>, Vec<&Symbol>) =
        symbols.iter().partition(|symbol| warm.contains(&symbol.address));
    let warm: BTreeSet<String> =
        warm.into_iter().filter_map(|symbol| shape(&symbol.name)).map(|shape| shape.text).collect();
    let ran =
        |prefix: &str| warm.range(prefix.to_owned()..).next().is_some_and(|name| name.starts_with(prefix));
    let (mut prefixes, mut counted) = (BTreeMap::new(), BTreeSet::new());
    for symbol in cold {
        let Some(shape) = shape(&symbol.name) else { continue };
        let shortest = shape.cuts.iter().map(|cut| &shape.text[..*cut]).find(|prefix| !ran(prefix));
        if let Some(prefix) = shortest {
            let bytes = if counted.insert(symbol.address) { symbol.bytes } else { 0 };
            *prefixes.entry(prefix.to_owned()).or_insert(0) += bytes;
        }
    }
    prefixes.retain(|_, bytes| *bytes >= MIN_BYTES);
    prefixes
}

/// None for a name that is not Rust's.
fn shape(name: &str) -> Option<Shape> {
    let mut shape = Shape { text: mangled::PREFIX.to_owned(), cuts: Vec::new() };
    for part in mangled::parts(name) {
        shape.text.push_str(&part.pattern());
        if matches!(part, Part::Identifier { .. } | Part::Reference(_)) {
            shape.cuts.push(shape.text.len());
        }
    }
    (!shape.cuts.is_empty()).then_some(shape)
}

/// A name belongs to the first section with a line for it, so that each section has what is not in the ones before.
fn script(sections: &[Section]) -> String {
    let mut known = BTreeSet::new();
    let mut text = format!("{HEAD}SECTIONS\n{{\n");
    for (name, prefixes) in sections {
        let new = prefixes.keys().filter(|prefix| known.insert(prefix.as_str()));
        let lines: String = new.map(|prefix| format!("    *(.text.{prefix}*)\n")).collect();
        text.push_str(&format!("  {name} :\n  {{\n{lines}  }}\n"));
    }
    text + "}\nINSERT AFTER .text;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(listing: &[(u64, &str)]) -> Vec<Symbol> {
        let line = |(address, name): &(u64, &str)| format!("{address:016x} 0000000000000800 t {name}");
        listing.iter().filter_map(|entry| symbol(&line(entry))).collect()
    }

    fn cold(listing: &[(u64, &str)], ran: &[&str]) -> Vec<String> {
        let ran = ran.iter().map(|name| (*name).to_owned()).collect();
        cold_prefixes(&symbols(listing), &ran).into_keys().collect()
    }

    #[test]
    fn module_without_executed_functions_is_one_line() {
        let (left, right) = ("_RNvNtCs1a_4tool4left1a", "_RNvNtCs1a_4tool5right1b");
        let ran = "_RNvNtCs1a_4tool6middle1c";
        assert_eq!(cold(&[(1, left), (2, ran)], &[ran]), ["_RNvNtCs??_4tool4left"]);
        assert_eq!(cold(&[(1, left), (2, right)], &[left]), ["_RNvNtCs??_4tool5right"]);
        assert_eq!(cold(&[(1, left), (2, right)], &["another"]), ["_RNvNtCs??_4tool"]);
    }

    #[test]
    fn copies_of_a_function_for_other_types_are_entries_of_their_own() {
        let [left, right] = ["_RINvCs1a_4tool3runNtCs2b_3lib4LeftE", "_RINvCs1a_4tool3runNtCs2b_3lib5RightE"];
        assert_eq!(cold(&[(1, left), (2, right)], &[right]), ["_RINvCs??_4tool3runNtCs??_3lib4Left"]);
    }

    #[test]
    fn function_at_the_address_of_an_executed_one_counts_as_executed() {
        let listing = [(1, "_RNvCs1a_4tool4left"), (1, "_RNvCs1a_4tool5right")];
        assert_eq!(cold(&listing, &["_RNvCs1a_4tool4left"]), Vec::<String>::new());
    }

    #[test]
    fn names_of_other_languages_have_no_entry() {
        assert_eq!(cold(&[(1, "aes_encrypt")], &["another"]), Vec::<String>::new());
    }

    #[test]
    fn functions_of_members_are_a_section_of_their_own() {
        let list = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 2048)).collect();
        let [cold, watch] = ["_RNvCs??_4tool4cold", "_RNvCs??_4tool5watch"];
        let written = script(&[(".text.cold", list(&[cold])), (".text.member", list(&[cold, watch]))]);
        assert!(written.contains(".text.cold :\n  {\n    *(.text._RNvCs??_4tool4cold*)\n  }"), "{written}");
        assert!(
            written.contains(".text.member :\n  {\n    *(.text._RNvCs??_4tool5watch*)\n  }"),
            "{written}"
        );
    }

    #[test]
    fn trace_names_are_resolved_by_their_numbers() {
        let trace = "fl=(1) a.rs\nfn=(1) _RNvCs1_1a1f\n1 2\ncfn=(2) _RNvCs1_1b1f'2\ncalls=1 0\nfn=(2)\n";
        let names: Vec<String> = names_that_ran(trace).into_iter().collect();
        assert_eq!(names, ["_RNvCs1_1a1f", "_RNvCs1_1b1f"]);
    }
}
