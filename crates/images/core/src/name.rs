//! Image references: parsing, and the defaults for omitted parts.

use std::fmt;

/// A parsed image reference, with Docker Hub's short forms expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// Registry host with port: `docker.io`, `localhost:5000`.
    pub registry: String,
    /// Path within the registry: `library/nginx`.
    pub repository: String,
    /// Absent only where a digest is given without a tag; otherwise `latest` by default.
    pub tag: Option<String>,
    /// `sha256:…`.
    pub digest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {image:?}: {problem}")]
pub struct ImageNameError {
    pub image: String,
    problem: &'static str,
}

impl ImageNameError {
    /// The message that goes with waiting reason `InvalidImageName`.
    #[must_use]
    pub fn waiting_message(&self) -> String {
        format!("Failed to apply default image tag {:?}: {self}", self.image)
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

const DOCKER_HUB: &str = "docker.io";
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// Parses an image reference.
///
/// # Errors
/// The text is not a reference by the rules that registries share.
pub fn parse(image: &str) -> Result<ImageName, ImageNameError> {
    parse_parts(image).map_err(|problem| ImageNameError { image: image.to_owned(), problem })
}

/// The reference to pull: as written, with `:latest` where neither tag nor digest is given.
///
/// # Errors
/// As [`parse`].
pub fn with_default_tag(image: &str) -> Result<String, ImageNameError> {
    let written = parse(image)?;
    let (_, tag, digest) = split(image);
    let is_complete = tag.is_some() || digest.is_some();
    Ok(if is_complete { image.to_owned() } else { format!("{image}:{}", written.tag.unwrap_or_default()) })
}

/// The ways in which an image may be written that mean the same default tag: as given, and with or without `:latest`.
#[must_use]
pub fn spellings(image: &str) -> Vec<String> {
    let mut spellings = vec![image.to_owned()];
    spellings.extend(with_default_tag(image).ok().filter(|tagged| tagged != image));
    let (_, tag, digest) = split(image);
    if tag == Some("latest") && digest.is_none() {
        spellings.extend(image.strip_suffix(":latest").map(str::to_owned));
    }
    spellings
}

/// `imagePullPolicy` where the pod does not say: moving tags are pulled each time.
#[must_use]
pub fn default_pull_policy(image: Option<&str>) -> &'static str {
    match parse(image.unwrap_or_default()) {
        Ok(ImageName { tag: Some(tag), .. }) if tag == "latest" => "Always",
        Ok(_) | Err(_) => "IfNotPresent",
    }
}

const BAD_FORMAT: &str = "invalid reference format";

/// Name, tag and digest as written, not checked yet.
fn split(image: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let last_slash = rest.rfind('/').map_or(0, |slash| slash + 1);
    match rest[last_slash..].find(':') {
        Some(colon) => (&rest[..last_slash + colon], Some(&rest[last_slash + colon + 1..]), digest),
        None => (rest, None, digest),
    }
}

fn parse_parts(image: &str) -> Result<ImageName, &'static str> {
    let (name, tag, digest) = split(image);
    if name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()) {
        return Err("invalid repository name, cannot specify 64-byte hexadecimal strings");
    }
    let (registry, path) = split_registry(name);
    if path.chars().any(char::is_uppercase) && is_path(&path.to_lowercase()) {
        return Err("invalid reference format: repository name must be lowercase");
    }
    if !is_registry(registry) || !is_path(path) {
        return Err(BAD_FORMAT);
    }
    if name.len() > MAX_NAME {
        return Err("repository name must not be more than 255 characters");
    }
    if !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return Err(BAD_FORMAT);
    }
    let repository = if registry == DOCKER_HUB && !path.contains('/') {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    let tag = tag.or_else(|| digest.is_none().then_some("latest")).map(str::to_owned);
    Ok(ImageName { registry: registry.to_owned(), repository, tag, digest: digest.map(str::to_owned) })
}

/// The first part is a registry only if it is a host name: it has a dot or a port, is `localhost`, or has capitals, which
/// no repository may have.
fn split_registry(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some(("index.docker.io", path)) => (DOCKER_HUB, path),
        Some((host, path))
            if host.contains(['.', ':']) || host == "localhost" || host.contains(char::is_uppercase) =>
        {
            (host, path)
        }
        Some(_) | None => (DOCKER_HUB, name),
    }
}

