//! Which images are removed (docs/behaviour/images.md): unused ones, least recently used first, once their disk is too
//! full; and those that were unused for too long.
//!
//! Owns: the choice, its order and the messages. Never: removing an image, measuring the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use config::{GoDuration, KubeletConfiguration};
use model::MonoTime;
use model::request::ImageObservation;

use super::access::find_image;
use super::pull::join_errors;

pub const FREE_DISK_SPACE_FAILED: &str = "FreeDiskSpaceFailed";
pub const IMAGE_GC_FAILED: &str = "ImageGCFailed";
pub const INVALID_DISK_CAPACITY: &str = "InvalidDiskCapacity";
pub const INVALID_IMAGE_ID: &str = "InvalidImageID";

/// `imageGCHighThresholdPercent` and the fields next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// Above this share of disk usage, images are removed…
    pub high_percent: u64,
    /// …until usage is at or below this share.
    pub low_percent: u64,
    /// A younger image is not removed: it was just pulled for a container to be created.
    pub age_min: Duration,
    /// An image that was unused for longer is removed whatever the disk usage. `None`: never.
    pub age_max: Option<Duration>,
}

impl ImageGcPolicy {
    #[must_use]
    pub fn of(config: &KubeletConfiguration) -> Self {
        Self {
            high_percent: u64::try_from(config.image_gc_high_threshold_percent).unwrap_or(100),
            low_percent: u64::try_from(config.image_gc_low_threshold_percent).unwrap_or(100),
            age_min: config.image_minimum_gc_age.as_std(),
            age_max: Some(config.image_maximum_gc_age.as_std()).filter(|age| !age.is_zero()),
        }
    }
}

impl Default for ImageGcPolicy {
    fn default() -> Self {
        Self { high_percent: 85, low_percent: 80, age_min: Duration::from_secs(120), age_max: None }
    }
}

/// When an image was first observed, and when it was last in use. Kept in memory only: after a restart no image counts as
/// young or as unused for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// `None`: it existed before this kubelet started.
    since: Option<MonoTime>,
    used: Option<MonoTime>,
}

/// The known images, by ID and the handler that they were pulled for, if the runtime reports handlers. Contains only images that the
/// runtime lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageHistory {
    known: BTreeMap<(String, String), Known>,
    has_looked: bool,
}

/// The images in use.
#[derive(Clone, Debug, Default)]
pub struct ImageUse {
    /// Images of containers, dead ones included: IDs, or references by digest.
    pub ids: BTreeSet<String>,
    /// Images of image volumes, as users wrote them.
    pub references: BTreeSet<String>,
}

impl ImageUse {
    fn of(&self, image: &ImageObservation, by_volumes: &BTreeSet<&str>) -> bool {
        let names = image.repo_digests.iter().chain(&image.repo_tags);
        self.ids.contains(&image.id)
            || names.into_iter().any(|name| self.ids.contains(name))
            || by_volumes.contains(&*image.id)
    }
}

/// An image that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareImage {
    pub id: String,
    pub size_bytes: u64,
}

/// Why an image is removed, as the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageGcReason {
    Age,
    Space,
}

impl ImageGcReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Space => "space",
        }
    }
}

impl ImageHistory {
    /// Records one listing; returns the images that are neither used nor pinned, least recently used first. An image is removed for all
    /// handlers together, because RemoveImage has no handler: it is used, pinned or new if it is for any of them.
    pub fn record(&mut self, images: &[ImageObservation], used: &ImageUse, now: MonoTime) -> Vec<SpareImage> {
        let by_volumes: BTreeSet<&str> = used
            .references
            .iter()
            .filter_map(|name| find_image(images, name))
            .map(|image| &*image.id)
            .collect();
        let first_seen = self.has_looked.then_some(now);
        self.has_looked = true;
        let present: BTreeSet<_> = images.iter().map(|image| (&*image.id, &*image.runtime_handler)).collect();
        self.known.retain(|(id, handler), _| present.contains(&(&**id, &**handler)));
        let (mut sizes, mut kept) = (BTreeMap::new(), BTreeSet::new());
        for image in images.iter().filter(|image| !image.id.is_empty()) {
            let fresh = Known { since: first_seen, used: None };
            let known = self.known.entry((image.id.clone(), image.runtime_handler.clone())).or_insert(fresh);
            let is_used = used.of(image, &by_volumes);
            if is_used {
                known.used = Some(now);
            }
            if is_used || image.pinned {
                kept.insert(&*image.id);
            }
            let size = sizes.entry(&*image.id).or_insert(0);
            *size = image.size_bytes.max(*size);
        }
        let unused = sizes.into_iter().filter(|(id, _)| !kept.contains(id));
        let mut spare: Vec<_> = unused
            .map(|(id, size_bytes)| {
                let order = self.latest(id).map(|known| (known.used, known.since));
                (order, SpareImage { id: id.to_owned(), size_bytes })
            })
            .collect();
        spare.sort_by(|(a, first), (b, second)| (a, &first.id).cmp(&(b, &second.id)));
        spare.into_iter().map(|(_, image)| image).collect()
    }

