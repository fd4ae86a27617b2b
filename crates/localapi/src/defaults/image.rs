//! Defaults that depend on the name of an image.

/// An image without tag and digest is `latest`, and `latest` is pulled each time.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, has_digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last_part = name.rsplit('/').next().unwrap_or_default();
    let is_latest = match last_part.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !has_digest && !name.is_empty(),
    };
    if is_latest { "Always" } else { "IfNotPresent" }
}
