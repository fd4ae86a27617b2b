//! The `Authorization` header of calls, cached as long as it is valid.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use model::MonoTime;
use parking_lot::Mutex;
use ports::Clock;

use crate::access::Login;
use crate::encode::{self, bearer, secret};
use crate::plugin::PluginLogin;
use crate::tls::Tls;

/// How long the content of a token file is cached.
const TOKEN_FILE_HOLDS: Duration = Duration::from_secs(60);
/// Limit for a token file; tokens have a few kilobytes.
const MAX_TOKEN: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Credentials {
    kind: Kind,
    clock: Clock,
}

#[derive(Debug)]
enum Kind {
    None,
    Fixed(Result<HeaderValue, String>),
    File { path: std::path::PathBuf, read: Mutex<Option<(HeaderValue, MonoTime)>> },
    Plugin(PluginLogin),
}

impl Credentials {
    /// A plugin may return a certificate instead, which is set in `tls`.
    pub(crate) fn new(login: &Login, clock: Clock, tls: Option<Arc<Tls>>) -> Self {
        let kind = match login {
            Login::None => Kind::None,
            Login::Token(token) => Kind::Fixed(bearer(token)),
            Login::Password { name, password } => {
                let text = format!("Basic {}", encode::base64(format!("{name}:{password}").as_bytes()));
                Kind::Fixed(secret(&text))
            }
            Login::TokenFile(path) => Kind::File { path: path.clone(), read: Mutex::new(None) },
            Login::Plugin(plugin) => Kind::Plugin(PluginLogin::new(plugin, clock, tls)),
        };
        Self { kind, clock }
    }

    /// # Errors
    /// The credentials cannot be read. The text is complete.
    pub(crate) async fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        match &self.kind {
            Kind::None => Ok(None),
            Kind::Fixed(header) => header.clone().map(Some),
            Kind::Plugin(plugin) => plugin.authorization().await,
            Kind::File { path, read } => {
                let now = self.clock.mono();
                let known = read.lock().clone();
                if let Some((header, at)) = known
                    && now.since_start().saturating_sub(at.since_start()) < TOKEN_FILE_HOLDS
                {
                    return Ok(Some(header));
                }
                let header = read_token(path).await?;
                *read.lock() = Some((header.clone(), now));
                Ok(Some(header))
            }
        }
    }

    /// The server rejected the credentials: the next call reads them again.
    pub(crate) fn rejected(&self) {
        match &self.kind {
            Kind::None | Kind::Fixed(_) => {}
            Kind::File { read, .. } => *read.lock() = None,
            Kind::Plugin(plugin) => plugin.forget(),
        }
    }
}

async fn read_token(path: &Path) -> Result<HeaderValue, String> {
    use tokio::io::AsyncReadExt;
    let named = |error: &dyn std::fmt::Display| format!("token file {}: {error}", path.display());
    let file = tokio::fs::File::open(path).await.map_err(|error| named(&error))?;
    let mut token = String::new();
    file.take(MAX_TOKEN).read_to_string(&mut token).await.map_err(|error| named(&error))?;
    if token.trim().is_empty() {
        return Err(named(&"it is empty"));
    }
    bearer(&token).map_err(|error| named(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn token_file_is_read_again_every_minute() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let credentials = Credentials::new(&Login::TokenFile(path.clone()), clock, None);
        for (token, wait, expected) in [("one", 0, "one"), ("two", 59, "one"), ("three", 1, "three")] {
            std::fs::write(&path, token).unwrap();
            tokio::time::advance(Duration::from_secs(wait)).await;
            let header = credentials.authorization().await.unwrap().unwrap();
            assert_eq!(header, format!("Bearer {expected}"));
            assert!(header.is_sensitive());
        }
    }

    #[tokio::test]
    async fn invalid_token_is_rejected_without_showing_it() {
        let login = Login::Token("top\nsecret".to_owned());
        let problem = Credentials::new(&login, Clock::system(), None).authorization().await.unwrap_err();
        assert!(problem.contains("not allowed in a header") && !problem.contains("secret"), "{problem}");
    }
}
