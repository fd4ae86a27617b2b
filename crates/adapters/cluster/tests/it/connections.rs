//! Connections: shared, replaced, and never a reason for a lost call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::{ClientIdentity, ProxyEnv};
use futures_util::future::join_all;
use ports::Cluster;
use ports::cluster::Selection;
use serde_json::json;
use tokio::task::JoinSet;

use crate::authority::Authority;
use crate::server::{LONG, Options, Reply, TestServer, UNLIMITED, api};

fn ok() -> Reply {
    Reply::text(200, "ok").after(Duration::from_millis(20))
}

fn connections_used(server: &TestServer) -> BTreeSet<usize> {
    server.requests().iter().map(|request| request.connection).collect()
}

/// Polls until the condition is met.
async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, reached).await.unwrap();
}

#[tokio::test]
async fn concurrent_calls_share_one_connection() {
    let server = TestServer::start(|_| ok()).await;
    let handle = server.handle();
    for result in join_all((0..50).map(|_| handle.healthy())).await {
        result.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn watches_beyond_the_stream_limit_get_another_connection() {
    let options = Options { streams: Some(10), ..Options::default() };
    let server = TestServer::start_with(options, |_| Reply::text(200, "\n").then_silence()).await;
    let handle = server.handle();
    let mut watches = vec![handle.pods().watch(&Selection::default(), "1").await.unwrap()];
    for _ in 0..34 {
        watches.push(handle.pods().watch(&Selection::default(), "1").await.unwrap());
    }
    assert_eq!(server.connections(), 4);
    drop(watches);
}

#[tokio::test]
async fn http1_calls_have_separate_connections() {
    for (http1_only, http2) in [(true, true), (false, false)] {
        let options = Options { http1_only, ..Options::default() };
        let server = TestServer::start_with(options, |request| match request.target.as_str() {
            "/healthz" => ok(),
            _ => Reply::text(200, "\n").then_silence(),
        })
        .await;
        let access = server.access_with(&json!({}), &json!({}), &ProxyEnv::default());
        let handle = api(access, http2).handle(UNLIMITED);
        let watch = handle.pods().watch(&Selection::default(), "1").await.unwrap();
        for _ in 0..5 {
            handle.healthy().await.unwrap();
        }
        assert!(server.requests().iter().all(|request| !request.http2));
        let host = format!("127.0.0.1:{}", server.port);
        assert_eq!(server.requests()[1].header("host"), Some(host.as_str()));
        assert_eq!(server.connections(), 2, "one for the watch, one for all calls");
        drop(watch);
    }
}

#[tokio::test]
async fn heartbeats_have_separate_connections() {
    let server = TestServer::start(|_| ok()).await;
    let api = server.api_for(&json!({}));
    let (pods, events, heartbeat) =
        (api.handle(UNLIMITED), api.handle(UNLIMITED), api.handle_apart(UNLIMITED));
    for handle in [&pods, &events, &heartbeat, &pods, &heartbeat] {
        handle.healthy().await.unwrap();
    }
    let used: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(used, [0, 0, 1, 0, 1]);
    heartbeat.close_connections();
    heartbeat.healthy().await.unwrap();
    pods.healthy().await.unwrap();
    let used: Vec<_> = server.requests().iter().skip(5).map(|request| request.connection).collect();
    assert_eq!(used, [2, 0]);
}

#[tokio::test]
async fn closing_connections_does_not_affect_calls_under_way() {
    let server = TestServer::start(|_| Reply::text(200, "ok").after(Duration::from_millis(300))).await;
    let handle = server.handle();
    let slow = handle.healthy();
    let renewed = async {
        until(|| server.requests().len() == 1).await;
        handle.close_connections();
        handle.healthy().await
    };
    let (slow, renewed) = tokio::join!(slow, renewed);
    slow.unwrap();
    renewed.unwrap();
    assert_eq!(connections_used(&server), [0, 1].into());
}

#[tokio::test]
async fn graceful_server_shutdown_fails_no_call() {
    let server =
        Arc::new(TestServer::start(|_| Reply::text(200, "ok").after(Duration::from_millis(3))).await);
    let handle = Arc::new(server.handle());
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (handle, stop, calls) = (Arc::clone(&handle), Arc::clone(&stop), Arc::clone(&calls));
        callers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                handle.healthy().await.unwrap();
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for round in 1..=10 {
        until(|| calls.load(Ordering::Relaxed) > round * 30).await;
        server.go_away();
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    assert!(connections_used(&server).len() > 5, "{:?}", connections_used(&server));
}

#[tokio::test]
async fn client_certificate_rotation_under_load_fails_no_call_and_no_watch() {
    let server = Arc::new(
        TestServer::start(|request| match request.target.as_str() {
            "/healthz" => Reply::text(200, "ok").after(Duration::from_millis(3)),
            _ => Reply::text(200, "\n").then_silence(),
        })
        .await,
    );
    let old = server.authority.client("old");
    std::fs::write(server.dir.path().join("client.pem"), format!("{}{}", old.certificate, old.key)).unwrap();
    let user = json!({"client-certificate": "client.pem", "client-key": "client.pem"});
    let api = server.api_for(&user);
    let handle = Arc::new(api.handle(UNLIMITED));
    let mut watch = handle.pods().watch(&Selection::default(), "1").await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (handle, stop) = (Arc::clone(&handle), Arc::clone(&stop));
        callers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                handle.healthy().await.unwrap();
            }
        });
    }
    for round in 0..5 {
        let before = server.requests().len();
        until(|| server.requests().len() > before + 30).await;
        let new = server.authority.client(&format!("new {round}"));
        let expected = new.chain().remove(0);
        if round % 2 == 0 {
            let identity = ClientIdentity::from_pem(new.certificate.as_bytes(), new.key.as_bytes()).unwrap();
            api.set_identity(identity).unwrap();
        } else {
            std::fs::write(server.dir.path().join("client.pem"), format!("{}{}", new.certificate, new.key))
                .unwrap();
            assert!(api.reload().unwrap());
            assert!(!api.reload().unwrap(), "nothing new the second time");
        }
        until(|| server.requests().last().is_some_and(|request| request.client.as_ref() == Some(&expected)))
            .await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    let still_open =
        tokio::time::timeout(Duration::from_millis(50), futures_util::StreamExt::next(&mut watch));
    assert!(still_open.await.is_err(), "the watch on the first connection goes on");
    assert_eq!(server.connections(), 6);
}

