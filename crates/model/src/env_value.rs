//! The value of an environment variable of a container.

use std::fmt;

/// Bytes, as in the CRI and for the kernel: values of Secrets need not be UTF-8.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvValue(Vec<u8>);

impl EnvValue {
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// `None` if the value is not UTF-8.
    #[must_use]
    pub const fn as_text(&self) -> Option<&str> {
        match std::str::from_utf8(self.0.as_slice()) {
            Ok(text) => Some(text),
            Err(_) => None,
        }
    }

    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for EnvValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for EnvValue {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<String> for EnvValue {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for EnvValue {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl AsRef<[u8]> for EnvValue {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that are not UTF-8 are shown as U+FFFD.
impl fmt::Display for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// As text if it is UTF-8, otherwise with escaped bytes.
impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_text() {
            Some(text) => write!(f, "{text:?}"),
            None => write!(f, "b\"{}\"", self.0.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_value_keeps_bytes_that_are_not_utf8() {
        let (text, bytes) = (EnvValue::from("é\n"), EnvValue::from(vec![0xff, b'a']));
        assert_eq!((text.as_text(), bytes.as_text()), (Some("é\n"), None));
        assert_eq!(bytes.as_bytes(), b"\xffa");
        assert_eq!(
            (format!("{text:?}"), format!("{bytes:?}")),
            (r#""é\n""#.to_owned(), r#"b"\xffa""#.to_owned())
        );
        assert_eq!(bytes.to_string(), "\u{fffd}a");
    }
}
