//! The query parameters of a request.

use crate::status::ApiError;

/// Decoded parameters, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    /// The first non-empty value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(own, value)| own == name && !value.is_empty());
        found.next().map(|(_, value)| value.as_str())
    }

    /// All values of a parameter, empty ones too.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Everything but `0` and `false` is true, also a parameter without a value.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let value = self.all(name).next();
        value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name)
            .map(|value| {
                value
                    .parse()
                    .map_err(|_| ApiError::bad_request(format!("{name}: {value:?} is not an integer")))
            })
            .transpose()
    }
}

/// Decodes percent encoding, and `+` as a space. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Encodes a name or value for a query: a space as `+`, and everything except letters, digits and `-_.~` as percent escapes.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            b' ' => encoded.push('+'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_encoding_round_trips() {
        assert_eq!(encode("a b+c&d=é"), "a+b%2Bc%26d%3D%C3%A9");
        assert_eq!(decode(&encode("a b+c&d=é%")), "a b+c&d=é%");
        let query = Query::parse("a=false&b=0&c&d=yes&e=1&e=0");
        let set = ["a", "b", "c", "d", "e", "f"].map(|name| query.flag(name));
        assert_eq!(set, [false, false, true, true, true, false]);
    }

    #[test]
    fn query_parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=5&empty=");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.get("empty"), None);
        assert_eq!(decode("100%"), "100%");
    }

    #[test]
    fn invalid_numbers_are_refused_by_name() {
        let query = Query::parse("limit=many");
        assert!(query.number("limit").unwrap_err().message.contains("limit"));
    }
}
