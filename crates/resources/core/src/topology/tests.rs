//! Hints as text, for the tables of this folder: `01+` is a preferred hint for nodes 0 and 1, `*-` one for any node that is not
//! preferred. The hints of a resource are separated by spaces, resources by commas, providers by slashes; `nil` is a resource whose
//! nodes do not matter, `none` one that cannot be given, `()` a provider without any resource.

use model::topology::NumaNode;

use super::numa_info::NumaInfo;
use super::*;

pub(super) fn mask(text: &str) -> Option<NumaMask> {
    (text != "*").then(|| NumaMask::of(text.chars().filter_map(|digit| digit.to_digit(10))))
}

pub(super) fn hint(text: &str) -> TopologyHint {
    let (nodes, preferred) = text.split_at(text.len() - 1);
    TopologyHint { nodes: mask(nodes), is_preferred: preferred == "+" }
}

pub(super) fn hints(text: &str) -> Vec<TopologyHint> {
    text.split_whitespace().map(hint).collect()
}

pub(super) fn providers(text: &str) -> Vec<ProviderHints> {
    text.split('/').map(str::trim).filter(|provider| !provider.is_empty()).map(provider).collect()
}

fn provider(text: &str) -> ProviderHints {
    let resources = text.split(',').map(str::trim).filter(|resource| *resource != "()");
    let hints = |text: &str| match text {
        "nil" => None,
        "none" => Some(Vec::new()),
        text => Some(hints(text)),
    };
    resources.enumerate().map(|(at, text)| (format!("resource{at}"), hints(text))).collect()
}

pub(super) fn shown(hint: TopologyHint) -> String {
    let ids = |nodes: NumaMask| nodes.ids().map(|id| id.to_string()).collect::<String>();
    let sign = if hint.is_preferred { '+' } else { '-' };
    format!("{}{sign}", hint.nodes.map_or_else(|| "*".to_owned(), ids))
}

/// The machines of the original's tests: two, four or eight nodes, near each other in pairs and fours.
pub(super) fn nodes(count: u32) -> Vec<NumaNode> {
    let distance = |from: u32, to: u32| match from ^ to {
        0 => 10,
        1 if (from, to) == (7, 6) => 13,
        1 => 11,
        2 | 3 => 12,
        _ => 30,
    };
    let node = |id| NumaNode {
        id,
        distances: (0..count).map(|to| distance(id, to)).collect(),
        ..NumaNode::default()
    };
    (0..count).map(node).collect()
}

pub(super) fn info(count: u32) -> NumaInfo {
    NumaInfo::of(&nodes(count))
}
