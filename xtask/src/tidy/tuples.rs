//! A function takes no tuple apart in its parameters: `(name, size): (&str, u64)` is two parameters that the limit of clippy counts as
//! one. A function whose only parameter is a tuple may: it is one for the items of an iterator (`pairs.map(named)`).

use crate::Finding;
use crate::source::Source;
use crate::tidy::finding;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for function in source.functions() {
            let list = parameters(source, function.line, &function.name);
            let parameters = split(&list);
            let is_tuple = |parameter: &&str| parameter.trim_start_matches('&').starts_with('(');
            let Some(tuple) = parameters.iter().copied().find(is_tuple) else { continue };
            if source.lines[function.line - 1].test || parameters.len() == 1 {
                continue;
            }
            let pattern = tuple.trim_start_matches('&').split(':').next().unwrap_or_default();
            let what = format!(
                "function `{}` has the tuple `{pattern}` as a parameter: write separate parameters, or name a struct",
                function.name
            );
            findings.push(finding(source, function.line, what));
        }
    }
    findings
}

/// The text between the parentheses after the name of the function that is declared in line `number`, on one line.
fn parameters(source: &Source, number: usize, name: &str) -> String {
    let declared = source.lines[number - 1].code.split_once(&format!("fn {name}"));
    let first = declared.map_or("", |(_, rest)| rest);
    let more = source.lines[number..].iter().flat_map(|line| " ".chars().chain(line.code.trim().chars()));
    // Depth of the generics (`<F: Fn(u8) -> u8>`) before the list, and of the list.
    let (mut generics, mut depth, mut list, mut previous) = (0_usize, 0_usize, String::new(), ' ');
    for character in first.chars().chain(more) {
        match character {
            '<' if depth == 0 => generics += 1,
            '>' if depth == 0 && previous != '-' => generics = generics.saturating_sub(1),
            '(' if generics == 0 => depth += 1,
            ')' if generics == 0 => depth = depth.saturating_sub(1),
            _ => {}
        }
        if generics == 0 && depth == 0 && character == ')' {
            break;
        }
        if depth > 0 {
            list.push(character);
        }
        previous = character;
    }
    list.strip_prefix('(').unwrap_or_default().to_owned()
}

/// The parameters in a list of them; commas in brackets separate none.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut previous) = (0_i32, ' ');
    let parameters = list.split(|character: char| {
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if previous != '-' => depth -= 1,
            _ => {}
        }
        previous = character;
        character == ',' && depth == 0
    });
    parameters.map(str::trim).filter(|parameter| !parameter.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let source = Source::new("crates/agent/src/a.rs", text);
        let findings = check(&[source]);
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn tuple_patterns_are_refused_on_one_line_or_several() {
        let what =
            "function `f` has the tuple `(a, b)` as a parameter: write separate parameters, or name a struct";
        for text in [
            "fn f(x: u8, (a, b): (A, B)) {}\n",
            "fn f<F: Fn(u8, u8) -> u8>(x: F, (a, b): (A, B)) {}\n",
            "fn f(&self, &(a, b): &(A, B)) {}\n",
            "fn f(\n    x: Vec<(u8, u8)>,\n    (a, b): (A, B),\n) {}\n",
        ] {
            assert_eq!(found(text), [(1, what.to_owned())], "{text}");
        }
    }

    #[test]
    fn other_tuples_are_allowed() {
        for text in [
            "fn item((a, b): (A, B)) {}\n",
            "fn item(\n    (a, b): (A, B),\n) -> (C, D) {}\n",
            "fn typed(x: u8, pair: (A, B)) -> (A, B) {}\n",
            "fn closure(x: u8) { x.map(|y, (a, b): (A, B)| a) }\n",
            "fn returned(f: impl Fn(A, (B, C)) -> D, x: u8) {}\n",
            "#[cfg(test)]\nmod tests {\n    fn f(x: u8, (a, b): (A, B)) {}\n}\n",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
