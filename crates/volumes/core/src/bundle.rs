//! ClusterTrustBundles in projected volumes: which ones a volume selects, and the file of their certificates.
//!
//! The file holds each certificate once, sorted, so that it changes only when the set of trusted certificates does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::k8s::{ClusterTrustBundleProjection, LabelSelector, TrustBundle};

use super::pem::{self, CERTIFICATE};

/// Characters of a label selector: it becomes a part of a URL.
pub const MAX_SELECTOR: usize = 100 << 10;

/// Which bundles a volume selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleRequirement {
    Named(String),
    /// `labels`: a label selector in the syntax of the API; `None` selects nothing.
    Signed {
        signer: String,
        labels: Option<String>,
    },
}

/// Why the file cannot be written yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error(
        "ClusterTrustBundle projection is not available on this node: the feature gate ClusterTrustBundleProjection is off, or the node is standalone"
    )]
    NotAvailable,
    #[error("clustertrustbundles.certificates.k8s.io {name:?} not found")]
    NotFound { name: String },
    #[error("combination of signerName {signer:?} and labelSelector matched zero ClusterTrustBundles")]
    NoneSelected { signer: String },
    #[error("label selector length ({length}) is larger than {MAX_SELECTOR}")]
    SelectorTooLong { length: usize },
    #[error("a ClusterTrustBundle projection needs a name or a signerName")]
    Nothing,
}

impl BundleRequirement {
    /// `None`: it names neither a bundle nor a signer, which the API rejects.
    #[must_use]
    pub fn of(projection: &ClusterTrustBundleProjection) -> Option<Self> {
        match (&projection.name, &projection.signer_name) {
            (Some(name), _) => Some(Self::Named(name.clone())),
            (None, Some(signer)) => Some(Self::Signed {
                signer: signer.clone(),
                labels: projection.label_selector.as_ref().map(selector_text),
            }),
            (None, None) => None,
        }
    }
}

/// `app=web,tier in (a,b),!old`.
fn selector_text(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|term| {
        let values = term.values.as_deref().unwrap_or_default().join(",");
        match term.operator.as_str() {
            "In" => format!("{} in ({values})", term.key),
            "NotIn" => format!("{} notin ({values})", term.key),
            "DoesNotExist" => format!("!{}", term.key),
            // `Exists`; the API has no other operator.
            _ => term.key.clone(),
        }
    });
    equal.chain(expressions).collect::<Vec<_>>().join(",")
}

/// The content of the file. `found`: the existing bundles; `None` if this node does not read bundles.
///
/// # Errors
/// No bundle matches, and the projection is not optional.
pub fn bundle_text(
    projection: &ClusterTrustBundleProjection,
    found: Option<&BTreeMap<BundleRequirement, Vec<Arc<TrustBundle>>>>,
) -> Result<String, BundleError> {
    let requirement = BundleRequirement::of(projection).ok_or(BundleError::Nothing)?;
    let found = found.ok_or(BundleError::NotAvailable)?;
    if let BundleRequirement::Signed { labels: Some(labels), .. } = &requirement
        && labels.len() > MAX_SELECTOR
    {
        return Err(BundleError::SelectorTooLong { length: labels.len() });
    }
    let bundles = found.get(&requirement).map(Vec::as_slice).unwrap_or_default();
    if bundles.is_empty() && projection.optional != Some(true) {
        return Err(match requirement {
            BundleRequirement::Named(name) => BundleError::NotFound { name },
            BundleRequirement::Signed { signer, .. } => BundleError::NoneSelected { signer },
        });
    }
    let certificates: BTreeSet<String> =
        bundles.iter().flat_map(|bundle| certificates(&bundle.spec.trust_bundle)).collect();
    Ok(certificates.iter().map(|certificate| pem::certificate(certificate)).collect())
}

