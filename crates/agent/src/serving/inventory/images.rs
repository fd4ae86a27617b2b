//! The images of the runtime, and which pods use them.

use std::collections::{BTreeMap, BTreeSet};

use images_core::access::find_image;
use model::containers::{all_containers, spec_of};
use model::inventory::{ImageItem, Inventory};
use model::k8s::Pod;
use model::request::ImageObservation;

use super::{TIMEOUT, in_time, wall_time};
use crate::serving::node_api::AgentApi;

/// By the index of the image: the pods.
type Users = BTreeMap<usize, BTreeSet<String>>;

pub(super) async fn list(api: &AgentApi) -> Inventory<ImageItem> {
    let images = match listing(api).await {
        Ok(images) => images,
        Err(problem) => return Inventory { items: Vec::new(), problems: vec![problem] },
    };
    let mut users = users(api, &images);
    let items = images.into_iter().enumerate().map(|(index, image)| {
        let used_by = users.remove(&index).unwrap_or_default();
        item(api, image, used_by)
    });
    let mut items: Vec<ImageItem> = items.collect();
    items.sort_by(|a, b| (&a.names, &a.id).cmp(&(&b.names, &b.id)));
    items.into()
}

/// The images of the runtime, or why there are none.
pub(super) async fn listing(api: &AgentApi) -> Result<Vec<ImageObservation>, String> {
    let ctx = &api.lookup.ctx;
    match in_time(ctx, ctx.runtime.list_images()).await {
        Some(Ok(images)) => Ok(images),
        Some(Err(error)) => Err(format!("the container runtime failed to list its images: {error}")),
        None => Err(format!("the container runtime has not answered for {} s", TIMEOUT.as_secs())),
    }
}

pub(super) fn item(api: &AgentApi, image: ImageObservation, used_by: BTreeSet<String>) -> ImageItem {
    let (first_seen, last_used) = api.handles.images.times(&image.id);
    let ctx = &api.lookup.ctx;
    ImageItem {
        id: image.id,
        names: image.repo_tags.into_iter().chain(image.repo_digests).collect(),
        size_bytes: image.size_bytes,
        is_pinned: image.pinned,
        used_by: used_by.into_iter().collect(),
        first_seen: first_seen.map(|at| wall_time(ctx, at)),
        last_used: last_used.map(|at| wall_time(ctx, at)),
    }
}

/// The pods whose containers have an image, or that name it.
pub(super) fn users(api: &AgentApi, images: &[ImageObservation]) -> Users {
    let mut indices: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, image) in images.iter().enumerate() {
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        indices.extend(names.chain([&image.id]).map(|name| (name.as_str(), index)));
    }
    let mut by_name: BTreeMap<String, Option<usize>> = BTreeMap::new();
    let mut index_of = |name: &str| {
        let search = || {
            let found = find_image(images, name)?;
            indices.get(found.id.as_str()).copied()
        };
        *by_name.entry(name.to_owned()).or_insert_with(|| indices.get(name).copied().or_else(search))
    };
    let mut users = Users::new();
    for entry in api.lookup.pods.all() {
        let pod = entry.identity.to_string();
        let observed = api.lookup.cache.get(&entry.identity.uid);
        let of_containers = observed.iter().flat_map(|observed| observed.containers.iter());
        let mut names: BTreeSet<&str> = of_containers.map(|container| &*container.image_id).collect();
        if entry.progress.may_run() {
            names.extend(named_by(&entry.pod));
        }
        for index in names.into_iter().filter_map(&mut index_of) {
            users.entry(index).or_default().insert(pod.clone());
        }
    }
    users
}

/// The images that a pod names, for its containers and volumes.
pub(super) fn named_by(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = spec_of(pod).volumes.iter().flatten();
    let of_volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    all_containers(pod).map(|container| container.image()).chain(of_volumes)
}
