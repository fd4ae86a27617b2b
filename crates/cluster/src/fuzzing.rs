//! What fuzzers (`scripts/fuzz`) throw at the reader of kubeconfigs: any bytes are read or refused with words. What was
//! found once lies in `fuzz/corpus`, and is tried again with every test run.

use std::path::Path;

use crate::kubeconfig::parse;
use crate::proxy::ProxyEnv;

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("kubeconfig", kubeconfig)];

pub fn kubeconfig(data: &[u8]) {
    let proxies = ProxyEnv { https: None, http: None, no: None };
    let read = parse(&String::from_utf8_lossy(data), Path::new("/etc/kubernetes/kubelet.conf"), &proxies);
    if let Err(error) = read {
        assert!(error.to_string().contains("/etc/kubernetes/kubelet.conf"), "the file is named: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fuzzers_were_given_and_found_is_read_as_promised() {
        for (name, target) in TARGETS {
            let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(name);
            let inputs =
                std::fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
            for input in inputs {
                target(&std::fs::read(input.unwrap().path()).unwrap());
            }
        }
    }
}
