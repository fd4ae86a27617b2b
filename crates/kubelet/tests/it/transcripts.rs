//! What `kubelet why` answers in situations that users of kubelets complain about: a page of docs/operate/transcripts for each.
//!
//! Each test brings a real node into the situation, and waits until the answer has the words that help. `RECORD_TRANSCRIPTS=1` writes
//! the answers to the pages; without it, a page that lacks the words is reported. What needs a whole machine is in `guest::transcripts`.

mod cluster;
mod faults;
mod node;
mod pods;
mod runtime;
mod storage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::node::Node;

/// The pages, from the repository.
fn directory() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/kubelet");
    repository.join("docs/operate/transcripts")
}

fn is_recording() -> bool {
    std::env::var_os("RECORD_TRANSCRIPTS").is_some()
}

/// A page: a situation, commands and their answers.
pub(crate) struct Page<'a> {
    node: &'a Node,
    /// Of the file, without `.md`.
    name: &'static str,
    text: String,
}

impl<'a> Page<'a> {
    /// Begins a page; the title says what a user sees, the situation what is behind it.
    pub(crate) fn new(node: &'a Node, name: &'static str, title: &str, situation: &str) -> Self {
        Self { node, name, text: format!("# {title}\n\n{situation}\n") }
    }

    /// Waits until a command answers with that exit code and all these words, which may be broken into lines.
    #[track_caller]
    pub(crate) fn says(self, arguments: &[&str], code: i32, words: &[&str]) -> Self {
        let line = format!("kubelet {}", arguments.join(" "));
        let answer = self.node.eventually(&format!("{line} says {words:?}, exit code {code}"), |node| {
            let (text, actual) = ask(node, arguments);
            let is_said = actual == code && words.iter().all(|word| in_one_line(&text).contains(word));
            if is_said { Ok(text) } else { Err(format!("exit code {actual}: {text}")) }
        });
        self.shows(&line, &answer, code, words)
    }

    /// Takes an answer with all these words, which may be broken into lines.
    #[track_caller]
    fn shows(mut self, line: &str, answer: &str, code: i32, words: &[&str]) -> Self {
        let answer = self.without_paths_of_the_test(answer);
        let _ = write!(self.text, "\n```console\n# {line}\n{answer}```\n\nExit code {code}.\n");
        if !is_recording() {
            let page = std::fs::read_to_string(self.file()).unwrap_or_default();
            let page = in_one_line(&page);
            let missing: Vec<_> = words.iter().filter(|word| !page.contains(*word)).collect();
            assert!(
                missing.is_empty(),
                "{} lacks {missing:?}: record it again with RECORD_TRANSCRIPTS=1",
                self.name
            );
        }
        self
    }

    /// Ends the page.
    pub(crate) fn end(self) {
        if is_recording() {
            std::fs::write(self.file(), &self.text).expect("the page is written");
        }
    }

    fn file(&self) -> PathBuf {
        directory().join(format!("{}.md", self.name))
    }

    /// With the paths that a node on a machine of its own has.
    fn without_paths_of_the_test(&self, text: &str) -> String {
        let path = |name: &str| self.node.path(name).display().to_string();
        text.replace(&path("root"), "/var/lib/kubelet")
            .replace(&path("manifests"), "/etc/kubernetes/manifests")
            .replace(&path("containerd"), "/run/containerd")
            .replace(path("").trim_end_matches('/'), "/srv")
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a command of the kubelet prints against the node's own one, and its exit code.
fn ask(node: &Node, arguments: &[&str]) -> (String, i32) {
    let output = crate::why::ask(node, arguments);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code().unwrap_or(-1))
}
