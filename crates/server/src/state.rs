//! Shared state of the main port's endpoints.

use std::sync::Arc;

use axum::extract::FromRef;
use config::{Features, KubeletConfiguration};
use ports::{Clock, OwnProcess};

use crate::Api;

/// Groups of endpoints that can be disabled.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four independent switches of the configuration")]
pub(crate) struct Switches {
    pub(crate) debugging: bool,
    pub(crate) system_logs: bool,
    pub(crate) profiling: bool,
    pub(crate) debug_flags: bool,
}

impl Switches {
    pub(crate) const fn of(config: &KubeletConfiguration) -> Self {
        Self {
            debugging: config.enable_debugging_handlers,
            system_logs: config.enable_system_log_handler,
            profiling: config.enable_profiling_handler,
            debug_flags: config.enable_debug_flags_handler,
        }
    }
}

/// Shared state of the endpoints.
#[derive(Clone, Debug)]
pub(crate) struct MainState {
    pub(crate) api: Api,
    pub(crate) config: Arc<KubeletConfiguration>,
    pub(crate) process: Arc<dyn OwnProcess>,
    pub(crate) features: Features,
    pub(crate) clock: Clock,
}

impl FromRef<MainState> for Api {
    fn from_ref(state: &MainState) -> Self {
        Arc::clone(&state.api)
    }
}
