//! Images, volumes, claims, allocations, cgroups, plugins and events, as rows.

use explain_core::amounts::{bytes, cores};
use explain_core::render::printable;
use explain_core::times::span;
use jiff::Timestamp;
use model::inventory::{AllocationItem, CgroupItem, ClaimItem, EventItem, ImageItem, PluginItem, VolumeItem};

use super::row::Item;

/// For a cell that has nothing to say.
const NONE: &str = "-";

fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| NONE.to_owned(), |at| span(at, now))
}

/// The beginning of a digest, as other tools print it.
fn short_id(id: &str) -> String {
    let hex = id.strip_prefix("sha256:").unwrap_or(id);
    hex.chars().take(13).collect()
}

impl Item for ImageItem {
    const PATH: &'static str = "/v1/images";
    const HEADING: &'static [&'static str] = &["IMAGE", "ID", "SIZE", "PODS", "LAST USED"];
    const WIDE: &'static [&'static str] = &["FIRST SEEN", "PINNED", "USED BY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let last_used = match self.used_by.is_empty() {
            true => ago(self.last_used, now),
            false => "now".to_owned(),
        };
        vec![
            self.names.first().map_or_else(|| NONE.to_owned(), Clone::clone),
            short_id(&self.id),
            bytes(self.size_bytes),
            self.used_by.len().to_string(),
            last_used,
        ]
    }

    fn wide_cells(&self, now: Timestamp) -> Vec<String> {
        let pinned = if self.is_pinned { "yes" } else { "no" };
        vec![ago(self.first_seen, now), pinned.to_owned(), or_none(&self.used_by.join(","))]
    }

    fn name(&self) -> String {
        format!("image/{}", self.names.first().unwrap_or(&self.id))
    }
}

impl Item for VolumeItem {
    const PATH: &'static str = "/v1/volumes";
    const HEADING: &'static [&'static str] = &["NAMESPACE", "POD", "VOLUME", "TYPE", "STATE", "TRIES FAILED"];
    const WIDE: &'static [&'static str] = &["FROM", "CONTAINERS", "NEXT TRY IN", "ERROR"];

    fn cells(&self, _now: Timestamp) -> Vec<String> {
        vec![
            self.namespace.clone(),
            self.pod.clone(),
            self.name.clone(),
            self.kind.clone(),
            self.state.as_str().to_owned(),
            self.failures.to_string(),
        ]
    }

    fn wide_cells(&self, now: Timestamp) -> Vec<String> {
        let next = self.next_try.filter(|at| *at > now).map(|at| span(now, at));
        vec![
            or_none(&self.source),
            or_none(&self.containers.join(",")),
            next.unwrap_or_else(|| NONE.to_owned()),
            or_none(&printable(&self.error)),
        ]
    }

    fn name(&self) -> String {
        format!("volume/{}/{}/{}", self.namespace, self.pod, self.name)
    }
}

impl Item for ClaimItem {
    const PATH: &'static str = "/v1/claims";
    const HEADING: &'static [&'static str] = &["NAMESPACE", "NAME", "STATE", "DRIVERS", "DEVICES", "PODS"];
    const WIDE: &'static [&'static str] = &["UID", "USED BY"];

    fn cells(&self, _now: Timestamp) -> Vec<String> {
        let state = match (self.is_busy, self.is_prepared) {
            (true, _) => "Busy",
            (false, true) => "Prepared",
            (false, false) => "NotPrepared",
        };
        let devices: Vec<&str> =
            self.drivers.iter().flat_map(|driver| &driver.devices).map(String::as_str).collect();
        let drivers = self.drivers.iter().map(|driver| match driver.is_registered {
            true => driver.name.clone(),
            false => format!("{} (not registered)", driver.name),
        });
        vec![
            self.namespace.clone(),
            self.name.clone(),
            state.to_owned(),
            or_none(&drivers.collect::<Vec<_>>().join(",")),
            or_none(&devices.join(",")),
            self.used_by.len().to_string(),
        ]
    }

    fn wide_cells(&self, _now: Timestamp) -> Vec<String> {
        vec![self.uid.clone(), or_none(&self.used_by.join(","))]
    }

    fn name(&self) -> String {
        format!("claim/{}/{}", self.namespace, self.name)
    }
}

