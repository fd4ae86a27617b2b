//! What can be chosen when a server is started, and what a stopped one hands on to the next.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::auth::authority::KeyAndCertificate;
use crate::auth::tokens::StaticToken;
use crate::clock::Clock;
use crate::store::Store;

/// Which certificate requests are approved without a person: those of the two kubelet signers that are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    Automatic,
    /// Somebody writes to `/approval`, for example `kubectl certificate approve`.
    ByHand,
}

/// What the server does beyond serving.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Lets in who shows nothing, as `system:anonymous`, who may do nothing.
    pub anonymous: bool,
    pub approval: Approval,
    /// How long a signed certificate is good; a request may ask for less.
    pub certificate_lifetime: Duration,
    /// How often a watch that allows bookmarks gets one.
    pub bookmark_interval: Duration,
    /// Gives every namespace its default ServiceAccount and `kube-root-ca.crt`, and every new pod its account and token
    /// volume, as the controllers and the admission of a real cluster do.
    pub service_accounts: bool,
    /// Adds fields that no client knows to every object in an answer, as a newer server does: clients must not mind.
    pub unknown_fields: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            anonymous: false,
            approval: Approval::Automatic,
            certificate_lifetime: Duration::from_secs(365 * 24 * 3600),
            bookmark_interval: Duration::from_secs(60),
            service_accounts: true,
            unknown_fields: false,
        }
    }
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 takes any free one.
    pub listen: SocketAddr,
    pub behaviour: Behaviour,
    pub tokens: Vec<StaticToken>,
    /// `abcdef.0123456789abcdef`: each is stored as its Secret.
    pub bootstrap_tokens: Vec<String>,
    /// How many changes a watch can be behind and still resume.
    pub history: usize,
    pub clock: Clock,
    /// The file to which the audit log of nodes is appended.
    pub audit_log: Option<PathBuf>,
    /// What an earlier server left; none to begin with an empty cluster.
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
            state: None,
        }
    }
}

/// Everything that outlives a server: objects, history, the authority, the key of tokens.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) authority: KeyAndCertificate,
    pub(crate) token_key: Vec<u8>,
}

/// A text that is no saved state.
#[derive(Debug, thiserror::Error)]
#[error("this is no saved state of localapi: {0}")]
pub struct BadState(String);

impl State {
    /// Forgets the history: the next server has all objects, and every older revision is expired.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// As one JSON document, with secrets and keys in the clear: for a file that only its owner can read.
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
    pub fn from_json(text: &str, history: usize) -> Result<Self, BadState> {
        let state: Value = serde_json::from_str(text).map_err(|error| BadState(error.to_string()))?;
        let field = |pointer: &str| {
            let found = state.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| BadState(format!("no text at {pointer}")))
        };
        let store = Store::restore(&state["store"], history).map_err(|error| BadState(error.to_string()))?;
        let token_key =
            STANDARD.decode(field("/tokenKey")?).map_err(|error| BadState(format!("tokenKey: {error}")))?;
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
