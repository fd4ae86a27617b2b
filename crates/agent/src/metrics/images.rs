//! Counters about images: checks of who may use them, their records, those collected, and the programs that are asked for credentials.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use kubelet_core::image::access::ImageAccess;
use kubelet_core::image::gc::ImageGcReason;
use kubelet_core::stats::exposition::DEFAULT_BUCKETS;
use parking_lot::Mutex;

use super::Histogram;

/// What is counted. Labels are names of configured providers and words of ours, so there is a bound to them.
#[derive(Debug, Default)]
pub struct ImageMetrics {
    inner: Mutex<Inner>,
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
    pub(crate) fn checked(&self, access: &ImageAccess) {
        let result = match access {
            ImageAccess::NotVerified => "credentialPolicyAllowed",
            ImageAccess::Granted | ImageAccess::GrantedAndNoted(_) => "credentialRecordFound",
            ImageAccess::MustPull => "mustAuthenticate",
        };
        *self.inner.lock().checks.entry(result).or_default() += 1;
    }

    pub(crate) fn set_files(&self, intents: usize, records: usize) {
        self.inner.lock().files = Some((intents, records));
    }

    /// An image was removed because nobody needed it.
    pub(crate) fn collected(&self, why: ImageGcReason) {
        *self.inner.lock().collected.entry(why.as_str()).or_default() += 1;
    }

    pub(crate) fn set_config_hash(&self, hash: &str) {
        hash.clone_into(&mut self.inner.lock().config_hash);
    }

    /// A program ran.
    pub(crate) fn provider_ran(&self, name: &str, took: Duration, is_ok: bool) {
        let mut inner = self.inner.lock();
        if !is_ok {
            *inner.errors.entry(name.to_owned()).or_default() += 1;
        }
        let durations = inner.durations.entry(name.to_owned());
        durations.or_insert_with(|| Histogram::new(DEFAULT_BUCKETS)).observe(took);
    }

    /// Prometheus text; what nothing is known of is left out.
    pub(crate) fn render(&self, text: &mut String) {
        let inner = self.inner.lock();
        let counters = [
            (
                "kubelet_imagemanager_image_mustpull_checks_total",
                "result",
                "Checks whether a pod must pull an image that is there.",
                inner.checks.iter().map(|(result, count)| (*result, *count)).collect::<Vec<_>>(),
            ),
            (
                "kubelet_credential_provider_plugin_errors_total",
                "plugin_name",
                "Runs of a credential provider that gave nothing of use.",
                inner.errors.iter().map(|(name, count)| (name.as_str(), *count)).collect(),
            ),
            (
                "kubelet_image_garbage_collected_total",
                "reason",
                "Images removed because nobody needed them, by why.",
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
                ("kubelet_imagemanager_ondisk_pullintents", "Pulls begun whose end was not noted.", intents),
                ("kubelet_imagemanager_ondisk_pulledrecords", "Records of pulled images.", records),
            ]
        });
        for (name, help, count) in files.into_iter().flatten() {
            head(text, name, "gauge", help, true);
            let _ = writeln!(text, "{name} {count}");
        }
        render_durations(text, &inner.durations);
        if !inner.config_hash.is_empty() {
            let name = "kubelet_credential_provider_config_info";
            head(text, name, "gauge", "The configuration of credential providers in use.", true);
            let _ = writeln!(text, "{name}{{hash={:?}}} 1", inner.config_hash);
        }
    }
}

fn render_durations(text: &mut String, durations: &BTreeMap<String, Histogram>) {
    let name = "kubelet_credential_provider_plugin_duration";
    let help = "How long runs of a credential provider took, in seconds.";
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
    fn durations_are_counted_below_each_edge() {
        let metrics = ImageMetrics::default();
        for millis in [5, 300, 20_000] {
            metrics.provider_ran("p", Duration::from_millis(millis), millis != 300);
        }
        let mut text = String::new();
        metrics.render(&mut text);
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
        assert!(!text.contains("mustpull"), "nothing was checked");
    }
}
