//! The controller of certificate signing requests: approves valid requests of kubelets if configured, and signs approved
//! ones. The rules are pure functions; the task [`run`] executes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose};
use serde_json::{Value, json};

use crate::api::Api;
use crate::auth::authority::Validity;
use crate::auth::{BOOTSTRAPPERS, NODE_USER_PREFIX, NODES};
use crate::object::{self, items, text};
use crate::options::Approval;
use crate::store::{From, Item, Key, NotStored, Write};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const RESOURCE: &str = "certificatesigningrequests";

/// The content of a certificate request, parsed from its PEM.
struct CertificateRequest {
    params: CertificateSigningRequestParams,
    name: String,
    group: String,
}

impl CertificateRequest {
    fn parse(request: &Value) -> Result<Self, String> {
        let pem = STANDARD
            .decode(text(request, "/spec/request"))
            .map_err(|error| format!("spec.request: {error}"))?;
        let pem = String::from_utf8(pem).map_err(|error| format!("spec.request: {error}"))?;
        let params = CertificateSigningRequestParams::from_pem(&pem)
            .map_err(|error| format!("spec.request: {error}"))?;
        let subject = &params.params.distinguished_name;
        let part = |kind: DnType| subject.get(&kind).and_then(plain).unwrap_or_default();
        let (name, group) = (part(DnType::CommonName), part(DnType::OrganizationName));
        Ok(Self { params, name, group })
    }

    /// Checks that the subject is a node, with DNS names or IP addresses for a server and without any for a client.
    fn is_for_kubelet(&self, server: bool) -> Result<(), String> {
        if self.group != NODES {
            return Err(format!("the organization must be {NODES}, not {:?}", self.group));
        }
        if !self.name.starts_with(NODE_USER_PREFIX) {
            return Err(format!(
                "the common name must begin with {NODE_USER_PREFIX}, as {:?} does not",
                self.name
            ));
        }
        match (server, self.params.params.subject_alt_names.is_empty()) {
            (true, true) => Err("a serving certificate needs at least one DNS name or IP address".to_owned()),
            (false, false) => Err("a client certificate must not have DNS names or IP addresses".to_owned()),
            (true, false) | (false, true) => Ok(()),
        }
    }
}

/// The text of a name; `None` for obsolete encodings.
fn plain(value: &DnValue) -> Option<String> {
    if let DnValue::Utf8String(text) = value {
        return Some(text.clone());
    }
    if let DnValue::PrintableString(text) = value { Some(text.as_str().to_owned()) } else { None }
}

fn has_condition(request: &Value, kind: &str) -> bool {
    items(request, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == kind && text(condition, "/status") != "False")
}

fn is_decided(request: &Value) -> bool {
    ["Approved", "Denied", "Failed"].iter().any(|kind| has_condition(request, kind))
}

fn waits_for_signature(request: &Value) -> bool {
    has_condition(request, "Approved")
        && !has_condition(request, "Denied")
        && !has_condition(request, "Failed")
        && text(request, "/status/certificate").is_empty()
}

/// Whether a kubelet's request qualifies for automatic approval.
fn is_approvable(request: &Value) -> bool {
    let Ok(requested) = CertificateRequest::parse(request) else { return false };
    let requester = text(request, "/spec/username");
    let is_own = requester == requested.name;
    let is_bootstrapper = items(request, "/spec/groups").iter().any(|group| group == BOOTSTRAPPERS);
    match text(request, "/spec/signerName") {
        KUBELET_CLIENT => {
            (is_own || is_bootstrapper)
                && requested.is_for_kubelet(false).is_ok()
                && usages_are(request, "client auth")
        }
        KUBELET_SERVING => {
            is_own && requested.is_for_kubelet(true).is_ok() && usages_are(request, "server auth")
        }
        _ => false,
    }
}

/// The usages must contain `purpose`, and otherwise only the two usages of a TLS key.
fn usages_are(request: &Value, purpose: &str) -> bool {
    let usages: BTreeSet<&str> = items(request, "/spec/usages").iter().filter_map(Value::as_str).collect();
    let allowed = ["digital signature", "key encipherment", purpose];
    usages.contains(purpose) && usages.iter().all(|usage| allowed.contains(usage))
}

/// Signs an approved request; returns PEM, or `None` if this server is not its signer.
fn certificate(api: &Api, request: &Value) -> Option<Result<String, String>> {
    let signer = text(request, "/spec/signerName");
    let (usage, purpose) = match signer {
        CLIENT | KUBELET_CLIENT => (ExtendedKeyUsagePurpose::ClientAuth, "client auth"),
        KUBELET_SERVING => (ExtendedKeyUsagePurpose::ServerAuth, "server auth"),
        _ => return None,
    };
    let sign = || {
        let requested = CertificateRequest::parse(request)?;
        if signer != CLIENT {
            requested.is_for_kubelet(signer == KUBELET_SERVING)?;
        }
        if !usages_are(request, purpose) {
            return Err(format!(
                "usages must be {purpose:?} and at most digital signature and key encipherment"
            ));
        }
        let wanted = request.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
        let limit = api.behaviour.certificate_lifetime;
        let lifetime = wanted.map_or(limit, |seconds| limit.min(Duration::from_secs(seconds)));
        let validity = Validity::starting(api.now(), lifetime);
        api.authority.sign(requested.params, usage, validity).map_err(|error| error.to_string())
    };
    Some(sign())
}