fn is_registry(registry: &str) -> bool {
    if let Some(address) = registry.strip_prefix('[') {
        let Some((address, port)) = address.split_once(']') else {
            return false;
        };
        let is_address = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

fn is_path(path: &str) -> bool {
    path.split('/').all(is_path_component)
}

/// Runs of lower-case letters and digits, joined by one `.`, one or two `_`, or any number of `-`.
fn is_path_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_separator = |s: &str| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-');
    let bytes = component.as_bytes();
    let ends_in_words =
        bytes.first().is_some_and(|b| is_word(*b)) && bytes.last().is_some_and(|b| is_word(*b));
    ends_in_words
        && component.is_ascii()
        && component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let expected = match algorithm {
        "sha256" => Some(64),
        "sha384" => Some(96),
        "sha512" => Some(128),
        _ => None,
    };
    let starts_with_letter = algorithm.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let is_known_size = expected.map_or(hex.len() >= 32, |expected| hex.len() == expected);
    starts_with_letter
        && is_known_size
        && hex.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
}

/// The image without tag and digest.
pub(super) fn without_tag(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    let last_slash = image.rfind('/').map_or(0, |slash| slash + 1);
    let end = image[last_slash..].find(':').map_or(image.len(), |colon| last_slash + colon);
    // Without a slash, a colon starts a tag: `nginx:1`, not a host with a port.
    &image[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(image: &str, expected: &str) {
        let found = parse(image).map_or_else(|e| format!("! {}", e.problem), |name| name.to_string());
        assert_eq!(found, expected, "{image}");
    }

    #[test]
    fn short_names_mean_docker_hub_and_the_latest_tag() {
        check("nginx", "docker.io/library/nginx:latest");
        check("nginx:1.25", "docker.io/library/nginx:1.25");
        check("foo/image:v1", "docker.io/foo/image:v1");
        check("index.docker.io/foo", "docker.io/library/foo:latest");
        check("docker.io/library/busybox", "docker.io/library/busybox:latest");
    }

    #[test]
    fn image_with_the_default_tag_has_two_spellings() {
        for (image, expected) in [
            ("r.io:5000/a", ["r.io:5000/a", "r.io:5000/a:latest"].as_slice()),
            ("r.io:5000/a:latest", &["r.io:5000/a:latest", "r.io:5000/a"]),
            ("a:1", &["a:1"]),
            ("A", &["A"]),
        ] {
            assert_eq!(spellings(image), expected);
        }
    }

    #[test]
    fn a_first_part_that_looks_like_a_host_is_the_registry() {
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10");
        check("localhost/test", "localhost/test:latest");
        check("localhost:5000/a/b:c", "localhost:5000/a/b:c");
        check("[::1]:5000/a:b", "[::1]:5000/a:b");
        check("Registry/foo", "Registry/foo:latest");
    }

    #[test]
    fn a_digest_needs_no_tag() {
        let digest = format!("sha256:{}", "a1".repeat(32));
        check(&format!("nginx@{digest}"), &format!("docker.io/library/nginx@{digest}"));
        check(&format!("nginx:1@{digest}"), &format!("docker.io/library/nginx:1@{digest}"));
        check("nginx@sha256:abc", "! invalid reference format");
        check("nginx@", "! invalid reference format");
    }

    #[test]
    fn separators_within_a_path_follow_the_registries_rules() {
        check("a__b/c--d/e.f", "docker.io/a__b/c--d/e.f:latest");
        check("a___b", "! invalid reference format");
        check("a..b/c", "! invalid reference format");
        check("-a", "! invalid reference format");
        check("a//b", "! invalid reference format");
    }

    #[test]
    fn what_is_no_reference_says_why() {
        check("", "! invalid reference format");
        check(" nginx", "! invalid reference format");
        check("nginx:", "! invalid reference format");
        check("nginx:a b", "! invalid reference format");
        check("foo/BAR", "! invalid reference format: repository name must be lowercase");
        check(&"ab".repeat(32), "! invalid repository name, cannot specify 64-byte hexadecimal strings");
        check(&format!("a/{}", "b".repeat(254)), "! repository name must not be more than 255 characters");
        check(&format!("a:{}", "t".repeat(129)), "! invalid reference format");
    }

    #[test]
    fn the_default_tag_is_added_to_the_name_as_written() {
        assert_eq!(with_default_tag("nginx").as_deref(), Ok("nginx:latest"));
        assert_eq!(with_default_tag("a:1").as_deref(), Ok("a:1"));
        let digest = format!("a@sha256:{}", "0".repeat(64));
        assert_eq!(with_default_tag(&digest).as_deref(), Ok(&*digest));
        assert_eq!(
            with_default_tag("Oh no").unwrap_err().waiting_message(),
            r#"Failed to apply default image tag "Oh no": couldn't parse image name "Oh no": invalid reference format"#
        );
    }

    #[test]
    fn the_pull_policy_follows_the_tag() {
        assert_eq!(default_pull_policy(Some("nginx")), "Always");
        assert_eq!(default_pull_policy(Some("nginx:latest")), "Always");
        assert_eq!(default_pull_policy(Some("nginx:1")), "IfNotPresent");
        assert_eq!(default_pull_policy(Some(&format!("a@sha256:{}", "0".repeat(64)))), "IfNotPresent");
        assert_eq!(default_pull_policy(None), "IfNotPresent");
    }

    proptest! {
        #[test]
        fn any_text_is_answered_without_a_panic(image in "\\PC{0,80}") {
            let _ = with_default_tag(&image);
        }

        #[test]
        fn a_written_out_name_means_the_same(image in "[a-zA-Z0-9./:_-]{1,40}") {
            if let Ok(name) = parse(&image) {
                prop_assert_eq!(parse(&name.to_string()), Ok(name));
            }
        }
    }
}
