//! Metrics of the client and the serving certificate (docs/behaviour/metrics.md): time to expiry, age of rotated certificates, and
//! failed renewals.
//!
//! Owns the counts. The task that rotates a certificate reports each change; without such a task a certificate has no
//! metrics.

use std::time::Duration;

use api_core::certificates::CertificateUse;
use base_agent::metrics::Histogram;
use jiff::Timestamp;
use model::CertificateFacts;
use parking_lot::Mutex;
use stats_core::exposition::{Kind, Value, family, line};

/// Buckets for the age of rotated serving certificates, in seconds: from a minute to four years of 360 days.
const AGES: &[f64] = &[
    60.0,
    3600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];
const CLIENT_LEFT: &str = "kubelet_certificate_manager_client_ttl_seconds";
const CLIENT_FAILURES: &str = "kubelet_certificate_manager_client_expiration_renew_errors";
const SERVING_LEFT: &str = "kubelet_certificate_manager_server_ttl_seconds";
const SERVING_FAILURES: &str = "kubelet_server_expiration_renew_errors";
const SERVING_AGES: &str = "kubelet_certificate_manager_server_rotation_seconds";

/// Counts of both kinds; every access is short.
#[derive(Debug)]
pub struct CertificateMetrics {
    client: Mutex<Option<Kept>>,
    serving: Mutex<Option<Kept>>,
    /// Ages of serving certificates when they were rotated.
    ages: Histogram,
}

/// A certificate that this kubelet rotates.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// Of the certificate in use; `None` while there is none.
    not_after: Option<Timestamp>,
    failures: u64,
}

impl Default for CertificateMetrics {
    fn default() -> Self {
        let (client, serving) = Default::default();
        Self { client, serving, ages: Histogram::of_numbers(AGES) }
    }
}

impl CertificateMetrics {
    /// Sets the certificate in use.
    pub fn uses(&self, kind: CertificateUse, current: Option<&CertificateFacts>) {
        let mut kept = self.of(kind).lock();
        kept.get_or_insert_default().not_after = current.map(|facts| facts.not_after);
    }

    pub fn failed(&self, kind: CertificateUse) {
        self.of(kind).lock().get_or_insert_default().failures += 1;
    }

    /// The certificates that this kubelet renews, with their ends; `None` while there is none.
    #[must_use]
    pub fn ends(&self) -> Vec<(&'static str, Option<Timestamp>)> {
        let all = [("client", &self.client), ("serving", &self.serving)];
        all.into_iter().filter_map(|(name, kept)| Some((name, kept.lock().as_ref()?.not_after))).collect()
    }

    /// The serving certificate `old` was replaced now.
    pub fn serving_replaced(&self, old: &CertificateFacts, now: Timestamp) {
        let age = Duration::try_from(now.duration_since(old.not_before));
        self.ages.observe(age.unwrap_or_default());
    }

    pub fn write(&self, text: &mut String, now: Timestamp) {
        if let Some(client) = self.client.lock().clone() {
            let help =
                "Seconds until the client certificate expires; negative if it has expired, +Inf without one.";
            gauge(text, CLIENT_LEFT, help, client.left(now));
            count(
                text,
                CLIENT_FAILURES,
                "Number of failed renewals of the client certificate.",
                client.failures,
            );
        }
        if let Some(serving) = self.serving.lock().clone() {
            let help = "Seconds until the serving certificate expires; negative if it has expired, +Inf without one.";
            gauge(text, SERVING_LEFT, help, serving.left(now));
            count(
                text,
                SERVING_FAILURES,
                "Number of failed renewals of the serving certificate.",
                serving.failures,
            );
            let help = "Age of serving certificates when they were rotated, in seconds.";
            family(text, SERVING_AGES, Kind::Histogram, help);
            self.ages.write(text, SERVING_AGES, &[]);
        }
    }

    const fn of(&self, kind: CertificateUse) -> &Mutex<Option<Kept>> {
        match kind {
            CertificateUse::Client => &self.client,
            CertificateUse::Serving => &self.serving,
        }
    }
}

impl Kept {
    /// Seconds; negative for an expired certificate.
    fn left(&self, now: Timestamp) -> f64 {
        // Whole seconds, as in the Go kubelet.
        self.not_after.map_or(f64::INFINITY, |end| end.duration_since(now).as_secs_f64().trunc())
    }
}

fn gauge(text: &mut String, name: &str, help: &str, value: f64) {
    family(text, name, Kind::Gauge, help);
    line(text, name, &[], Value::Float(value), None);
}

fn count(text: &mut String, name: &str, help: &str, value: u64) {
    family(text, name, Kind::Counter, help);
    line(text, name, &[], Value::Integer(value), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(not_before: &str, not_after: &str) -> CertificateFacts {
        CertificateFacts {
            not_before: not_before.parse().unwrap(),
            not_after: not_after.parse().unwrap(),
            names: model::CertificateNames::default(),
        }
    }

    /// The samples without help and type.
    fn samples(metrics: &CertificateMetrics, now: &str) -> Vec<String> {
        let mut text = String::new();
        metrics.write(&mut text, now.parse().unwrap());
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn no_certificate_metrics_without_rotation() {
        assert_eq!(samples(&CertificateMetrics::default(), "2026-01-01T00:00:00Z"), Vec::<String>::new());
    }

    #[test]
    fn client_certificate_ttl_is_negative_after_expiry() {
        let metrics = CertificateMetrics::default();
        metrics.uses(CertificateUse::Client, None);
        let ttl = "kubelet_certificate_manager_client_ttl_seconds";
        let errors = "kubelet_certificate_manager_client_expiration_renew_errors";
        assert_eq!(samples(&metrics, "2026-01-01T00:00:00Z"), [format!("{ttl} +Inf"), format!("{errors} 0")]);
        metrics.uses(CertificateUse::Client, Some(&facts("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")));
        metrics.failed(CertificateUse::Client);
        assert_eq!(samples(&metrics, "2026-01-01T00:59:00Z"), [format!("{ttl} 60"), format!("{errors} 1")]);
        assert_eq!(samples(&metrics, "2026-01-01T01:00:30Z")[0], format!("{ttl} -30"));
    }

    #[test]
    fn age_of_rotated_serving_certificates_is_counted() {
        let metrics = CertificateMetrics::default();
        let old = facts("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z");
        metrics.uses(CertificateUse::Serving, Some(&old));
        metrics.serving_replaced(&old, "2026-01-01T01:30:00Z".parse().unwrap());
        let shown = samples(&metrics, "2026-01-01T01:30:00Z");
        let rotation = "kubelet_certificate_manager_server_rotation_seconds";
        for line in [
            "kubelet_certificate_manager_server_ttl_seconds 1800".to_owned(),
            "kubelet_server_expiration_renew_errors 0".to_owned(),
            format!("{rotation}_bucket{{le=\"3600\"}} 0"),
            format!("{rotation}_bucket{{le=\"14400\"}} 1"),
            format!("{rotation}_bucket{{le=\"3.1104e+07\"}} 1"),
            format!("{rotation}_bucket{{le=\"+Inf\"}} 1"),
            format!("{rotation}_sum 5400"),
            format!("{rotation}_count 1"),
        ] {
            assert!(shown.contains(&line), "{line:?} is missing in {shown:#?}");
        }
    }
}
