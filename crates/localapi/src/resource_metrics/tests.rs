//! What is shown of the recorded answer of a real kubelet, and of answers in which something is missing.

use serde_json::{Value, json};

use super::*;
use crate::resources::Kinds;

const RECORDED: &str = include_str!("../../tests/recorded/stats-summary.json");

fn resource(name: &str) -> &'static Resource {
    Kinds { measured: true }.find("metrics.k8s.io", "v1beta1", name).unwrap()
}

fn now() -> Timestamp {
    "2026-11-22T23:00:00Z".parse().unwrap()
}

fn read(text: &str) -> Measurements {
    Measurements::parse(text.as_bytes(), None).unwrap()
}

fn pod(name: &str, uid: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "diff", "uid": uid, "labels": {"app": name}}})
}

fn of_pod(pod: &Value, measurements: &Measurements) -> Option<Measured> {
    of_object(resource("pods"), pod, measurements, now())
}

fn of_node(name: &str, measurements: &Measurements) -> Option<Measured> {
    of_object(resource("nodes"), &json!({"metadata": {"name": name}}), measurements, now())
}

#[test]
fn pod_has_the_usage_of_its_containers_with_the_earliest_time() {
    let readiness = pod("readiness", "4dbf5d28-2180-415e-8ca5-f6ef29db84a4");
    let measured = of_pod(&readiness, &read(RECORDED)).unwrap();
    let expected = json!({
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "readiness",
            "namespace": "diff",
            "creationTimestamp": "2026-11-22T23:00:00Z",
            "labels": {"app": "readiness"},
        },
        "timestamp": "2026-11-22T22:59:38Z",
        "window": "21s",
        "containers": [{"name": "main", "usage": {"cpu": "3411786n", "memory": "640Ki", "swap": "0"}}],
    });
    assert_eq!(measured.object, expected);
    let two = pod("post-start-order", "de5deab3-c3d8-4a0d-aa48-082ada348055");
    let measured = of_pod(&two, &read(RECORDED)).unwrap();
    let names: Vec<&str> =
        object::items(&measured.object, "/containers").iter().map(|one| object::text(one, "/name")).collect();
    assert_eq!(names, ["app", "proxy"]);
    assert_eq!(
        (&measured.object["timestamp"], &measured.object["window"], measured.memory_bytes),
        (&json!("2026-11-22T22:59:33Z"), &json!("16s"), 241_664 + 266_240)
    );
}

#[test]
fn pod_is_known_by_its_uid_and_a_mirror_pod_by_that_of_its_static_pod() {
    let measurements = read(RECORDED);
    assert_eq!(of_pod(&pod("readiness", "of-the-next-pod"), &measurements), None);
    assert_eq!(of_pod(&pod("unknown", "u"), &measurements), None);
    let mut mirror = pod("static-refnode", "u");
    assert_eq!(of_pod(&mirror, &measurements), None);
    mirror["metadata"]["annotations"] =
        json!({"kubernetes.io/config.mirror": "e6ae886f6c5d7d12044e2f956e3c37bc"});
    assert!(of_pod(&mirror, &measurements).is_some());
}

#[test]
fn node_has_the_usage_of_everything_on_it() {
    let measurements = read(RECORDED);
    let measured = of_node("refnode", &measurements).unwrap();
    let expected = json!({
        "kind": "NodeMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "refnode", "creationTimestamp": "2026-11-22T23:00:00Z"},
        "timestamp": "2026-11-22T22:59:39Z",
        "window": "5m0s",
        "usage": {"cpu": "145223745n", "memory": "1164580Ki", "swap": "0"},
    });
    assert_eq!(measured.object, expected);
    assert_eq!(of_node("other", &measurements), None);
}

