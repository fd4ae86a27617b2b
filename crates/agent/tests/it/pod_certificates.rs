//! Scenarios of pod certificates: a signer that issues, denies, fails or is away, and an API server that is away.

use std::time::Duration;

use fakes::certificates::pod_certificate;
use fakes::{ClusterFault, Outage, PodVerdict, Verb};
use model::k8s::{Pod, PodCertificateRequest};
use serde_json::{Value, json};

use crate::objects::{calls_about, in_volume, loop_until, message, pod_with_volume, with_account};
use crate::pods::Manifest;
use crate::world::{World, seconds};

const HOUR: u64 = 3600;
const MOUNT: &str = "MountVolume.SetUp failed for volume \"vol\" : ";
const ISSUE: PodVerdict = PodVerdict::Issue { life: hours(2), refresh_after: hours(1) };

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * HOUR)
}

/// A node with the feature.
async fn joined() -> World {
    let mut world = World::of_cluster();
    world.features.pod_certificates = true;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    with_account(&world);
    world
}

fn source(signer: &str, key_type: &str, path: &str) -> Value {
    json!({"podCertificate": {"signerName": signer, "keyType": key_type, "credentialBundlePath": path}})
}

fn pod_with_certificate(name: &str) -> Manifest {
    pod_with_volume(name, json!({"projected": {"sources": [source("s.example/x", "ED25519", "bundle.pem")]}}))
}

fn requests(world: &World) -> Vec<PodCertificateRequest> {
    world.api().all()
}

fn is_pending(world: &World) -> bool {
    requests(world).iter().any(|request| request.status.is_none())
}

fn decide(world: &World, verdict: PodVerdict) -> usize {
    world.api().decide_pod_certificates(verdict, world.clock.now().wall)
}

fn bundle(world: &World, pod: &Pod) -> Option<String> {
    in_volume(world, pod, "projected", "bundle.pem")
}

fn expected_bundle(key: u64) -> String {
    format!("key {key}\n{}", pod_certificate(key))
}

