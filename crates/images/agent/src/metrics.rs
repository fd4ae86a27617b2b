//! Metrics of images: pull checks, records, garbage collection, and credential provider plugins.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use images_core::access::ImageAccess;
use images_core::garbage_collection::ImageGcReason;
use parking_lot::Mutex;
use stats_core::exposition::{DEFAULT_BUCKETS, Kind};

use base_agent::metrics::{Counts, Family, Histogram, Histograms};

/// Buckets for image pulls, in seconds.
const PULL: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
/// Label values for image sizes, each with its lower bound in MiB.
const IMAGE_SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10, "10MB-100MB"),
    (100, "100MB-500MB"),
    (500, "500MB-1GB"),
    (1 << 10, "1GB-5GB"),
    (5 << 10, "5GB-10GB"),
    (10 << 10, "10GB-20GB"),
    (20 << 10, "20GB-30GB"),
    (30 << 10, "30GB-40GB"),
    (40 << 10, "40GB-60GB"),
    (60 << 10, "60GB-100GB"),
    (100 << 10, "GT100GB"),
];

/// Label values are names of configured providers and constants, so their number is bounded.
#[derive(Debug)]
pub struct ImageMetrics {
    pulls: Histograms,
    requests: Counts,
    inner: Mutex<Inner>,
}

