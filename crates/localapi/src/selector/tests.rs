//! Matching and errors of selectors.

use serde_json::{Value, json};

use super::{FieldSelector, LabelSelector};

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

#[test]
fn label_selectors_match() {
    let object = labelled(json!({"app": "web", "tier": "front", "n": "5", "empty": "", "in": "x"}));
    for (selector, expected) in [
        ("", true),
        ("  ", true),
        ("app", true),
        ("missing", false),
        ("!missing", true),
        ("! app", false),
        ("app=web", true),
        ("app == web", true),
        ("app=db", false),
        ("missing=db", false),
        ("app!=web", false),
        ("missing!=web", true),
        ("app in (db, web)", true),
        ("app in (db)", false),
        ("app notin (db)", true),
        ("app notin (web)", false),
        ("missing notin (web)", true),
        ("empty=", true),
        ("empty in ()", true),
        ("app in (web,)", true),
        ("n>4", true),
        ("n > 5", false),
        ("n<6", true),
        ("missing<6", false),
        ("app>1", false),
        ("app=web,tier in (front,back),!x", true),
        ("app=web,tier=back", false),
        ("in in (x)", true),
        ("in", true),
    ] {
        let parsed = LabelSelector::parse(selector).expect(selector);
        assert_eq!(parsed.matches(&object), expected, "{selector}");
    }
}

#[test]
fn objects_without_labels_match_negative_requirements() {
    for (selector, expected) in
        [("", true), ("a", false), ("!a", true), ("a!=b", true), ("a notin (b)", true)]
    {
        assert_eq!(
            LabelSelector::parse(selector).expect(selector).matches(&json!({})),
            expected,
            "{selector}"
        );
    }
}

#[test]
fn invalid_label_selectors_are_refused() {
    for (selector, expected) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a==)", "unable to parse requirement: found ')', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',', or ')'"),
        (
            "a>x",
            "unable to parse requirement: values[0][a]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        let error = LabelSelector::parse(selector).expect_err(selector);
        assert_eq!(error.to_string(), expected, "{selector}");
    }
    let error = LabelSelector::parse("-a=b").expect_err("a key begins with a letter or digit").to_string();
    let begin = "unable to parse requirement: key: Invalid value: \"-a\": name part must consist of";
    assert!(error.starts_with(begin), "{error}");
    let error = LabelSelector::parse("a=_b").expect_err("so does a value").to_string();
    let begin = "unable to parse requirement: values[0][a]: Invalid value: \"_b\": a valid label must be";
    assert!(error.starts_with(begin), "{error}");
}

#[test]
fn field_selectors_match() {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "node", "hostNetwork": true},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    });
    for (selector, expected) in [
        ("", true),
        ("spec.nodeName=node", true),
        ("spec.nodeName==node", true),
        ("spec.nodeName!=node", false),
        ("spec.nodeName=", false),
        ("status.podIP=", true),
        ("status.phase!=Failed,status.phase!=Succeeded", true),
        ("metadata.name=p,metadata.namespace=n,", true),
        ("spec.hostNetwork=true", true),
        ("status.podIPs=10.0.0.1\\,fd00::1", true),
        ("metadata.name=a\\=b", false),
    ] {
        let parsed = FieldSelector::parse(selector).expect(selector);
        assert_eq!(parsed.matches(&pod), expected, "{selector}");
        assert_eq!(parsed.check("pods"), Ok(()), "{selector}");
    }
    let cordoned = FieldSelector::parse("spec.unschedulable=false").expect("a field of nodes");
    assert!(cordoned.matches(&json!({})));
    assert!(!cordoned.matches(&json!({"spec": {"unschedulable": true}})));
    let source = FieldSelector::parse("source=kubelet").expect("a field of events");
    assert!(source.matches(&json!({"source": {"component": "kubelet"}})));
    assert!(source.matches(&json!({"source": {}, "reportingComponent": "kubelet"})));
}

#[test]
fn required_value_of_a_field_is_returned() {
    let selector = FieldSelector::parse("metadata.name=x,spec.nodeName!=y").expect("valid");
    assert_eq!(selector.required("metadata.name"), Some("x"));
    assert_eq!(selector.required("spec.nodeName"), None);
}

#[test]
fn unsupported_fields_are_refused() {
    for (resource, selector, expected) in [
        ("pods", "spec.foo=1", "field label not supported: spec.foo"),
        ("nodes", "metadata.namespace=x", "field label not supported: metadata.namespace"),
        ("secrets", "type=Opaque,data=x", "field label not supported: data"),
        ("namespaces", "spec.x=1", "field label not supported: spec.x"),
        (
            "configmaps",
            "data=x",
            "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        let selector = FieldSelector::parse(selector).expect(selector);
        assert_eq!(selector.check(resource).expect_err(resource).to_string(), expected);
    }
    for (resource, selector) in [
        ("events", "involvedObject.name=x,involvedObject.uid=u,reason=r,type=Normal,source=kubelet"),
        ("services", "spec.clusterIP!=None,spec.type=ClusterIP"),
        ("certificatesigningrequests", "spec.signerName=a"),
        ("clustertrustbundles", "spec.signerName=a"),
        ("podcertificaterequests", "spec.nodeName=n,spec.signerName=a,spec.podName=p"),
        ("leases", "metadata.name=x,metadata.namespace=y"),
        ("runtimeclasses", "metadata.name=x"),
    ] {
        assert_eq!(FieldSelector::parse(selector).expect(selector).check(resource), Ok(()), "{selector}");
    }
}

#[test]
fn invalid_field_selectors_are_refused() {
    for (selector, expected) in [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        ("a=b=c", "invalid field selector: unescaped character in value: ="),
        ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
    ] {
        assert_eq!(FieldSelector::parse(selector).expect_err(selector).to_string(), expected);
    }
}
