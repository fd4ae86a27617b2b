//! Bootstrap and certificate rotation over the real adapter and a real API server with a signer, both in this process.
//! Certificates live for seconds, and no API request may fail because of that.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api_agent::certificates::{ClientCertificate, Join, JoinError, PairStore, StoredPair};
use base_agent::metrics::Metrics;
use base_agent::rng::Rng;
use base_agent::tasks::TaskSet;
use cluster::{ApiServer, Bootstrap, HandleSettings, NodeIdentity, ProxyEnv, Settings, X509, kubeconfig};
use fixtures::stretched;
use futures_util::StreamExt;
use host::LinuxHost;
use localapi::{Behaviour, LocalApi, Options, Running};
use ports::cluster::Selection;
use ports::{Clock, Cluster};
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "abcdef.0123456789abcdef";
const TIMEOUT: Duration = Duration::from_secs(120);
const UNLIMITED: HandleSettings = HandleSettings { budget: None, deadline: Duration::from_secs(30) };

/// A cluster, and the directory of a node that wants to join it.
struct Home {
    api: Running,
    dir: tempfile::TempDir,
    clock: Clock,
}

impl Home {
    async fn new(behaviour: Behaviour) -> Self {
        let bootstrap_tokens = vec![TOKEN.to_owned()];
        let api = LocalApi::start(Options { behaviour, bootstrap_tokens, ..Options::default() }).await;
        let (api, dir) = (api.expect("an API server"), tempfile::tempdir().expect("a directory"));
        std::fs::write(dir.path().join("bootstrap.conf"), api.token_kubeconfig(TOKEN)).expect("written");
        Self { api, dir, clock: Clock::system() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> PairStore {
        PairStore {
            files: Arc::new(LinuxHost::new()),
            certificates: Arc::new(X509),
            dir: self.path("pki"),
            name: "kubelet-client",
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            user_agent: "kubelet/test".to_owned(),
            http2: true,
            clock: self.clock,
            seed: 1,
            trace: None,
        }
    }

    fn bootstrap(&self) -> Bootstrap {
        Bootstrap {
            kubeconfig: self.path("bootstrap.conf"),
            proxies: ProxyEnv::default(),
            settings: self.settings(),
            handle: UNLIMITED,
        }
    }

    async fn join(&self) -> Result<StoredPair, JoinError> {
        let cluster = self.bootstrap().open().expect("a directory handle");
        let join = Join {
            cluster: &cluster,
            clock: self.clock,
            store: &self.store(),
            node_name: "edge-1",
            timeout: stretched(TIMEOUT),
        };
        join.run().await
    }

    /// The API as the node sees it once it has joined.
    fn member(&self) -> NodeIdentity {
        let text = kubeconfig::for_node(&self.path("bootstrap.conf"), &self.store().current_path());
        std::fs::write(self.path("kubelet.conf"), text.expect("a kubeconfig")).expect("written");
        let access = kubeconfig::read(&self.path("kubelet.conf"), &ProxyEnv::default()).expect("it is read");
        let server = ApiServer::new(access.clone(), self.settings()).expect("it is used");
        NodeIdentity { server: Arc::new(server), access, bootstrap: Some(self.bootstrap()) }
    }

    fn keep(&self, tasks: &TaskSet, identity: &NodeIdentity, joined: &StoredPair, rotates: bool) {
        let keeper = ClientCertificate {
            store: self.store(),
            identity: Arc::new(identity.clone()),
            cluster: Arc::new(identity.server.handle(UNLIMITED)),
            clock: self.clock,
            rng: Rng::from_seed(1),
            node_name: "edge-1".to_owned(),
            rotates,
            is_embedded: false,
            has_bootstrap: true,
            current: Some(joined.facts.clone()),
            metrics: Metrics::default(),
            must_exit: CancellationToken::new(),
        };
        tasks.spawn("keeper", keeper.run());
    }

    /// Waits until a different pair is in use.
    async fn renewed(&self, old: &StoredPair) -> StoredPair {
        let poll = async {
            loop {
                let now = self.store().load().await.expect("the pair is never damaged").expect("a pair");
                if now.facts != old.facts {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(stretched(TIMEOUT), poll).await.expect("the certificate is renewed")
    }
}

fn short_lived(seconds: u64) -> Behaviour {
    Behaviour { certificate_lifetime: Duration::from_secs(seconds), ..Behaviour::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_rotation_under_load_fails_no_request_and_no_watch() {
    let home = Home::new(short_lived(16)).await;
    let joined = home.join().await.expect("the node joins");
    let identity = home.member();
    let tasks = TaskSet::new();
    home.keep(&tasks, &identity, &joined, true);
    let handle = Arc::new(identity.server.handle(UNLIMITED));
    let node = serde_json::json!({"metadata": {"name": "edge-1"}});
    let node = serde_json::from_value(node).expect("a node");
    handle.nodes().create("", &node).await.expect("the node registers");
    let calls = Arc::new(AtomicUsize::new(0));
    let (failures, mut failed) = tokio::sync::mpsc::channel::<String>(16);
    for _ in 0..6 {
        let (handle, calls, failures) = (handle.clone(), calls.clone(), failures.clone());
        tasks.spawn("caller", async move {
            loop {
                match handle.nodes().get("", "edge-1").await {
                    Ok(_) => calls.fetch_add(1, Ordering::Relaxed),
                    Err(error) => return failures.send(error.to_string()).await.unwrap_or_default(),
                };
                // More requests would take the processors from other tests and see no other certificates.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    let selection = Selection { fields: Some("spec.nodeName=edge-1".to_owned()), ..Selection::default() };
    for _ in 0..4 {
        let mut watch = handle.pods().watch(&selection, "").await.expect("a watch begins");
        let failures = failures.clone();
        tasks.spawn("watcher", async move {
            let ended = watch.next().await;
            let _ = failures.send(format!("a watch reported {ended:?} without any change")).await;
        });
    }
    let second = home.renewed(&joined).await;
    let third = home.renewed(&second).await;
    // Requests continue past the expiry of the certificate before the last.
    let past = second.facts.not_after.duration_since(home.clock.now().wall).as_secs().max(0) + 2;
    home.clock.sleep_until(home.clock.mono() + Duration::from_secs(past.unsigned_abs())).await;
    assert!(failed.try_recv().is_err(), "{:?}", failed.try_recv());
    assert!(third.facts.not_after > second.facts.not_after);
    assert!(calls.load(Ordering::Relaxed) > 100, "{calls:?}");
    tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_client_certificate_is_replaced_by_bootstrap_without_a_restart() {
    let home = Home::new(short_lived(stretched(Duration::from_secs(4)).as_secs())).await;
    let joined = home.join().await.expect("the node joins");
    let identity = home.member();
    let tasks = TaskSet::new();
    home.keep(&tasks, &identity, &joined, false);
    let handle = identity.server.handle(UNLIMITED);
    let healed = home.renewed(&joined).await;
    assert!(healed.facts.not_before >= joined.facts.not_before);
    // The pair is on disk a moment before connections use it.
    let this_node = Selection { fields: Some("metadata.name=edge-1".to_owned()), ..Selection::default() };
    let poll = async {
        while handle.nodes().list(&this_node).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(stretched(TIMEOUT), poll).await.expect("the API knows the node again");
    tasks.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bootstrap_token_is_reported_at_once() {
    let home = Home::new(Behaviour::default()).await;
    let wrong = home.api.token_kubeconfig("abcdef.ffffffffffffffff");
    std::fs::write(home.path("bootstrap.conf"), wrong).expect("written");
    let error = home.join().await.expect_err("this token is unknown").to_string();
    assert!(error.contains("unauthorized"), "{error}");
}
