//! How long ConfigMaps and Secrets that were read may be used (contract C.52): the cluster says so on the Node, because it
//! knows how many nodes ask. Never reads a clock.

use std::time::Duration;

use model::k8s::Node;

const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
const DEFAULT: Duration = Duration::from_secs(60);

/// A minute where the Node does not say; no time at all, where it says zero or less.
#[must_use]
pub fn object_ttl(node: Option<&Node>) -> Duration {
    let said =
        node.and_then(|node| node.metadata.annotations.as_ref()?.get(TTL_ANNOTATION)?.parse::<i64>().ok());
    said.map_or(DEFAULT, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_node_says_how_long() {
        let check = |value: Option<&str>, seconds: u64| {
            let annotations = value.map(|value| json!({TTL_ANNOTATION: value}));
            let node: Node =
                serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
            assert_eq!(object_ttl(Some(&node)), Duration::from_secs(seconds), "{value:?}");
        };
        check(None, 60);
        check(Some("0"), 0);
        check(Some("15"), 15);
        check(Some("300"), 300);
        check(Some("-1"), 0);
        check(Some("soon"), 60);
        check(Some(""), 60);
        assert_eq!(object_ttl(None), DEFAULT);
    }
}