impl Item for AllocationItem {
    const PATH: &'static str = "/v1/allocations";
    const HEADING: &'static [&'static str] = &[
        "NAMESPACE",
        "POD",
        "CONTAINER",
        "QOS",
        "CPU",
        "CPU LIMIT",
        "MEMORY",
        "MEMORY LIMIT",
        "OWN CPUS",
        "DEVICES",
    ];
    const WIDE: &'static [&'static str] = &["NUMA NODES", "DEVICE IDS"];

    fn cells(&self, _now: Timestamp) -> Vec<String> {
        vec![
            self.namespace.clone(),
            self.pod.clone(),
            self.container.clone(),
            self.qos_class.clone(),
            or_none(&self.cpu_request),
            or_none(&self.cpu_limit),
            or_none(&self.memory_request),
            or_none(&self.memory_limit),
            or_none(&self.exclusive_cpus),
            self.devices.len().to_string(),
        ]
    }

    fn wide_cells(&self, _now: Timestamp) -> Vec<String> {
        vec![or_none(&self.memory_nodes), or_none(&self.devices.join(","))]
    }

    fn name(&self) -> String {
        format!("allocation/{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

impl Item for CgroupItem {
    const PATH: &'static str = "/v1/cgroups";
    const HEADING: &'static [&'static str] = &["OF", "NAME", "CPU", "MEMORY", "MEMORY LIMIT", "PROCESSES"];
    const WIDE: &'static [&'static str] = &["CGROUP"];

    fn cells(&self, _now: Timestamp) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        vec![
            self.kind.clone(),
            self.owner.clone(),
            or_none(self.usage.cpu_nanocores.map(cores)),
            or_none(self.usage.memory_bytes.map(bytes)),
            or_none(self.memory_limit_bytes.map(bytes)),
            or_none(self.processes.map(|count| count.to_string())),
        ]
    }

    fn wide_cells(&self, _now: Timestamp) -> Vec<String> {
        vec![self.path.clone()]
    }

    fn name(&self) -> String {
        format!("cgroup{}", self.path)
    }
}

impl Item for PluginItem {
    const PATH: &'static str = "/v1/plugins";
    const HEADING: &'static [&'static str] = &["TYPE", "NAME", "STATE", "HEALTHY DEVICES"];
    const WIDE: &'static [&'static str] = &["SOCKET", "ERROR"];

    fn cells(&self, _now: Timestamp) -> Vec<String> {
        let devices = self.healthy_devices.zip(self.devices).map(|(healthy, all)| format!("{healthy}/{all}"));
        vec![
            or_none(&self.kind),
            or_none(&self.name),
            if self.is_registered { "Registered" } else { "NotRegistered" }.to_owned(),
            devices.unwrap_or_else(|| NONE.to_owned()),
        ]
    }

    fn wide_cells(&self, _now: Timestamp) -> Vec<String> {
        vec![or_none(&self.socket), or_none(&printable(&self.error))]
    }

    fn name(&self) -> String {
        let name = if self.name.is_empty() { &self.socket } else { &self.name };
        format!("plugin/{name}")
    }
}

impl Item for EventItem {
    const PATH: &'static str = "/v1/events";
    const HEADING: &'static [&'static str] = &["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    const WIDE: &'static [&'static str] = &["FIRST SEEN", "COUNT"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let container = self.container.as_ref().map(|name| format!(" [{name}]")).unwrap_or_default();
        let times = if self.count > 1 { format!(" (x{})", self.count) } else { String::new() };
        vec![
            span(self.last_seen, now),
            self.event_type.clone(),
            self.reason.clone(),
            format!("{}{container}", Item::name(self)),
            format!("{}{times}", printable(&self.message)),
        ]
    }

    fn wide_cells(&self, now: Timestamp) -> Vec<String> {
        vec![span(self.first_seen, now), self.count.to_string()]
    }

    /// The object that it is about.
    fn name(&self) -> String {
        let parts = [self.kind.to_lowercase(), self.namespace.clone(), self.name.clone()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    }
}

#[cfg(test)]
mod tests {
    use model::inventory::{ClaimDriverItem, Usage, VolumeState};