impl Default for ImageMetrics {
    fn default() -> Self {
        Self { pulls: Histograms::new(PULL), requests: Counts::default(), inner: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct Inner {
    checks: BTreeMap<&'static str, u64>,
    /// Files of intents and of records; `None` where none are kept.
    files: Option<(usize, usize)>,
    errors: BTreeMap<String, u64>,
    collected: BTreeMap<&'static str, u64>,
    durations: BTreeMap<String, Histogram>,
    config_hash: String,
}

impl ImageMetrics {
    /// An image was pulled.
    pub fn pulled(&self, size_bytes: u64, took: Duration) {
        let size = size_bytes >> 20;
        let name = IMAGE_SIZES.iter().rev().find(|(from, _)| *from <= size).map_or("N/A", |(_, name)| name);
        self.pulls.observe(&[if size_bytes == 0 { "N/A" } else { name }], took);
    }

    /// A container needs an image.
    pub(crate) fn image_requested(
        &self,
        policy: &'static str,
        present: Option<bool>,
        must_pull: Option<bool>,
    ) {
        let label = |known| match known {
            Some(true) => "true",
            Some(false) => "false",
            None => "unknown",
        };
        self.requests.add(&[label(present), policy, label(must_pull)]);
    }

    pub fn checked(&self, access: &ImageAccess) {
        let result = match access {
            ImageAccess::NotVerified => "credentialPolicyAllowed",
            ImageAccess::Granted | ImageAccess::GrantedAndRecorded(_) => "credentialRecordFound",
            ImageAccess::MustPull => "mustAuthenticate",
        };
        *self.inner.lock().checks.entry(result).or_default() += 1;
    }

    pub(crate) fn set_files(&self, intents: usize, records: usize) {
        self.inner.lock().files = Some((intents, records));
    }

    /// Image garbage collection removed an image.
    pub fn collected(&self, why: ImageGcReason) {
        *self.inner.lock().collected.entry(why.as_str()).or_default() += 1;
    }

    pub(crate) fn set_config_hash(&self, hash: &str) {
        hash.clone_into(&mut self.inner.lock().config_hash);
    }

    /// A credential provider plugin ran.
    pub(crate) fn provider_ran(&self, name: &str, took: Duration, is_ok: bool) {
        let mut inner = self.inner.lock();
        if !is_ok {
            *inner.errors.entry(name.to_owned()).or_default() += 1;
        }
        let durations = inner.durations.entry(name.to_owned());
        durations.or_insert_with(|| Histogram::new(DEFAULT_BUCKETS)).observe(took);
    }

    pub fn write_pulls(&self, text: &mut String) {
        let of = Family::new(
            "kubelet_image_pull_duration_seconds",
            &["image_size_in_bytes"],
            "Duration in seconds of image pulls, by image size.",
        );
        self.pulls.write(text, of);
        let name = "kubelet_image_manager_ensure_image_requests_total";
        let labels = &["present_locally", "pull_policy", "pull_required"];
        let of = Family::new(
            name,
            labels,
            "Number of ensure-image requests of containers, by pull policy, presence of the image, and whether a pull was required.",
        );
        self.requests.write(text, Kind::Counter, of);
    }

    /// Prometheus text, without families that have no samples.
    pub fn write(&self, text: &mut String) {
        let inner = self.inner.lock();
        let counters = [
            (
                "kubelet_imagemanager_image_mustpull_checks_total",
                "result",
                "Number of checks whether a pod must pull an image that is present, by result.",
                inner.checks.iter().map(|(result, count)| (*result, *count)).collect::<Vec<_>>(),
            ),
            (
                "kubelet_credential_provider_plugin_errors_total",
                "plugin_name",
                "Number of errors from credential provider plugins.",
                inner.errors.iter().map(|(name, count)| (name.as_str(), *count)).collect(),
            ),
            (
                "kubelet_image_garbage_collected_total",
                "reason",
                "Number of images removed by garbage collection, by reason.",
                inner.collected.iter().map(|(reason, count)| (*reason, *count)).collect(),
            ),
        ];
        for (name, label, help, rows) in counters {
            head(text, name, "counter", help, !rows.is_empty());
            for (value, count) in rows {
                let _ = writeln!(text, "{name}{{{label}={value:?}}} {count}");
            }
        }
        let files = inner.files.map(|(intents, records)| {
            [
                (
                    "kubelet_imagemanager_ondisk_pullintents",
                    "Number of image pull intents stored on disk: pulls whose end was not recorded.",
                    intents,
                ),
                (
                    "kubelet_imagemanager_ondisk_pulledrecords",
                    "Number of records of pulled images stored on disk.",
                    records,
                ),
            ]
        });
        for (name, help, count) in files.into_iter().flatten() {
            head(text, name, "gauge", help, true);
            let _ = writeln!(text, "{name} {count}");
        }
        write_durations(text, &inner.durations);
        if !inner.config_hash.is_empty() {
            let name = "kubelet_credential_provider_config_info";
            head(
                text,
                name,
                "gauge",
                "Hash of the credential provider configuration in use; the value is always 1.",
                true,
            );
            let _ = writeln!(text, "{name}{{hash={:?}}} 1", inner.config_hash);
        }
    }
}

fn write_durations(text: &mut String, durations: &BTreeMap<String, Histogram>) {
    let name = "kubelet_credential_provider_plugin_duration";
    let help = "Duration of executions of credential provider plugins in seconds.";
    head(text, name, "histogram", help, !durations.is_empty());
    for (plugin, histogram) in durations {
        histogram.write(text, name, &[("plugin_name", plugin)]);
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str, is_known: bool) {
    if is_known {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_each_bucket() {
        let metrics = ImageMetrics::default();
        for millis in [5, 300, 20_000] {
            metrics.provider_ran("p", Duration::from_millis(millis), millis != 300);
        }
        let mut text = String::new();
        metrics.write(&mut text);
        let expected = [
            "kubelet_credential_provider_plugin_errors_total{plugin_name=\"p\"} 1",
            "kubelet_credential_provider_plugin_duration_bucket{plugin_name=\"p\",le=\"0.005\"} 1",
            "kubelet_credential_provider_plugin_duration_bucket{plugin_name=\"p\",le=\"0.25\"} 1",
            "kubelet_credential_provider_plugin_duration_bucket{plugin_name=\"p\",le=\"0.5\"} 2",
            "kubelet_credential_provider_plugin_duration_bucket{plugin_name=\"p\",le=\"10\"} 2",
            "kubelet_credential_provider_plugin_duration_bucket{plugin_name=\"p\",le=\"+Inf\"} 3",
            "kubelet_credential_provider_plugin_duration_count{plugin_name=\"p\"} 3",
        ];
        for line in expected {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("mustpull"), "no check was made");
    }

    #[test]
    fn image_pulls_are_labelled_by_image_size() {
        let metrics = ImageMetrics::default();
        for bytes in [0, 1, (10 << 20) - 1, 10 << 20, 3 << 30, 200 << 30] {
            metrics.pulled(bytes, Duration::from_secs(7));
        }
        let mut text = String::new();
        metrics.write_pulls(&mut text);
        for (size, count) in [("N/A", 1), ("0-10MB", 2), ("10MB-100MB", 1), ("1GB-5GB", 1), ("GT100GB", 1)] {
            let line = format!(
                "kubelet_image_pull_duration_seconds_count{{image_size_in_bytes=\"{size}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
