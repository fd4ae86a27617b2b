//! Why an image is as it is: whether it is on the node, what it was pulled with, which pods use it, and when it is removed.

use std::time::Duration;

use jiff::Timestamp;
use model::explain::{Check, Explanation, Verdict};
use model::inventory::ImageItem;

use crate::advice::advice;
use crate::amounts::bytes;
use crate::times::span;

/// What the node knows of an image.
#[derive(Clone, Debug, Default)]
pub struct ImageFacts {
    /// As it was asked for.
    pub name: String,
    /// In the runtime; `None` if the runtime does not have it, or does not answer.
    pub image: Option<ImageItem>,
    /// Why the runtime is not known to have it or not.
    pub problem: Option<String>,
    pub wanted_by: Vec<ImageUser>,
    pub last_pull: Option<ImagePull>,
    /// `None`: pulls are not recorded.
    pub credentials: Option<CredentialFacts>,
    pub collection: CollectionFacts,
    pub now: Timestamp,
}

/// A container or volume of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// `namespace/name`.
    pub pod: String,
    /// `container app` or `volume data`.
    pub part: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// Why the container waits: reason and message.
    pub waits: Option<(String, String)>,
}

/// The last pull of it, as a pod went through it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePull {
    pub pod: String,
    /// When it began, or ended if it succeeded.
    pub at: Timestamp,
    /// What the event about its success says.
    pub success: Option<String>,
    /// Why it failed; empty if it did not, or has not yet.
    pub error: String,
    pub next_try: Option<Timestamp>,
}

/// The record of the pulls of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFacts {
    /// `imagePullCredentialsVerificationPolicy`.
    pub policy: String,
    /// `None`: this node has not pulled it.
    pub updated: Option<Timestamp>,
    /// Every pod of the node may use it.
    pub is_for_all: bool,
    /// `namespace/name` of the secrets and service accounts with which it was pulled.
    pub secrets: Vec<String>,
    pub service_accounts: Vec<String>,
    /// A pull was begun whose end is not known, or the record cannot be read.
    pub is_uncertain: bool,
}

/// When garbage collection removes images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionFacts {
    pub high_percent: u64,
    pub low_percent: u64,
    /// Of the filesystem of images; `None` if it is not known.
    pub used_percent: Option<u64>,
    pub age_min: Duration,
    /// `None`: disk usage only.
    pub age_max: Option<Duration>,
}

/// Says why the image is as it is.
#[must_use]
pub fn compute_image_explanation(facts: &ImageFacts) -> Explanation {
    let mut checks = vec![present(facts), used(facts)];
    checks.extend(facts.last_pull.as_ref().map(|pull| last_pull(facts, pull)));
    if let Some(image) = &facts.image {
        checks.extend(facts.credentials.as_ref().map(credentials));
        checks.push(collected(facts, image));
    }
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or_default();
    let summary = match (&facts.image, &facts.problem, facts.wanted_by.len()) {
        (_, Some(_), _) => "The container runtime does not say whether the image is on this node.".to_owned(),
        (Some(_), None, 0) => "The image is on this node, and no pod uses it.".to_owned(),
        (Some(_), None, _) => "The image is on this node and in use.".to_owned(),
        (None, None, _) => "The image is not on this node, and pods need it.".to_owned(),
    };
    Explanation { name: facts.name.clone(), verdict, summary, checks, ..Explanation::default() }
}

fn check(name: &str, verdict: Verdict, what: impl Into<String>) -> Check {
    Check { name: name.to_owned(), verdict, what: what.into(), ..Check::default() }
}

fn present(facts: &ImageFacts) -> Check {
    match (&facts.image, &facts.problem) {
        (_, Some(problem)) => Check {
            error: problem.clone(),
            advice: vec!["See kubelet why node for the container runtime.".to_owned()],
            ..check("present", Verdict::Waiting, "It is not known whether it is on this node.")
        },
        (Some(image), None) => {
            let names = image.names.join(", ");
            let what = format!("It is on this node: {}, {}, {names}.", image.id, bytes(image.size_bytes));
            check("present", Verdict::Fine, what)
        }
        (None, None) => {
            let must_be_there = facts.wanted_by.iter().all(|user| user.pull_policy == "Never");
            let mut found = check("present", Verdict::Waiting, "It is not on this node.");
            if must_be_there {
                found.verdict = Verdict::Failed;
                found.advice = advice("ErrImageNeverPull", "");
            }
            found
        }
    }
}

