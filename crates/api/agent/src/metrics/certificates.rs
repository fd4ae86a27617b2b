//! Metrics of the client and the serving certificate (docs/behaviour/metrics.md): time to expiry, age of rotated certificates, and
//! failed renewals.
//!
//! Owns the counts. The task that rotates a certificate reports each change; without such a task a certificate has no
//! metrics.

use std::fmt::Write as _;

use api_core::certificates::CertificateUse;
use jiff::{SignedDuration, Timestamp};
use model::CertificateFacts;
use parking_lot::Mutex;

/// Buckets for the age of rotated serving certificates, in seconds.
const AGES: [i64; 10] = [
    60,
    3600,
    4 * 3600,
    86_400,
    7 * 86_400,
    30 * 86_400,
    90 * 86_400,
    180 * 86_400,
    360 * 86_400,
    4 * 360 * 86_400,
];

/// Counts of both kinds; every access is short.
#[derive(Debug, Default)]
pub struct CertificateMetrics {
    client: Mutex<Option<Kept>>,
    serving: Mutex<Option<Kept>>,
}

/// A certificate that this kubelet rotates.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// Of the certificate in use; `None` while there is none.
    not_after: Option<Timestamp>,
    failures: u64,
    /// Number of certificates rotated at an age of up to each of [`AGES`].
    ages: [u64; AGES.len()],
    replaced: u64,
    /// The sum of their ages, in seconds.
    used: f64,
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

    /// `old` was replaced now.
    pub fn replaced(&self, kind: CertificateUse, old: &CertificateFacts, now: Timestamp) {
        let age = now.duration_since(old.not_before).max(SignedDuration::ZERO);
        let mut kept = self.of(kind).lock();
        let kept = kept.get_or_insert_default();
        kept.replaced += 1;
        kept.used += age.as_secs_f64();
        for (count, most) in kept.ages.iter_mut().zip(AGES) {
            *count += u64::from(age <= SignedDuration::from_secs(most));
        }
    }

    /// Prometheus text format 0.0.4.
    #[must_use]
    pub fn render(&self, now: Timestamp) -> String {
        let mut text = String::new();
        let (client, serving) = (self.client.lock().clone(), self.serving.lock().clone());
        if let Some(client) = client {
            let name = "kubelet_certificate_manager_client_ttl_seconds";
            head(
                &mut text,
                name,
                "gauge",
                "Seconds until the client certificate expires; negative if it has expired, +Inf without one.",
            );
            let _ = writeln!(text, "{name} {}", client.left(now));
            let name = "kubelet_certificate_manager_client_expiration_renew_errors";
            head(&mut text, name, "counter", "Number of failed renewals of the client certificate.");
            let _ = writeln!(text, "{name} {}", client.failures);
        }
        if let Some(serving) = serving {
            let name = "kubelet_certificate_manager_server_ttl_seconds";
            head(
                &mut text,
                name,
                "gauge",
                "Seconds until the serving certificate expires; negative if it has expired, +Inf without one.",
            );
            let _ = writeln!(text, "{name} {}", serving.left(now));
            let name = "kubelet_server_expiration_renew_errors";
            head(&mut text, name, "counter", "Number of failed renewals of the serving certificate.");
            let _ = writeln!(text, "{name} {}", serving.failures);
            serving.render_ages(&mut text);
        }
        text
    }

    const fn of(&self, kind: CertificateUse) -> &Mutex<Option<Kept>> {
        match kind {
            CertificateUse::Client => &self.client,
            CertificateUse::Serving => &self.serving,
        }
    }
}

impl Kept {
    /// Negative for an expired certificate.
    fn left(&self, now: Timestamp) -> String {
        let left = self.not_after.map(|end| end.duration_since(now).as_secs());
        left.map_or_else(|| "+Inf".to_owned(), |seconds| seconds.to_string())
    }

    fn render_ages(&self, text: &mut String) {
        let name = "kubelet_certificate_manager_server_rotation_seconds";
        head(text, name, "histogram", "Age of serving certificates when they were rotated, in seconds.");
        for (most, count) in AGES.iter().zip(self.ages) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{most}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", self.replaced);
        let _ = writeln!(text, "{name}_sum {}", self.used);
        let _ = writeln!(text, "{name}_count {}", self.replaced);
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
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
        let text = metrics.render(now.parse().unwrap());
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
        metrics.replaced(CertificateUse::Serving, &old, "2026-01-01T01:30:00Z".parse().unwrap());
        let shown = samples(&metrics, "2026-01-01T01:30:00Z");
        let rotation = "kubelet_certificate_manager_server_rotation_seconds";
        for line in [
            "kubelet_certificate_manager_server_ttl_seconds 1800".to_owned(),
            "kubelet_server_expiration_renew_errors 0".to_owned(),
            format!("{rotation}_bucket{{le=\"3600\"}} 0"),
            format!("{rotation}_bucket{{le=\"14400\"}} 1"),
            format!("{rotation}_bucket{{le=\"+Inf\"}} 1"),
            format!("{rotation}_sum 5400"),
            format!("{rotation}_count 1"),
        ] {
            assert!(shown.contains(&line), "{line:?} is missing in {shown:#?}");
        }
    }
}
