//! Encodes text for URLs and headers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::HeaderValue;

pub(crate) fn base64(content: &[u8]) -> String {
    BASE64_STANDARD.encode(content)
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub(crate) fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The inverse; an invalid escape is kept.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The value of an `Authorization` header.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(&format!("Bearer {}", token.trim()))
}

pub(crate) fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut header = HeaderValue::from_str(text)
        .map_err(|_| "the token or password has characters that are not allowed in a header".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_percent_encoded() {
        assert_eq!(percent("app in (a,b),x!=ü"), "app%20in%20%28a%2Cb%29%2Cx%21%3D%C3%BC");
        assert_eq!(percent("web-0.default_~"), "web-0.default_~");
    }

    #[test]
    fn percent_decoding_is_the_inverse_of_encoding() {
        for text in ["me:s%cr%t", "a b/ü", "%", "%zz", "100%2"] {
            assert_eq!(percent_decoded(&percent(text)), text);
        }
        assert_eq!(percent_decoded("%zz%4"), "%zz%4");
    }
}
