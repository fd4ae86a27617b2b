//! Why a container could not be created, for `state.waiting.reason`: runtimes report the special cases by the prefix of
//! their error.

use model::env_value::EnvValue;

const SPECIAL: [&str; 2] = ["RROUnsupported", "ImageVolumeMountFailed"];

/// The waiting reason for a runtime's error to CreateContainer.
#[must_use]
pub fn create_error_reason(error: &str) -> &'static str {
    SPECIAL.into_iter().find(|reason| error.starts_with(reason)).unwrap_or("CreateContainerError")
}

/// The error of the runtime, with the variables that explain it: a runtime whose protocol has text where the CRI has bytes
/// refuses the whole request, and does not name the variable that is not UTF-8.
#[must_use]
pub fn create_error_message(error: String, env: &[(String, EnvValue)]) -> String {
    let not_text = env.iter().filter(|(_, value)| value.as_text().is_none()).map(|(name, _)| name.as_str());
    let names: Vec<&str> = not_text.collect();
    if names.is_empty() || !error.contains("UTF-8") {
        return error;
    }
    format!("{error}; environment variables that are not valid UTF-8: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_utf8_is_explained_with_the_variables() {
        let refused = "grpc: error unmarshalling request: string field contains invalid UTF-8";
        let env = [("A", EnvValue::from("text")), ("B", vec![0xff].into()), ("C", vec![0x80].into())];
        let env = env.map(|(name, value)| (name.to_owned(), value));
        let explained = format!("{refused}; environment variables that are not valid UTF-8: B, C");
        assert_eq!(create_error_message(refused.to_owned(), &env), explained);
        assert_eq!(create_error_message(refused.to_owned(), &env[..1]), refused);
        assert_eq!(create_error_message("no space left".to_owned(), &env), "no space left");
    }

    #[test]
    fn waiting_reason_is_the_prefix_of_the_create_error() {
        let table = [
            ("RROUnsupported: runc is too old", "RROUnsupported"),
            ("RROUnsupported", "RROUnsupported"),
            ("ImageVolumeMountFailed: no such layer", "ImageVolumeMountFailed"),
            ("mount: RROUnsupported", "CreateContainerError"),
            ("no space left on device", "CreateContainerError"),
            ("", "CreateContainerError"),
        ];
        for (error, expected) in table {
            assert_eq!(create_error_reason(error), expected, "{error}");
        }
    }
}
