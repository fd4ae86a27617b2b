//! The syntax of names, label keys and label values.
//!
//! Each function returns the problems of a string, with the messages of the API.

const LABEL_KEY_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
/// The longest DNS label.
const MAX_LABEL: usize = 63;
/// The longest DNS name.
const MAX_SUBDOMAIN: usize = 253;

/// A qualified name: `[prefix/]name`. Also the form of annotation keys.
pub(crate) fn label_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            return vec![
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                 validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix \
                 and '/' (e.g. 'example.com/MyName')"
                    .to_owned(),
            ];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            problems.extend(subdomain_problems(prefix).into_iter().map(|what| format!("prefix part {what}")));
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL {
        problems.push(format!("name part {}", too_long(MAX_LABEL)));
    }
    if !is_label_text(name) {
        problems.push(LABEL_KEY_PART.to_owned());
    }
    problems
}

pub(crate) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_LABEL {
        problems.push(too_long(MAX_LABEL));
    }
    if !value.is_empty() && !is_label_text(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// A DNS subdomain: the name of most kinds.
pub(crate) fn subdomain_problems(name: &str) -> Vec<String> {
    problems_of(name, MAX_SUBDOMAIN, SUBDOMAIN, |name| name.split('.').all(is_dns_label))
}

/// A DNS label: namespaces, containers, volumes.
pub(crate) fn label_problems(name: &str) -> Vec<String> {
    problems_of(name, MAX_LABEL, LABEL, is_dns_label)
}

/// A DNS label that begins with a letter: Services.
pub(crate) fn label_1035_problems(name: &str) -> Vec<String> {
    problems_of(name, MAX_LABEL, LABEL_1035, |name| {
        is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())
    })
}

fn problems_of(text: &str, max: usize, form: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > max {
        problems.push(too_long(max));
    }
    if !fits(text) {
        problems.push(form.to_owned());
    }
    problems
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label_text(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(inner) && text.ends_with(inner) && text.chars().all(|c| inner(c) || c == '-')
}

/// The name of a port.
pub(crate) fn port_name_problems(name: &str) -> Vec<String> {
    let wrong = [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.chars().any(|c| c.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    wrong.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, what)| what.to_owned()).collect()
}
