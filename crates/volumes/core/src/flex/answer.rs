//! What a FlexVolume driver answers: one JSON object, whose names may be written in any case.

use serde_json::{Map, Value};

use super::Command;

const SUCCESS: &str = "Success";
const NOT_SUPPORTED: &str = "Not supported";

/// What a driver can do. What it does not say about itself, it can do, except for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Volumes are attached to the node before they are mounted.
    pub attach: bool,
    pub selinux_relabel: bool,
    pub supports_metrics: bool,
    pub fs_group: bool,
    pub requires_fs_resize: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            attach: true,
            selinux_relabel: true,
            supports_metrics: false,
            fs_group: true,
            requires_fs_resize: true,
        }
    }
}

/// The answer of a driver that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The device that was attached; empty if there is none.
    pub device: String,
    pub capabilities: Capabilities,
}

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The kubelet does itself what the command is for, if it can.
    #[error("Not supported")]
    NotSupported,
    #[error("{0}")]
    Failed(String),
    /// The driver did not answer in time. Its effect may still happen.
    #[error("{0}")]
    NotFinished(String),
}

/// What the driver wrote, and whether it ended with an error.
///
/// # Errors
/// The driver does not support the command, failed, or wrote something else.
pub fn parse_answer(command: Command, exit: Option<i32>, output: &[u8]) -> Result<Answer, CallError> {
    if output.iter().all(u8::is_ascii_whitespace) {
        return Err(CallError::Failed("unexpected end of JSON input".to_owned()));
    }
    let status: Map<String, Value> =
        serde_json::from_slice(output).map_err(|error| CallError::Failed(error.to_string()))?;
    let text = |name: &str| field(&status, name).and_then(Value::as_str).unwrap_or_default();
    match text("status") {
        SUCCESS => {}
        NOT_SUPPORTED => return Err(CallError::NotSupported),
        other => {
            let (command, why) = (command.name(), text("message"));
            return Err(CallError::Failed(format!(
                "{command} command failed, status: {other}, reason: {why}"
            )));
        }
    }
    match exit {
        Some(0) => {
            let capabilities = field(&status, "capabilities").and_then(Value::as_object);
            let capabilities = capabilities.map(parse_capabilities).unwrap_or_default();
            Ok(Answer { device: text("device").to_owned(), capabilities })
        }
        Some(code) => Err(CallError::Failed(format!("exit status {code}"))),
        None => Err(CallError::Failed("ended by a signal".to_owned())),
    }
}

fn parse_capabilities(of_driver: &Map<String, Value>) -> Capabilities {
    let says = |name: &str, default: bool| field(of_driver, name).and_then(Value::as_bool).unwrap_or(default);
    let default = Capabilities::default();
    Capabilities {
        attach: says("attach", default.attach),
        selinux_relabel: says("selinuxRelabel", default.selinux_relabel),
        supports_metrics: says("supportsMetrics", default.supports_metrics),
        fs_group: says("fsGroup", default.fs_group),
        requires_fs_resize: says("requiresFSResize", default.requires_fs_resize),
    }
}

fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object
        .get(name)
        .or_else(|| object.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}