/// A pod that runs with its first certificate.
async fn with_certificate(world: &World) -> Pod {
    let web = world.create(&pod_with_certificate("web"));
    world.until("a certificate is requested", is_pending).await;
    assert_eq!(decide(world, ISSUE), 1);
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    web
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_is_requested_with_the_identity_of_the_pod_and_shown_when_issued() {
    let world = joined().await;
    let web = world.create(&pod_with_certificate("web"));
    world.until("a certificate is requested", is_pending).await;
    let text = format!("{MOUNT}credential bundle is not issued yet");
    world.until("the event has the reason", |w| message(w, "FailedMount").as_ref() == Some(&text)).await;
    let request = requests(&world).remove(0);
    let spec = &request.spec;
    assert_eq!(spec.signer_name, "s.example/x");
    assert_eq!((spec.pod_name.as_str(), Some(&spec.pod_uid)), ("web", web.metadata.uid.as_ref()));
    assert_eq!(Some(&spec.node_uid), world.node().unwrap().metadata.uid.as_ref());
    assert!(!spec.service_account_uid.is_empty() && spec.service_account_name == "default");
    assert_eq!(request.metadata.owner_references.as_ref().unwrap()[0].name, "web");
    decide(&world, ISSUE);
    let took = world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert!(took < seconds(10), "it does not wait for a back-off: {took:?}");
    assert_eq!(bundle(&world, &web), Some(expected_bundle(1)));
    let metrics = world.metrics().await;
    let line = "kubelet_podcertificate_states{signer_name=\"s.example/x\",state=\"fresh\"} 1";
    assert!(metrics.contains(line), "{line} is missing");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_between_the_issue_of_a_pod_certificate_and_its_renewal() {
    let world = joined().await;
    let web = with_certificate(&world).await;
    let failures = world.recorded("FailedMount");
    world.api().forget_calls();
    world.advance(seconds(3500)).await;
    let calls =
        [calls_about(&world, "create podcertificaterequests"), calls_about(&world, "serviceaccounts")];
    assert_eq!(calls, [Vec::<String>::new(), Vec::new()]);
    assert_eq!(world.recorded("FailedMount"), failures);
    assert_eq!(bundle(&world, &web), Some(expected_bundle(1)));
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_is_renewed_with_a_new_key_and_the_old_one_is_shown_until_then() {
    let world = joined().await;
    let web = with_certificate(&world).await;
    let issued = world.now();
    let renewed = loop_until(&world, hours(2), is_pending).await;
    let after = renewed - issued;
    assert!((hours(1) - seconds(60)..hours(1) + seconds(310)).contains(&after), "requested after {after:?}");
    world.advance(seconds(300)).await;
    assert_eq!(bundle(&world, &web), Some(expected_bundle(1)));
    decide(&world, ISSUE);
    world.until("the new certificate is shown", |w| bundle(w, &web) == Some(expected_bundle(2))).await;
    assert_eq!((world.recorded("CertificateOverdueForRefresh"), requests(&world).len()), (0, 2));
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn denied_and_failed_pod_certificates_are_reported_and_never_requested_again() {
    for (verdict, reason, verb) in
        [(PodVerdict::Deny, "Denied", "denied"), (PodVerdict::Fail, "Failed", "failed")]
    {
        let world = joined().await;
        world.create(&pod_with_certificate("web"));
        world.until("a certificate is requested", is_pending).await;
        decide(&world, verdict);
        let name = requests(&world).remove(0).metadata.name.unwrap();
        let was = if verdict == PodVerdict::Deny { "was " } else { "" };
        let text = format!(
            "PodCertificateRequest default/{name} {was}{verb}, reason=\"Test\", message=\"as the test says\""
        );
        world.until("the event has the reason", |w| message(w, reason).as_ref() == Some(&text)).await;
        let text = format!(
            "{MOUNT}PodCertificateRequest was permanently {verb}: reason=\"Test\" message=\"as the test says\""
        );
        world.until("so has the volume", |w| message(w, "FailedMount").as_ref() == Some(&text)).await;
        world.advance(hours(1)).await;
        let events = world.api_events(reason);
        assert_eq!((requests(&world).len(), events.len(), events[0].count), (1, 1, Some(1)));
        assert!(world.fake.container_request("web", "app").is_none(), "it never starts");
        assert!(world.metrics().await.contains(&format!("state=\"{verb}\"}} 1")));
    }
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_that_no_signer_renews_is_reported_overdue_and_expired_and_stays_in_use() {
    let world = joined().await;
    let web = with_certificate(&world).await;
    world.advance(seconds(5000)).await;
    assert_eq!(
        (world.recorded("CertificateOverdueForRefresh"), world.recorded("CertificateExpired")),
        (1, 0)
    );
    assert_eq!(
        message(&world, "CertificateOverdueForRefresh").as_deref(),
        Some("PodCertificate refresh overdue")
    );
    assert!(world.metrics().await.contains("state=\"overdue_for_refresh\"} 1"));
    world.advance(hours(1)).await;
    assert_eq!(
        (world.recorded("CertificateOverdueForRefresh"), world.recorded("CertificateExpired")),
        (1, 1)
    );
    assert!(world.metrics().await.contains("state=\"expired\"} 1"));
    assert_eq!((requests(&world).len(), bundle(&world, &web)), (2, Some(expected_bundle(1))));
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_request_that_a_client_deleted_is_created_again() {
    let world = joined().await;
    let web = world.create(&pod_with_certificate("web"));
    world.until("a certificate is requested", is_pending).await;
    let name = requests(&world).remove(0).metadata.name.unwrap();
    world.api().remove::<PodCertificateRequest>("default", &name, None);
    let deleted = world.now();
    let again = loop_until(&world, seconds(1000), is_pending).await - deleted;
    assert!((seconds(590)..seconds(910)).contains(&again), "requested again after {again:?}");
    decide(&world, ISSUE);
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert_eq!(bundle(&world, &web), Some(expected_bundle(2)));
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_is_requested_once_the_api_server_takes_the_request() {
    let world = joined().await;
    world.api().fault_always(Verb::Create, "podcertificaterequests", Some(ClusterFault::Unreachable));
    world.create(&pod_with_certificate("web"));
    let is_reported = |w: &World| {
        message(w, "FailedMount").is_some_and(|text| {
            text.starts_with(&format!(
                "{MOUNT}credential bundle is not issued yet: failed to create PodCertificateRequest: "
            ))
        })
    };
    world.until("the event has the reason", is_reported).await;
    world.advance(hours(1)).await;
    let tries = calls_about(&world, "create podcertificaterequests").len();
    assert!((10..60).contains(&tries), "it backs off: {tries}");
    world.api().clear_faults();
    loop_until(&world, seconds(700), is_pending).await;
    decide(&world, ISSUE);
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_request_whose_answer_was_lost_is_replaced_by_one_with_another_key() {
    let world = joined().await;
    world.api().fault(Verb::Create, "podcertificaterequests", ClusterFault::TimedOutAfterDoing);
    let web = world.create(&pod_with_certificate("web"));
    world.until("it is requested again", |w| requests(w).len() == 2).await;
    assert_eq!(decide(&world, ISSUE), 2);
    world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
    assert_eq!(bundle(&world, &web), Some(expected_bundle(2)));
    world.advance(seconds(3000)).await;
    assert_eq!(requests(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pod_certificate_stays_while_the_api_server_is_away_at_its_renewal() {
    let world = joined().await;
    let web = with_certificate(&world).await;
    world.api().set_outage(Some(Outage::Refused));
    world.advance(seconds(5000)).await;
    assert_eq!(world.recorded("CertificateOverdueForRefresh"), 1);
    assert_eq!(bundle(&world, &web), Some(expected_bundle(1)));
    world.api().set_outage(None);
    loop_until(&world, seconds(700), is_pending).await;
    decide(&world, ISSUE);
    loop_until(&world, seconds(120), |w| bundle(w, &web).is_some_and(|text| text != expected_bundle(1)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn certificates_of_a_deleted_pod_are_forgotten_and_the_watch_ends() {
    let world = joined().await;
    world.create(&pod_with_certificate("web"));
    world.until("a certificate is requested", is_pending).await;
    let is_watched = |w: &World| !calls_about(w, "watch podcertificaterequests").is_empty();
    world.until("its requests are watched", is_watched).await;
    world.delete("web", Some(0));
    world.until("the pod is gone", |w| w.in_api("web").is_none()).await;
    world.advance(seconds(60)).await;
    assert!(!world.metrics().await.contains("kubelet_podcertificate_states"));
    decide(&world, ISSUE);
    world.api().forget_calls();
    world.api().end_watches();
    world.advance(hours(3)).await;
    assert_eq!(calls_about(&world, "podcertificaterequests"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn certificates_are_issued_again_with_new_keys_after_a_restart() {
    let mut world = joined().await;
    let web = with_certificate(&world).await;
    world.restart().await;
    world.until("a certificate is requested", is_pending).await;
    assert_eq!(bundle(&world, &web), Some(expected_bundle(1)), "the old one stays");
    decide(&world, ISSUE);
    world.until("the new certificate is shown", |w| bundle(w, &web) == Some(expected_bundle(2))).await;
    assert_eq!(world.restarts("web", "app"), 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_key_types_and_too_many_certificates_are_refused_without_a_request() {
    let world = joined().await;
    for (name, sources, text) in [
        ("unknown", vec![source("s.example/x", "RSA1024", "a")], "unknown key type \"RSA1024\""),
        (
            "many",
            (0..65).map(|n| source("s.example/x", "ED25519", &format!("f{n}"))).collect(),
            "pod has 65 podCertificate sources, but a pod may have at most 64",
        ),
    ] {
        world.create(&pod_with_volume(name, json!({"projected": {"sources": sources}})));
        let text = format!("{MOUNT}{text}");
        world.until("the event has the reason", |w| message(w, "FailedMount").as_ref() == Some(&text)).await;
    }
    world.advance(hours(1)).await;
    assert_eq!(calls_about(&world, "create podcertificaterequests"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_gate_pod_certificate_volumes_fail_and_nothing_is_watched() {
    let world = World::joined().await;
    with_account(&world);
    world.create(&pod_with_certificate("web"));
    let text = format!(
        "{MOUNT}podCertificate projection is not available on this node: the feature gate PodCertificateRequest is off, or the \
         node is standalone"
    );
    world.until("the event has the reason", |w| message(w, "FailedMount").as_ref() == Some(&text)).await;
    assert_eq!(calls_about(&world, "podcertificaterequests"), Vec::<String>::new());
}
