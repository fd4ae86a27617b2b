//! Connects to the runtime's streaming server, with or without TLS. Contains no HTTP.
//!
//! A runtime that serves its streams over TLS must have a certificate that this machine trusts: an impostor would see what is
//! typed into every container. A self-signed certificate is rejected with that reason.

use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Paths of the CA bundles of distributions; the first that exists is used.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The file of `SSL_CERT_FILE`, as for every Go program, or else the paths of distributions.
pub(super) fn trusted() -> Vec<PathBuf> {
    match std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
        Some(file) => vec![file.into()],
        None => TRUSTED.map(PathBuf::from).into(),
    }
}

/// A connection, with or without TLS.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// The address and path of a streaming URL.
#[derive(Debug)]
pub(crate) struct Target {
    /// Host and port.
    pub(super) authority: String,
    pub(super) path: Uri,
    /// The server name expected in the certificate; `None` without TLS.
    tls: Option<ServerName<'static>>,
}

impl Target {
    /// Parses an `http://` or `https://` URL. The error is returned to the client.
    pub(super) fn of(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is not a valid URL: {error}"))?;
        let default_port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            Some(_) | None => return Err(format!("{url:?} is neither an http:// nor an https:// URL")),
        };
        let authority = uri.authority().ok_or_else(|| format!("{url:?} has no host"))?;
        let address = match authority.port_u16() {
            Some(_) => authority.as_str().to_owned(),
            None => format!("{authority}:{default_port}"),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match default_port {
            443 => Some(ServerName::try_from(host).map_err(|error| format!("{url:?}: {error}"))?),
            _ => None,
        };
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let path = path.parse().map_err(|error| format!("{url:?}: {error}"))?;
        Ok(Self { authority: address, path, tls })
    }
}

/// Over TLS, trusts the CAs in the first of these PEM files that exists. The error is why the connection failed.
pub(super) async fn connect(target: &Target, trusted: &[PathBuf]) -> Result<Box<dyn Connection>, String> {
    let stream = TcpStream::connect(target.authority.as_str()).await.map_err(|error| error.to_string())?;
    // TCP_NODELAY, for keystrokes. A failure has no other effect than a delay.
    let _ = stream.set_nodelay(true);
    let Some(name) = &target.tls else { return Ok(Box::new(stream)) };
    let connector = TlsConnector::from(Arc::new(config(roots(trusted).await?)?));
    let shaken = connector.connect(name.clone(), stream).await;
    let stream =
        shaken.map_err(|error| format!("TLS handshake with {} failed: {error}", target.authority))?;
    Ok(Box::new(stream))
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Read again for each stream: few runtimes serve TLS, and the bundle may change.
async fn roots(trusted: &[PathBuf]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for file in trusted {
        match tokio::fs::read(file).await {
            Ok(pem) => {
                roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
                return Ok(roots);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("read {}: {error}", file.display())),
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::ServerConfig;
    use rustls_pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    #[test]
    fn streaming_urls_are_split_into_address_and_path() {
        let read = |url| {
            Target::of(url)
                .map(|target| format!("{} {} {:?}", target.authority, target.path, target.tls.is_some()))
        };
        assert_eq!(read("http://127.0.0.1:4711/exec/abc?x=1").unwrap(), "127.0.0.1:4711 /exec/abc?x=1 false");
        assert_eq!(read("http://[::1]:80").unwrap(), "[::1]:80 / false");
        assert_eq!(read("http://node/x").unwrap(), "node:80 /x false");
        assert_eq!(read("https://node/x").unwrap(), "node:443 /x true");
        assert_eq!(read("https://[::1]:4711/x").unwrap(), "[::1]:4711 /x true");
        for url in ["ftp://127.0.0.1/x", "/exec/abc", "", "unix:///run/x.sock"] {
            assert!(Target::of(url).is_err(), "{url}");
        }
    }

    /// A streaming server with TLS, and its certificate.
    async fn server() -> (u16, String) {
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(vec![own.der().clone()], key);
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    stream.write_all(b"hello").await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            }
        });
        (port, own.pem())
    }

    #[tokio::test]
    async fn tls_streaming_server_needs_a_certificate_that_the_machine_trusts() {
        let (port, pem) = server().await;
        let target = Target::of(&format!("https://127.0.0.1:{port}/exec/x")).unwrap();
        let file = std::env::temp_dir().join(format!("kubelet-dial-{}-{port}.pem", std::process::id()));
        std::fs::write(&file, pem).unwrap();
        let mut stream = connect(&target, &["/nowhere".into(), file.clone()]).await.ok().unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "hello");
        let refused = connect(&target, &trusted()).await.err().unwrap();
        assert!(refused.contains("certificate"), "{refused}");
    }
}
