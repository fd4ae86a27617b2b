//! Why an image or a volume is as it is: gathers what the node knows, for `explain_core`.

use base_agent::pods_view::PodEntry;
use explain_core::image::{
    CollectionFacts, CredentialFacts, ImageFacts, ImagePull, ImageUser, compute_image_explanation,
};
use explain_core::volume::{VolumeFacts, compute_volume_explanation};
use images_agent::KnownPull;
use images_core::garbage_collection::ImageGcPolicy;
use images_core::name::parse;
use model::containers::{all_containers, spec_of};
use model::explain::{Explanation, TrailStep};
use model::inventory::PodSelection;
use model::pod_status::{has_ended, statuses_by_name};
use model::request::ImageObservation;
use stats_agent::FRESH;

use super::images::{item, listing, users};
use super::in_time;
use super::volumes::{PodVolumes, reports};
use crate::serving::explain::selected;
use crate::serving::node_api::AgentApi;

/// Events that begin and end a pull. Why one failed is what its container waits for.
const PULLED: &str = "Pulled";
const PULLS: [&str; 2] = ["Pulling", PULLED];

pub(super) async fn image(api: &AgentApi, name: &str) -> Option<Explanation> {
    let (images, problem) = match listing(api).await {
        Ok(images) => (images, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let found = images.iter().position(|image| is_meant(image, name));
    let names = found.and_then(|index| images.get(index)).map(names_of).unwrap_or_default();
    let is_same =
        |other: &str| is_same_image(other, name) || names.iter().any(|known| is_same_image(other, known));
    let entries = api.lookup.pods.all();
    let wanted_by: Vec<ImageUser> = entries.iter().flat_map(|entry| users_of(entry, &is_same)).collect();
    if found.is_none() && wanted_by.is_empty() && problem.is_none() {
        return None;
    }
    let last_pull = last_pull(api, &entries, &wanted_by);
    let used_by = found.and_then(|index| users(api, &images).remove(&index)).unwrap_or_default();
    let image = found.and_then(|index| images.into_iter().nth(index)).map(|image| item(api, image, used_by));
    let credentials = match &image {
        Some(image) => credentials(api, name, &image.id).await,
        None => None,
    };
    let facts = ImageFacts {
        name: name.to_owned(),
        image,
        problem,
        wanted_by,
        last_pull,
        credentials,
        collection: collection(api).await,
        now: api.lookup.ctx.clock.now().wall,
    };
    Some(compute_image_explanation(&facts))
}

/// By a name, or an ID or its beginning.
fn is_meant(image: &ImageObservation, name: &str) -> bool {
    let is_id = image.id == name || (name.len() >= MIN_ID && hex(&image.id).starts_with(hex(name)));
    is_id || image.repo_tags.iter().chain(&image.repo_digests).any(|known| is_same_image(known, name))
}

/// A shorter beginning of an ID would mean too many images.
const MIN_ID: usize = 8;

fn hex(id: &str) -> &str {
    id.strip_prefix("sha256:").unwrap_or(id)
}

fn names_of(image: &ImageObservation) -> Vec<String> {
    image.repo_tags.iter().chain(&image.repo_digests).cloned().collect()
}

/// With or without the defaults of short names.
fn is_same_image(a: &str, b: &str) -> bool {
    a == b || parse(a).is_ok_and(|a| parse(b).is_ok_and(|b| a == b))
}

fn users_of(entry: &PodEntry, is_same: &impl Fn(&str) -> bool) -> Vec<ImageUser> {
    if !entry.progress.may_run() {
        return Vec::new();
    }
    let pod = entry.identity.to_string();
    let policy = |policy: Option<&str>| policy.unwrap_or("IfNotPresent").to_owned();
    let statuses = statuses_by_name(&entry.status);
    let containers = all_containers(&entry.pod).filter(|container| is_same(container.image()));
    let containers = containers.map(|container| {
        let waiting =
            statuses.get(container.name()).and_then(|status| status.state.as_ref()?.waiting.as_ref());
        let waits = waiting.and_then(|waiting| {
            let reason = waiting.reason.clone().filter(|reason| reason.contains("Image"))?;
            Some((reason, waiting.message.clone().unwrap_or_default()))
        });
        let part = format!("container {}", container.name());
        ImageUser { pod: pod.clone(), part, pull_policy: policy(container.image_pull_policy()), waits }
    });
    let volumes = spec_of(&entry.pod).volumes.iter().flatten().filter_map(|volume| {
        let source =
            volume.image.as_ref().filter(|source| source.reference.as_deref().is_some_and(is_same))?;
        let (part, pull_policy) = (format!("volume {}", volume.name), policy(source.pull_policy.as_deref()));
        Some(ImageUser { pod: pod.clone(), part, pull_policy, waits: None })
    });
    containers.chain(volumes).collect()
}

/// The latest pull in the trails of the pods that name the image.
fn last_pull(api: &AgentApi, entries: &[PodEntry], wanted_by: &[ImageUser]) -> Option<ImagePull> {
    let of_pod = |entry: &PodEntry| {
        let pod = entry.identity.to_string();
        let users: Vec<&ImageUser> = wanted_by.iter().filter(|user| user.pod == pod).collect();
        let (trail, next_try) = api.lookup.ctx.recorder.trails.of(&entry.identity.uid);
        let is_about = |step: &&TrailStep| {
            let container = step.container.as_ref().map(|container| format!("container {container}"));
            let is_of_user = container.is_none_or(|part| users.iter().any(|user| user.part == part));
            step.is_event && PULLS.contains(&&*step.reason) && is_of_user && !users.is_empty()
        };
        let step = trail.iter().filter(is_about).max_by_key(|step| step.began)?;
        let waits = users.iter().find_map(|user| user.waits.as_ref());
        let success = (step.reason == PULLED).then(|| step.message.clone());
        Some(ImagePull {
            pod,
            at: step.began,
            error: waits
                .filter(|_| success.is_none())
                .map(|(_, message)| message.clone())
                .unwrap_or_default(),
            success,
            next_try,
        })
    };
    entries.iter().filter_map(of_pod).max_by_key(|pull| pull.at)
}

async fn credentials(api: &AgentApi, name: &str, id: &str) -> Option<CredentialFacts> {
    let ctx = &api.lookup.ctx;
    let KnownPull { record, was_intended } = in_time(ctx, api.handles.images.known_pull(name, id)).await??;
    let policy = ctx.config().image_pull_credentials_verification_policy.clone();
    let mut facts = CredentialFacts { policy, is_uncertain: was_intended, ..CredentialFacts::default() };
    let Some(record) = record else { return Some(facts) };
    facts.updated = Some(record.last_updated_time.0);
    for known in record.credential_mapping.values() {
        facts.is_for_all |= known.node_pods_accessible;
        let secrets = known.kubernetes_secrets.iter();
        facts.secrets.extend(secrets.map(|secret| format!("{}/{}", secret.namespace, secret.name)));
        let accounts = known.kubernetes_service_accounts.iter();
        facts
            .service_accounts
            .extend(accounts.map(|account| format!("{}/{}", account.namespace, account.name)));
    }
    Some(facts)
}

async fn collection(api: &AgentApi) -> CollectionFacts {
    let ctx = &api.lookup.ctx;
    let policy = ImageGcPolicy::of(ctx.config());
    let sample = in_time(ctx, api.samplers.filesystems(FRESH)).await.flatten();
    let space = sample.and_then(|sample| sample.images.as_ref().map(|images| images.space));
    let used = space.and_then(|space| {
        let free = space.available_bytes.min(space.capacity_bytes);
        let percent = u128::from(free).saturating_mul(100).checked_div(u128::from(space.capacity_bytes))?;
        u64::try_from(100_u128.saturating_sub(percent)).ok()
    });
    CollectionFacts {
        high_percent: policy.high_percent,
        low_percent: policy.low_percent,
        used_percent: used,
        age_min: policy.age_min,
        age_max: policy.age_max,
    }
}

/// `volume`, `pod/volume` or `namespace/pod/volume`.
pub(super) async fn volumes(api: &AgentApi, words: &str) -> Vec<Explanation> {
    let (pod, volume) = words.rsplit_once('/').unwrap_or(("", words));
    let (reports, problems) = reports(api).await;
    let mut found = Vec::new();
    for entry in selected(&api.lookup, &PodSelection::of(pod)) {
        let mut volumes = spec_of(&entry.pod).volumes.iter().flatten();
        let Some(meant) = volumes.find(|known| known.name == volume) else { continue };
        let known = PodVolumes::of(api, &entry, &reports);
        found.push(compute_volume_explanation(&VolumeFacts {
            driver: known.awaited(volume).map(|(_, driver)| driver.clone()).unwrap_or_default(),
            volume: known.item(meant),
            has_pod_ended: has_ended(&entry.status) || !entry.progress.may_run(),
            problem: problems.first().cloned(),
            now: api.lookup.ctx.clock.now().wall,
        }));
    }
    found
}