/// The certificates of a bundle, each as one base64 text.
fn certificates(bundle: &str) -> Vec<String> {
    let of_certificates = pem::blocks(bundle).into_iter().filter(|block| block.label == CERTIFICATE);
    of_certificates.map(|block| block.base64).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";

    fn bundle(name: &str, pem: &str) -> Arc<TrustBundle> {
        let json = json!({"metadata": {"name": name}, "spec": {"trustBundle": pem}});
        Arc::new(serde_json::from_value(json).unwrap())
    }

    fn certificate(base64: &str) -> String {
        format!("{BEGIN}\n{base64}\n{END}\n")
    }

    fn text(projection: Value, found: &[Arc<TrustBundle>]) -> Result<String, String> {
        let projection: ClusterTrustBundleProjection = serde_json::from_value(projection).unwrap();
        let requirement = BundleRequirement::of(&projection);
        let found = requirement.map(|requirement| (requirement, found.to_vec())).into_iter().collect();
        bundle_text(&projection, Some(&found)).map_err(|error| error.to_string())
    }

    #[test]
    fn trust_bundle_file_has_each_certificate_once_and_sorted() {
        let (a, b) = (certificate("AAAA"), certificate("QUJD"));
        let headers = format!("what this is\n{BEGIN}\nProc-Type: 4\n\nQU\n  JD  \r\n{END}");
        let long = certificate(&"QUJD".repeat(20));
        let selected = json!({"signerName": "s.example/x", "labelSelector": {}, "path": "ca"});
        let one = text(selected.clone(), &[bundle("x", &format!("{b}{a}")), bundle("y", &headers)]).unwrap();
        assert_eq!(one, format!("{a}{b}"));
        let other =
            text(selected.clone(), &[bundle("y", &headers), bundle("x", &format!("{a}{b}"))]).unwrap();
        assert_eq!(one, other, "whatever the order they come in");
        let wrapped = text(selected.clone(), &[bundle("z", &long)]).unwrap();
        let lengths: Vec<usize> = wrapped.lines().map(str::len).collect();
        assert_eq!(lengths, [27, 64, 16, 25]);
        let broken = format!("{BEGIN}\nQUJ\n{END}\n{BEGIN}\n{END}\n{BEGIN}\nQU=D\n{END}\n{BEGIN}\nAAAA");
        assert_eq!(text(selected, &[bundle("z", &broken)]).unwrap(), "");
    }

    #[test]
    fn missing_trust_bundle_is_an_error_unless_optional() {
        let named = json!({"name": "ca", "path": "p"});
        let signed = json!({"signerName": "s.example/x", "path": "p"});
        assert_eq!(
            text(named, &[]),
            Err("clustertrustbundles.certificates.k8s.io \"ca\" not found".to_owned())
        );
        assert_eq!(
            text(signed, &[]),
            Err("combination of signerName \"s.example/x\" and labelSelector matched zero ClusterTrustBundles"
                .to_owned())
        );
        assert_eq!(text(json!({"name": "ca", "path": "p", "optional": true}), &[]), Ok(String::new()));
        assert_eq!(
            text(json!({"path": "p"}), &[]),
            Err("a ClusterTrustBundle projection needs a name or a signerName".to_owned())
        );
        let projection =
            serde_json::from_value(json!({"name": "ca", "path": "p", "optional": true})).unwrap();
        assert_eq!(bundle_text(&projection, None), Err(BundleError::NotAvailable));
    }

    #[test]
    fn too_long_label_selector_of_trust_bundles_is_an_error_even_if_optional() {
        let of = |length: usize| {
            let values = ["a".repeat(length - "k in ()".len())];
            let selector = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": values}]});
            text(json!({"signerName": "s", "path": "p", "labelSelector": selector, "optional": true}), &[])
        };
        assert_eq!(of(MAX_SELECTOR), Ok(String::new()));
        assert_eq!(
            of(MAX_SELECTOR + 1),
            Err("label selector length (102401) is larger than 102400".to_owned())
        );
    }

    #[test]
    fn label_selector_is_written_in_the_syntax_of_the_api() {
        let of = |selector: Value| {
            let mut projection = json!({"signerName": "s", "path": "p"});
            if !selector.is_null() {
                projection["labelSelector"] = selector;
            }
            match BundleRequirement::of(&serde_json::from_value(projection).unwrap()) {
                Some(BundleRequirement::Signed { labels, .. }) => labels,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(Value::Null), None, "no selector selects nothing");
        assert_eq!(of(json!({})).as_deref(), Some(""), "an empty one everything");
        let all = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]},
            {"key": "f", "operator": "NotIn", "values": ["g"]},
            {"key": "h", "operator": "Exists"},
            {"key": "i", "operator": "DoesNotExist"},
        ]});
        assert_eq!(of(all).as_deref(), Some("a=b,c in (d,e),f notin (g),h,!i"));
    }
}
