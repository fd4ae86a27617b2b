//! Label selectors as kubectl writes them: `app=web,tier!=cache,track in (stable,beta),!legacy`.

use std::collections::BTreeMap;

use model::inventory::LabelRequirement;

/// A longer selector is refused.
const MAX_REQUIREMENTS: usize = 64;

/// Why a selector cannot be used. The text is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the label selector has {part:?}, which is none of key=value, key!=value, key in (a,b), key notin (a,b), key and !key"
)]
pub struct SelectorError {
    part: String,
}

/// The parts of a selector; all of them must be met.
///
/// # Errors
/// A part is not one of the allowed forms.
pub fn parse_selector(text: &str) -> Result<Vec<LabelRequirement>, SelectorError> {
    let parts = parts(text);
    if parts.len() > MAX_REQUIREMENTS {
        return Err(SelectorError { part: format!("more than {MAX_REQUIREMENTS} parts") });
    }
    let parse = |part: &str| requirement(part).ok_or_else(|| SelectorError { part: part.to_owned() });
    parts.into_iter().map(parse).collect()
}

/// Splits at commas that are not within parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_u32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(part: &str) -> Option<LabelRequirement> {
    if let Some((key, list)) = part.split_once('(') {
        let values = list.strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, operator) = key.trim_end().rsplit_once(char::is_whitespace)?;
        let key = named(key)?;
        return match operator {
            "in" => Some(LabelRequirement::In { key, values }),
            "notin" => Some(LabelRequirement::NotIn { key, values }),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(LabelRequirement::NotIn { key: named(key)?, values: vec![valued(value)?] });
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return Some(LabelRequirement::In { key: named(key)?, values: vec![valued(value)?] });
    }
    match part.strip_prefix('!') {
        Some(key) => Some(LabelRequirement::DoesNotExist { key: named(key)? }),
        None => Some(LabelRequirement::Exists { key: named(part)? }),
    }
}

fn named(key: &str) -> Option<String> {
    valued(key).filter(|key| !key.is_empty())
}

fn valued(value: &str) -> Option<String> {
    let value = value.trim();
    let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    is_plain.then(|| value.to_owned())
}

/// Whether labels meet every part.
#[must_use]
pub fn selects(requirements: &[LabelRequirement], labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &String| labels.and_then(|labels| labels.get(key));
    requirements.iter().all(|requirement| match requirement {
        LabelRequirement::In { key, values } => value(key).is_some_and(|value| values.contains(value)),
        LabelRequirement::NotIn { key, values } => value(key).is_none_or(|value| !values.contains(value)),
        LabelRequirement::Exists { key } => value(key).is_some(),
        LabelRequirement::DoesNotExist { key } => value(key).is_none(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels() -> BTreeMap<String, String> {
        [("app", "web"), ("track", "beta"), ("example.com/x", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn selectors_of_every_form_select_as_in_kubectl() {
        let is_selected = |text: &str| selects(&parse_selector(text).unwrap(), Some(&labels()));
        for text in [
            "",
            "app=web",
            "app==web, track != stable",
            "track in (stable, beta),app",
            "track notin (stable),!legacy",
            "missing!=x",
            "example.com/x=",
        ] {
            assert!(is_selected(text), "{text}");
        }
        for text in
            ["app=db", "app!=web", "track notin (beta)", "!app", "legacy", "app=web,legacy", "app in ()"]
        {
            assert!(!is_selected(text), "{text}");
        }
        assert!(!selects(&parse_selector("app").unwrap(), None));
    }

    #[test]
    fn wrong_part_is_named_with_what_is_allowed() {
        let error = parse_selector("app=web,track on (a)").unwrap_err().to_string();
        assert!(error.contains("\"track on (a)\", which is none of key=value"), "{error}");
        for text in ["=web", "!", "a b", "app>1", "app in (a", "in (a)"] {
            assert!(parse_selector(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            let _ = parse_selector(&text);
        }
    }
}
