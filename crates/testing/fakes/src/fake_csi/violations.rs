//! What the specification forbids the kubelet to do, whatever the driver answers.

use std::path::Path;

use model::csi::{AccessMode, VolumeCapability};
use ports::plugins::PluginResult;

use super::refusal;

/// The error of a call. A violation if only a kubelet that violates the specification gets it.
#[derive(Debug)]
pub(super) struct Refused {
    code: &'static str,
    message: String,
    is_violation: bool,
}

impl Refused {
    pub(super) fn violation(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_violation: true }
    }

    pub(super) fn expected(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_violation: false }
    }
}

pub(super) type Checked<T> = Result<T, Refused>;

pub(super) fn check_volume_id(volume_id: &str) -> Checked<()> {
    if volume_id.is_empty() {
        return Err(Refused::violation("InvalidArgument", "volume id is missing"));
    }
    Ok(())
}

pub(super) fn check_path(name: &str, path: &Path) -> Checked<()> {
    if path.is_absolute() {
        return Ok(());
    }
    let message = if path.as_os_str().is_empty() {
        format!("{name} is missing")
    } else {
        format!("{name} {} is not absolute", path.display())
    };
    Err(Refused::violation("InvalidArgument", message))
}

pub(super) fn check_capability(capability: &VolumeCapability) -> Checked<()> {
    match capability.access_mode {
        AccessMode::Unknown => Err(Refused::violation("InvalidArgument", "access mode is missing")),
        AccessMode::SingleNodeWriter
        | AccessMode::SingleNodeReaderOnly
        | AccessMode::MultiNodeReaderOnly
        | AccessMode::MultiNodeSingleWriter
        | AccessMode::MultiNodeMultiWriter
        | AccessMode::SingleNodeSingleWriter
        | AccessMode::SingleNodeMultiWriter => Ok(()),
    }
}

/// A method that the driver does not have.
pub(super) fn check_supported(is_supported: bool, method: &str) -> Checked<()> {
    if is_supported {
        return Ok(());
    }
    Err(Refused::violation("Unimplemented", format!("unknown method {method} for service csi.v1.Node")))
}

/// The error as the driver answers it, and the violation if it is one.
pub(super) fn into_answer<T>(checked: Checked<T>) -> (PluginResult<T>, Option<String>) {
    match checked {
        Ok(answer) => (Ok(answer), None),
        Err(Refused { code, message, is_violation }) => {
            let violation = is_violation.then(|| message.clone());
            (Err(refusal(code, message)), violation)
        }
    }
}
