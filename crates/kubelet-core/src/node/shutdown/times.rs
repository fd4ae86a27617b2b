//! When the last graceful shutdown began and ended; stored on disk for the next kubelet, in the file format of the Go
//! kubelet.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Go's zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownTimes {
    pub began: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

impl ShutdownTimes {
    /// The text that is stored on disk.
    #[must_use]
    pub fn text(self) -> String {
        let time = |time: Option<Timestamp>| time.map_or_else(|| NEVER.to_owned(), |time| time.to_string());
        json!({"startTime": time(self.began), "endTime": time(self.ended)}).to_string()
    }

    /// `None`: the text is corrupt.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let time = |field: &str| -> Option<Option<Timestamp>> {
            let Some(text) = value.get(field) else { return Some(None) };
            let time: Timestamp = text.as_str()?.parse().ok()?;
            Some(Some(time).filter(|time| time.to_string() != NEVER))
        };
        Some(Self { began: time("startTime")?, ended: time("endTime")? })
    }
}
