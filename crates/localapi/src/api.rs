//! What all request handlers share: the store, the clock, the certificate authority, the tokens. It has no logic of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::auth::authority::Authority;
use crate::auth::tokens::Tokens;
use crate::auth::x509::ClientCertificates;
use crate::clock::{Clock, Rng};
use crate::options::Behaviour;
use crate::proxy::Proxy;
use crate::resource_metrics::UsageCache;
use crate::resources::Kinds;
use crate::store::Store;
use crate::store::disk::Durable;

#[derive(Debug)]
pub(crate) struct Api {
    /// Where the server listens.
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) authority: Authority,
    pub(crate) clients: ClientCertificates,
    pub(crate) tokens: Tokens,
    pub(crate) behaviour: Behaviour,
    pub(crate) audit: Option<AuditLog>,
    pub(crate) proxy: Proxy,
    /// What the kubelet has measured last.
    pub(crate) usage: UsageCache,
    /// Cancelled when the server stops: no new requests, watches end.
    pub(crate) closing: CancellationToken,
    /// `None`: everything is in memory only.
    pub(crate) durable: Option<Durable>,
}

impl Api {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A watch for a task that lasts as long as the server; `None` when that stops. It ends all watches then, and would miss one that begins
    /// later.
    pub(crate) fn watch_until_stopped<W>(&self, begin: impl FnOnce(&Store) -> W) -> Option<W> {
        let watch = begin(&self.store);
        (!self.closing.is_cancelled()).then_some(watch)
    }

    /// The kinds that are served: a server of one node has a kubelet to ask for measurements.
    pub(crate) fn kinds(&self) -> Kinds {
        Kinds { measured: self.behaviour.bind_to.is_some() }
    }
}
