//! The calls of the CRI: each function makes one call (and at most one more to complete its response).

pub(crate) mod checkpoint;
pub(crate) mod container_stats;
pub(crate) mod container_status;
pub(crate) mod create_container;
pub(crate) mod exec_sync;
pub(crate) mod hints;
pub(crate) mod image_filesystems;
pub(crate) mod image_status;
pub(crate) mod list_containers;
pub(crate) mod list_images;
pub(crate) mod list_sandboxes;
pub(crate) mod pull_image;
pub(crate) mod remove_image;
pub(crate) mod reopen_log;
pub(crate) mod run_sandbox;
pub(crate) mod runtime_config;
pub(crate) mod sandbox_metrics;
pub(crate) mod sandbox_stats;
pub(crate) mod sandbox_status;
pub(crate) mod status;
pub(crate) mod stop_container;
pub(crate) mod stop_sandbox;
pub(crate) mod streaming;
pub(crate) mod update_resources;
pub(crate) mod version;

use std::time::Duration;

/// Whole seconds, rounded up: a runtime must not time out earlier than requested.
pub(crate) fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_periods_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::ZERO), 0);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
        assert_eq!(whole_seconds(Duration::MAX), i64::MAX);
    }
}
