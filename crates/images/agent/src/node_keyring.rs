//! The registry credentials of the node: `config.json` and `.dockercfg`, read again after five minutes, so that a rotated
//! password needs no restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use images_core::keyring::{Keyring, KeyringError};
use model::MonoTime;
use parking_lot::Mutex;
use ports::{Clock, Files};

/// How long credentials are used before they are read again.
const LIFETIME: Duration = Duration::from_secs(300);
/// A longer file is not read.
const MAX_FILE_BYTES: usize = 10 << 20;

type Parser = fn(&str) -> Result<Keyring, KeyringError>;

pub(super) struct NodeKeyring {
    files: Arc<dyn Files>,
    clock: Clock,
    dirs: Vec<PathBuf>,
    /// The last credentials, and until when they are used.
    cached: Mutex<Option<(MonoTime, Arc<Keyring>)>>,
}

impl NodeKeyring {
    pub(super) const fn new(files: Arc<dyn Files>, clock: Clock, dirs: Vec<PathBuf>) -> Self {
        Self { files, clock, dirs, cached: Mutex::new(None) }
    }

    /// The credentials, at most five minutes old.
    pub(super) async fn current(&self) -> Arc<Keyring> {
        let now = self.clock.mono();
        let cached = self.cached.lock().clone();
        if let Some((_, keyring)) = cached.filter(|(expires, _)| now < *expires) {
            return keyring;
        }
        let keyring = Arc::new(self.read().await);
        *self.cached.lock() = Some((now + LIFETIME, keyring.clone()));
        keyring
    }

    /// The first valid `config.json` of the directories, else the first valid `.dockercfg`.
    async fn read(&self) -> Keyring {
        let parsers: [(&str, Parser); 2] =
            [("config.json", Keyring::parse_config_json), (".dockercfg", Keyring::parse_dockercfg)];
        for (name, parse) in parsers {
            for dir in &self.dirs {
                let path = dir.join(name);
                let Ok(content) = self.files.read_file(&path, MAX_FILE_BYTES, false).await else { continue };
                match parse(&String::from_utf8_lossy(&content)) {
                    Ok(keyring) => return keyring,
                    Err(error) => {
                        tracing::warn!(path = %path.display(), err = %error, "Failed to parse registry credentials of the node");
                    }
                }
            }
        }
        Keyring::default()
    }
}
