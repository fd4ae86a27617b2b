//! Options of a server, and the state that a stopped server passes to the next one.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::auth::authority::KeyAndCertificate;
use crate::auth::tokens::StaticToken;
use crate::clock::Clock;
use crate::json;
use crate::store::Store;

/// Who approves valid certificate requests for the two kubelet signers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The server.
    Automatic,
    /// A client that writes to `/approval`, for example `kubectl certificate approve`.
    Manual,
}

/// What the server does beyond serving.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Treats requests without credentials as `system:anonymous`, which has only the permissions of roles.
    pub anonymous: bool,
    pub approval: Approval,
    /// The longest validity of a signed certificate; a request may specify less.
    pub certificate_lifetime: Duration,
    /// The interval between bookmarks of a watch that allows them.
    pub bookmark_interval: Duration,
    /// Creates the default ServiceAccount and `kube-root-ca.crt` of every namespace, and sets the service account and
    /// token volume of every new pod, as the controllers and admission plugins of a real cluster do.
    pub service_accounts: bool,
    /// The node that pods without one are bound to: when they are created, or once the devices of their ResourceClaims are allocated. On a
    /// machine alone there is no other choice.
    pub bind_to: Option<String>,
    /// Where the kubelet of every node listens if not at the address of its node: on a machine alone, where no other machine may ask it, that is
    /// a loopback address.
    pub kubelet_address: Option<IpAddr>,
    /// Refuses new Services, and gives that of the API server the address and port on which it listens: this machine has no proxy for other
    /// addresses.
    pub refuse_services: bool,
    /// Binds claims to volumes, makes directories below this one for claims of the storage class `local`, and creates VolumeAttachments.
    /// `None`: no controller of volumes, so that a test can play it.
    pub local_volumes: Option<PathBuf>,
    /// Adds fields that no client knows to every object in a response, as a newer server does: clients must ignore them.
    pub unknown_fields: bool,
    /// Records in `metadata.managedFields` who created and changed each object. Without it, only objects that were applied on the server
    /// have such entries.
    pub managed_fields: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            anonymous: false,
            approval: Approval::Automatic,
            certificate_lifetime: Duration::from_secs(365 * 24 * 3600),
            bookmark_interval: Duration::from_secs(60),
            service_accounts: true,
            bind_to: None,
            kubelet_address: None,
            refuse_services: false,
            local_volumes: None,
            unknown_fields: false,
            managed_fields: false,
        }
    }
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 selects any free port.
    pub listen: SocketAddr,
    pub behaviour: Behaviour,
    pub tokens: Vec<StaticToken>,
    /// `abcdef.0123456789abcdef`: each is stored as a bootstrap token Secret.
    pub bootstrap_tokens: Vec<String>,
    /// How many changes the history holds: a watch that is further behind cannot resume.
    pub history: usize,
    pub clock: Clock,
    /// The file to which the audit log of nodes is appended.
    pub audit_log: Option<PathBuf>,
    /// The file of the database that holds everything but the history, in place of `state`: each change is on disk before it is answered.
    /// It is made if it does not exist. `None` keeps everything in memory.
    pub database: Option<PathBuf>,
    /// The file with the key that encrypts Secrets and keys in the database; made with it. `None`: they are in it as they are.
    pub encryption_key: Option<PathBuf>,
    /// Gives free memory of the heap back to the machine, after bursts of changes.
    pub release_memory: Option<fn()>,
    /// The state of a previous server; none to begin with an empty cluster.
    pub state: Option<State>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            behaviour: Behaviour::default(),
            tokens: Vec::new(),
            bootstrap_tokens: Vec::new(),
            history: 20_000,
            clock: Clock::system(),
            audit_log: None,
            database: None,
            encryption_key: None,
            release_memory: None,
            state: None,
        }
    }
}

/// Everything that outlives a server: objects, history, the certificate authority, the token signing key.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) authority: KeyAndCertificate,
    pub(crate) token_key: Vec<u8>,
}

/// A text that is not a saved state.
#[derive(Debug, thiserror::Error)]
#[error("not a saved state of localapi: {0}")]
pub struct InvalidState(String);

impl State {
    /// Discards the history: the next server has all objects, and every older revision is expired.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// The state as one JSON document. It holds Secrets and keys in plain text: only for a file that only its owner can read.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!({
            "authority": {"certificate": self.authority.certificate, "key": self.authority.key},
            "tokenKey": STANDARD.encode(&self.token_key),
            "store": self.store.snapshot(),
        })
        .to_string()
    }

    /// Reads what [`State::to_json`] wrote.
    pub fn from_json(text: &str, history: usize) -> Result<Self, InvalidState> {
        let state: Value = json::decode(text.as_bytes()).map_err(|error| InvalidState(error.to_string()))?;
        let field = |pointer: &str| {
            let found = state.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| InvalidState(format!("no string at {pointer}")))
        };
        let store =
            Store::restore(&state["store"], history).map_err(|error| InvalidState(error.to_string()))?;
        let token_key = STANDARD
            .decode(field("/tokenKey")?)
            .map_err(|error| InvalidState(format!("tokenKey: {error}")))?;
        Ok(Self {
            store: Arc::new(store),
            authority: KeyAndCertificate {
                certificate: field("/authority/certificate")?,
                key: field("/authority/key")?,
            },
            token_key,
        })
    }
}