#[tokio::test]
async fn certificate_with_another_key_is_rejected_and_changes_nothing() {
    let server = TestServer::start(|_| ok()).await;
    let (one, other) = (server.authority.client("one"), server.authority.client("other"));
    let api = server.api_for(&json!({}));
    let identity = |key: &str| ClientIdentity::from_pem(one.certificate.as_bytes(), key.as_bytes()).unwrap();
    api.set_identity(identity(&one.key)).unwrap();
    let error = api.set_identity(identity(&other.key)).unwrap_err().to_string();
    assert!(error.starts_with("the client certificate does not match its key: "), "{error}");
    api.handle(UNLIMITED).healthy().await.unwrap();
    assert_eq!(server.requests()[0].client.as_ref(), Some(&one.chain()[0]));
}

#[tokio::test]
async fn server_of_another_ca_is_not_trusted_until_the_ca_file_is_replaced() {
    let server = TestServer::start(|_| ok()).await;
    let api = server.api_for(&json!({}));
    std::fs::write(server.dir.path().join("ca.crt"), Authority::new("another").pem()).unwrap();
    assert!(api.reload().unwrap());
    let handle = api.handle(UNLIMITED);
    let error = handle.healthy().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    std::fs::write(server.dir.path().join("ca.crt"), "rubbish").unwrap();
    let error = api.reload().unwrap_err().to_string();
    assert!(error.contains("ca.crt") && error.contains("CERTIFICATE"), "{error}");
    std::fs::write(server.dir.path().join("ca.crt"), server.authority.pem()).unwrap();
    assert!(api.reload().unwrap());
    handle.healthy().await.unwrap();
}

#[tokio::test]
async fn tls_server_name_and_insecure_skip_verify_are_applied() {
    let options = Options { names: vec!["kubernetes"], ..Options::default() };
    let server = TestServer::start_with(options, |_| ok()).await;
    let handle = |cluster| {
        let access = server.access_with(&cluster, &json!({}), &ProxyEnv::default());
        api(access, true).handle(UNLIMITED)
    };
    let error = handle(json!({})).healthy().await.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    handle(json!({"tls-server-name": "kubernetes"})).healthy().await.unwrap();
    handle(json!({"certificate-authority": "", "insecure-skip-tls-verify": true})).healthy().await.unwrap();
}
