//! Connecting to the runtime's streaming server, in the clear or over TLS. Never speaks HTTP.
//!
//! A runtime that serves its streams over TLS must show a certificate that this machine trusts: who could pretend to be it
//! would see what is typed into every container. One that it signed itself is refused with the reason.

use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where distributions keep the certificates of the authorities they trust; the first that exists is used.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The file that `SSL_CERT_FILE` names, as for every program in Go, or else where distributions keep one.
pub(super) fn trusted() -> Vec<PathBuf> {
    match std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
        Some(file) => vec![file.into()],
        None => TRUSTED.map(PathBuf::from).into(),
    }
}

/// A connection, whatever it is made of.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Where to connect to and what to ask for.
#[derive(Debug)]
pub(crate) struct Place {
    /// Host and port.
    pub(super) authority: String,
    pub(super) path: Uri,
    /// Whose certificate is expected; `None` is in the clear.
    tls: Option<ServerName<'static>>,
}

impl Place {
    /// Of a URL, `http://` or `https://`. The error is for whoever asked.
    pub(super) fn of(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let default_port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            Some(_) | None => return Err(format!("{url:?} is neither an http:// nor an https:// URL")),
        };
        let authority = uri.authority().ok_or_else(|| format!("{url:?} names no host"))?;
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

/// Trusts, over TLS, the authorities in the first of these PEM files that exists. The error says why there is no
/// connection.
pub(super) async fn connect(place: &Place, trusted: &[PathBuf]) -> Result<Box<dyn Connection>, String> {
    let stream = TcpStream::connect(place.authority.as_str()).await.map_err(|error| error.to_string())?;
    // Keystrokes are sent at once; a connection that cannot do that works all the same.
    let _ = stream.set_nodelay(true);
    let Some(name) = &place.tls else { return Ok(Box::new(stream)) };
    let connector = TlsConnector::from(Arc::new(config(roots(trusted).await?)?));
    let shaken = connector.connect(name.clone(), stream).await;
    let stream = shaken.map_err(|error| format!("TLS with {}: {error}", place.authority))?;
    Ok(Box::new(stream))
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Read again for each stream: few runtimes serve TLS, and what is trusted may change.
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
    fn a_url_is_a_place_and_a_path() {
        let read = |url| {
            Place::of(url)
                .map(|place| format!("{} {} {:?}", place.authority, place.path, place.tls.is_some()))
        };
        assert_eq!(read("http://127.0.0.1:4711/exec/abc?x=1").unwrap(), "127.0.0.1:4711 /exec/abc?x=1 false");
        assert_eq!(read("http://[::1]:80").unwrap(), "[::1]:80 / false");
        assert_eq!(read("http://node/x").unwrap(), "node:80 /x false");
        assert_eq!(read("https://node/x").unwrap(), "node:443 /x true");
        assert_eq!(read("https://[::1]:4711/x").unwrap(), "[::1]:4711 /x true");
        for url in ["ftp://127.0.0.1/x", "/exec/abc", "", "unix:///run/x.sock"] {
            assert!(Place::of(url).is_err(), "{url}");
        }
    }

    /// A streaming server that says hello over TLS, and its certificate.
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
    async fn over_tls_only_a_certificate_that_the_machine_trusts_is_spoken_with() {
        let (port, pem) = server().await;
        let place = Place::of(&format!("https://127.0.0.1:{port}/exec/x")).unwrap();
        let file = std::env::temp_dir().join(format!("kubelet-dial-{}-{port}.pem", std::process::id()));
        std::fs::write(&file, pem).unwrap();
        let mut stream = connect(&place, &["/nowhere".into(), file.clone()]).await.ok().unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
        let refused = connect(&place, &trusted()).await.err().unwrap();
        assert!(refused.contains("certificate"), "{refused}");
    }
}
