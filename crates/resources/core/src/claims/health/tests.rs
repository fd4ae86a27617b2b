//! The cases of `healthinfo_test.go` and `UpdateAllocatedResourcesStatus` of the Go kubelet, the limits of what a driver may send, and
//! several instances of a driver.

use model::PodUid;
use model::dra::ClaimId;
use serde_json::{Value, json};

use super::*;
use crate::claims::table::AllocatedClaim;

const DRIVER: &str = "d.org";
const FIRST: HealthStream = HealthStream(1);
const SECOND: HealthStream = HealthStream(2);

fn at(seconds: u64) -> Now {
    let elapsed = Duration::from_secs(seconds);
    Now { wall: Timestamp::UNIX_EPOCH + elapsed, mono: MonoTime::from_start(elapsed) }
}

/// `a b! c?:text d=60`: healthy, unhealthy, unknown with a message, with a timeout of 60 seconds.
fn reports(line: &str) -> Vec<DeviceReport> {
    let report = |word: &str| {
        let (word, message) = word.split_once(':').unwrap_or((word, ""));
        let (word, timeout) = word.split_once('=').unwrap_or((word, ""));
        let health = match word.chars().last() {
            Some('!') => DeviceHealth::Unhealthy,
            Some('?') => DeviceHealth::Unknown,
            _ => DeviceHealth::Healthy,
        };
        DeviceReport {
            pool: "pool".to_owned(),
            device: word.trim_end_matches(['!', '?']).to_owned(),
            health,
            message: message.to_owned(),
            timeout: timeout.parse().ok().map(Duration::from_secs),
        }
    };
    line.split_whitespace().map(report).collect()
}

fn device(name: &str, requests: &[&str], cdi_devices: &[&str]) -> ClaimDevice {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    ClaimDevice {
        pool: "pool".to_owned(),
        name: name.to_owned(),
        share_id: None,
        requests: owned(requests),
        cdi_devices: owned(cdi_devices),
    }
}

/// `Unhealthy text`
fn shown(table: &HealthTable, name: &str) -> String {
    let (health, message) = table.health(DRIVER, &device(name, &[], &[]));
    format!("{} {message}", health.as_str()).trim_end().to_owned()
}

