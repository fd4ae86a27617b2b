//! Fuzz targets (`scripts/fuzz`) of the parsers of kubeconfigs and API responses: any bytes are parsed or rejected with an
//! error, and a hostile object in a list or watch costs no other object. Inputs that were found once are in `fuzz/corpus`, and are
//! run again with every test run.

use std::path::Path;

use model::k8s::{Node, Pod};
use ports::cluster::Change;
use serde::de::IgnoredAny;

use crate::decode::{self, ItemText, ListScanner, MAX_OBJECT};
use crate::kubeconfig::parse;
use crate::proxy::ProxyEnv;
use crate::watch::Lines;

/// A name, which is also that of a corpus, and the function to run with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("kubeconfig", kubeconfig),
    ("watch_events", watch_events),
    ("object_list", object_list),
    ("hostile_watch_event", hostile_watch_event),
    ("hostile_list_item", hostile_list_item),
];

pub fn kubeconfig(data: &[u8]) {
    let proxies = ProxyEnv { https: None, http: None, no: None };
    let read = parse(&String::from_utf8_lossy(data), Path::new("/etc/kubernetes/kubelet.conf"), &proxies);
    if let Err(error) = read {
        assert!(error.to_string().contains("/etc/kubernetes/kubelet.conf"), "the file is named: {error}");
    }
}

/// The lines of a watch do not depend on how the bytes were split, and each is a change or an error that names the call.
pub fn watch_events(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let read = |piece: usize| {
        let mut lines = Lines::default();
        let mut read = Vec::new();
        for piece in data.chunks(piece) {
            lines.feed(piece);
            while let Some(line) = lines.next() {
                read.push(line);
            }
        }
        (read, lines.rest().to_vec())
    };
    let (lines, rest) = read(data.len().max(1));
    assert_eq!((&lines, &rest), (&read(usize::from(*choice) + 1).0, &read(usize::from(*choice) + 1).1));
    assert_eq!(lines.iter().map(|line| line.json.len()).sum::<usize>() + rest.len(), data.len());
    for line in &lines {
        match decode::event::<Pod>("watch pods", "Pod", line) {
            Ok(Change::Added(pod) | Change::Modified(pod) | Change::Deleted(pod)) => {
                assert!(pod.metadata.managed_fields.is_none());
            }
            Ok(Change::Malformed { object, .. }) => {
                assert!(!object.name.is_empty() && !object.resource_version.is_empty());
            }
            Ok(Change::Bookmark { resource_version }) => assert!(!resource_version.is_empty()),
            Err(error) => assert!(error.to_string().contains("watch pods"), "the call is named: {error}"),
        }
        let _ = decode::event::<Node>("watch nodes", "Node", line);
    }
}

/// The names of the pods that can be decoded, how many others there are, and the metadata or the error. It does not depend on how the
/// bytes were split.
fn read_list(data: &[u8], piece: usize) -> (Vec<String>, usize, Result<Vec<u8>, String>) {
    let (mut names, mut malformed, mut scanner) = (Vec::new(), 0, ListScanner::new(MAX_OBJECT));
    let mut each = |text: ItemText<'_>| match decode::item::<Pod>(text) {
        Ok(pod) => {
            assert!(pod.metadata.managed_fields.is_none());
            names.push(pod.metadata.name.unwrap_or_default());
        }
        Err(object) => {
            assert!(!object.problem.is_empty());
            malformed += 1;
        }
    };
    let fed = data.chunks(piece.max(1)).try_for_each(|piece| scanner.feed(piece, &mut each));
    let metadata = fed.and_then(|()| scanner.finish());
    (names, malformed, metadata)
}

/// A list is rejected with an error or has a resource version to watch from.
pub fn object_list(data: &[u8]) {
    let whole = read_list(data, data.len());
    assert_eq!(read_list(data, 3), whole);
    match whole.2.map(|metadata| decode::list_version(&metadata)) {
        Ok(Ok(version)) => assert!(!version.is_empty()),
        Ok(Err(error)) => assert!(!error.to_string().is_empty()),
        Err(error) => assert!(!error.is_empty()),
    }
}

/// Whatever JSON a list has as one of its items, the good items arrive; and whatever JSON a pod has as its managed fields, it is read.
pub fn hostile_list_item(data: &[u8]) {
    if std::str::from_utf8(data).is_err() || serde_json::from_slice::<IgnoredAny>(data).is_err() {
        return;
    }
    let good = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).into_bytes();
    let parts: [&[u8]; 9] = [
        br#"{"metadata":{"resourceVersion":"7"},"later":"#,
        data,
        br#","items":["#,
        &good("first"),
        br#",{"metadata":{"name":"managed","managedFields":"#,
        data,
        b"}},",
        data,
        &[b",".as_slice(), &good("last"), b"]}"].concat(),
    ];
    let (names, malformed, metadata) = read_list(&parts.concat(), 7);
    let expected = ["first", "managed", "last"];
    let arrived: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| expected.contains(name)).collect();
    assert!(expected.iter().all(|name| arrived.contains(name)), "{names:?}");
    assert_eq!(names.len() + malformed, 4);
    assert_eq!(metadata.as_deref(), Ok(br#"{"resourceVersion":"7"}"#.as_slice()));
}

/// Whatever bytes an event has after the name and version of its object, the watch goes on.
pub fn hostile_watch_event(data: &[u8]) {
    if data.contains(&b'\n') {
        return;
    }
    let good =
        |name: &str| format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"{name}\"}}}}}}\n");
    let head = br#"{"type":"MODIFIED","object":{"metadata":{"name":"bad","resourceVersion":"7"},"spec":"#;
    let all = [good("first").as_bytes(), head, data, b"}}\n", good("last").as_bytes()].concat();
    let mut lines = Lines::default();
    lines.feed(&all);
    let mut seen = Vec::new();
    while let Some(line) = lines.next() {
        seen.push(decode::event::<Pod>("watch pods", "Pod", &line));
    }
    let seen = seen.into_iter().map(|event| match event {
        Ok(Change::Added(pod)) => pod.metadata.name.unwrap_or_default(),
        Ok(Change::Modified(_) | Change::Malformed { .. }) => "changed".to_owned(),
        other => format!("{other:?}"),
    });
    assert_eq!(seen.collect::<Vec<_>>(), ["first", "changed", "last"]);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
