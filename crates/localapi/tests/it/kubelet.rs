//! A fake kubelet: TLS that requires a client certificate of the cluster's authority, streamed logs, and upgraded
//! connections that echo. It records its requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Sent after the client has closed its half of the connection.
pub(crate) const FAREWELL: &[u8] = b"bye";

/// A recorded request: the subject of the client (CN and O), the request line, and whether it had a bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedRequest {
    pub(crate) client: String,
    pub(crate) line: String,
    pub(crate) authorization: bool,
}

/// The answer to `/stats/summary`.
#[derive(Clone, Default)]
pub(crate) enum Summary {
    #[default]
    Refused,
    Document(String),
    /// Nothing, until the client has gone.
    Silence,
}

pub(crate) struct Kubelet {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    /// How many bytes an `/attach` had written when its writer stalled.
    pub(crate) stalled: watch::Receiver<Option<u64>>,
}

struct State {
    requests: Mutex<Vec<RecordedRequest>>,
    /// What `/stats/summary` answers.
    summary: Mutex<Summary>,
    /// The next lines of a followed log; it ends when the sender is dropped.
    log: Mutex<Option<mpsc::Receiver<&'static str>>>,
    stalled: watch::Sender<Option<u64>>,
}

impl Kubelet {
    /// `authority` is the file with the certificate authority of the clients; `log` is the content of a followed log.
    pub(crate) async fn start(authority: &Path, log: mpsc::Receiver<&'static str>) -> Self {
        let acceptor = acceptor(authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stalled, seen) = watch::channel(None);
        let state = State {
            requests: Mutex::default(),
            summary: Mutex::default(),
            log: Mutex::new(Some(log)),
            stalled,
        };
        let state = Arc::new(state);
        let kubelet = Self { address, state: Arc::clone(&state), stalled: seen };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&state)));
            }
        });
        kubelet
    }

    pub(crate) fn answer_summary(&self, summary: Summary) {
        *self.state.summary.lock() = summary;
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut *self.state.requests.lock())
    }
}

fn acceptor(authority: &Path) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(authority).expect("the authority's certificate");
    roots.add(authority).expect("a good authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(["elsewhere".to_owned()]).expect("a name");
    let own = params.self_signed(&key).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("the same key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_client_cert_verifier(clients.build().expect("a verifier"))
        .with_single_cert(vec![own.der().clone()], key)
        .expect("a configuration");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    // Failed handshakes are not an error of the fake kubelet.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let presented = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).expect("a certificate");
    let (_, certificate) = X509Certificate::from_der(presented).expect("a good certificate");
    let client = certificate.subject().to_string();
    let service = service_fn(move |request| {
        let recorded = RecordedRequest {
            client: client.clone(),
            line: format!("{} {}", request.method(), request.uri()),
            authorization: request.headers().contains_key(header::AUTHORIZATION),
        };
        state.requests.lock().push(recorded);
        handle(request, Arc::clone(&state))
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

async fn handle(mut request: Request<Incoming>, state: Arc<State>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if path.ends_with("/refusing") {
        return Ok(text(StatusCode::BAD_REQUEST, "container \"refusing\" is waiting to start"));
    }
    if path == "/stats/summary" {
        let summary = state.summary.lock().clone();
        return Ok(match summary {
            Summary::Refused => text(StatusCode::FORBIDDEN, "Forbidden (verb=get)\n"),
            Summary::Document(document) => text(StatusCode::OK, &document),
            Summary::Silence => std::future::pending().await,
        });
    }
    if let Some(protocol) = request.headers().get(header::UPGRADE).cloned() {
        let upgrade = hyper::upgrade::on(&mut request);
        if path.starts_with("/attach/") {
            tokio::spawn(write_until_stalled(upgrade, state));
        } else {
            tokio::spawn(echo(upgrade));
        }
        let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
        response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(header::UPGRADE, protocol);
        return Ok(response);
    }
    if query.contains("follow=true") {
        let lines = state.log.lock().take();
        let lines = stream::unfold(lines, |lines| async move {
            let mut lines = lines?;
            let line = lines.recv().await?;
            Some((Ok(Frame::data(Bytes::from(line))), Some(lines)))
        });
        return Ok(Response::new(StreamBody::new(lines).boxed_unsync()));
    }
    let sent = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let line = format!("{path}?{query} {}\n", String::from_utf8_lossy(&sent));
    Ok(text(StatusCode::OK, &line))
}

fn text(code: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

/// Echoes all input, and sends [`FAREWELL`] at its end.
async fn echo(upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
    if tokio::io::copy(&mut read, &mut write).await.is_ok() && write.write_all(FAREWELL).await.is_ok() {
        let _ = write.shutdown().await;
    }
}

/// Writes until the reader stalls, and reports the number of bytes.
async fn write_until_stalled(upgrade: OnUpgrade, state: Arc<State>) {
    let Ok(upgraded) = upgrade.await else { return };
    let mut upgraded = TokioIo::new(upgraded);
    let (block, mut written) = ([b'x'; 64 * 1024], 0_u64);
    while let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(3), upgraded.write_all(&block)).await {
        written += block.len() as u64;
    }
    state.stalled.send_replace(Some(written));
    // Held open until the client closes it.
    let _ = upgraded.read(&mut [0; 1]).await;
}
