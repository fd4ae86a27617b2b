//! Pods described by a file or a URL instead of the API server: from the text of a manifest to a valid pod.
//!
//! Owns parsing the text (YAML or JSON, one or several documents, lists), the pod's identity (name, namespace, UID), the
//! defaults of the API server, and every reason to reject it. Never reads the file itself.

mod core_pod;
pub mod defaults;
pub mod identity;
mod quantity_text;
pub mod references;
pub mod validation;

#[cfg(test)]
mod tests;

use std::fmt;

use config::Features;
use model::annotations as keys;
use model::k8s::Pod;

pub use defaults::apply_defaults;
pub use identity::{Origin, apply_identity, mark_first_seen};
pub use validation::{FieldError, validate_pod};
pub use yaml::Position;

use yaml::{Documents, Node, Problem, Reading};

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// In the order of the text; complete with identity and defaults, and valid.
    pub pods: Vec<Pod>,
    /// Warnings about unknown and repeated fields, which may not mean what the author intended.
    pub warnings: Vec<ManifestError>,
}

/// One thing wrong with a manifest. Its text names the manifest and, where known, the line and the column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", Place { origin: &self.origin, position: self.position })]
pub struct ManifestError {
    pub origin: Origin,
    pub position: Option<Position>,
    pub message: String,
}

struct Place<'a> {
    origin: &'a Origin,
    position: Option<Position>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => write!(f, "{}:{line}:{column}", self.origin),
            None => write!(f, "{}", self.origin),
        }
    }
}

/// Parses every pod of a manifest and completes it for the node: identity, defaults, validation.
///
/// A manifest without any document contains no pods. The time of first sight is not part of the result, so that parsing the
/// same text twice gives equal pods; [`mark_first_seen`] adds it.
///
/// # Errors
/// Everything that is wrong with any pod of the manifest, at once. One invalid pod rejects the whole manifest.
pub fn parse_manifest(
    text: &[u8],
    origin: &Origin,
    node_name: &str,
    features: Features,
) -> Result<Manifest, Vec<ManifestError>> {
    let error = |position, message: String| ManifestError { origin: origin.clone(), position, message };
    let text = std::str::from_utf8(text)
        .map_err(|e| vec![error(None, format!("not UTF-8 after byte {}", e.valid_up_to()))])?;
    let Documents { documents, duplicate } =
        yaml::read(text).map_err(|e| vec![error(e.position, e.to_string())])?;
    let mut warnings: Vec<_> = duplicate.into_iter().map(|e| error(e.position, e.to_string())).collect();
    let (mut pods, mut errors) = (Vec::new(), Vec::new());
    for item in documents.iter().flat_map(items) {
        let located = |e: Problem| error(e.position, e.to_string());
        let node = match item.and_then(with_known_version) {
            Ok(node) => node,
            Err(e) => {
                errors.push(located(e));
                continue;
            }
        };
        let reading = Reading::strict();
        let (pod, wrong_types) = reading.read_all::<Pod>(node);
        warnings.extend(reading.into_unknown().into_iter().map(located));
        if let Some(mut pod) = pod {
            let problems = complete(&mut pod, origin, node_name, features);
            let of_node = problems.into_iter().filter(|problem| problem.is_independent_of(&wrong_types));
            errors.extend(of_node.map(|problem| error(node.position_of(&problem.path), problem.message)));
            pods.push(pod);
        }
        errors.extend(wrong_types.into_iter().map(located));
    }
    errors.sort_by_key(|error| error.position);
    if errors.is_empty() { Ok(Manifest { pods, warnings }) } else { Err(errors) }
}

/// The pods of one document: itself, or the items of a list.
fn items(document: &Node) -> Vec<Result<&Node, Problem>> {
    match document.text_field("kind") {
        Some("Pod") => vec![Ok(document)],
        Some("PodList" | "List") => document.list_field("items").iter().map(is_pod).collect(),
        Some(other) => vec![Err(document.problem(format!("kind {other:?} is not a Pod or a list of pods")))],
        None => vec![Err(document.problem("Object 'Kind' is missing".to_owned()))],
    }
}

/// Items of a `PodList` may omit their kind; items of a `List` must have one.
fn is_pod(item: &Node) -> Result<&Node, Problem> {
    match item.text_field("kind") {
        Some("Pod") | None => Ok(item),
        Some(other) => Err(item.problem(format!("kind {other:?} in a list of pods"))),
    }
}

fn with_known_version(node: &Node) -> Result<&Node, Problem> {
    match node.text_field("apiVersion") {
        Some("v1") | None => Ok(node),
        Some(other) => Err(node.problem(format!("no kind \"Pod\" is registered for version {other:?}"))),
    }
}

/// Why a pod is rejected, and the field that it is about.
struct Refusal {
    path: String,
    message: String,
    /// It is about a name that something else should have.
    is_reference: bool,
}

impl Refusal {
    /// It is not only there because values of a wrong type were left out.
    fn is_independent_of(&self, left_out: &[Problem]) -> bool {
        let touches = |wrong: &Problem| {
            wrong.path.starts_with(&self.path) || self.path.starts_with(&wrong.path) || self.is_reference
        };
        !left_out.iter().any(touches)
    }
}

/// Identity, defaults and all validation errors.
fn complete(pod: &mut Pod, origin: &Origin, node_name: &str, features: Features) -> Vec<Refusal> {
    let written_name = pod.metadata.name.clone().unwrap_or_default();
    let mut problems = Vec::new();
    let mut refuse = |path: &str, problem: &str| {
        let message = format!("pod {written_name:?}: {problem}");
        problems.push(Refusal { path: path.to_owned(), message, is_reference: false });
    };
    if pod.metadata.deletion_timestamp.is_some() {
        refuse("metadata.deletionTimestamp", "metadata.deletionTimestamp may not be set by a manifest");
    }
    if pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(keys::CONFIG_MIRROR)) {
        refuse("metadata.annotations", "a manifest may not describe a mirror pod");
    }
    // The kubelet writes the status; one in a manifest was copied from another object.
    pod.status = None;
    apply_identity(pod, origin, node_name);
    apply_defaults(pod);
    let invalid =
        validate_pod(pod, features).into_iter().chain(references::refused_references(pod, features));
    problems.extend(invalid.map(|error| Refusal {
        message: format!("invalid pod {written_name:?}: {error}"),
        is_reference: matches!(error.problem, validation::Problem::NotFound { .. }),
        path: error.path,
    }));
    problems
}
