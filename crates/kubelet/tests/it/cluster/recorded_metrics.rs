//! The metric families of the Go kubelet 1.36.2, recorded as a node of a real API server, compared with ours.

use std::collections::{BTreeMap, BTreeSet};

use super::Cluster;

/// Endpoint, family, type and label names; those of the Go runtime and of API server libraries are omitted.
const RECORDED: &str = include_str!("recorded_metrics.tsv");

const NO_RESIZE: &str = "no pod is resized in this test";
const GO_TRANSPORT: &str = "the cache of Go's HTTP transports does not exist here";
const GO_QUEUE: &str = "the work queues of client-go do not exist here";
const NO_MEMORY_CACHE: &str = "records of images are not kept in memory";
const ON_NODES_WITH: &str = "only on nodes with the feature: certificate rotation, a shutdown, block devices";

const ONCE_IT_HAPPENED: &str = "no sample, and so no family, before the first of what it counts";

/// The families that this kubelet does not have, and why; names that end in `*` are prefixes.
const MISSING: &[(&str, &str)] = &[
    ("kubelet_container_requested_resizes_total", NO_RESIZE),
    ("kubelet_imagemanager_inmemory_*", NO_MEMORY_CACHE),
    ("kubelet_pod_resize_duration_milliseconds", NO_RESIZE),
    ("rest_client_transport_*", GO_TRANSPORT),
    ("workqueue_*", GO_QUEUE),
];

/// Families that depend on the machine, or on what happened on it.
const DEPENDS: &[(&str, &str)] = &[
    ("container_fs_*", ON_NODES_WITH),
    ("container_network_*", ON_NODES_WITH),
    ("container_memory_*", ON_NODES_WITH),
    ("container_swap_limit_bytes", ON_NODES_WITH),
    ("kubelet_admission_rejections_total", ONCE_IT_HAPPENED),
    ("kubelet_certificate_manager_client_*", ON_NODES_WITH),
    ("kubelet_graceful_shutdown_*", ON_NODES_WITH),
    ("kubelet_started_containers_errors_total", ONCE_IT_HAPPENED),
];

fn is_listed(list: &[(&str, &str)], family: &str) -> bool {
    list.iter().any(|(name, _)| match name.strip_suffix('*') {
        Some(beginning) => family.starts_with(beginning),
        None => family == *name,
    })
}

/// Type and label names of each family of an exposition text.
fn families(text: &str) -> BTreeMap<&str, (&str, BTreeSet<&str>)> {
    let mut families: BTreeMap<&str, (&str, BTreeSet<&str>)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name, (kind, BTreeSet::new())))
        .collect();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap_or(line), ""));
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| sample.strip_suffix(end));
        let family = family.filter(|family| families.contains_key(family)).unwrap_or(sample);
        let (_, known) = families.get_mut(family).unwrap_or_else(|| panic!("no type for {line}"));
        // Every label is followed by `="`; a value cannot contain that without a backslash.
        let labels = labels.split("=\"").map(|part| part.rsplit([',', '{']).next().unwrap_or(part));
        known.extend(
            labels.filter(|name| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            }),
        );
    }
    families
}

/// Each recorded family exists with its type and labels, or is listed above with the reason.
pub(super) fn compare(cluster: &Cluster) {
    let mut texts = BTreeMap::new();
    for endpoint in ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"] {
        // `/metrics` omits log sizes where measuring the disk takes too long.
        let text = cluster.node.eventually("the disk is measured", |node| {
            let text = node.get(endpoint)?;
            let is_whole =
                endpoint != "/metrics" || text.contains("kubelet_container_log_filesystem_used_bytes{");
            if is_whole { Ok(text) } else { Err("no size of a log".to_owned()) }
        });
        texts.insert(endpoint, text);
    }
    let (mut problems, mut missing) = (Vec::new(), BTreeSet::new());
    for row in RECORDED.lines() {
        let [endpoint, family, kind, labels] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let ours = families(&texts[endpoint]);
        let Some((our_kind, our_labels)) = ours.get(family) else {
            missing.insert(family);
            continue;
        };
        let recorded: BTreeSet<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
        if *our_kind != kind {
            problems.push(format!("{endpoint} {family} is a {our_kind}, recorded as a {kind}"));
        }
        if !our_labels.is_empty() && *our_labels != recorded {
            problems.push(format!("{endpoint} {family} has labels {our_labels:?}, recorded {recorded:?}"));
        }
        if is_listed(MISSING, family) {
            problems.push(format!("{endpoint} {family} is listed as missing"));
        }
    }
    let is_unlisted = |family: &&&str| !is_listed(MISSING, family) && !is_listed(DEPENDS, family);
    let unlisted: Vec<_> = missing.iter().filter(is_unlisted).collect();
    assert!(problems.is_empty() && unlisted.is_empty(), "missing: {unlisted:?}; {}", problems.join("\n"));
}
