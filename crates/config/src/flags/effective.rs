//! The flags with their effective values, for `/flagz`.

use serde_json::Value;

use super::{FLAGS, Target};
use crate::{KubeletConfiguration, NodeFlags, tree};

/// Headers carry credentials.
const SECRET: &[&str] = &["manifest-url-header"];

/// Every flag with an effect, with its value, sorted by name. A flag that sets a configuration field has the field's value,
/// whether the flag or the file set it.
#[must_use]
pub fn effective(kubelet: &KubeletConfiguration, flags: &NodeFlags) -> Vec<(String, String)> {
    // Both structs hold plain values, so that this cannot fail.
    let trees = [serde_json::to_value(kubelet), serde_json::to_value(flags)].map(Result::unwrap_or_default);
    let [fields, own] = &trees;
    let mut shown: Vec<_> = FLAGS
        .iter()
        .filter_map(|flag| {
            let value = match flag.target {
                Target::Field(path) | Target::DeprecatedField(path) => tree::get(fields, path),
                Target::Node(path) | Target::DeprecatedNode(path) => tree::get(own, path),
                Target::Ignored | Target::Action => return None,
            };
            let text = value.map(text).unwrap_or_default();
            let hidden = SECRET.contains(&flag.name) && !text.is_empty();
            Some((flag.name.to_owned(), if hidden { "<redacted>".to_owned() } else { text }))
        })
        .collect();
    shown.sort();
    shown
}

fn text(value: &Value) -> String {
    let all = |items: Vec<String>| items.join(",");
    match value {
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", all(items.iter().map(text).collect())),
        Value::Object(fields) => {
            all(fields.iter().map(|(name, value)| format!("{name}={}", text(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_flag_values_are_shown_and_headers_are_redacted() {
        let kubelet = KubeletConfiguration {
            max_pods: 7,
            cluster_dns: vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()],
            static_pod_url_header: [("Authorization".to_owned(), vec!["Bearer secret".to_owned()])].into(),
            system_reserved: [("cpu".to_owned(), "1".to_owned()), ("memory".to_owned(), "2Gi".to_owned())]
                .into(),
            ..KubeletConfiguration::default()
        };
        let flags = NodeFlags { root_dir: "/root".to_owned(), ..NodeFlags::default() };
        let shown = effective(&kubelet, &flags);
        let value = |name: &str| {
            shown.iter().find(|(flag, _)| flag == name).map_or("missing", |(_, value)| value.as_str())
        };
        assert_eq!(value("max-pods"), "7");
        assert_eq!(value("cluster-dns"), "[10.0.0.1,10.0.0.2]");
        assert_eq!(value("system-reserved"), "cpu=1,memory=2Gi");
        assert_eq!(value("root-dir"), "/root");
        assert_eq!(value("manifest-url-header"), "<redacted>");
        assert_eq!(value("sync-frequency"), "1m0s");
        assert_eq!((value("version"), value("kubeconfig")), ("missing", ""));
        assert!(shown.is_sorted());
    }
}