    /// When the image was first observed and last used, for the handler for which that was latest.
    fn latest(&self, id: &str) -> Option<Known> {
        let from = (id.to_owned(), String::new());
        let of_id = self.known.range(from..).take_while(|((known, _), _)| known == id);
        of_id
            .map(|(_, known)| *known)
            .reduce(|a, b| Known { since: a.since.max(b.since), used: a.used.max(b.used) })
    }

    /// When the image was first observed, if after the start of the kubelet, and when it was last observed in use.
    #[must_use]
    pub fn times(&self, id: &str) -> (Option<MonoTime>, Option<MonoTime>) {
        self.latest(id).map_or((None, None), |known| (known.since, known.used))
    }

    /// The images among them that were unused for too long. Nothing is known about the time before `began`.
    #[must_use]
    pub fn outworn(
        &self,
        spare: &[SpareImage],
        policy: &ImageGcPolicy,
        began: MonoTime,
        now: MonoTime,
    ) -> Vec<SpareImage> {
        let Some(most) = policy.age_max.filter(|most| now.saturating_since(began) > *most) else {
            return Vec::new();
        };
        let is_outworn = |image: &&SpareImage| {
            self.latest(&image.id).is_some_and(|known| {
                let last = known.used.or(known.since).unwrap_or(began);
                now.saturating_since(last) > most
            })
        };
        spare.iter().filter(is_outworn).cloned().collect()
    }

    /// The images among them that are old enough to be removed for disk space.
    #[must_use]
    pub fn settled(&self, spare: &[SpareImage], policy: &ImageGcPolicy, now: MonoTime) -> Vec<SpareImage> {
        let is_settled = |image: &&SpareImage| {
            let since = self.latest(&image.id).and_then(|known| known.since);
            since.is_none_or(|since| now.saturating_since(since) >= policy.age_min)
        };
        spare.iter().filter(is_settled).cloned().collect()
    }
}

/// A disk that is too full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceNeed {
    pub bytes: u64,
    pub used_percent: u64,
    pub capacity_bytes: u64,
}

/// Usage cannot be computed for a disk without capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid capacity 0 on image filesystem")]
pub struct NoCapacity;

/// How much must be freed, if the disk is too full.
///
/// # Errors
/// The disk has no capacity.
pub fn compute_need(
    capacity: u64,
    available: u64,
    policy: &ImageGcPolicy,
) -> Result<Option<SpaceNeed>, NoCapacity> {
    if capacity == 0 {
        return Err(NoCapacity);
    }
    let (whole, left) = (u128::from(capacity), u128::from(available.min(capacity)));
    let used_percent = 100 - left * 100 / whole;
    if used_percent < u128::from(policy.high_percent) || policy.high_percent >= 100 {
        return Ok(None);
    }
    let wanted = whole * u128::from(100 - policy.low_percent.min(100)) / 100;
    let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    Ok(Some(SpaceNeed {
        bytes: narrow(wanted.saturating_sub(left)),
        used_percent: narrow(used_percent),
        capacity_bytes: capacity,
    }))
}

/// An image was listed without an id, so that it cannot be removed: event `InvalidImageID` of the node (Warning).
#[must_use]
pub fn invalid_id_message(handler: &str) -> String {
    format!("ImageID is not valid, skipping, image: ,{handler}")
}

/// Too little was freed although all candidates were removed.
#[must_use]
pub fn not_enough_message(need: &SpaceNeed, freed: u64) -> String {
    format!(
        "Insufficient free disk space on the node's image filesystem ({}% of {} used). Failed to free sufficient space by \
         deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, \
         logs, volumes, or other data.",
        need.used_percent,
        in_units(need.capacity_bytes),
    )
}

/// Some images could not be removed.
#[must_use]
pub fn not_removed_message(wanted: u64, freed: u64, errors: &[String]) -> String {
    let errors = join_errors(errors);
    format!(
        "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {errors}"
    )
}

