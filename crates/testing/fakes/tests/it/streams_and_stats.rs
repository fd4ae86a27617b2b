//! More of the contract: streaming, statistics, resources of a pod, and the calls that only newer runtimes offer.

use std::time::Duration;

use model::request::LinuxResources;
use model::{CgroupDriver, ContainerId, ContainerState, PodUid, SandboxId};
use ports::runtime::{RuntimeError, RuntimeResult, Scope, Streams};

use crate::world::{Does, World, command};

const OUTPUT: Streams = Streams { tty: false, stdin: false, stdout: true, stderr: true };

/// `http://127.0.0.1:<port>/<verb>/<token>`.
#[track_caller]
fn assert_url(url: &str, verb: &str) {
    let rest = url.strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{url}"));
    let parts: Vec<&str> = rest.split('/').collect();
    assert!(parts[0].parse::<u16>().is_ok(), "{url}");
    assert_eq!(parts[1], verb, "{url}");
    assert!(parts.len() == 3 && !parts[2].is_empty(), "{url}");
}

/// A call that a runtime either offers or reports as unimplemented; never an error of another kind.
#[track_caller]
fn offered<T: std::fmt::Debug>(result: RuntimeResult<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(RuntimeError::Unimplemented { .. }) => {
            fixtures::skip("the runtime does not offer the call");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

pub(crate) async fn exec_attach_and_port_forward_each_have_a_url(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let first = world.runtime.exec(&id, &command("true"), OUTPUT).await.unwrap();
    let second = world.runtime.exec(&id, &command("true"), OUTPUT).await.unwrap();
    assert_url(&first, "exec");
    assert_ne!(first, second);
    let terminal = Streams { tty: true, stdin: true, stdout: true, stderr: false };
    assert_url(&world.runtime.exec(&id, &command("sh"), terminal).await.unwrap(), "exec");
    assert_url(&world.runtime.attach(&id, OUTPUT).await.unwrap(), "attach");
    assert_url(&world.runtime.port_forward(&sandbox.0, &[8080, 65535]).await.unwrap(), "portforward");
}

pub(crate) async fn invalid_stream_requests_are_rejected(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let none = Streams::default();
    let two_outputs_of_a_terminal = Streams { tty: true, ..OUTPUT };
    for streams in [none, two_outputs_of_a_terminal] {
        let exec = world.runtime.exec(&id, &command("true"), streams).await.unwrap_err();
        assert!(matches!(exec, RuntimeError::Failed { .. }), "{exec:?}");
        let attach = world.runtime.attach(&id, streams).await.unwrap_err();
        assert!(matches!(attach, RuntimeError::Failed { .. }), "{attach:?}");
    }
}

pub(crate) async fn streams_of_exited_or_missing_containers_are_rejected(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::ExitWith(0)).await;
    world.exited(&id).await;
    // CRI-O checks when the URL is used.
    let is_crio = world.is_crio().await;
    for ended in
        [world.runtime.exec(&id, &command("true"), OUTPUT).await, world.runtime.attach(&id, OUTPUT).await]
    {
        match ended {
            Ok(url) => assert!(is_crio, "{url}"),
            Err(error) => assert!(matches!(error, RuntimeError::Failed { .. }) && !is_crio, "{error:?}"),
        }
    }

    let (container, sandbox) = (ContainerId::new("no-such-container"), SandboxId::new("no-such-sandbox"));
    let streams = [
        world.runtime.exec(&container, &command("true"), OUTPUT).await,
        world.runtime.attach(&container, OUTPUT).await,
        world.runtime.port_forward(&sandbox, &[80]).await,
    ];
    for stream in streams {
        match stream {
            Ok(url) => assert!(is_crio && url.contains("/portforward/"), "{url}"),
            Err(error) => assert!(error.is_not_found(), "{error:?}"),
        }
    }
}

pub(crate) async fn stats_of_a_running_container(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let stats = world.runtime.container_stats(&id).await.unwrap();
    assert_eq!((&stats.id, stats.name.as_str(), stats.attempt), (&id, "app", 0));
    assert_eq!(stats.labels, world.container_request(&sandbox.1, "app", Does::Sleep).labels);
    let memory = stats.memory.unwrap();
    assert!(memory.working_set_bytes.unwrap() > 0, "{memory:?}");
    assert!(memory.time.is_some(), "{memory:?}");
    let cpu = stats.cpu.unwrap();
    assert!(cpu.usage_core_nanoseconds.is_some() && cpu.time.is_some(), "{cpu:?}");

    let listed = world.runtime.list_container_stats(&Scope::Node).await.unwrap();
    let ids: Vec<&ContainerId> = listed.iter().map(|stats| &stats.id).collect();
    assert_eq!(ids, [&id]);
    assert!(listed[0].memory.as_ref().unwrap().working_set_bytes.unwrap() > 0);
    let of_pod = Scope::Pod(sandbox.1.pod.uid.clone());
    assert_eq!(world.runtime.list_container_stats(&of_pod).await.unwrap().len(), 1);
    let of_absent = Scope::Pod(PodUid::new("uid-of-missing"));
    assert_eq!(world.runtime.list_container_stats(&of_absent).await.unwrap(), []);

    let gone = world.runtime.container_stats(&ContainerId::new("no-such-container")).await.unwrap_err();
    assert!(gone.is_not_found(), "{gone:?}");
}

pub(crate) async fn sandbox_stats_include_its_containers(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let stats = world.runtime.sandbox_stats(&sandbox.0).await.unwrap();
    assert_eq!((&stats.id, &stats.pod, stats.attempt), (&sandbox.0, &sandbox.1.pod, 0));
    // With cgroups of version 1 CRI-O measures the containers of a pod only.
    if !world.is_crio().await || stats.memory.is_some() {
        assert!(stats.memory.as_ref().unwrap().working_set_bytes.unwrap() > 0, "{stats:?}");
        assert!(stats.cpu.as_ref().unwrap().usage_core_nanoseconds.is_some(), "{stats:?}");
    }
    // The first interface of CRI-O is the loopback.
    let network = stats.network.clone().unwrap();
    let is_crio = world.is_crio().await;
    let all = network.default_interface.iter().chain(network.interfaces.iter().filter(|_| is_crio));
    let interface = all.clone().find(|interface| interface.name == "eth0").unwrap();
    assert!(interface.rx_bytes.is_some() && interface.tx_bytes.is_some(), "{interface:?}");
    let ids: Vec<&ContainerId> = stats.containers.iter().map(|stats| &stats.id).collect();
    assert_eq!(ids, [&id]);

    let listed = world.runtime.list_sandbox_stats(&Scope::Pod(sandbox.1.pod.uid.clone())).await.unwrap();
    let ids: Vec<&SandboxId> = listed.iter().map(|stats| &stats.id).collect();
    assert_eq!(ids, [&sandbox.0]);
    assert_eq!(world.runtime.list_sandbox_stats(&Scope::Node).await.unwrap().len(), 1);
    let gone = world.runtime.sandbox_stats(&SandboxId::new("no-such-sandbox")).await.unwrap_err();
    assert!(gone.is_not_found(), "{gone:?}");
}

pub(crate) async fn image_filesystem_info_is_reported(world: &World) {
    let filesystems = world.runtime.image_filesystems().await.unwrap();
    let images = &filesystems.images[0];
    assert!(images.mountpoint.starts_with('/'), "{images:?}");
    assert!(images.used_bytes.is_some() && images.time.is_some(), "{images:?}");
    for containers in &filesystems.containers {
        assert!(containers.mountpoint.starts_with('/'), "{containers:?}");
    }
}

pub(crate) async fn pod_resource_update_is_accepted_or_unimplemented(world: &World) {
    let (id, _) = world.run_sandbox("web").await;
    let share = |shares| LinuxResources { cpu_shares: Some(shares), ..Default::default() };
    let updated = world.runtime.update_sandbox_resources(&id, Some(&share(10)), &share(512)).await;
    if offered(updated).is_some()
        && let Some(fake) = &world.fake
    {
        assert_eq!(fake.sandbox_resources("web"), Some((Some(share(10)), Some(share(512)))));
    }
}

pub(crate) async fn checkpoint_is_written_or_unimplemented(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    let id = world.start(&sandbox, "app", Does::Sleep).await;
    let location = world.logs.join("checkpoint.tar").display().to_string();
    match world.runtime.checkpoint_container(&id, &location, Duration::from_secs(5)).await {
        Ok(()) | Err(RuntimeError::Unimplemented { .. }) => {}
        // It needs CRIU, which a node may not have.
        Err(error) => {
            let message = error.message().to_lowercase();
            assert!(message.contains("criu") || message.contains("support not available"), "{error:?}");
        }
    }
    assert_eq!(world.status(&id).await.state, ContainerState::Running);
}

pub(crate) async fn pod_sandbox_metrics_are_offered_or_unimplemented(world: &World) {
    let sandbox = world.run_sandbox("web").await;
    world.start(&sandbox, "app", Does::Sleep).await;
    let described = offered(world.runtime.list_metric_descriptors().await);
    let Some(listed) = offered(world.runtime.list_sandbox_metrics().await) else { return };
    let described: Vec<String> = described.unwrap_or_default().into_iter().map(|d| d.name).collect();
    for of_pod in listed {
        for metric in of_pod.containers.into_iter().flat_map(|(_, metrics)| metrics) {
            assert!(described.is_empty() || described.contains(&metric.name), "{metric:?}");
        }
    }
}

pub(crate) async fn cgroup_driver_is_reported_or_unimplemented(world: &World) {
    if let Some(driver) = offered(world.runtime.cgroup_driver().await) {
        // The driver of the fake, and the configured one of the tests' containerd.
        assert_eq!(driver, CgroupDriver::Cgroupfs);
    }
}
