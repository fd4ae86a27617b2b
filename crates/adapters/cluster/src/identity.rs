//! The node's client identity, which certificate rotation may change, and the bootstrap client of a new node.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use model::PemPair;
use ports::certificates::{CertificateError, CertificateResult};
use ports::{ClientIdentity as IdentityPort, Cluster};

use crate::access::{Access, Content, Login};
use crate::error::AccessError;
use crate::kubeconfig;
use crate::proxy::ProxyEnv;
use crate::server::{ApiHandle, ApiServer, HandleSettings, Settings};
use crate::tls::ClientIdentity;

fn wrong(error: impl std::fmt::Display) -> CertificateError {
    CertificateError(error.to_string())
}

/// The bootstrap kubeconfig, which is read on each use, because its token may be replaced.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub kubeconfig: PathBuf,
    pub proxies: ProxyEnv,
    pub settings: Settings,
    pub handle: HandleSettings,
}

impl Bootstrap {
    /// A separate handle; does not connect yet.
    ///
    /// # Errors
    /// The file, or one that it refers to, is invalid.
    pub fn open(&self) -> CertificateResult<ApiHandle> {
        let access = kubeconfig::read(&self.kubeconfig, &self.proxies).map_err(wrong)?;
        let server = ApiServer::new(access, self.settings.clone());
        let named = |error| wrong(format!("the kubeconfig {}: {error}", self.kubeconfig.display()));
        Ok(server.map_err(named)?.handle(self.handle))
    }
}

/// The client identity of the handles of one [`ApiServer`].
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    pub server: Arc<ApiServer>,
    /// The access that the server was created from.
    pub access: Access,
    pub bootstrap: Option<Bootstrap>,
}

#[async_trait]
impl IdentityPort for NodeIdentity {
    fn show(&self, pair: &PemPair) -> CertificateResult<()> {
        let identity = ClientIdentity::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes());
        identity.and_then(|identity| self.server.set_identity(identity)).map_err(wrong)
    }

    async fn reload(&self) -> CertificateResult<bool> {
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || server.reload()).await.map_err(wrong)?.map_err(wrong)
    }

    async fn on_disk(&self) -> CertificateResult<Option<PemPair>> {
        let access = self.access.clone();
        tokio::task::spawn_blocking(move || access.client_pair()).await.map_err(wrong)?.map_err(wrong)
    }

    async fn bootstrap(&self) -> CertificateResult<Option<Arc<dyn Cluster>>> {
        let Some(bootstrap) = self.bootstrap.clone() else { return Ok(None) };
        let handle = tokio::task::spawn_blocking(move || bootstrap.open()).await.map_err(wrong)??;
        Ok(Some(Arc::new(handle)))
    }
}

impl Access {
    /// The current client certificate and its key; `None` if the access has none.
    ///
    /// # Errors
    /// A file cannot be read, or is not valid UTF-8.
    pub fn client_pair(&self) -> Result<Option<PemPair>, AccessError> {
        let Some(source) = &self.identity else { return Ok(None) };
        let text = |content: Vec<u8>| {
            String::from_utf8(content)
                .map_err(|_| AccessError::new("the client certificate or its key is not valid UTF-8"))
        };
        Ok(Some(PemPair { certificate: text(source.certificate.read()?)?, key: text(source.key.read()?)? }))
    }

    /// Whether the client certificate and its key are embedded in the kubeconfig.
    #[must_use]
    pub fn embeds_client_pair(&self) -> bool {
        let is_inline = |content: &Content| matches!(content, Content::Inline(_));
        self.identity.as_ref().is_some_and(|pair| is_inline(&pair.certificate) && is_inline(&pair.key))
    }

    /// The source of the client certificate, for errors.
    #[must_use]
    pub fn client_origin(&self) -> String {
        match self.identity.as_ref().map(|source| &source.certificate) {
            Some(Content::File(path)) => path.display().to_string(),
            Some(Content::Inline(_)) => "client-certificate-data".to_owned(),
            None => "client-certificate".to_owned(),
        }
    }

    /// Whether it has credentials other than a certificate.
    #[must_use]
    pub fn has_login(&self) -> bool {
        self.login != Login::None
    }
}