/// An answer with one pod, and with what `change` makes of the JSON text.
fn answer(at: &str, change: impl Fn(String) -> String) -> String {
    let usage = json!({
        "startTime": "2026-11-22T22:00:00Z",
        "cpu": {"time": at, "usageNanoCores": 1_500_000_000_u64},
        "memory": {"time": at, "workingSetBytes": 1 << 20},
    });
    let with = |name: &str, value: Value| {
        let mut all = usage.clone();
        all[name] = value;
        all
    };
    let pod = json!({
        "podRef": {"name": "web", "namespace": "diff", "uid": "u"},
        "containers": [with("name", json!("a")), with("name", json!("b"))],
    });
    change(json!({"node": with("nodeName", json!("n")), "pods": [pod]}).to_string())
}

const AT: &str = "2026-11-22T22:59:00Z";

#[test]
fn pod_without_a_complete_measurement_of_each_container_has_none() {
    let web = pod("web", "u");
    let shown = |change: &dyn Fn(String) -> String| of_pod(&web, &read(&answer(AT, change))).is_some();
    assert!(shown(&|text| text));
    assert!(!shown(&|text| text.replace(AT, "soon")));
    for (from, to) in [
        ("\"usageNanoCores\":1500000000", "\"usageCoreNanoSeconds\":1"),
        ("\"workingSetBytes\":1048576", "\"usageBytes\":1"),
        ("\"cpu\":", "\"other\":"),
    ] {
        // Of the second container.
        let in_the_last = |mut text: String| {
            let place = text.rfind(from).expect("it is there");
            text.replace_range(place..place + from.len(), to);
            text
        };
        assert!(!shown(&in_the_last), "{from}");
    }
    let empty = r#"{"node": {"nodeName": "n"}, "pods": [{"podRef": {"name": "web", "namespace": "diff", "uid": "u"}}]}"#;
    assert_eq!((of_pod(&web, &read(empty)), of_node("n", &read(empty))), (None, None));
    assert!(Measurements::parse(b"<html>", None).is_err());
}

#[test]
fn window_begins_with_the_reading_before_unless_that_is_unknown_or_long_ago() {
    let window = |before: &[&str], at: &str| {
        let parse = |before: Option<Measurements>, at: &str| {
            Some(Measurements::parse(answer(at, |text| text).as_bytes(), before.as_ref()).unwrap())
        };
        let before = before.iter().fold(None, |before, at| parse(before, at));
        let measurements = parse(before, at).unwrap();
        of_pod(&pod("web", "u"), &measurements).unwrap().window
    };
    for (before, at, expected) in [
        (&[][..], AT, "5m0s"),
        (&[][..], "2026-11-22T22:00:42Z", "42s"),
        (&["2026-11-22T22:58:45Z"], AT, "15s"),
        (&["2026-11-22T22:57:30Z"], AT, "1m30s"),
        (&["2026-11-22T22:30:00Z"], AT, "5m0s"),
        // The same sample again, and a clock that was set back.
        (&["2026-11-22T22:58:45Z", AT], AT, "15s"),
        (&["2026-11-22T23:30:00Z"], AT, "5m0s"),
    ] {
        assert_eq!(window(before, at), expected, "{before:?} {at}");
    }
}

#[test]
fn quantities_have_the_largest_unit_without_a_remainder() {
    for (nanocores, expected) in [
        (0, "0"),
        (1, "1n"),
        (337_160_596, "337160596n"),
        (1_234_000, "1234u"),
        (250_000_000, "250m"),
        (2_000_000_000, "2"),
        (1_000_000_000_000, "1k"),
    ] {
        assert_eq!(cpu_text(nanocores), expected);
    }
}

#[test]
fn table_has_the_sum_of_the_containers() {
    let measurements = read(&answer(AT, |text| text));
    let table = table(&[of_pod(&pod("web", "u"), &measurements).unwrap()]);
    let columns: Vec<&str> =
        object::items(&table, "/columnDefinitions").iter().map(|one| object::text(one, "/name")).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"], json!([{"cells": ["web", "3", "2Mi", "5m0s"]}]));
}
