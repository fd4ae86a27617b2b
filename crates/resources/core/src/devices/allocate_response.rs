//! The allocate responses of a container's device plugins, merged.

use model::devices::AllocateResponse;
use model::env_value::EnvValue;
use model::request::ContainerRequest;

/// Merges all allocate responses. If two set the same name differently, the first wins.
#[must_use]
pub fn merge_responses<'a>(responses: impl IntoIterator<Item = &'a AllocateResponse>) -> AllocateResponse {
    let mut all = AllocateResponse::default();
    for response in responses {
        for (name, value) in &response.env {
            all.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &response.annotations {
            all.annotations.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for mount in &response.mounts {
            if all.mounts.iter().all(|other| other.container_path != mount.container_path) {
                all.mounts.push(mount.clone());
            }
        }
        for device in &response.devices {
            if all.devices.iter().all(|other| other.container_path != device.container_path) {
                all.devices.push(device.clone());
            }
        }
        for name in &response.cdi_devices {
            if !all.cdi_devices.contains(name) {
                all.cdi_devices.push(name.clone());
            }
        }
    }
    all
}

/// The variables of the container with those of its devices before them. The spec takes precedence.
#[must_use]
pub fn with_env(response: &AllocateResponse, own: Vec<(String, EnvValue)>) -> Vec<(String, EnvValue)> {
    let is_new = |name: &&String| own.iter().all(|(other, _)| other != *name);
    let new = response.env.iter().filter(|(name, _)| is_new(name));
    let mut all: Vec<(String, EnvValue)> = new.map(|(n, v)| (n.clone(), v.as_str().into())).collect();
    all.extend(own);
    all
}

/// Adds the devices, except for variables, to a request: they come first, and the kubelet's annotations take precedence.
pub fn show_devices(request: &mut ContainerRequest, response: AllocateResponse) {
    request.mounts.splice(..0, response.mounts);
    request.devices.splice(..0, response.devices);
    request.cdi_devices.extend(response.cdi_devices);
    for (name, value) in response.annotations {
        request.annotations.entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use model::request::{Device, Mount};

    use super::*;

    fn response(name: &str, value: &str) -> AllocateResponse {
        let text = str::to_owned;
        AllocateResponse {
            env: [(text(name), text(value))].into(),
            mounts: vec![Mount { container_path: text(name), host_path: text(value), ..Mount::default() }],
            devices: vec![Device {
                container_path: text(name),
                host_path: text(value),
                permissions: text("rw"),
            }],
            annotations: [(text(name), text(value))].into(),
            cdi_devices: vec![text(name)],
        }
    }

    #[test]
    fn allocate_responses_are_merged_and_the_first_wins_a_conflict() {
        let (first, second, other) = (response("a", "1"), response("a", "2"), response("b", "3"));
        let all = merge_responses([&first, &second, &other]);
        assert_eq!(all.env, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "3".to_owned())].into());
        assert_eq!(all.annotations, all.env);
        assert_eq!(all.mounts.iter().map(|m| m.host_path.as_str()).collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(all.devices.iter().map(|d| d.host_path.as_str()).collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(all.cdi_devices, ["a", "b"]);
    }

    #[test]
    fn variable_of_the_spec_overrides_that_of_a_plugin() {
        let response = merge_responses([&response("A", "device"), &response("B", "device")]);
        let own = vec![("B".to_owned(), "spec".into())];
        let all: Vec<String> =
            with_env(&response, own).into_iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(all, ["A=device", "B=spec"]);
    }
}
