//! The operator's book, docs/operate: its commands are run, its configurations are read, and its worked numbers are computed.
//!
//! Owns the reading of the pages. The word after the language of a fence says who takes the block
//! (docs/decisions/0120-commands-of-the-book-are-run.md); `xtask` refuses a fence without one.

mod numbers;
pub(crate) mod shell;

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::node::{IMAGE, Node};
use crate::stats::program;
use shell::Shell;

/// The image in the manifests of the pages.
const IMAGE_OF_THE_PAGES: &str = "docker.io/library/busybox:1.37";

/// A fenced block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Block {
    /// `quick-start.md:12`, the line of its first line.
    place: String,
    /// The words after the three backticks.
    info: String,
    text: String,
}

impl Block {
    /// What follows these words in the info string; `None` if it begins with others.
    fn after(&self, words: &str) -> Option<&str> {
        let rest = self.info.strip_prefix(words)?;
        (rest.is_empty() || rest.starts_with(' ')).then_some(rest.trim())
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate")
}

/// The pages in the order of the summary, without the recorded answers.
fn pages() -> Vec<String> {
    let summary = std::fs::read_to_string(directory().join("SUMMARY.md")).expect("a summary");
    let targets = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(page, _)| page);
    targets.filter(|page| !page.contains('/')).map(str::to_owned).collect()
}

fn blocks(page: &str) -> Vec<Block> {
    let text =
        std::fs::read_to_string(directory().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    blocks_in(page, &text)
}

fn blocks_in(page: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let place = format!("{page}:{}", index + 2);
                open = Some(Block { place, info: info.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found
}

/// Runs the blocks of each page that this word marks. What a page leaves is removed before the next one.
pub(crate) fn run_pages(word: &str, shell: &mut Shell<'_>) -> usize {
    let mut count = 0;
    for page in pages() {
        for block in blocks(&page) {
            if let Some(codes) = block.after(&format!("sh {word}")) {
                shell.run(&block.place, codes, &block.text);
                count += 1;
            }
        }
        shell.clean();
    }
    count
}

#[test]
fn blocks_have_their_place_their_words_and_their_text() {
    let text = "a\n```sh node 0|3\none\n\ntwo\n```\n```text\nx\n```\n";
    let found = blocks_in("p.md", text);
    let first = Block { place: "p.md:3".into(), info: "sh node 0|3".into(), text: "one\n\ntwo\n".into() };
    assert_eq!(found.first(), Some(&first));
    assert_eq!(
        (first.after("sh node"), first.after("sh"), first.after("sh no")),
        (Some("0|3"), Some("node 0|3"), None)
    );
    assert_eq!(found.len(), 2);
}

/// Gives the node's runtime the image of the pages, without a registry.
pub(crate) fn provide_image(node: &Node) {
    node.ctr(&["images", "tag", IMAGE, IMAGE_OF_THE_PAGES]);
    node.eventually("the runtime has the image of the pages", |node| {
        let images = node.images();
        if images.contains_key(IMAGE_OF_THE_PAGES) { Ok(()) } else { Err(format!("{images:?}")) }
    });
}

#[test]
fn every_command_for_a_standalone_node_runs_there() {
    let mut node = Node::on_containerd(json!({}));
    provide_image(&node);
    let drop_ins = Shell::path(&node, "etc/kubernetes/kubelet.conf.d");
    std::fs::create_dir_all(&drop_ins).expect("a directory for drop-ins");
    node.add_flags(&["--config-dir", drop_ins.to_str().expect("a path")]);
    node.start_kubelet();
    let mut shell = Shell::of(&mut node, None);
    let count = run_pages("node", &mut shell);
    assert!(count >= 20, "{count} blocks ran");
}

#[test]
fn every_configuration_on_the_pages_has_neither_errors_nor_warnings() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kubelet.yaml");
    let mut count = 0;
    for block in
        pages().iter().flat_map(|page| blocks(page)).filter(|block| block.after("yaml kubelet").is_some())
    {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        std::fs::write(&file, format!("{head}{}", block.text)).expect("written");
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_kubelet"));
        check.args(["config", "check", "--offline", "--config"]).arg(&file);
        // Webhooks are asked through the API server of a kubeconfig.
        check.args(["--kubeconfig", "/etc/kubernetes/kubelet.conf"]);
        let output = check.output().expect("the kubelet runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {said}", block.place);
        count += 1;
    }
    assert!(count >= 12, "{count} configurations");
}

#[test]
fn configuration_of_prometheus_on_the_pages_passes_promtool() {
    let directory = tempfile::tempdir().expect("a directory");
    let blocks: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).collect();
    let ours: Vec<_> = blocks.iter().filter(|block| block.after("yaml prometheus").is_some()).collect();
    assert_eq!(ours.len(), 1);
    std::fs::copy(self::directory().join("alerts.yaml"), directory.path().join("alerts.yaml"))
        .expect("copied");
    for block in ours {
        let file = directory.path().join("prometheus.yaml");
        std::fs::write(&file, &block.text).expect("written");
        // Without the files of a ServiceAccount on this machine.
        let output = program("promtool").args(["check", "config", "--syntax-only"]).arg(&file).output();
        let output = output.expect("promtool runs; scripts/setup brings it");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}: {}", block.place, String::from_utf8_lossy(&said));
    }
}
