//! Why a container could not be created, for `state.waiting.reason`: runtimes report the special cases by the prefix of
//! their error.

const SPECIAL: [&str; 2] = ["RROUnsupported", "ImageVolumeMountFailed"];

/// The waiting reason for a runtime's error to CreateContainer.
#[must_use]
pub fn create_error_reason(error: &str) -> &'static str {
    SPECIAL.into_iter().find(|reason| error.starts_with(reason)).unwrap_or("CreateContainerError")
}

#[cfg(test)]
mod tests {
    use super::*;

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
