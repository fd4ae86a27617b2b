//! Names of sysctls.

/// A sysctl in the dotted spelling: `net/ipv4/x.y` has dots where that one has slashes.
#[must_use]
pub fn dotted(name: &str) -> String {
    match name.find(['.', '/']).map(|at| name.as_bytes().get(at)) {
        Some(Some(b'/')) => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        Some(_) | None => name.to_owned(),
    }
}
