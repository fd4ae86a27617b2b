//! Fuzz targets (`scripts/fuzz`) of the parsers of kubeconfigs and API responses: any bytes are parsed or rejected with an
//! error. Inputs that were found once are in `fuzz/corpus`, and are run again with every test run.

use std::path::Path;

use model::k8s::{Node, Pod};
use ports::cluster::Change;

use crate::decode;
use crate::kubeconfig::parse;
use crate::proxy::ProxyEnv;
use crate::watch::Lines;

/// A name, which is also that of a corpus, and the function to run with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] =
    &[("kubeconfig", kubeconfig), ("watch_events", watch_events), ("object_list", object_list)];

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
    assert_eq!(lines.iter().map(|line| line.len()).sum::<usize>() + rest.len(), data.len());
    for line in &lines {
        match decode::event::<Pod>("watch pods", line) {
            Ok(Change::Added(pod) | Change::Modified(pod) | Change::Deleted(pod)) => {
                assert!(pod.metadata.managed_fields.is_none());
            }
            Ok(Change::Bookmark { resource_version }) => assert!(!resource_version.is_empty()),
            Err(error) => assert!(error.to_string().contains("watch pods"), "the call is named: {error}"),
        }
        let _ = decode::event::<Node>("watch nodes", line);
    }
}

/// A list is rejected with an error or has a resource version to watch from.
pub fn object_list(data: &[u8]) {
    match decode::list::<Pod>(data) {
        Ok(list) => {
            assert!(!list.resource_version.is_empty());
            assert!(list.items.iter().all(|pod| pod.metadata.managed_fields.is_none()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = decode::list::<Node>(data);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        testing::run_fuzz_corpus(super::TARGETS);
    }
}