fn with_condition(request: &Value, kind: &str, reason: &str, message: &str, at: &str) -> Value {
    let mut request = request.clone();
    let condition = json!({
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastUpdateTime": at,
        "lastTransitionTime": at,
    });
    let mut conditions = items(&request, "/status/conditions").to_vec();
    conditions.push(condition);
    object::map_at(&mut request, "status").insert("conditions".to_owned(), Value::Array(conditions));
    request
}

/// The next state of the request; `None` if it needs another approver or signer, or is complete.
fn advance(api: &Api, request: &Value) -> Option<Value> {
    let at = object::time(api.now());
    if !is_decided(request) {
        let approve = api.behaviour.approval == Approval::Automatic && is_approvable(request);
        let message = "Auto approving kubelet certificate after it was checked";
        return approve.then(|| with_condition(request, "Approved", "AutoApproved", message, &at));
    }
    if !waits_for_signature(request) {
        return None;
    }
    Some(match certificate(api, request)? {
        Ok(pem) => {
            let mut signed = request.clone();
            let encoded = STANDARD.encode(pem);
            object::map_at(&mut signed, "status").insert("certificate".to_owned(), json!(encoded));
            signed
        }
        Err(why) => with_condition(request, "Failed", "SignerValidationFailure", &why, &at),
    })
}

/// Watches all requests until the server stops.
pub(crate) async fn run(api: Arc<Api>) {
    while let Some(begun) = api.watch_until_stopped(|store| store.watch(RESOURCE, None, From::Everything)) {
        let Ok(subscription) = begun else { return };
        let mut live = subscription.live;
        // The store closes the queue of a slow watcher: list again.
        while let Some(item) = live.recv().await {
            match item {
                Item::Existing(object) => step(&api, &Key::new(RESOURCE, "", object::name(&object.tree()))),
                Item::Event(event) => step(&api, &event.key),
            }
        }
    }
}

fn step(api: &Api, key: &Key) {
    // At most two steps: approve, then sign.
    for _ in 0..2 {
        // Signing is slow, so it runs outside the store's lock; if the object changed meanwhile, its event triggers another step.
        let Some(seen) = api.store.get(key) else { return };
        let Some(next) = advance(api, &seen) else { return };
        let written: Result<_, NotStored> = api.store.write(key, |_, current| {
            let version = object::resource_version(&seen);
            let same = current.is_some_and(|current| object::resource_version(current) == version);
            Ok(if same { Write::Put(next) } else { Write::Keep })
        });
        if let Err(error) = written {
            tracing::warn!(err = %error, name = key.name, "failed to sign a request; the next change of it tries again");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, KeyPair};

    use super::*;

    struct Request {
        signer: &'static str,
        by: &'static str,
        group: &'static str,
        name: &'static str,
        organization: &'static str,
        dns: &'static [&'static str],
        usages: &'static [&'static str],
    }

    const CLIENT_REQUEST: Request = Request {
        signer: KUBELET_CLIENT,
        by: "system:node:n",
        group: NODES,
        name: "system:node:n",
        organization: NODES,
        dns: &[],
        usages: &["digital signature", "client auth"],
    };

    const SERVING_REQUEST: Request = Request {
        signer: KUBELET_SERVING,
        dns: &["n"],
        usages: &["digital signature", "key encipherment", "server auth"],
        ..CLIENT_REQUEST
    };

    fn is_approved(request: &Request) -> bool {
        let names: Vec<String> = request.dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, request.organization);
        params.distinguished_name.push(DnType::CommonName, request.name);
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        is_approvable(&json!({"spec": {
            "request": STANDARD.encode(pem),
            "signerName": request.signer,
            "username": request.by,
            "groups": [request.group],
            "usages": request.usages,
        }}))
    }

    #[test]
    fn requests_of_kubelets_and_bootstrap_tokens_are_approved() {
        assert!(is_approved(&CLIENT_REQUEST));
        assert!(is_approved(&SERVING_REQUEST));
        assert!(is_approved(&Request { by: "system:bootstrap:x", group: BOOTSTRAPPERS, ..CLIENT_REQUEST }));
    }

    #[test]
    fn other_requests_are_not_approved_automatically() {
        for (what, request) in [
            ("for another node", Request { by: "system:node:m", ..CLIENT_REQUEST }),
            ("for no node", Request { name: "admin", by: "admin", ..CLIENT_REQUEST }),
            ("for masters", Request { organization: "system:masters", ..CLIENT_REQUEST }),
            ("client with a name", Request { dns: &["n"], ..CLIENT_REQUEST }),
            ("serving without one", Request { dns: &[], ..SERVING_REQUEST }),
            ("serving by a bootstrap token", Request { by: "x", group: BOOTSTRAPPERS, ..SERVING_REQUEST }),
            ("both usages", Request { usages: &["client auth", "server auth"], ..CLIENT_REQUEST }),
            ("no usage", Request { usages: &[], ..CLIENT_REQUEST }),
            ("another signer", Request { signer: CLIENT, ..CLIENT_REQUEST }),
        ] {
            assert!(!is_approved(&request), "{what}");
        }
        assert!(!is_approvable(&json!({"spec": {"request": "bm8gUEVN", "signerName": KUBELET_CLIENT}})));
    }
}
