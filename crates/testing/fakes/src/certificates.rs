//! Certificates that are readable text, and a fake signer: for tests on paused time. No real server would accept them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use model::k8s::{
    ByteString, CertificateSigningRequest, CertificateSigningRequestStatus, PodCertificateRequest, Time,
};
use model::{CertificateFacts, CertificateNames, PemPair, PodKey, PodKeyType, PrivateKey};
use ports::Certificates;
use ports::certificates::{CertificateError, CertificateResult};
use serde_json::{Value, json};

use crate::FakeCluster;

/// Keys are `key 1`, `key 2`, …; requests and certificates are JSON.
#[derive(Debug, Default)]
pub struct FakeCertificates {
    keys: AtomicU64,
}

fn number(key: &str) -> CertificateResult<u64> {
    let line = key.lines().last().unwrap_or_default();
    let number = line.strip_prefix("key ").and_then(|number| number.parse().ok());
    number.ok_or_else(|| CertificateError(format!("{line:?} is no key")))
}

fn names_to_json(names: &CertificateNames) -> Value {
    json!({
        "cn": names.common_name,
        "o": names.organizations,
        "dns": names.dns_names,
        "ip": names.ip_addresses,
    })
}

fn names_from_json(value: &Value) -> Option<CertificateNames> {
    Some(CertificateNames {
        common_name: value["cn"].as_str()?.to_owned(),
        organizations: serde_json::from_value(value["o"].clone()).ok()?,
        dns_names: serde_json::from_value(value["dns"].clone()).ok()?,
        ip_addresses: serde_json::from_value(value["ip"].clone()).ok()?,
    })
}

fn certificate(key: u64, names: &Value, from: Timestamp, until: Timestamp) -> String {
    format!("{}\n", json!({"key": key, "names": names, "from": from, "until": until}))
}

impl FakeCertificates {
    /// A certificate for these names with a new key.
    #[must_use]
    pub fn pair(&self, names: &CertificateNames, from: Timestamp, life: Duration) -> PemPair {
        let key = self.keys.fetch_add(1, Ordering::Relaxed) + 1;
        let certificate = certificate(key, &names_to_json(names), from, from + life);
        PemPair { certificate, key: format!("key {key}\n") }
    }
}

#[async_trait]
impl Certificates for FakeCertificates {
    fn new_key(&self) -> CertificateResult<String> {
        Ok(format!("key {}\n", self.keys.fetch_add(1, Ordering::Relaxed) + 1))
    }

    async fn new_pod_key(&self, _kind: PodKeyType) -> CertificateResult<PodKey> {
        let key = self.new_key()?;
        let request = json!({"key": number(&key)?}).to_string().into_bytes();
        Ok(PodKey { key: PrivateKey::new(&key), request })
    }

    fn key_id(&self, key: &str) -> CertificateResult<String> {
        Ok(format!("id{}", number(key)?))
    }

    fn signing_request(&self, key: &str, names: &CertificateNames) -> CertificateResult<String> {
        Ok(json!({"key": number(key)?, "names": names_to_json(names)}).to_string())
    }

    fn self_signed(
        &self,
        names: &CertificateNames,
        now: Timestamp,
        life: Duration,
    ) -> CertificateResult<PemPair> {
        Ok(self.pair(names, now, life))
    }

    fn read(&self, pair: &PemPair) -> CertificateResult<CertificateFacts> {
        let wrong = || CertificateError("it is no certificate".to_owned());
        let text = pair.certificate.lines().next().unwrap_or_default();
        let value: Value = serde_json::from_str(text).map_err(|_| wrong())?;
        if value["key"].as_u64() != Some(number(&pair.key)?) {
            return Err(CertificateError("the certificate does not match its key: they differ".to_owned()));
        }
        let time = |name: &str| value[name].as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong);
        Ok(CertificateFacts {
            not_before: time("from")?,
            not_after: time("until")?,
            names: names_from_json(&value["names"]).ok_or_else(wrong)?,
        })
    }
}

/// A fake signer that approves or denies certificate signing requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Signs with this lifetime from now on.
    Sign(Duration),
    Deny,
}

impl FakeCluster {
    /// Approves or denies every pending request; returns how many.
    pub fn decide_signing_requests(&self, verdict: Verdict, now: Timestamp) -> usize {
        let mut requests = self.all::<CertificateSigningRequest>();
        requests.retain(|request| request.status.is_none());
        for request in &requests {
            self.put(&decided(request.clone(), verdict, now));
        }
        requests.len()
    }
}

/// What the fake signer of pod certificates does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodVerdict {
    /// Issues a certificate with this lifetime, to be refreshed after that time.
    Issue {
        life: Duration,
        refresh_after: Duration,
    },
    Deny,
    Fail,
}

/// The certificate of the fake signer for that key.
#[must_use]
pub fn pod_certificate(key: u64) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{key:08}\n-----END CERTIFICATE-----\n")
}

impl FakeCluster {
    /// Decides every pending PodCertificateRequest; returns how many.
    pub fn decide_pod_certificates(&self, verdict: PodVerdict, now: Timestamp) -> usize {
        let mut requests = self.all::<PodCertificateRequest>();
        let is_pending = |request: &PodCertificateRequest| {
            request.status.as_ref().is_none_or(|status| status.conditions.is_none())
        };
        requests.retain(is_pending);
        for request in &mut requests {
            let status = pod_certificate_status(request, verdict, now);
            request.status = serde_json::from_value(status).ok();
            self.put(request);
        }
        requests.len()
    }
}

fn pod_certificate_status(request: &PodCertificateRequest, verdict: PodVerdict, now: Timestamp) -> Value {
    let kind = match verdict {
        PodVerdict::Issue { .. } => "Issued",
        PodVerdict::Deny => "Denied",
        PodVerdict::Fail => "Failed",
    };
    let conditions = json!([{"type": kind, "status": "True", "reason": "Test", "message": "as the test says",
        "lastTransitionTime": Time(now)}]);
    let PodVerdict::Issue { life, refresh_after } = verdict else { return json!({"conditions": conditions}) };
    let stub: Value = serde_json::from_slice(&request.spec.stub_pkc_s10_request.0).unwrap_or_default();
    json!({
        "conditions": conditions,
        "certificateChain": pod_certificate(stub["key"].as_u64().unwrap_or_default()),
        "notBefore": Time(now),
        "notAfter": Time(now + life),
        "beginRefreshAt": Time(now + refresh_after),
    })
}

fn decided(
    mut request: CertificateSigningRequest,
    verdict: Verdict,
    now: Timestamp,
) -> CertificateSigningRequest {
    let subject: Value = serde_json::from_slice(&request.spec.request.0).unwrap_or_default();
    let (kind, signed) = match verdict {
        Verdict::Sign(life) => {
            let key = subject["key"].as_u64().unwrap_or_default();
            ("Approved", Some(certificate(key, &subject["names"], now, now + life)))
        }
        Verdict::Deny => ("Denied", None),
    };
    let conditions =
        json!([{"type": kind, "status": "True", "reason": "Test", "message": "as the test says"}]);
    request.status = Some(CertificateSigningRequestStatus {
        conditions: serde_json::from_value(conditions).ok(),
        certificate: signed.map(|pem| ByteString(pem.into_bytes())),
    });
    request
}
