//! SHA-256 digests, for file names and for hashes of content in files and annotations.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};

/// The digest of the content, 32 bytes.
#[must_use]
pub fn sha256(content: &[u8]) -> impl AsRef<[u8]> {
    digest(&SHA256, content)
}

/// The digest of the content in hexadecimal, 64 characters.
#[must_use]
pub fn sha256_hex(content: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in sha256(content).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_digests_match_the_test_vectors_of_the_standard() {
        let check = |content: &[u8], expected| assert_eq!(sha256_hex(content), expected);
        check(b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check(b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