fn used(facts: &ImageFacts) -> Check {
    if facts.wanted_by.is_empty() {
        return check("used by", Verdict::Fine, "No pod of this node names it.");
    }
    let user = |user: &ImageUser| {
        let waits = user.waits.as_ref().map(|(reason, _)| format!(", waits: {reason}"));
        format!("{} ({}, pull policy {}{})", user.pod, user.part, user.pull_policy, waits.unwrap_or_default())
    };
    let users: Vec<String> = facts.wanted_by.iter().map(user).collect();
    let is_waited_for = facts.wanted_by.iter().any(|user| user.waits.is_some());
    let verdict = if is_waited_for { Verdict::Waiting } else { Verdict::Fine };
    check("used by", verdict, format!("{}.", users.join("; ")))
}

fn last_pull(facts: &ImageFacts, pull: &ImagePull) -> Check {
    let (pod, ago) = (&pull.pod, span(pull.at, facts.now));
    let what = match &pull.success {
        Some(success) => format!("For {pod}, {ago} ago: {}.", success.trim_end_matches('.')),
        None if pull.error.is_empty() => format!("It is being pulled for {pod}, for {ago} now."),
        None => format!("The last pull, for {pod}, began {ago} ago and failed."),
    };
    if pull.success.is_some() || pull.error.is_empty() {
        return check("last pull", Verdict::Fine, what);
    }
    let next = pull.next_try.filter(|at| *at > facts.now);
    let next = next.map(|at| format!(" It is tried again in {}.", span(facts.now, at))).unwrap_or_default();
    let verdict = if facts.image.is_none() { Verdict::Waiting } else { Verdict::Fine };
    Check {
        error: pull.error.clone(),
        advice: advice("ErrImagePull", &pull.error),
        ..check("last pull", verdict, format!("{what}{next}"))
    }
}

fn credentials(facts: &CredentialFacts) -> Check {
    let policy = &facts.policy;
    let what = match facts.updated {
        _ if policy == "NeverVerify" => format!("Every pod may use it (policy {policy})."),
        _ if facts.is_uncertain => format!(
            "A pull of it was begun whose end is not known, so pods must have credentials or pull it again (policy {policy})."
        ),
        None => {
            format!("This node has not pulled it; which pods may use it follows from the policy {policy}.")
        }
        Some(_) if facts.is_for_all => {
            "It was pulled without credentials of a pod: every pod may use it.".to_owned()
        }
        Some(at) => {
            let names: Vec<String> = facts
                .secrets
                .iter()
                .map(|name| format!("secret {name}"))
                .chain(facts.service_accounts.iter().map(|name| format!("service account {name}")))
                .collect();
            let with = if names.is_empty() { "unknown credentials".to_owned() } else { names.join(", ") };
            format!(
                "It was pulled with {with} (recorded at {at}): other pods need these credentials, or pull it again (policy {policy})."
            )
        }
    };
    check("access", Verdict::Fine, what)
}

