//! Service account tokens that volumes and credential providers of images need.

/// The lifetime of a token if the volume does not specify one.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// What a token must be valid for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRequirement {
    /// Empty: the API server's own audience.
    pub audience: String,
    pub expiration_seconds: i64,
}

impl TokenRequirement {
    #[must_use]
    pub fn new(audience: Option<&str>, expiration_seconds: Option<i64>) -> Self {
        Self {
            audience: audience.unwrap_or_default().to_owned(),
            expiration_seconds: expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS),
        }
    }
}
