//! What the four ports of the fake share.

use std::io::Error;
use std::path::Path;

use ports::HostError;
use ports::host::HostResult;

use super::tree::Tree;
use super::{FakeHost, HostMethod};

impl FakeHost {
    /// One operation that changes something.
    pub(super) async fn act(
        &self,
        method: HostMethod,
        what: &'static str,
        path: &Path,
        step: impl FnOnce(&mut Tree) -> Result<(), Error> + Send,
    ) -> HostResult<()> {
        self.begin(method, what, path).await?;
        self.change(path, step).map_err(|source| HostError::Io { what, path: path.to_owned(), source })?;
        self.end(method, what, path).await
    }
}

pub(super) fn not_found(what: &'static str, path: &Path) -> HostError {
    HostError::Io { what, path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() }
}
