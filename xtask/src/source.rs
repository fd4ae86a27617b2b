//! Scans Rust files for the tidy checks: code, comments, tests, and the begin and end of each function. It is not a parser: it
//! recognises comments, strings and braces, but no types.

use std::path::Path;

use crate::files::{below, has_extension};
use crate::{CheckError, read};

/// A Rust file, split line by line.
#[derive(Debug)]
pub struct Source {
    /// Path below the workspace root, with `/`.
    pub path: String,
    /// The name of the crate, as `crate_in_folder` gives it.
    pub crate_name: String,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

/// One line, with code and comments separated.
#[derive(Debug, Default, Clone)]
pub struct Line {
    /// The code, with the contents of strings and characters left out.
    pub code: String,
    /// The text of comments on this line, with their slashes.
    pub comment: String,
    /// Whether the line belongs to a test: a file below `tests/`, a `tests.rs`, or a `#[cfg(test)]` block.
    pub test: bool,
}

/// A function and its length.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`, counted from 1.
    pub line: usize,
    /// The line of its closing brace.
    pub last: usize,
    /// Lines with code on them; blank lines, comments and the insides of strings do not count.
    pub length: usize,
}

/// Every Rust file of the workspace that is not generated, in order of path.
pub fn read_all(root: &Path) -> Result<Vec<Source>, CheckError> {
    let mut paths = Vec::new();
    for top in ["crates", "xtask"] {
        let is_rust = |path: &Path| has_extension(path, &["rs"]);
        paths.extend(below(&root.join(top), &["target", "generated"], is_rust)?);
    }
    paths.iter().map(|path| Ok(Source::new(&relative(root, path), &read(path)?))).collect()
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

impl Source {
    /// Splits `text`, the content of the file at `path`.
    pub fn new(path: &str, text: &str) -> Self {
        let mut lines = split(text);
        mark_tests(&mut lines);
        if path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("tests/") {
            lines.iter_mut().for_each(|line| line.test = true);
        }
        Self { path: path.to_owned(), crate_name: crate_name(path), lines }
    }

    /// The lines with their numbers, counted from 1.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Every function with a body, in order, nested ones included.
    pub fn functions(&self) -> Vec<Function> {
        let starts = self.numbered().filter_map(|(number, line)| Some((number, function_name(&line.code)?)));
        starts
            .filter_map(|(number, name)| {
                let last = self.end_of_block(number)?;
                let length =
                    self.lines[number - 1..last].iter().filter(|line| !line.code.trim().is_empty()).count();
                Some(Function { name, line: number, last, length })
            })
            .collect()
    }

    /// The attributes and comments right above line `number`, nearest first.
    pub fn attributes(&self, number: usize) -> impl Iterator<Item = &Line> {
        self.lines[..number - 1].iter().rev().take_while(|line| {
            let code = line.code.trim();
            (code.is_empty() && !line.comment.is_empty()) || code.starts_with("#[") || code.ends_with(")]")
        })
    }

    /// The line that closes the first brace at or after `from`; `None` for a declaration without a body.
    fn end_of_block(&self, from: usize) -> Option<usize> {
        let (mut depth, mut brackets, mut opened) = (0_usize, 0_i32, false);
        for (number, line) in self.numbered().skip(from - 1) {
            for character in line.code.chars() {
                match character {
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets -= 1,
                    '{' => (opened, depth) = (true, depth + 1),
                    '}' => depth = depth.saturating_sub(1),
                    ';' if !opened && brackets <= 0 => return None,
                    _ => {}
                }
                if opened && depth == 0 {
                    return Some(number);
                }
            }
        }
        None
    }
}

/// The name of the crate that owns the file at `path`: the folders above its `src` or `tests`.
fn crate_name(path: &str) -> String {
    let folders =
        path.split('/').take_while(|folder| !matches!(*folder, "src" | "tests") && !folder.ends_with(".rs"));
    crate_in_folder(&folders.collect::<Vec<_>>().join("/"))
}

/// Folders of crates of one kind, which are no part of their names.
const KINDS: &[&str] = &["adapters", "proto", "testing"];

/// The name of the crate in a folder of the repository: `volumes-core` in `crates/volumes/core`, `cri` in `crates/adapters/cri`.
pub fn crate_in_folder(folder: &str) -> String {
    let below = folder.strip_prefix("crates/").unwrap_or(folder);
    match below.split_once('/') {
        Some((kind, crate_folder)) if KINDS.contains(&kind) => crate_folder.replace('/', "-"),
        Some(_) | None => below.replace('/', "-"),
    }
}

/// The name after the word `fn`, if this line of code declares a function.
fn function_name(code: &str) -> Option<String> {
    let at = words(code).position(|word| word == "fn")?;
    words(code).nth(at + 1).map(str::to_owned)
}

/// The identifiers and keywords of a line of code, in order.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Marks the lines of every item after `#[cfg(test)]`.
fn mark_tests(lines: &mut [Line]) {
    let mut index = 0;
    while index < lines.len() {
        if !lines[index].code.contains("#[cfg(test)]") {
            index += 1;
            continue;
        }
        let (mut depth, mut opened) = (0_usize, false);
        while index < lines.len() {
            lines[index].test = true;
            // A declaration such as `mod tests;` ends at its semicolon.
            let declared = !opened && lines[index].code.ends_with(';');
            for character in lines[index].code.chars() {
                match character {
                    '{' => (opened, depth) = (true, depth + 1),
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            index += 1;
            if declared || (opened && depth == 0) {
                break;
            }
        }
    }
}

/// State of the scanner.
enum Scan {
    Code,
    LineComment,
    /// Depth of nested block comments.
    BlockComment(usize),
    /// In a string; the number of `#` that end it, none for one with escapes.
    Text(Option<usize>),
}

fn split(text: &str) -> Vec<Line> {
    let characters: Vec<char> = text.chars().collect();
    let (mut lines, mut scan, mut at) = (vec![Line::default()], Scan::Code, 0);
    while let Some(&character) = characters.get(at) {
        if character == '\n' {
            if matches!(scan, Scan::LineComment) {
                scan = Scan::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let Some(line) = lines.last_mut() else { break };
        let rest = &characters[at..];
        let (next, taken) = match scan {
            Scan::Code => step_code(rest, line),
            Scan::LineComment => {
                line.comment.push(character);
                (Scan::LineComment, 1)
            }
            Scan::BlockComment(depth) => step_block_comment(rest, depth, line),
            Scan::Text(hashes) => step_text(rest, hashes, line),
        };
        (scan, at) = (next, at + taken);
    }
    if text.ends_with('\n') {
        lines.pop();
    }
    lines
}

fn step_code(rest: &[char], line: &mut Line) -> (Scan, usize) {
    let continues_word = line.code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    match rest {
        ['/', '/', ..] => {
            line.comment.push_str("//");
            (Scan::LineComment, 2)
        }
        ['/', '*', ..] => (Scan::BlockComment(1), 2),
        ['"', ..] => {
            line.code.push('"');
            (Scan::Text(None), 1)
        }
        ['r', '#' | '"', ..] if !continues_word || line.code.ends_with('b') => {
            let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
            if rest.get(1 + hashes) == Some(&'"') {
                line.code.push('"');
                return (Scan::Text(Some(hashes)), hashes + 2);
            }
            line.code.push('r');
            (Scan::Code, 1)
        }
        ['\'', '\\', ..] => {
            // An escaped character: up to its closing quote, which is never the one right after the backslash.
            let length = rest.iter().skip(3).position(|c| *c == '\'').map_or(rest.len(), |found| found + 4);
            line.code.push_str("''");
            (Scan::Code, length)
        }
        ['\'', _, '\'', ..] => {
            line.code.push_str("''");
            (Scan::Code, 3)
        }
        [character, ..] => {
            line.code.push(*character);
            (Scan::Code, 1)
        }
        [] => (Scan::Code, 1),
    }
}

fn step_block_comment(rest: &[char], depth: usize, line: &mut Line) -> (Scan, usize) {
    match rest {
        ['/', '*', ..] => (Scan::BlockComment(depth + 1), 2),
        ['*', '/', ..] if depth == 1 => (Scan::Code, 2),
        ['*', '/', ..] => (Scan::BlockComment(depth - 1), 2),
        [character, ..] => {
            line.comment.push(*character);
            (Scan::BlockComment(depth), 1)
        }
        [] => (Scan::BlockComment(depth), 1),
    }
}

fn step_text(rest: &[char], hashes: Option<usize>, line: &mut Line) -> (Scan, usize) {
    match (rest, hashes) {
        // The line break after a backslash still ends the line.
        (['\\', '\n', ..], None) => (Scan::Text(None), 1),
        (['\\', ..], None) => (Scan::Text(None), 2),
        (['"', ..], None) => {
            line.code.push('"');
            (Scan::Code, 1)
        }
        (['"', after @ ..], Some(count)) if after.iter().take_while(|c| **c == '#').count() >= count => {
            line.code.push('"');
            (Scan::Code, 1 + count)
        }
        _ => (Scan::Text(hashes), 1),
    }
}