    use super::super::rows_table;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn images_and_volumes_say_who_uses_them_and_what_they_wait_for() {
        let image = ImageItem {
            id: text("sha256:0123456789abcdef"),
            names: vec![text("docker.io/library/web:1")],
            size_bytes: 12_900_000,
            used_by: vec![text("default/web")],
            ..ImageItem::default()
        };
        let unused = ImageItem {
            names: vec![text("docker.io/library/old:1")],
            used_by: Vec::new(),
            last_used: Some(at(10)),
            ..image.clone()
        };
        let mut out = rows_table(&[image, unused], true, at(70));
        let volume = VolumeItem {
            namespace: text("default"),
            pod: text("web"),
            name: text("data"),
            kind: text("hostPath"),
            source: text("/srv"),
            state: VolumeState::Failed,
            failures: 3,
            error: text("hostPath type check failed:\n/srv is not a directory"),
            next_try: Some(at(74)),
            containers: vec![text("app")],
            ..VolumeItem::default()
        };
        out += &rows_table(&[volume], true, at(70));
        expect_test::expect![[r#"
            IMAGE                     ID              SIZE       PODS   LAST USED   FIRST SEEN   PINNED   USED BY
            docker.io/library/web:1   0123456789abc   12.3 MiB   1      now         -            no       default/web
            docker.io/library/old:1   0123456789abc   12.3 MiB   0      1 min       -            no       -
            NAMESPACE   POD   VOLUME   TYPE       STATE    TRIES FAILED   FROM   CONTAINERS   NEXT TRY IN   ERROR
            default     web   data     hostPath   Failed   3              /srv   app          4 s           hostPath type check failed: /srv is not a directory
        "#]]
        .assert_eq(&out);
    }

    #[test]
    fn claims_allocations_and_plugins_say_what_pods_have_of_the_node() {
        let driver = ClaimDriverItem {
            name: text("gpu.example"),
            devices: vec![text("pool/gpu-1")],
            ..ClaimDriverItem::default()
        };
        let claim = ClaimItem {
            namespace: text("default"),
            name: text("gpu"),
            drivers: vec![driver],
            used_by: vec![text("default/web")],
            ..ClaimItem::default()
        };
        let allocation = AllocationItem {
            namespace: text("default"),
            pod: text("web"),
            container: text("app"),
            qos_class: text("Guaranteed"),
            cpu_request: text("2"),
            exclusive_cpus: text("2-3"),
            devices: vec![text("example.com/nic=nic-1")],
            ..AllocationItem::default()
        };
        let plugin = PluginItem {
            kind: text("DevicePlugin"),
            name: text("example.com/nic"),
            is_registered: true,
            healthy_devices: Some(1),
            devices: Some(2),
            ..PluginItem::default()
        };
        let out = [
            rows_table(&[claim], false, at(0)),
            rows_table(&[allocation], false, at(0)),
            rows_table(&[plugin], false, at(0)),
        ];
        expect_test::expect![[r#"
            NAMESPACE   NAME   STATE         DRIVERS                        DEVICES      PODS
            default     gpu    NotPrepared   gpu.example (not registered)   pool/gpu-1   1
            NAMESPACE   POD   CONTAINER   QOS          CPU   CPU LIMIT   MEMORY   MEMORY LIMIT   OWN CPUS   DEVICES
            default     web   app         Guaranteed   2     -           -        -              2-3        1
            TYPE           NAME              STATE        HEALTHY DEVICES
            DevicePlugin   example.com/nic   Registered   1/2
        "#]]
        .assert_eq(&out.concat());
    }

    #[test]
    fn cgroups_and_events_are_in_units_and_lines_of_people() {
        let cgroup = CgroupItem {
            path: text("/kubepods/pod1"),
            kind: text("pod"),
            owner: text("default/web"),
            usage: Usage { cpu_nanocores: Some(12_000_000), memory_bytes: Some(5 << 20) },
            processes: Some(2),
            ..CgroupItem::default()
        };
        let event = EventItem {
            kind: text("Pod"),
            namespace: text("default"),
            name: text("web"),
            container: Some(text("app")),
            event_type: text("Warning"),
            reason: text("BackOff"),
            message: text("Back-off restarting\nfailed container"),
            last_seen: at(60),
            count: 4,
            ..EventItem::default()
        };
        let node = EventItem {
            kind: text("Node"),
            namespace: String::new(),
            name: text("n1"),
            container: None,
            count: 1,
            ..event.clone()
        };
        let out = [rows_table(&[cgroup], true, at(0)), rows_table(&[event, node], false, at(70))];
        expect_test::expect![[r#"
            OF    NAME          CPU   MEMORY    MEMORY LIMIT   PROCESSES   CGROUP
            pod   default/web   12m   5.0 MiB   -              2           /kubepods/pod1
            LAST SEEN   TYPE      REASON    OBJECT                  MESSAGE
            10 s        Warning   BackOff   pod/default/web [app]   Back-off restarting failed container (x4)
            10 s        Warning   BackOff   node/n1                 Back-off restarting failed container
        "#]]
        .assert_eq(&out.concat());
    }
}
