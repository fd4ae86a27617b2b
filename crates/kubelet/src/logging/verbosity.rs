//! The verbosity of the log: `-v` for all, `--vmodule` for single source files. Never formats a line.

use std::sync::atomic::{AtomicU32, Ordering};

use config::VModuleRule;
use tracing::Level;
use tracing::level_filters::LevelFilter;

const OUR_CRATES: [&str; 16] = [
    "agent",
    "api_agent",
    "base_agent",
    "images_agent",
    "resources_agent",
    "sources_agent",
    "stats_agent",
    "volumes_agent",
    "kubelet",
    "cluster",
    "cri",
    "host",
    "net",
    "plugins",
    "server",
    "config",
];

/// The level of `-v` and the rules of `--vmodule`.
#[derive(Debug, Default)]
pub(crate) struct Verbosity {
    /// `-v`, which may change at runtime.
    pub(crate) of_all: AtomicU32,
    /// `--vmodule`: the first rule that matches a file may raise its verbosity, and never lowers it.
    pub(crate) of_files: Vec<VModuleRule>,
}

impl Verbosity {
    /// Whether a line of that level is shown. `target` is a module path like `agent::pods::pass::start`, `file` the path of its
    /// source. Libraries log only warnings below verbosity 8.
    pub(crate) fn shows(&self, level: Level, target: &str, file: Option<&str>) -> bool {
        let verbosity = self.of(target, file);
        let origin = target.split("::").next().unwrap_or_default();
        let has_verbosity = OUR_CRATES.contains(&origin) || verbosity >= 8;
        level <= if has_verbosity { level_of(verbosity) } else { Level::WARN }
    }

    /// The maximum level of all files.
    pub(crate) fn max_level(&self) -> LevelFilter {
        let most = self
            .of_files
            .iter()
            .map(|rule| rule.verbosity)
            .max()
            .unwrap_or(0)
            .max(self.of_all.load(Ordering::Relaxed));
        LevelFilter::from_level(level_of(most))
    }

    fn of(&self, target: &str, file: Option<&str>) -> u32 {
        let name = file.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let name = name.strip_suffix(".rs").unwrap_or(name);
        let has_match = |rule: &&VModuleRule| {
            let pattern = rule.file_pattern.as_bytes();
            matches(pattern, name.as_bytes()) || matches(pattern, target.as_bytes())
        };
        self.of_files
            .iter()
            .find(has_match)
            .map_or(0, |rule| rule.verbosity)
            .max(self.of_all.load(Ordering::Relaxed))
    }
}

const fn level_of(verbosity: u32) -> Level {
    match verbosity {
        0..=3 => Level::INFO,
        4 | 5 => Level::DEBUG,
        6.. => Level::TRACE,
    }
}

/// `*` matches any text, `?` any character. Called once for each call site.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => matches(rest, text),
        (Some((b'*', rest)), Some((_, after))) => matches(rest, text) || matches(pattern, after),
        (Some((wanted, rest)), Some((found, after))) => {
            (*wanted == b'?' || wanted == found) && matches(rest, after)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbosity(of_all: u32, rules: &[(&str, u32)]) -> Verbosity {
        let rule = |(pattern, verbosity): &(&str, u32)| VModuleRule {
            file_pattern: (*pattern).to_owned(),
            verbosity: *verbosity,
        };
        Verbosity { of_all: of_all.into(), of_files: rules.iter().map(rule).collect() }
    }

    /// The lowest level that a source file logs.
    fn lowest_level(rules: &Verbosity, target: &str, file: &str) -> Level {
        let shown = |level: &Level| rules.shows(*level, target, Some(file));
        [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN].into_iter().find(shown).unwrap_or(Level::ERROR)
    }

    #[test]
    fn vmodule_rule_raises_only_the_files_that_it_matches() {
        let rules = verbosity(0, &[("sync_loop", 4), ("agent::pods::pass*", 6), ("pleg", 1)]);
        assert_eq!(
            lowest_level(&rules, "agent::pods::sync_loop", "crates/agent/src/sync_loop.rs"),
            Level::DEBUG
        );
        assert_eq!(
            lowest_level(&rules, "agent::pods::pass::start", "crates/agent/src/pass/start.rs"),
            Level::TRACE
        );
        assert_eq!(
            lowest_level(&rules, "images_agent::records", "crates/images/agent/src/records.rs"),
            Level::INFO
        );
        assert_eq!(rules.max_level(), LevelFilter::TRACE);
    }

    #[test]
    fn first_vmodule_rule_applies_and_none_lowers_the_verbosity() {
        let file = ("images_agent::records", "crates/images/agent/src/records.rs");
        assert_eq!(lowest_level(&verbosity(0, &[("rec?rds", 4), ("*", 6)]), file.0, file.1), Level::DEBUG);
        assert_eq!(lowest_level(&verbosity(6, &[("records", 1)]), file.0, file.1), Level::TRACE);
    }

    #[test]
    fn every_crate_that_logs_is_one_of_ours() {
        let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")];
        while let Some(folder) = folders.pop() {
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
            let name = name.trim_matches('"').replace('-', "_");
            if manifest.contains("\ntracing.workspace") && name != "localapi" {
                assert!(OUR_CRATES.contains(&name.as_str()), "{name}");
            }
            let is_crate = !manifest.is_empty();
            let inside =
                std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
            folders.extend(inside.filter(|path| !is_crate && path.is_dir()));
        }
    }

    #[test]
    fn libraries_log_only_warnings_below_verbosity_8() {
        let file = ("h2::client", "/src/h2/client.rs");
        assert_eq!(lowest_level(&verbosity(6, &[]), file.0, file.1), Level::WARN);
        assert_eq!(lowest_level(&verbosity(0, &[("h2::*", 8)]), file.0, file.1), Level::TRACE);
    }
}
