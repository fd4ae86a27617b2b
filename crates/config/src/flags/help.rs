//! The help text, made from the flag table and the built-in defaults.

use std::fmt::Write as _;

use serde_json::Value;

use super::{FLAGS, Flag, Kind, Target, Topic};
use crate::{KubeletConfiguration, NodeFlags, tree};

const WIDTH: usize = 100;

/// The output of `--help`: every flag under its topic, with its default.
#[must_use]
pub fn help() -> String {
    let mut fields = serde_json::to_value(KubeletConfiguration::default()).unwrap_or(Value::Null);
    tree::merge_patch(&mut fields, crate::kubeletconfig::defaults::legacy());
    let node = serde_json::to_value(NodeFlags::default()).unwrap_or(Value::Null);
    let mut text = String::from(
        "The kubelet runs pods on this node. It takes them from static manifests and, given --kubeconfig, from an\n\
         API server, and keeps their containers running through a CRI runtime.\n\nUsage:\n  kubelet [flags]\n",
    );
    let mut topics: Vec<Topic> = FLAGS.iter().map(|flag| flag.topic).collect();
    topics.sort();
    topics.dedup();
    for topic in topics {
        let _ = write!(text, "\n{}:\n", heading(topic));
        for flag in FLAGS.iter().filter(|flag| flag.topic == topic) {
            entry(&mut text, flag, &default_of(flag, &fields, &node));
        }
    }
    text
}

const fn heading(topic: Topic) -> &'static str {
    match topic {
        Topic::Configuration => "Configuration",
        Topic::Node => "The node",
        Topic::StaticPods => "Static pods",
        Topic::Runtime => "Container runtime and containers",
        Topic::Images => "Images",
        Topic::Server => "HTTP server",
        Topic::Cluster => "API server",
        Topic::Resources => "Resources and cgroups",
        Topic::Eviction => "Eviction",
        Topic::Network => "Network",
        Topic::Logging => "Logging",
        Topic::Accepted => "Accepted without effect",
        Topic::Own => "Only of this kubelet (the Go kubelet does not know these flags)",
        Topic::Global => "Global",
    }
}

fn entry(text: &mut String, flag: &Flag, default: &str) {
    let short = match flag.name {
        "v" => "-v, ",
        "help" => "-h, ",
        _ => "    ",
    };
    let value = value_word(flag.kind);
    let equals = if value.is_empty() { "" } else { " " };
    let _ = writeln!(text, "  {short}--{}{equals}{value}", flag.name);
    let mut words = flag.help.to_owned();
    if !default.is_empty() {
        let _ = write!(words, " (default {default})");
    }
    if let Target::DeprecatedField(field) = flag.target {
        let _ = write!(words, " (DEPRECATED: set {field} in the file given by --config)");
    } else if flag.deprecation().is_some() {
        words.push_str(" (DEPRECATED)");
    }
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() + 9 > WIDTH {
            let _ = writeln!(text, "        {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "        {line}");
}

const fn value_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "",
        Kind::Text | Kind::Ip => "string",
        Kind::Int32 | Kind::Int64 | Kind::Level => "int",
        Kind::Duration => "duration",
        Kind::List => "strings",
        Kind::Map => "key=value,…",
        Kind::Thresholds => "signal<threshold,…",
        Kind::Headers => "name:value,…",
        Kind::Gates => "gate=bool,…",
        Kind::Taints => "key=value:effect,…",
        Kind::ReservedMemory => "node:type=quantity,…;…",
        Kind::VModule => "file=level,…",
        Kind::Quantity => "quantity",
        Kind::Version => "version[=raw]",
    }
}

/// The default in the form of the flag's value; empty if the default is empty.
fn default_of(flag: &Flag, fields: &Value, node: &Value) -> String {
    let value = match flag.target {
        Target::Field(path) | Target::DeprecatedField(path) => tree::get(fields, path),
        Target::Node(path) | Target::DeprecatedNode(path) => tree::get(node, path),
        Target::Ignored | Target::Action => None,
    };
    match value {
        None | Some(Value::Null | Value::Object(_) | Value::Bool(false)) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            texts.join(",")
        }
        Some(value @ (Value::Bool(true) | Value::Number(_))) => value.to_string(),
    }
}

/// ` (did you mean …?)` if a known flag is at most two letters away.
pub(super) fn hint(name: &str) -> String {
    let near = nearest(name, FLAGS.iter().map(|flag| flag.name));
    near.map_or_else(String::new, |near| format!(" (did you mean --{near}?)"))
}

/// The known name that is at most two letters away.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, near)| *distance <= 2 && near.len() > 3)
        .map(|(_, near)| near)
}

/// Edit distance, row by row.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let next = (corner + usize::from(x != y)).min(left + 1).min(*cell + 1);
            corner = *cell;
            *cell = next;
            left = next;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(a.len())
}
