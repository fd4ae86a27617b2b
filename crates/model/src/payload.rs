//! The files of configMap, secret, downwardAPI and projected volumes.

use std::collections::BTreeMap;

/// Files by their path inside the volume: relative, with `/` between its parts, without `..`.
pub type Payload = BTreeMap<String, PayloadFile>;

/// One file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// The owner, if not root.
    pub owner: Option<u32>,
}

impl std::fmt::Debug for PayloadFile {
    /// Without the content, which may be secret, for logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, {:04o}", self.content.len(), self.mode)?;
        self.owner.map_or(Ok(()), |owner| write!(f, ", user {owner}"))
    }
}
