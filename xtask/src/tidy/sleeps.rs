//! A test must wait for a condition, not for a fixed time. A sleep is allowed between polls (inside a loop), and with a paused
//! clock, which it advances; anywhere else it depends on the speed of the machine.

use crate::Finding;
use crate::source::{Function, Source, words};
use crate::tidy::finding;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let functions = source.functions();
    let mut findings = Vec::new();
    for (number, _) in source.numbered().filter(|(_, line)| line.test && is_sleep(&line.code)) {
        let within = functions.iter().rfind(|function| (function.line..=function.last).contains(&number));
        if within.is_some_and(|function| is_paused(source, function) || is_polling(source, function, number))
        {
            continue;
        }
        findings.push(finding(source, number, "a test sleeps: wait for the condition, or pause the clock"));
    }
    findings
}

fn is_sleep(code: &str) -> bool {
    code.contains("thread::sleep(")
        || code.contains("time::sleep(")
        || code.trim_start().starts_with("sleep(")
}

/// Whether the test's attribute pauses tokio's clock.
fn is_paused(source: &Source, function: &Function) -> bool {
    source.attributes(function.line).any(|line| line.code.contains("start_paused"))
}

/// Whether line `number` is in a loop of the function.
fn is_polling(source: &Source, function: &Function, number: usize) -> bool {
    // One entry for each open brace: whether it opened a loop. `head` is the text before the next brace.
    let (mut open, mut head) = (Vec::new(), String::new());
    for line in &source.lines[function.line - 1..number - 1] {
        for character in line.code.chars() {
            match character {
                '{' => open.push(words(&head).any(|word| ["loop", "while", "for"].contains(&word))),
                '}' => drop(open.pop()),
                ';' => {}
                _ => {
                    head.push(character);
                    continue;
                }
            }
            head.clear();
        }
        head.push(' ');
    }
    open.contains(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_found(body: &str) -> Vec<usize> {
        let source = Source::new("crates/agent/tests/it/a.rs", body);
        check(&source).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn sleep_between_polls_is_allowed() {
        assert_eq!(
            lines_found(
                "fn t() {\n    loop {\n        if done() { break; }\n        std::thread::sleep(d);\n    }\n}\n"
            ),
            [0; 0]
        );
        assert_eq!(
            lines_found(
                "async fn t() {\n    let ended = async {\n        while busy() {\n            tokio::time::sleep(d).await;\n        }\n    };\n}\n"
            ),
            [0; 0]
        );
    }

    #[test]
    fn sleep_with_a_paused_clock_is_allowed() {
        assert_eq!(
            lines_found(
                "#[tokio::test(start_paused = true)]\nasync fn t() {\n    tokio::time::sleep(d).await;\n}\n"
            ),
            [0; 0]
        );
    }

    #[test]
    fn other_sleeps_are_reported() {
        assert_eq!(lines_found("fn t() {\n    for x in y {\n    }\n    std::thread::sleep(d);\n}\n"), [4]);
        assert_eq!(lines_found("#[tokio::test]\nasync fn t() {\n    tokio::time::sleep(d).await;\n}\n"), [3]);
    }
}