fn collected(facts: &ImageFacts, image: &ImageItem) -> Check {
    let rules = &facts.collection;
    let name = "removal";
    if image.is_pinned {
        return check(name, Verdict::Fine, "The container runtime has pinned it: it is never removed.");
    }
    if !image.used_by.is_empty() {
        return check(name, Verdict::Fine, "It is in use, so garbage collection keeps it.");
    }
    let unused = match image.last_used.or(image.first_seen) {
        Some(at) => format!("It has not been used for {}.", span(at, facts.now)),
        None => "It has not been used since the kubelet started.".to_owned(),
    };
    let now = rules.used_percent.map(|used| format!(" (now {used} %)")).unwrap_or_default();
    let disk = match rules.high_percent {
        100.. => {
            "It is not removed to free disk space, because imageGCHighThresholdPercent is 100.".to_owned()
        }
        high => format!(
            "It is removed when {high} % of the filesystem of images are in use{now}, least recently used images first, until {} % are.",
            rules.low_percent
        ),
    };
    let age = rules.age_max.map(|age| format!(" It is removed after {} s without use.", age.as_secs()));
    let is_young = image.first_seen.is_some_and(|seen| {
        u64::try_from(facts.now.duration_since(seen).as_secs()).is_ok_and(|age| age < rules.age_min.as_secs())
    });
    let young = match is_young {
        true => format!(" It is kept for {} s after it was first seen.", rules.age_min.as_secs()),
        false => String::new(),
    };
    check(name, Verdict::Fine, format!("{unused} {disk}{}{young}", age.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Style, node_text};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn shown(facts: &ImageFacts) -> String {
        let style = Style { width: 110, has_color: false, now: at(600) };
        let explanation = compute_image_explanation(facts);
        format!("{:?}\n{}", explanation.verdict, node_text(&explanation, style))
    }

    fn facts() -> ImageFacts {
        let rules = CollectionFacts {
            high_percent: 85,
            low_percent: 80,
            used_percent: Some(42),
            age_min: Duration::from_secs(120),
            age_max: None,
        };
        ImageFacts {
            name: "example.com/web:1".to_owned(),
            collection: rules,
            now: at(600),
            ..ImageFacts::default()
        }
    }

    fn image() -> ImageItem {
        ImageItem {
            id: "sha256:0123".to_owned(),
            names: vec!["example.com/web:1".to_owned()],
            size_bytes: 5 << 20,
            last_used: Some(at(0)),
            ..ImageItem::default()
        }
    }

    fn user() -> ImageUser {
        ImageUser {
            pod: "default/web".to_owned(),
            part: "container app".to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
            waits: None,
        }
    }

    #[test]
    fn image_that_is_here_says_what_it_was_pulled_with_and_when_it_is_removed() {
        let credentials = CredentialFacts {
            policy: "NeverVerifyPreloadedImages".to_owned(),
            updated: Some(at(0)),
            secrets: vec!["default/registry".to_owned()],
            ..CredentialFacts::default()
        };
        let used = ImageFacts {
            image: Some(ImageItem { used_by: vec!["default/web".to_owned()], ..image() }),
            wanted_by: vec![user()],
            credentials: Some(credentials),
            ..facts()
        };
        let unused = ImageFacts { image: Some(image()), ..facts() };
        expect_test::expect![[r#"
            Fine
            example.com/web:1: The image is on this node and in use.
              present It is on this node: sha256:0123, 5.0 MiB, example.com/web:1.
              used by default/web (container app, pull policy IfNotPresent).
              access  It was pulled with secret default/registry (recorded at 1970-01-01T00:00:00Z): other pods need these
                      credentials, or pull it again (policy NeverVerifyPreloadedImages).
              removal It is in use, so garbage collection keeps it.
            Fine
            example.com/web:1: The image is on this node, and no pod uses it.
              present It is on this node: sha256:0123, 5.0 MiB, example.com/web:1.
              used by No pod of this node names it.
              removal It has not been used for 10 min. It is removed when 85 % of the filesystem of images are in use (now
                      42 %), least recently used images first, until 80 % are.
        "#]].assert_eq(&format!("{}{}", shown(&used), shown(&unused)));
    }

    #[test]
    fn image_that_is_missing_says_what_the_last_pull_said_and_what_to_do() {
        let waits = Some(("ImagePullBackOff".to_owned(), "Back-off pulling image".to_owned()));
        let pull = ImagePull {
            pod: "default/web".to_owned(),
            at: at(588),
            success: None,
            error: "dial tcp 127.0.0.1:1: connect: connection refused".to_owned(),
            next_try: Some(at(620)),
        };
        let missing =
            ImageFacts { wanted_by: vec![ImageUser { waits, ..user() }], last_pull: Some(pull), ..facts() };
        let never = ImageUser { pull_policy: "Never".to_owned(), ..user() };
        let never = ImageFacts { wanted_by: vec![never], ..facts() };
        let unknown = ImageFacts {
            problem: Some("the container runtime has not answered for 2 s".to_owned()),
            ..facts()
        };
        expect_test::expect![[r#"
            Waiting
            example.com/web:1: The image is not on this node, and pods need it.
              present   It is not on this node.
              used by   default/web (container app, pull policy IfNotPresent, waits: ImagePullBackOff).
              last pull The last pull, for default/web, began 12 s ago and failed. It is tried again in 20 s.
                          error  dial tcp 127.0.0.1:1: connect: connection refused
                          do     Check from this node that the registry can be reached: name resolution, proxy, firewall.
            Failed
            example.com/web:1: The image is not on this node, and pods need it.
              present It is not on this node.
                        do     Load the image into the container runtime, or set imagePullPolicy to IfNotPresent.
              used by default/web (container app, pull policy Never).
            Waiting
            example.com/web:1: The container runtime does not say whether the image is on this node.
              present It is not known whether it is on this node.
                        error  the container runtime has not answered for 2 s
                        do     See kubelet why node for the container runtime.
              used by No pod of this node names it.
        "#]].assert_eq(&format!(
            "{}{}{}",
            shown(&missing),
            shown(&never),
            shown(&unknown)
        ));
    }
}
