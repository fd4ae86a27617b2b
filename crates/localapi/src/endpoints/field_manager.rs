//! The name of the writer of a request: its parameter `fieldManager`, or the program in its `User-Agent`.

use super::Call;
use crate::status::ApiError;
use crate::validation::{FieldError, Reason};

/// The limit of the API on the name, in bytes.
const MAX_BYTES: usize = 128;
/// The name of a writer that has none.
const UNKNOWN: &str = "unknown";

impl Call {
    /// The name of the writer.
    pub(super) fn manager(&self) -> Result<String, ApiError> {
        match self.query.get("fieldManager") {
            Some(manager) => match problem(manager) {
                Some(problem) => Err(ApiError::invalid_options(self.options_kind(), &[problem])),
                None => Ok(manager.to_owned()),
            },
            None => Ok(of_user_agent(&self.user_agent)),
        }
    }

    /// The name of the manager of an apply, which must have one.
    pub(super) fn applying_manager(&self) -> Result<String, ApiError> {
        if self.query.get("fieldManager").is_none() {
            let message = "Required value: is required for apply patch";
            let problem = error("fieldManager", Reason::Required, message);
            return Err(ApiError::invalid_options(self.options_kind(), &[problem]));
        }
        self.manager()
    }

    /// Refuses the parameter `force` of a patch that is no apply.
    pub(super) fn refuse_force(&self) -> Result<(), ApiError> {
        if self.query.get("force").is_none() {
            return Ok(());
        }
        let message = "Forbidden: may not be specified for non-apply patch";
        let problem = error("force", Reason::Forbidden, message);
        Err(ApiError::invalid_options(self.options_kind(), &[problem]))
    }
}

fn error(field: &str, reason: Reason, message: impl Into<String>) -> FieldError {
    FieldError { field: field.to_owned(), reason, message: message.into() }
}

fn problem(manager: &str) -> Option<FieldError> {
    if manager.len() > MAX_BYTES {
        let message = format!("Too long: may not be more than {MAX_BYTES} bytes");
        return Some(error("fieldManager", Reason::TooLong, message));
    }
    let (at, character) = manager.char_indices().find(|(_, character)| !is_printable(*character))?;
    let message = format!(
        "Invalid value: {}: invalid character U+{:04X} (at position {at})",
        serde_json::Value::from(manager),
        u32::from(character)
    );
    Some(error("fieldManager", Reason::Invalid, message))
}

fn is_printable(character: char) -> bool {
    character == ' ' || !(character.is_control() || character.is_whitespace())
}

/// The text before the first slash, without characters that cannot be printed.
fn of_user_agent(user_agent: &str) -> String {
    let program = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for character in program.chars().filter(|character| is_printable(*character)) {
        if name.len() + character.len_utf8() > MAX_BYTES {
            break;
        }
        name.push(character);
    }
    if name.is_empty() { UNKNOWN.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agent_is_cut_at_its_first_slash() {
        for (user_agent, manager) in [
            ("kubelet-rs/0.1 (linux)", "kubelet-rs"),
            ("curl", "curl"),
            ("", "unknown"),
            ("/1.0", "unknown"),
            ("a\tb\u{7f}/1", "ab"),
        ] {
            assert_eq!(of_user_agent(user_agent), manager);
        }
        assert_eq!(of_user_agent(&"é".repeat(100)).len(), MAX_BYTES);
    }

    #[test]
    fn invalid_names_are_refused() {
        assert_eq!(problem("kubectl-client-side-apply"), None);
        assert_eq!(problem(&"a".repeat(129)).unwrap().reason, Reason::TooLong);
        assert_eq!(
            problem("a\nb").unwrap().to_string(),
            r#"fieldManager: Invalid value: "a\nb": invalid character U+000A (at position 1)"#
        );
    }
}
