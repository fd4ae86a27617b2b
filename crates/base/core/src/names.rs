//! Rules for names of API objects. Each function returns what is wrong, in the words of the API server.

const MAX_LABEL: usize = 63;

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
     end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Why a text is no DNS label (RFC 1123), if it is none.
pub fn label_problem(text: &str) -> Option<&'static str> {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if text.len() > MAX_LABEL {
        return Some("must be no more than 63 characters");
    }
    let is_label =
        !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
    (!is_label).then_some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
}

/// A DNS name of one or more labels.
pub fn subdomain_problem(text: &str) -> Option<&'static str> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    let is_label = |label: &str| {
        let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    (!text.split('.').all(is_label)).then_some(SUBDOMAIN_RULE)
}

/// A search path of resolv.conf: a domain, perhaps with a dot at its end or underscores, or the root.
pub fn search_path_problem(text: &str) -> Option<&'static str> {
    if text == "." {
        return None;
    }
    subdomain_problem(&text.strip_suffix('.').unwrap_or(text).replace('_', "a"))
}

/// The name of a port of a container.
pub fn port_name_problems(text: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems
}

/// The name of an environment variable, by the relaxed rules.
pub fn env_name_problem(text: &str) -> Option<&'static str> {
    let is_allowed = |b: u8| (b' '..=b'~').contains(&b) && b != b'=';
    (!text.bytes().all(is_allowed)).then_some(
        "a valid environment variable name must consist only of printable ASCII characters other than '='",
    )
}

const QUALIFIED_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The key of a label or annotation: a name, perhaps behind a domain and a slash.
pub fn qualified_name_problem(text: &str) -> Option<&'static str> {
    let name = match text.split_once('/') {
        Some(("", _)) => return Some("prefix part must be non-empty"),
        Some((prefix, name)) => match subdomain_problem(prefix) {
            Some(_) => return Some("prefix part must be a DNS subdomain"),
            None => name,
        },
        None => text,
    };
    match name {
        "" => Some("name part must be non-empty"),
        name if name.len() > 63 => Some("name part must be no more than 63 characters"),
        name => (!is_name(name)).then_some(QUALIFIED_RULE),
    }
}

/// The value of a label.
pub fn label_value_problem(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    (!text.is_empty() && !is_name(text)).then_some(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
         is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )
}

fn is_name(text: &str) -> bool {
    let is_end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)
}

/// The name of a sysctl, with dots or slashes.
pub fn sysctl_name_problem(text: &str) -> Option<&'static str> {
    let is_part = |part: &str| {
        let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_inner = |c: char| is_end(c) || c == '-' || c == '_' || c == '.';
        part.starts_with(is_end) && part.ends_with(is_end) && part.chars().all(is_inner)
    };
    let is_name = text.len() <= 253 && text.split('/').flat_map(|part| part.split('.')).all(is_part);
    (!is_name).then_some(
        "must have at most 253 characters and match regex \
         ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
    )
}

/// A path inside a volume.
pub fn inner_path_problem(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        return Some("must be a relative path");
    }
    back_step_problem(path)
}

/// A path that goes up somewhere.
pub fn back_step_problem(path: &str) -> Option<&'static str> {
    path.split('/').any(|part| part == "..").then_some("must not contain '..'")
}

/// A name, perhaps behind a domain and a slash: of a label, an annotation, a resource.
pub fn is_qualified_name(text: &str) -> bool {
    qualified_name_problem(text).is_none()
}
