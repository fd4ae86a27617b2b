//! The pair in use, as files: `kubelet-client-current.pem` links to the newest of `kubelet-client-<time>.pem`, each of
//! which has a certificate and its key. A reader sees the old pair or the new one, never a mix.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use model::{CertificateFacts, PemPair};
use ports::certificates::CertificateError;
use ports::host::DirEntry;
use ports::{Certificates, Clock, Files};

use super::FileError;

/// Number of pairs that are kept, including the one in use.
const KEPT: usize = 3;
const PEM_LIMIT: usize = 1 << 20;
const SAVE_TIMEOUT: Duration = Duration::from_secs(30);
const PRIVATE: u32 = 0o600;

/// A pair, and the facts of its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPair {
    pub pair: PemPair,
    pub facts: CertificateFacts,
}

/// The pairs of one kind.
#[derive(Clone, Debug)]
pub struct PairStore {
    pub files: Arc<dyn Files>,
    pub certificates: Arc<dyn Certificates>,
    /// `--cert-dir`.
    pub dir: PathBuf,
    /// `kubelet-client`.
    pub name: &'static str,
}

impl PairStore {
    /// `kubelet-client-current.pem`: links to the pair in use.
    #[must_use]
    pub fn current_path(&self) -> PathBuf {
        self.dir.join(format!("{}-current.pem", self.name))
    }

    /// The pair in use; `None` if there is none yet. If it is damaged, as after a power failure, the newest older pair that
    /// can be read replaces it.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read, and no older pair can be read either.
    pub async fn load(&self) -> Result<Option<StoredPair>, FileError> {
        let path = self.current_path();
        let error = match read_pair(&*self.files, &*self.certificates, &path, &path).await {
            Ok(stored) => return Ok(Some(stored)),
            Err(error) => error,
        };
        let is_missing = matches!(&error, FileError::Host(error) if error.is_not_found());
        let entries = self.files.list_dir(&self.dir).await.unwrap_or_default();
        // The link was removed so that the node starts over.
        let has_link =
            entries.iter().any(|entry| path.file_name().is_some_and(|name| name == entry.name.as_str()));
        if has_link && let Some(older) = self.older(&entries, &error).await {
            return Ok(Some(older));
        }
        if is_missing { Ok(None) } else { Err(error) }
    }

    /// The newest of the dated pairs that can be read, which becomes the current one.
    async fn older(&self, entries: &[DirEntry], error: &FileError) -> Option<StoredPair> {
        for (name, stored) in self.dated(entries).await.into_iter().rev() {
            let (path, Some(stored)) = (self.dir.join(name), stored) else { continue };
            tracing::warn!(err = %error, older = %path.display(), "Current certificate is damaged, using an older one");
            if let Err(error) = self.files.symlink_durably(&path, &self.current_path()).await {
                let error = base_agent::error_chain::chain(&error);
                tracing::warn!(err = error, "Failed to make the older certificate the current one");
            }
            return Some(stored);
        }
        None
    }

    /// Files of pairs, the oldest first, unreadable ones before all others. They are ordered by their certificates, because
    /// their names are in UTC here and in local time in the Go kubelet.
    async fn dated<'a>(&self, entries: &'a [DirEntry]) -> Vec<(&'a str, Option<StoredPair>)> {
        let is_ours = |name: &str| {
            let rest = name.strip_prefix(self.name).and_then(|rest| rest.strip_suffix(".pem"));
            rest.is_some_and(|rest| {
                rest.len() == "-2006-01-02-15-04-05".len() && !rest.contains(char::is_alphabetic)
            })
        };
        let files = entries.iter().filter(|entry| !entry.is_dir).map(|entry| &*entry.name);
        let mut dated = Vec::new();
        for name in files.filter(|name| is_ours(name)) {
            let path = self.dir.join(name);
            dated.push((name, read_pair(&*self.files, &*self.certificates, &path, &path).await.ok()));
        }
        dated.sort_by_key(|(name, stored)| (stored.as_ref().map(|stored| stored.facts.not_before), *name));
        dated
    }

    /// Makes this the pair in use.
    ///
    /// # Errors
    /// A file cannot be written; the previous pair stays in use.
    pub async fn save(&self, pair: &PemPair, now: Timestamp) -> Result<(), FileError> {
        super::ensure_cert_dir(&*self.files, &self.dir).await?;
        let time = now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H-%M-%S");
        let dated = self.dir.join(format!("{}-{time}.pem", self.name));
        let content = format!("{}{}", pair.certificate, pair.key);
        self.files.write_durably(&dated, content.as_bytes(), PRIVATE).await?;
        self.files.symlink_durably(&dated, &self.current_path()).await?;
        self.forget_old(&dated).await;
        Ok(())
    }

    /// As [`Self::save`], for a pair that is in use already, with a timeout for a disk that hangs.
    pub(super) async fn save_or_warn(&self, pair: &PemPair, clock: Clock) {
        let deadline = clock.mono() + SAVE_TIMEOUT;
        let problem = tokio::select! {
            saved = self.save(pair, clock.now().wall) => match saved {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            () = clock.sleep_until(deadline) => format!("timed out after {SAVE_TIMEOUT:?} writing to disk"),
        };
        tracing::error!(problem, "Failed to store new certificate, it is lost with a restart of the kubelet");
    }

    /// Removes old pairs, because each contains a private key.
    async fn forget_old(&self, saved: &Path) {
        let Ok(entries) = self.files.list_dir(&self.dir).await else { return };
        let dated = self.dated(&entries).await;
        let old = dated.iter().take(dated.len().saturating_sub(KEPT)).map(|(name, _)| self.dir.join(name));
        // The pair in use is kept, whatever the signing times of the others.
        for path in old.filter(|path| path != saved) {
            if let Err(error) = self.files.remove_file(&path).await {
                tracing::warn!(
                    err = base_agent::error_chain::chain(&error),
                    "Failed to remove old certificate"
                );
            }
        }
    }
}

/// A certificate and its key, which may be in one file.
pub(super) async fn read_pair(
    files: &dyn Files,
    certificates: &dyn Certificates,
    certificate: &Path,
    key: &Path,
) -> Result<StoredPair, FileError> {
    let pair =
        PemPair { certificate: read_text(files, certificate).await?, key: read_text(files, key).await? };
    let facts = certificates.read(&pair).map_err(|source| {
        let path = if certificate == key {
            certificate.display().to_string()
        } else {
            format!("{} and {}", certificate.display(), key.display())
        };
        FileError::Content { path, source }
    })?;
    Ok(StoredPair { pair, facts })
}

pub(crate) async fn read_text(files: &dyn Files, path: &Path) -> Result<String, FileError> {
    let bytes = files.read_file(path, PEM_LIMIT, false).await?;
    String::from_utf8(bytes).map_err(|_| FileError::Content {
        path: path.display().to_string(),
        source: CertificateError("not valid UTF-8".to_owned()),
    })
}
