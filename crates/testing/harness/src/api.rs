//! What the benches ask of the API server in their process, as an administrator.

use std::path::Path;
use std::time::Duration;

use cluster::{ApiHandle, ApiServer, HandleSettings, ProxyEnv, Settings, kubeconfig};
use localapi::Running;
use ports::Clock;
use ports::Cluster;

use crate::node::NODE_NAME;
use crate::outcome::{Outcome, failed};

pub const NAMESPACE: &str = "default";

pub async fn is_ready(admin: &ApiHandle) -> Outcome<Option<()>> {
    let Ok(node) = admin.nodes().get("", NODE_NAME).await else { return Ok(None) };
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let is_ready =
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    Ok(is_ready.then_some(()))
}

pub fn administrator(api: &Running) -> Outcome<ApiHandle> {
    let config = api.kubeconfig("admin", Some("system:masters")).map_err(failed("make a kubeconfig"))?;
    administrator_of(&config)
}

/// With the kubeconfig of any API server.
pub fn administrator_of(config: &str) -> Outcome<ApiHandle> {
    let access = kubeconfig::parse(config, Path::new("/kubeconfig"), &ProxyEnv::default());
    let access = access.map_err(failed("read the administrator's kubeconfig"))?;
    let settings = Settings {
        user_agent: "bench".to_owned(),
        http2: true,
        clock: Clock::system(),
        seed: 1,
        trace: None,
    };
    let server = ApiServer::new(access, settings).map_err(failed("reach the API server"))?;
    Ok(server.handle(HandleSettings { budget: None, deadline: Duration::from_secs(30) }))
}
