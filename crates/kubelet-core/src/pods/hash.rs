//! Hashes that must equal those of the Go kubelet: the container hash, which shows whether a running container still matches
//! its spec (docs/behaviour/container-runtime.md), and the FNV-128a text from which static pods get their UIDs
//! (docs/behaviour/static-pods.md).
//!
//! Only computes the hashes: callers compare them.

use model::ContainerRef;

use base_core::fnv::fnv1a_32;

/// The hash of the fields whose change restarts a container: its name and its image.
///
/// The annotation `io.kubernetes.container.hash` holds it as lower-case hex without leading zeros (`{:x}`).
#[must_use]
pub fn container_hash(container: &ContainerRef<'_>) -> u32 {
    hash_of(container.name(), container.image())
}

fn hash_of(name: &str, image: &str) -> u32 {
    let json = format!(r#"{{"image":{},"name":{}}}"#, go_json_string(image), go_json_string(name));
    // Parity: the Go kubelet hashes a debug print of the JSON bytes, not the bytes themselves.
    let decimals: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    fnv1a_32(format!("([]uint8)[{}]", decimals.join(" ")).into_bytes())
}

/// A JSON string the way Go writes it: it also escapes what could end a script in HTML.
fn go_json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => push_escape(&mut out, c),
            c if c < ' ' => push_escape(&mut out, c),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn push_escape(out: &mut String, c: char) {
    out.push_str(&format!("\\u{:04x}", u32::from(c)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use base_core::fnv::fnv1a_128_hex;

    #[test]
    fn the_hash_matches_the_published_vector() {
        assert_eq!(format!("{:x}", hash_of("test_container", "foo/image:v1")), "8e45cbd0");
    }

    #[test]
    fn the_hash_depends_on_name_and_image() {
        assert_ne!(hash_of("a", "image"), hash_of("b", "image"));
        assert_ne!(hash_of("a", "image:1"), hash_of("a", "image:2"));
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        assert_eq!(
            go_json_string("a<b>&\"\\\n\u{1}\u{2028}é"),
            r#""a\u003cb\u003e\u0026\"\\\n\u0001\u2028é""#
        );
    }

    #[test]
    fn fnv_matches_the_published_vectors() {
        assert_eq!(fnv1a_32(*b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(*b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1a_128_hex(*b""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(fnv1a_128_hex(*b"a"), "d228cb696f1a8caf78912b704e4a8964");
    }
}
