//! One line of the log that says what runs here, as soon as the node can start pods. Decides nothing.

use std::sync::Arc;

use base_agent::context::Context;
use model::CgroupDriver;
use tokio::sync::watch;

use crate::node_view::NodeView;

/// Ends with the line.
pub(crate) async fn run(
    ctx: Arc<Context>,
    mut view: watch::Receiver<NodeView>,
    mut driver: watch::Receiver<Option<CgroupDriver>>,
) {
    let Ok(driver) = driver.wait_for(Option::is_some).await.map(|driver| *driver) else { return };
    let Ok(view) = view.wait_for(|view| view.last_ready.is_some()).await.map(|view| view.clone()) else {
        return;
    };
    let (config, settings) = (ctx.config(), &ctx.settings);
    let joined = |parts: Vec<String>| parts.join(",");
    let port = |is_open: bool, address: &str, port: i32| {
        if is_open && port > 0 { format!("{address}:{port}") } else { "off".to_owned() }
    };
    tracing::info!(
        build = %settings.build,
        kubeletVersion = config::KUBERNETES_VERSION,
        node = settings.node_name,
        addresses = joined(ctx.host_ips().iter().map(ToString::to_string).collect()),
        server = port(config.enable_server, &config.address, config.port),
        healthz = port(true, &config.healthz_bind_address, config.healthz_port),
        manifests = joined(sources(config)),
        apiServer = !settings.flags.standalone(),
        runtime = [view.version.name.as_str(), view.version.version.as_str()].join(" "),
        endpoint = config.container_runtime_endpoint,
        cgroupDriver = driver.map(|driver| driver.to_string()),
        cgroupVersion = if ctx.node_facts.cgroup_v2 { 2 } else { 1 },
        networkProblem = view.network_problem(),
        "Kubelet is ready"
    );
}

fn sources(config: &config::KubeletConfiguration) -> Vec<String> {
    let all = [&config.static_pod_path, &config.static_pod_url];
    all.into_iter().filter(|source| !source.is_empty()).cloned().collect()
}
