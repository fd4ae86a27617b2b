//! Configuration that nothing reads. Every field of the structs that carry flags, configuration and facts about the node must be
//! read somewhere outside of tests: a field that is only written looks like a setting and has no effect.
//!
//! Knows names and not types: a read of a field of the same name in another struct counts.

use std::collections::BTreeSet;

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

/// The files whose public structs are checked.
const FILES: &[&str] = &[
    "crates/base/agent/src/context.rs",
    "crates/base/agent/src/settings.rs",
    "crates/base/core/src/node_facts.rs",
    "crates/config/src/kubeletconfig.rs",
    "crates/config/src/kubeletconfig/parts.rs",
    "crates/config/src/node.rs",
    "crates/config/src/resolve.rs",
    "crates/kubelet-core/src/node.rs",
    "crates/kubelet-core/src/pods/request.rs",
    "crates/kubelet-core/src/pods/status.rs",
];

/// Fields that this build accepts and does not act on. The kubelet logs those that are set (`config::not_yet`).
const WITHOUT_EFFECT: &[&str] = &[
    "enable_contention_profiling",
    "housekeeping_interval",
    "info_buffer_size",
    "max_housekeeping_interval",
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let read = fields_read(sources);
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| FILES.contains(&source.path.as_str())) {
        for (number, field) in fields(source) {
            let problem = match (read.contains(field), WITHOUT_EFFECT.contains(&field)) {
                (false, false) => "is written and never read: read it, or remove it",
                (true, true) => "is read: remove it from the list of fields without effect",
                (true, false) | (false, true) => continue,
            };
            findings.push(finding(source, number, format!("field `{field}` {problem}")));
        }
    }
    findings
}

/// The public fields that a file declares: those of structs, and the rows of the macro `configuration!`.
fn fields(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.numbered().filter(|(_, line)| !line.test).filter_map(|(number, line)| {
        let code = line.code.trim();
        let row = code.contains(", \"\": ").then_some(code);
        let declared = code.strip_prefix("pub ").filter(|rest| is_field(rest));
        Some((number, words(row.or(declared)?).next()?))
    })
}

fn is_field(after_pub: &str) -> bool {
    after_pub.split_once(": ").is_some_and(|(name, _)| words(name).eq([name]))
}

/// The names behind a dot that are no calls, in all code but tests and fakes.
fn fields_read(sources: &[Source]) -> BTreeSet<&str> {
    let code = sources.iter().filter(|source| source.crate_name != "fakes");
    let lines = code.flat_map(|source| &source.lines).filter(|line| !line.test);
    lines.flat_map(|line| line.code.split('.').skip(1)).filter_map(name_of_field).collect()
}

/// The identifier at the beginning of what follows a dot, unless it is called.
fn name_of_field(after_dot: &str) -> Option<&str> {
    let end = after_dot.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after_dot.len());
    let (name, rest) = after_dot.split_at(end);
    (!name.is_empty() && !rest.starts_with('(')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(declared: &str, reader: &str) -> Vec<String> {
        let sources = [
            Source::new("crates/base/agent/src/settings.rs", declared),
            Source::new("crates/agent/src/node.rs", reader),
        ];
        check(&sources).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn field_that_is_written_and_never_read_is_found() {
        let declared = "pub struct Settings {\n    pub name: String,\n    pub limit: u32,\n}\n";
        let writes = "let settings = Settings { name, limit: 3 };\nsettings.limit();\n";
        assert_eq!(complaints(declared, &format!("{writes}use_it(settings.name);")).len(), 1);
        assert_eq!(complaints(declared, &format!("{writes}use_it(settings.name, settings.limit);")).len(), 0);
        let in_test =
            "#[cfg(test)]\nmod tests {\n    fn test() { use_it(settings.name, settings.limit); }\n}\n";
        assert_eq!(complaints(declared, in_test).len(), 2);
    }

    #[test]
    fn field_on_the_list_must_not_be_read() {
        let declared = "configuration! {\n    A {\n        enable_contention_profiling, \"enableContentionProfiling\": bool = x;\n    }\n}\n";
        assert!(complaints(declared, "fn nothing() {}").is_empty());
        assert_eq!(complaints(declared, "use_it(config.enable_contention_profiling);").len(), 1);
    }
}
