//! Parses the query of a URL. Pure.

/// The decoded pairs, in order. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let parts = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    parts.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// The first value of that name.
pub(crate) fn first<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// A `+` is a space, `%41` a byte; an invalid escape is kept.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let escaped = (*first == b'%').then(|| after.first_chunk::<2>()).flatten().and_then(|hex| {
            let text = std::str::from_utf8(hex).ok().filter(|hex| !hex.starts_with('+'))?;
            u8::from_str_radix(text, 16).ok()
        });
        match (first, escaped) {
            (_, Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', None) => bytes.push(b' '),
            (byte, None) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let all = pairs(Some("command=ls&command=-l+a&x=%2Fa%20b&y&&z=1=2&e=%zz%+1%4"));
        let all: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("command", "ls"),
            ("command", "-l a"),
            ("x", "/a b"),
            ("y", ""),
            ("z", "1=2"),
            ("e", "%zz% 1%4"),
        ];
        assert_eq!(all, expected);
        assert_eq!(pairs(None), []);
    }

    proptest! {
        #[test]
        fn any_query_can_be_parsed(text in "\\PC{0,60}") {
            pairs(Some(&text));
        }

        #[test]
        fn escaped_values_are_decoded_unchanged(value in prop::collection::vec(any::<char>(), 0..20)) {
            let value: String = value.into_iter().collect();
            let escaped: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(pairs(Some(&format!("a={escaped}"))), [("a".to_owned(), value)]);
        }
    }
}
