//! Which images are mounted into containers (gate `ImageVolumeWithDigest`): an observation gets the id of each. A mount never changes, so
//! each is looked up once; one that cannot be looked up has no id until a later inspection succeeds.

use model::PodObservation;
use model::observation::ImageMount;
use model::request::ImageRequest;
use ports::Runtime;

/// Fills in the ids of the mounted images, those of `previous` without a call.
pub(super) async fn find_images(
    runtime: &dyn Runtime,
    observation: &mut PodObservation,
    previous: Option<&PodObservation>,
) {
    if observation.containers.iter().all(|container| container.image_mounts.is_empty()) {
        return;
    }
    let pod = observation.pod.clone();
    for container in &mut observation.containers {
        let known = previous.and_then(|previous| previous.container(&container.id));
        let known = known.map_or(&[] as &[ImageMount], |known| &known.image_mounts);
        for mount in &mut container.image_mounts {
            if mount.image_ref.is_some() {
                continue;
            }
            let known = known.iter().find(|known| known.container_path == mount.container_path);
            mount.image_ref = match known.and_then(|known| known.image_ref.clone()) {
                Some(known) => Some(known),
                None => image_ref(runtime, &mount.image).await.unwrap_or_else(|problem| {
                    tracing::warn!(
                        %pod,
                        podUID = %pod.uid,
                        containerName = &*container.name,
                        mountPath = mount.container_path,
                        err = problem,
                        "Failed to look up the image of an image volume"
                    );
                    None
                }),
            };
        }
    }
}

/// The id of the image.
async fn image_ref(runtime: &dyn Runtime, image: &str) -> Result<Option<String>, String> {
    let request = ImageRequest { image: image.to_owned(), ..ImageRequest::default() };
    let found = runtime.image_status(&request).await.map_err(|error| error.to_string())?;
    found.map(|found| Some(found.id)).ok_or_else(|| "image was not found".to_owned())
}
