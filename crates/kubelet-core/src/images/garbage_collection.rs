//! Which images go (docs/behaviour/images.md): those that nobody uses and that were not used for longest, once their disk is
//! too full; and those that were not used for too long.
//!
//! Owns: the choice, its order and the texts. Never: removing an image, measuring the disk.

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

/// `imageGCHighThresholdPercent` and the fields next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// From this share of the disk in use on, images go…
    pub high_percent: u64,
    /// …until no more than this is in use.
    pub low_percent: u64,
    /// An image that has been here for less was fetched for somebody who is about to use it.
    pub age_min: Duration,
    /// An image that nobody used for longer goes whatever the disk says. `None`: never.
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

/// Since when an image is known, and when it was last in use. Kept in memory only: a kubelet that starts again knows no
/// image to be young, and no image to have been unused for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// `None`: it was here before us.
    since: Option<MonoTime>,
    used: Option<MonoTime>,
}

/// What is known of each image, by id. Holds no more than the runtime lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageHistory {
    known: BTreeMap<String, Known>,
    has_looked: bool,
}

/// Who uses images.
#[derive(Clone, Debug, Default)]
pub struct ImageUse {
    /// What containers, dead ones too, name as theirs: ids, or references by digest.
    pub ids: BTreeSet<String>,
    /// What volumes of pods name, as users wrote it.
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

/// An image that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareImage {
    pub id: String,
    pub size_bytes: u64,
}

/// Why an image goes, in the words of the metric.
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
    /// Takes in one listing; returns the images that nobody uses and that are not pinned, those first that were not used
    /// for longest.
    pub fn note(&mut self, images: &[ImageObservation], used: &ImageUse, now: MonoTime) -> Vec<SpareImage> {
        let by_volumes: BTreeSet<&str> = used
            .references
            .iter()
            .filter_map(|name| find_image(images, name))
            .map(|image| &*image.id)
            .collect();
        let first_seen = self.has_looked.then_some(now);
        self.has_looked = true;
        let present: BTreeSet<&str> = images.iter().map(|image| &*image.id).collect();
        self.known.retain(|id, _| present.contains(&**id));
        let mut spare = Vec::new();
        for image in images {
            let fresh = Known { since: first_seen, used: None };
            let known = self.known.entry(image.id.clone()).or_insert(fresh);
            if used.of(image, &by_volumes) {
                known.used = Some(now);
            } else if !image.pinned {
                let order = (known.used, known.since, image.id.clone());
                spare.push((order, SpareImage { id: image.id.clone(), size_bytes: image.size_bytes }));
            }
        }
        spare.sort_by(|(a, _), (b, _)| a.cmp(b));
        spare.into_iter().map(|(_, image)| image).collect()
    }

    /// Of those, the ones that were not used for too long. Nothing is known of the time before `began`.
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
            self.known.get(&image.id).is_some_and(|known| {
                let last = known.used.or(known.since).unwrap_or(began);
                now.saturating_since(last) > most
            })
        };
        spare.iter().filter(is_outworn).cloned().collect()
    }

    /// Of those, the ones that have been here for long enough to go for their room.
    #[must_use]
    pub fn settled(&self, spare: &[SpareImage], policy: &ImageGcPolicy, now: MonoTime) -> Vec<SpareImage> {
        let is_settled = |image: &&SpareImage| {
            let since = self.known.get(&image.id).and_then(|known| known.since);
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

/// Nobody can tell how full a disk without any room is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid capacity 0 on image filesystem")]
pub struct NoCapacity;

/// How much must become free, if the disk is too full.
///
/// # Errors
/// The disk has no room at all.
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

/// Too little became free although everything went that could go.
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

/// Some images that were not used for too long could not be removed.
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

    /// Looks are `seconds listed / used`; the last one's spare images are told, then those that may go for their age,
    /// then those that may go for their room.
    #[track_caller]
    fn check(looks: &str, policy: &ImageGcPolicy, expected: [&str; 3]) {
        let (mut history, mut found) = (ImageHistory::default(), None);
        for look in looks.lines().map(str::trim).filter(|look| !look.is_empty()) {
            let (listed, in_use) = look.split_once('/').unwrap();
            let mut words = listed.split_whitespace();
            let now = at(words.next().unwrap().parse().unwrap());
            let images: Vec<_> = words.map(image).collect();
            let spare = history.note(&images, &used(&in_use.split_whitespace().collect::<Vec<_>>()), now);
            let outworn = history.outworn(&spare, policy, at(0), now);
            let settled = history.settled(&spare, policy, now);
            found = Some([names(&spare), names(&outworn), names(&settled)]);
        }
        assert_eq!(found.unwrap().each_ref().map(String::as_str), expected);
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_what_is_used_or_pinned_stays() {
        let policy = ImageGcPolicy::default();
        check(
            "0 a b c pinned / a b\n 300 a b c pinned / b\n 600 a b c d pinned /",
            &policy,
            ["c d a b", "", "c a b"],
        );
        check("0 a b /\n 300 a b / a", &policy, ["b", "", "b"]);
    }

    #[test]
    fn an_image_that_has_just_come_is_left_alone_unless_it_was_here_before_us() {
        let policy = ImageGcPolicy::default();
        check("0 a /", &policy, ["a", "", "a"]);
        check("0 /\n 300 a /", &policy, ["a", "", ""]);
        check("0 /\n 300 a /\n 419 a /", &policy, ["a", "", ""]);
        check("0 /\n 300 a /\n 420 a /", &policy, ["a", "", "a"]);
    }

    #[test]
    fn an_image_is_too_old_when_nobody_used_it_for_so_long_since_the_kubelet_runs() {
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
        assert_eq!(names(&history.note(&images, &by_volume, at(0))), "c");
    }

    #[test]
    fn images_that_are_gone_are_forgotten() {
        let mut history = ImageHistory::default();
        history.note(&[image("a"), image("b")], &used(&[]), at(0));
        history.note(&[image("b")], &used(&[]), at(1));
        assert_eq!(history.known.len(), 1);
    }

    #[test]
    fn a_disk_is_emptied_from_the_high_mark_down_to_the_low_one() {
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