/// Some images that were unused for too long could not be removed.
#[must_use]
pub fn old_not_removed_message(age: Duration, errors: &[String]) -> String {
    let (age, errors) = (GoDuration::from(age), join_errors(errors));
    format!("wanted to free images older than {age}, encountered errors in image deletion: {errors}")
}

/// `26.4 GiB`: a tenth of a unit from KiB on, rounded; nothing above TiB.
fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = UNITS.len().min(bytes.ilog2() as usize / 10);
    let tenths = (u128::from(bytes) * 10 + (1 << (10 * power)) / 2) >> (10 * power);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS.get(power - 1).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_start(Duration::from_secs(seconds))
    }

    fn image(id: &str) -> ImageObservation {
        ImageObservation {
            id: id.to_owned(),
            repo_tags: vec![format!("registry.example/{id}:1")],
            repo_digests: vec![format!("registry.example/{id}@sha256:{}", "0".repeat(64))],
            size_bytes: 100,
            pinned: id.starts_with("pinned"),
            ..ImageObservation::default()
        }
    }

    fn used(ids: &[&str]) -> ImageUse {
        ImageUse { ids: ids.iter().map(|id| (*id).to_owned()).collect(), references: BTreeSet::new() }
    }

    fn names(images: &[SpareImage]) -> String {
        images.iter().map(|image| image.id.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Observations are `seconds listed / used`; shown are the unused images of the last one, then those to remove for
    /// their age, then those that may be removed for disk space.
    #[track_caller]
    fn check(observations: &str, policy: &ImageGcPolicy, expected: [&str; 3]) {
        let (mut history, mut found) = (ImageHistory::default(), None);
        for observation in observations.lines().map(str::trim).filter(|observation| !observation.is_empty()) {
            let (listed, in_use) = observation.split_once('/').unwrap();
            let mut words = listed.split_whitespace();
            let now = at(words.next().unwrap().parse().unwrap());
            let images: Vec<_> = words.map(image).collect();
            let spare = history.record(&images, &used(&in_use.split_whitespace().collect::<Vec<_>>()), now);
            let outworn = history.outworn(&spare, policy, at(0), now);
            let settled = history.settled(&spare, policy, now);
            found = Some([names(&spare), names(&outworn), names(&settled)]);
        }
        assert_eq!(found.unwrap().each_ref().map(String::as_str), expected);
    }

    #[test]
    fn image_gc_removes_least_recently_used_images_first_and_keeps_used_and_pinned_ones() {
        let policy = ImageGcPolicy::default();
        check(
            "0 a b c pinned / a b\n 300 a b c pinned / b\n 600 a b c d pinned /",
            &policy,
            ["c d a b", "", "c a b"],
        );
        check("0 a b /\n 300 a b / a", &policy, ["b", "", "b"]);
    }

    #[test]
    fn image_gc_keeps_images_younger_than_the_minimum_age() {
        let policy = ImageGcPolicy::default();
        check("0 a /", &policy, ["a", "", "a"]);
        check("0 /\n 300 a /", &policy, ["a", "", ""]);
        check("0 /\n 300 a /\n 419 a /", &policy, ["a", "", ""]);
        check("0 /\n 300 a /\n 420 a /", &policy, ["a", "", "a"]);
    }

    #[test]
    fn image_maximum_age_counts_from_the_start_of_the_kubelet() {
        let policy = ImageGcPolicy { age_max: Some(Duration::from_secs(1000)), ..ImageGcPolicy::default() };
        check("0 a / \n 1000 a /", &policy, ["a", "", "a"]);
        check("0 a / \n 1001 a b /", &policy, ["a b", "a", "a"]);
        check("0 a / a\n 500 a / a\n 1500 a /", &policy, ["a", "", "a"]);
        check("0 a / a\n 500 a / a\n 1501 a /", &policy, ["a", "a", "a"]);
        check("0 a / a\n 1501 a /", &ImageGcPolicy::default(), ["a", "", "a"]);
    }

    #[test]
    fn an_image_that_a_volume_or_a_digest_names_is_in_use() {
        let mut history = ImageHistory::default();
        let images = [image("a"), image("b"), image("c")];
        let by_volume = ImageUse {
            ids: [images[1].repo_digests[0].clone()].into(),
            references: ["registry.example/a:1".to_owned(), "registry.example/none".to_owned()].into(),
        };
        assert_eq!(names(&history.record(&images, &by_volume, at(0))), "c");
    }

    #[test]
    fn removed_images_are_forgotten() {
        let mut history = ImageHistory::default();
        history.record(&[image("a"), image("b")], &used(&[]), at(0));
        history.record(&[image("b")], &used(&[]), at(1));
        assert_eq!(history.known.len(), 1);
    }

    /// Two records of one image, `a` for the default handler and for another one.
    fn for_handlers(handlers: &[&str]) -> Vec<ImageObservation> {
        let of = |handler: &&str| ImageObservation { runtime_handler: (*handler).to_owned(), ..image("a") };
        handlers.iter().map(of).collect()
    }

    #[test]
    fn image_of_several_handlers_is_removed_once_and_only_if_it_is_unused_and_settled_for_all_of_them() {
        let policy = ImageGcPolicy::default();
        let mut history = ImageHistory::default();
        let both = for_handlers(&["", "kata"]);
        assert_eq!(
            names(&history.record(&both, &used(&["a"]), at(0))),
            "",
            "used by a container of any handler"
        );
        let spare = history.record(&both, &used(&[]), at(1));
        assert_eq!((names(&spare), history.known.len()), ("a".to_owned(), 2));

        let mut history = ImageHistory::default();
        history.record(&for_handlers(&[""]), &used(&[]), at(0));
        let spare = history.record(&both, &used(&[]), at(300));
        assert_eq!(
            names(&history.settled(&spare, &policy, at(419))),
            "",
            "just pulled for the other handler"
        );
        assert_eq!(names(&history.settled(&spare, &policy, at(420))), "a");

        let pinned =
            [for_handlers(&[""]), vec![ImageObservation { pinned: true, ..both[1].clone() }]].concat();
        assert_eq!(names(&history.record(&pinned, &used(&[]), at(500))), "", "pinned for one of them");
    }

    #[test]
    fn image_without_an_id_is_never_removed() {
        let image = ImageObservation { runtime_handler: "kata".to_owned(), ..ImageObservation::default() };
        let spare = ImageHistory::default().record(&[image], &used(&[]), at(0));
        assert_eq!(names(&spare), "");
        assert_eq!(spare.len(), 0);
        assert_eq!(invalid_id_message("kata"), "ImageID is not valid, skipping, image: ,kata");
    }

    #[test]
    fn image_gc_frees_from_the_high_to_the_low_threshold() {
        let policy = ImageGcPolicy::default();
        let need = |capacity, available| compute_need(capacity, available, &policy);
        assert_eq!(need(1000, 160), Ok(None));
        assert_eq!(
            need(1000, 150),
            Ok(Some(SpaceNeed { bytes: 50, used_percent: 85, capacity_bytes: 1000 }))
        );
        assert_eq!(
            need(1000, 0),
            Ok(Some(SpaceNeed { bytes: 200, used_percent: 100, capacity_bytes: 1000 }))
        );
        assert_eq!(need(1000, 2000), Ok(None));
        assert_eq!(need(0, 0), Err(NoCapacity));
        let off = ImageGcPolicy { high_percent: 100, ..policy };
        assert_eq!(compute_need(1000, 0, &off), Ok(None));
    }

    #[test]
    fn messages_have_the_numbers_in_them() {
        // image_gc_manager_test.go, TestGarbageCollectNotEnoughFreed.
        let need = SpaceNeed { bytes: 1_610_612_736, used_percent: 95, capacity_bytes: 10 << 30 };
        assert_eq!(
            not_enough_message(&need, 524_288_000),
            "Insufficient free disk space on the node's image filesystem (95% of 10.0 GiB used). Failed to free \
             sufficient space by deleting unused images (freed 524288000 bytes). Investigate disk usage, as it could be \
             used by active images, logs, volumes, or other data."
        );
        assert_eq!(
            [0, 1023, 1024, 1536, 28_346_784_154, 107_374_182_400, 1 << 40, 5 << 50].map(in_units).join(", "),
            "0 B, 1023 B, 1.0 KiB, 1.5 KiB, 26.4 GiB, 100.0 GiB, 1.0 TiB, 5120.0 TiB"
        );
        assert_eq!(
            not_removed_message(9, 3, &["no".to_owned()]),
            "wanted to free 9 bytes, but freed 3 bytes space with errors in image deletion: no"
        );
        assert!(not_removed_message(9, 3, &["a".to_owned(), "b".to_owned()]).ends_with("[a, b]"));
        assert_eq!(
            old_not_removed_message(Duration::from_secs(7200), &["no".to_owned()]),
            "wanted to free images older than 2h0m0s, encountered errors in image deletion: no"
        );
    }
}
