//! The images that a Node lists for the scheduler: the largest first. Never lists the runtime's images.

use model::k8s::ContainerImage;

/// Maximum number of names per image.
const MAX_NAMES: usize = 5;

/// An image of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeImage {
    pub repo_digests: Vec<String>,
    pub repo_tags: Vec<String>,
    pub size_bytes: u64,
}

/// The largest images, at most `max` (below 0: all), each with its digests before its tags.
#[must_use]
pub fn compute_images(images: &[NodeImage], max: i32) -> Vec<ContainerImage> {
    let mut sorted: Vec<&NodeImage> = images.iter().collect();
    sorted.sort_by(|a, b| {
        let names = |image: &NodeImage| (image.repo_digests.clone(), image.repo_tags.clone());
        b.size_bytes.cmp(&a.size_bytes).then_with(|| names(a).cmp(&names(b)))
    });
    let most = usize::try_from(max).unwrap_or(usize::MAX);
    sorted.into_iter().take(most).map(shown).collect()
}

fn shown(image: &NodeImage) -> ContainerImage {
    let names: Vec<String> =
        image.repo_digests.iter().chain(&image.repo_tags).take(MAX_NAMES).cloned().collect();
    ContainerImage {
        // The API does not distinguish an empty list of names from none.
        names: Some(names).filter(|names| !names.is_empty()),
        size_bytes: Some(i64::try_from(image.size_bytes).unwrap_or(i64::MAX)),
    }
}