fn names(changed: &BTreeSet<DeviceKey>) -> String {
    changed.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// The devices that changed with each report, at that second.
#[test]
fn report_changes_devices_that_are_new_or_have_another_health_message_or_timeout() {
    let mut table = HealthTable::default();
    for (second, line, expected) in [
        (0, "a b!", "a b"),
        (1, "a b!", ""),
        (2, "b! a", ""),
        (3, "a! b!", "a"),
        (4, "a!:hot b!", "a"),
        (5, "a!=60:hot b!", "a"),
        (6, "a!=60:hot b! c?", "c"),
        (7, "", ""),
    ] {
        let (changed, ignored) = table.report(DRIVER, FIRST, reports(line), at(second));
        assert_eq!((names(&changed).as_str(), ignored), (expected, 0), "{second}: {line}");
    }
    assert_eq!(shown(&table, "a"), "Unhealthy hot", "not in the last report, and not too old");
    assert_eq!((shown(&table, "c"), shown(&table, "d")), ("Unknown".into(), "Unknown".into()));
}

#[test]
fn health_is_unknown_after_its_timeout_of_thirty_seconds_or_what_the_driver_says() {
    let mut table = HealthTable::default();
    table.report(DRIVER, FIRST, reports("a:fine b=5 c=100000000"), at(100));
    assert_eq!(table.next_expiry(), Some(at(105).mono + Duration::from_millis(1)));
    assert!(table.expire(at(105).mono).is_empty(), "not before");
    let after = |seconds: u64| at(seconds).mono + Duration::from_millis(1);
    assert_eq!(names(&table.expire(after(105))[DRIVER]), "b");
    assert_eq!((shown(&table, "a"), shown(&table, "b")), ("Healthy fine".into(), "Unknown".into()));
    table.report(DRIVER, FIRST, reports("c"), at(120));
    assert_eq!(names(&table.expire(after(130))[DRIVER]), "a");
    assert_eq!(shown(&table, "a"), "Unknown", "without message");
    assert_eq!(names(&table.expire(after(150))[DRIVER]), "c");
    assert_eq!((table.next_expiry(), table), (None, HealthTable::default()));
    let mut table = HealthTable::default();
    table.report(DRIVER, FIRST, reports("c=100000000"), at(0));
    assert_eq!(table.expire(after(24 * 3600)).len(), 1, "no timeout is longer than a day");
}

#[test]
fn end_of_a_stream_makes_the_health_of_its_devices_unknown() {
    let mut table = HealthTable::default();
    table.report(DRIVER, FIRST, reports("a b!"), at(0));
    table.report("other.org", SECOND, reports("a"), at(0));
    assert_eq!(names(&table.end(DRIVER, FIRST)), "a b");
    assert_eq!(names(&table.end(DRIVER, FIRST)), "");
    assert_eq!(shown(&table, "a"), "Unknown");
    assert_eq!(table.health("other.org", &device("a", &[], &[])).0, DeviceHealth::Healthy);
}

/// A rolling update; the Go kubelet forgets all devices of the driver then.
#[test]
fn end_of_an_instance_keeps_what_the_instance_that_replaces_it_has_reported() {
    let mut table = HealthTable::default();
    table.report(DRIVER, FIRST, reports("a b"), at(0));
    let (changed, _) = table.report(DRIVER, SECOND, reports("a!"), at(1));
    assert_eq!((names(&changed).as_str(), shown(&table, "a")), ("a", "Unhealthy".into()));
    assert_eq!(names(&table.end(DRIVER, FIRST)), "b");
    assert_eq!((shown(&table, "a"), shown(&table, "b")), ("Unhealthy".into(), "Unknown".into()));
}

#[test]
fn devices_names_and_messages_of_a_driver_are_bounded() {
    let mut table = HealthTable::default();
    let many: Vec<DeviceReport> =
        (0..MAX_DEVICES + 7).flat_map(|index| reports(&format!("device-{index:05}"))).collect();
    let (changed, ignored) = table.report(DRIVER, FIRST, many.clone(), at(0));
    assert_eq!((changed.len(), ignored), (MAX_DEVICES, 7));
    let (changed, ignored) = table.report(DRIVER, FIRST, many, at(1));
    assert_eq!((changed.len(), ignored), (0, 7), "known ones are still reported");
    let mut table = HealthTable::default();
    let (changed, ignored) = table.report(DRIVER, FIRST, reports(&"x".repeat(64)), at(0));
    assert_eq!((changed.len(), ignored), (0, 1));
    assert_eq!(table.end(DRIVER, FIRST).len(), 0);
    table.report(DRIVER, FIRST, reports(&format!("a!:{}", "ä".repeat(600))), at(0));
    let message = shown(&table, "a");
    let message = message.strip_prefix("Unhealthy ").expect("a message");
    assert!(message.len() <= 1024 && message.ends_with("ä..."), "{message}");
}

#[test]
fn reports_take_time_in_proportion_to_their_number() {
    let run = |count: usize| {
        let mut table = HealthTable::default();
        let all: Vec<DeviceReport> = (0..count).flat_map(|index| reports(&index.to_string())).collect();
        for second in 0..4 {
            table.report(DRIVER, FIRST, all.clone(), at(second));
        }
        assert_eq!(table.end(DRIVER, FIRST).len(), count);
    };
    assert_eq!(fixtures::growth::grows_too_fast(&mut || run(1000), &mut || run(4000)), None);
}

/// The claims `a` and `b` of the pod `u` are prepared.
fn claims() -> ClaimTable {
    let mut table = ClaimTable::default();
    for (name, devices) in [
        ("a", vec![device("0", &["small"], &["gpu=0", "gpu=all"]), device("1", &["large/first"], &[])]),
        ("b", vec![device("2", &[], &["gpu=2"]), device("3", &[], &["gpu=2"])]),
    ] {
        let id = ClaimId { namespace: "n".to_owned(), name: name.to_owned(), uid: name.to_owned() };
        let claim = AllocatedClaim { id: id.clone(), drivers: BTreeSet::from([DRIVER.to_owned()]) };
        table.begin_prepare(&PodUid::new(format!("pod-{name}")), &[claim]).expect("no older claim");
        table.prepared(DRIVER, &[id], [(name.to_owned(), Ok(devices))].into()).expect("a success");
    }
    table
}

fn pod() -> Pod {
    let container = |name: &str, claims: Value| json!({"name": name, "resources": {"claims": claims}});
    let spec = json!({
        "resourceClaims": [
            {"name": "missing", "resourceClaimTemplateName": "t"},
            {"name": "nic", "resourceClaimTemplateName": "t"},
            {"name": "gpu", "resourceClaimName": "a"},
            {"name": "absent", "resourceClaimName": "c"},
        ],
        "initContainers": [container("init", json!([{"name": "gpu"}]))],
        "containers": [
            {"name": "plain"},
            container("all", json!([{"name": "nic"}, {"name": "gpu"}, {"name": "absent"}, {"name": "missing"}])),
            container("parts", json!([{"name": "gpu", "request": "small"}, {"name": "gpu", "request": "large"}])),
            container("subrequest", json!([{"name": "gpu", "request": "large/first"}])),
            container("none", json!([{"name": "gpu", "request": "other"}])),
        ],
    });
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})).expect("a pod")
}

#[test]
fn allocated_resources_status_has_the_health_of_each_device_of_the_claims() {
    let mut health = HealthTable::default();
    health.report(DRIVER, FIRST, reports("0!:hot 2"), at(0));
    let status = json!({"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "b"}]});
    let status: PodStatus = serde_json::from_value(status).expect("a status");
    let shown =
        |with_messages| compute_claim_health(&claims(), &health, &pod(), Some(&status), with_messages);
    let first = json!({"resourceID": "gpu=0", "health": "Unhealthy", "message": "hot"});
    let second = json!({"resourceID": "d.org/pool/1", "health": "Unknown"});
    let expected = json!({
        "all": [
            {"name": "claim:gpu", "resources": [second, first]},
            {"name": "claim:nic", "resources": [{"resourceID": "gpu=2", "health": "Healthy"}]},
        ],
        "parts": [
            {"name": "claim:gpu/large", "resources": [second]},
            {"name": "claim:gpu/small", "resources": [first]},
        ],
        "subrequest": [{"name": "claim:gpu/large/first", "resources": [second]}],
    });
    assert_eq!(json!(shown(true)), expected);
    let without = json!(shown(false));
    assert_eq!(without["parts"][1]["resources"][0], json!({"resourceID": "gpu=0", "health": "Unhealthy"}));
}

#[test]
fn only_pods_whose_claims_have_the_device_are_affected() {
    let pods = |driver: &str, name: &str| {
        let devices = BTreeSet::from([device(name, &[], &[]).key()]);
        let pods = claims().pods_with(driver, &devices);
        pods.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((pods(DRIVER, "0"), pods(DRIVER, "3")), (vec!["pod-a".to_owned()], vec!["pod-b".to_owned()]));
    assert_eq!((pods(DRIVER, "4").len(), pods("other.org", "0").len()), (0, 0));
}
