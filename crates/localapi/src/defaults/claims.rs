//! Defaults of claims of devices, and of their templates.

use super::Tree;
use super::tree::{child, items, set, text};

pub(super) fn claim(claim: &mut Tree) {
    let Some(devices) = child(claim, "spec").and_then(|spec| child(spec, "devices")) else { return };
    for request in items(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            amount(exactly);
        }
        items(request, "firstAvailable").for_each(amount);
    }
}

pub(super) fn template(template: &mut Tree) {
    if let Some(spec) = child(template, "spec") {
        claim(spec);
    }
}

fn amount(request: &mut Tree) {
    set(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        set(request, "count", 1);
    }
    for toleration in items(request, "tolerations") {
        set(toleration, "operator", "Equal");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::defaults::apply;

    #[test]
    fn request_is_for_one_device_unless_it_is_for_all() {
        let spec = |exactly| json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}});
        let mut template = json!({"spec": {"spec": spec(json!({"tolerations": [{"key": "a"}]}))}});
        apply("resourceclaimtemplates", &mut template);
        let expected = json!({"allocationMode": "ExactCount", "count": 1, "tolerations": [{"key": "a", "operator": "Equal"}]});
        assert_eq!(template["spec"]["spec"], spec(expected));
        let mut claim = json!({"spec": spec(json!({"allocationMode": "All"}))});
        apply("resourceclaims", &mut claim);
        assert_eq!(claim["spec"], spec(json!({"allocationMode": "All"})));
        let list = json!({"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a"}]}]}});
        let mut claim = json!({"spec": list});
        apply("resourceclaims", &mut claim);
        assert_eq!(claim["spec"]["devices"]["requests"][0]["firstAvailable"][0]["count"], 1);
    }
}
