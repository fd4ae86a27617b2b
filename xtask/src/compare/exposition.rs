//! The families of a text exposition.

use std::collections::{BTreeMap, BTreeSet};

/// Each family of a text exposition with its type and the names of its labels.
pub(super) fn exposition_families(endpoint: &str, text: &str) -> BTreeMap<String, String> {
    let mut kinds: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            name.clone_into(&mut family);
            kinds.entry(family.clone()).or_default().0 = kind.to_owned();
        } else if !line.starts_with('#')
            && line.starts_with(&family)
            && let Some((_, labels)) = line.split_once('{')
        {
            let names = label_names(labels);
            kinds.entry(family.clone()).or_default().1.extend(names);
        }
    }
    let shown = kinds.into_iter().map(|(name, (kind, labels))| {
        let labels: Vec<String> = labels.into_iter().collect();
        (
            format!("{endpoint} {name}").trim().to_owned(),
            format!("{kind} {}", labels.join(",")).trim().to_owned(),
        )
    });
    shown.collect()
}

/// The names in `a="x",b="y, z"} 1`.
fn label_names(labels: &str) -> Vec<String> {
    let (mut names, mut name) = (Vec::new(), String::new());
    let (mut quoted, mut escaped) = (false, false);
    for c in labels.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '=' => names.push(std::mem::take(&mut name)),
            ',' => name.clear(),
            '}' => break,
            _ => name.push(c),
        }
    }
    names
}
