//! Image volumes: their images are pulled before any container starts, and mounted by the runtime.

use std::collections::BTreeMap;

use images_agent::{ImageFailure, PodLogin, ReadyImage, WantedImage};
use model::request::{MountedImage, SandboxRequest};
use volumes_core::image::{all_image_volumes, check_runtime};

use super::{PassContext, PassEvent};

/// By the name of the volume: its image, or why the pull failed.
pub(super) type PulledImages = BTreeMap<String, Result<MountedImage, ImageFailure>>;

/// Pulls the images of all volumes, whether a container mounts them or not, as the Go kubelet does. A failure affects only
/// the containers that mount the volume.
pub(super) async fn pull_all(
    context: &PassContext,
    sandbox: &SandboxRequest,
    login: &PodLogin,
) -> PulledImages {
    let mut pulled = BTreeMap::new();
    let pod = &*context.pod;
    let volumes = all_image_volumes(pod);
    let runtime = context.handles.node.view.borrow().version.clone();
    // A runtime that does not support image volumes needs no images; the containers fail with that reason.
    if volumes.is_empty() || check_runtime(&runtime.name, &runtime.version, false).is_err() {
        return pulled;
    }
    for volume in volumes {
        let wanted = WantedImage::of_volume(volume);
        let image = context.handles.images.ensure(&context.identity, wanted, sandbox, login).await;
        if let Ok(image) = &image {
            record_pull(context, image).await;
        }
        let mounted = image.map(|image| MountedImage {
            reference: image.reference,
            user_specified_image: volume.image.to_owned(),
            annotations: sandbox.annotations.clone(),
            runtime_handler: context.handles.images.runtime_handler(sandbox),
        });
        pulled.insert(volume.volume.to_owned(), mounted);
    }
    pulled
}

pub(super) async fn record_pull(context: &PassContext, image: &ReadyImage) {
    if let Some((began, ended)) = image.pulled {
        context.report(PassEvent::Pulled { began, ended }).await;
    }
}
