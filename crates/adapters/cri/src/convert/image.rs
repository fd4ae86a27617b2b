//! Converts images: requests to CRI messages, and images of the runtime back.

use cri_api::v1 as wire;
use model::request::{ImageObservation, ImageRequest, RegistryAuth};

pub(crate) fn spec(from: &ImageRequest) -> wire::ImageSpec {
    wire::ImageSpec {
        image: from.image.clone(),
        annotations: from.annotations.clone(),
        runtime_handler: from.runtime_handler.clone(),
        // The image as written is sent for containers and mounts only.
        ..Default::default()
    }
}

pub(crate) fn auth(from: &RegistryAuth) -> wire::AuthConfig {
    wire::AuthConfig {
        username: from.username.clone(),
        password: from.password.clone(),
        auth: from.auth.clone(),
        server_address: from.server_address.clone(),
        identity_token: from.identity_token.clone(),
        registry_token: from.registry_token.clone(),
    }
}

pub(crate) fn observation(from: wire::Image) -> ImageObservation {
    ImageObservation {
        id: from.id,
        repo_tags: from.repo_tags,
        repo_digests: from.repo_digests,
        size_bytes: from.size,
        uid: from.uid.map(|uid| uid.value),
        username: from.username,
        pinned: from.pinned,
        runtime_handler: from.spec.map(|spec| spec.runtime_handler).unwrap_or_default(),
    }
}
