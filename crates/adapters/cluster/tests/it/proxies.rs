//! HTTP proxies of the kubeconfig and the environment.

use std::net::Ipv4Addr;
use std::sync::Arc;

use cluster::ProxyEnv;
use parking_lot::Mutex;
use ports::Cluster;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::server::{Reply, TestServer, UNLIMITED, api};

/// A proxy that connects every client to one port, and records the requests.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

async fn proxy(target: u16, answer: &'static str) -> Proxy {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let seen = Arc::clone(&heads);
    tasks.spawn(async move {
        let mut tunnels = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tunnels.spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                seen.lock().push(String::from_utf8(head).unwrap());
                client.write_all(answer.as_bytes()).await.unwrap();
                let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    Proxy { port, heads, _tasks: tasks }
}

const JOINED: &str = "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n";

#[tokio::test]
async fn proxy_of_the_kubeconfig_is_used() {
    let server = TestServer::start(|_| Reply::text(200, "ok")).await;
    let proxy = proxy(server.port, JOINED).await;
    // The proxy resolves the name.
    let cluster = json!({
        "server": "https://api.invalid:6443/prefix",
        "tls-server-name": "127.0.0.1",
        "proxy-url": format!("http://me:s%40cret@127.0.0.1:{}", proxy.port),
    });
    let access = server.access_with(&cluster, &json!({}), &ProxyEnv::default());
    api(access, true).handle(UNLIMITED).healthy().await.unwrap();
    assert_eq!(server.lines(), ["GET /prefix/healthz"]);
    let head = proxy.heads.lock()[0].clone();
    assert!(head.starts_with("CONNECT api.invalid:6443 HTTP/1.1\r\nHost: api.invalid:6443\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic bWU6c0BjcmV0\r\n"), "{head}");
}

#[tokio::test]
async fn proxy_of_the_environment_is_used_without_one_in_the_kubeconfig() {
    let server = TestServer::start(|_| Reply::text(200, "ok")).await;
    let proxy = proxy(server.port, JOINED).await;
    let env = ProxyEnv { https: Some(format!("127.0.0.1:{}", proxy.port)), ..ProxyEnv::default() };
    let named = json!({"server": "https://api.invalid", "tls-server-name": "127.0.0.1"});
    let access = server.access_with(&named, &json!({}), &env);
    api(access, true).handle(UNLIMITED).healthy().await.unwrap();
    assert_eq!(proxy.heads.lock().len(), 1);
    // This machine is reached directly.
    let access = server.access_with(&json!({}), &json!({}), &env);
    api(access, true).handle(UNLIMITED).healthy().await.unwrap();
    assert_eq!(proxy.heads.lock().len(), 1);
}

#[tokio::test]
async fn rejection_by_a_proxy_is_reported() {
    let server = TestServer::start(|_| Reply::text(200, "ok")).await;
    let proxy = proxy(server.port, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    let cluster = json!({"proxy-url": format!("http://127.0.0.1:{}", proxy.port)});
    let access = server.access_with(&cluster, &json!({}), &ProxyEnv::default());
    let error = api(access, true).handle(UNLIMITED).healthy().await.unwrap_err().to_string();
    assert!(error.contains("proxy: it rejected") && error.contains("407"), "{error}");
}
