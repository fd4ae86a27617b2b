//! The result of a failed admission.

use std::borrow::Cow;

/// Why a pod is not admitted: it ends in phase Failed with this reason and `Pod was rejected: ` + message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: Cow<'static, str>,
    pub message: String,
}
