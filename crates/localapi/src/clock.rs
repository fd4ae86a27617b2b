//! The clock and the random number generator: the only modules that read the time or random bytes, so that tests can
//! replace the clock.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

/// The time source of a server.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's wall clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that a test controls.
    #[must_use]
    pub fn from_fn(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Random bytes from the operating system.
#[derive(Clone, Debug)]
pub(crate) struct Rng(SystemRandom);

/// The alphabet of Kubernetes' generated names: no vowels and no look-alike characters.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Rng {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }

    #[expect(clippy::expect_used, reason = "without random bytes no key, token or UID can be generated")]
    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes).expect("random bytes from the operating system");
        bytes
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        let mut b: [u8; 16] = self.bytes();
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        let hex: String = b.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Five random characters: the suffix of a generated name.
    pub(crate) fn suffix(&self) -> String {
        let bytes: [u8; 5] = self.bytes();
        bytes
            .iter()
            .map(|byte| char::from(SUFFIX_LETTERS[usize::from(*byte) % SUFFIX_LETTERS.len()]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_unique_version_4_uuids() {
        let rng = Rng::new();
        let (one, other) = (rng.uid(), rng.uid());
        assert_eq!((one.len(), &one[14..15]), (36, "4"));
        assert_ne!(one, other);
        assert_eq!(rng.suffix().len(), 5);
    }
}
