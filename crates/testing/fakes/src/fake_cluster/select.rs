//! Which objects of a collection a list or watch selects. Field and label selectors are those of `localapi`.

use localapi::selector::{FieldSelector, LabelSelector, SelectorError};
use ports::cluster::Selection;
use serde_json::Value;

/// A [`Selection`] whose selectors were parsed.
#[derive(Debug)]
pub(super) struct Selector {
    namespace: Option<String>,
    fields: FieldSelector,
    labels: LabelSelector,
}

impl Selector {
    /// `plural` is the resource, like `pods`: each can be selected by fields of its own.
    pub(super) fn parse(selection: &Selection, plural: &str) -> Result<Self, SelectorError> {
        let fields = FieldSelector::parse(selection.fields.as_deref().unwrap_or_default())?;
        fields.check(plural)?;
        let labels = LabelSelector::parse(selection.labels.as_deref().unwrap_or_default())?;
        Ok(Self { namespace: selection.namespace.clone(), fields, labels })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let namespace = object["metadata"]["namespace"].as_str();
        self.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
            && self.fields.matches(object)
            && self.labels.matches(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_matches_namespace_fields_and_labels() {
        let pod = json!({"metadata": {"name": "web", "namespace": "a", "labels": {"app": "x"}},
            "spec": {"nodeName": "edge-1"}});
        let selects = |namespace: &str, fields: &str, labels: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let selection =
                Selection { namespace: some(namespace), fields: some(fields), labels: some(labels) };
            Selector::parse(&selection, "pods").map(|selector| selector.matches(&pod))
        };
        assert_eq!(selects("", "", ""), Ok(true));
        assert_eq!(selects("a", "spec.nodeName=edge-1", "app=x"), Ok(true));
        assert_eq!(selects("b", "", ""), Ok(false));
        assert_eq!(selects("", "metadata.name!=web", ""), Ok(false));
        assert_eq!(selects("", "", "app notin (x)"), Ok(false));
        assert!(selects("", "spec.unknown=1", "").is_err());
    }
}
