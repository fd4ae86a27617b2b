//! The effect of a deletion on an object: it is removed, or marked as being deleted, or unchanged. Pure: the caller stores
//! the result.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::object::{self, text};
use crate::resources::Resource;
use crate::status::ApiError;
use crate::validation::{FieldError, Reason};

/// The grace period of a pod that specifies none, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// What becomes of the objects that name the deleted one as their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted first: it stays until those that block its deletion are gone.
    Foreground,
    /// They stay, without this owner.
    Orphan,
}

/// Finalizers of the garbage collector.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

impl Propagation {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            "Orphan" => Some(Self::Orphan),
            _ => None,
        }
    }

    const fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Orphan => Some(ORPHAN),
        }
    }
}

/// The kind of the options of a deletion.
pub(crate) const KIND: &str = "DeleteOptions";

/// The supported fields of `DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    /// Seconds; never negative.
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// `None`: as the object's finalizers say, in the background if it has none.
    pub(crate) propagation: Option<Propagation>,
}

impl DeleteOptions {
    /// Reads the body of a deletion, which may be empty (null).
    pub(crate) fn parse(body: &Value) -> Result<Self, ApiError> {
        let given = body.get("gracePeriodSeconds").filter(|given| !given.is_null());
        let grace = given.map(|given| {
            let seconds = given.as_i64();
            seconds.ok_or_else(|| {
                ApiError::bad_request(format!("gracePeriodSeconds: {given} is not an integer"))
            })
        });
        // A negative period means one second.
        let grace = grace.transpose()?.map(|grace| if grace < 0 { 1 } else { grace });
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        let older = orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background });
        let policy = body.get("propagationPolicy").filter(|policy| !policy.is_null());
        let policy = policy.map(|policy| policy.as_str().unwrap_or_default());
        let propagation = match (policy, older) {
            (Some(policy), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                let message = format!("Invalid value: {policy:?}: {why}");
                return Err(invalid("propagationPolicy", Reason::Invalid, message));
            }
            (Some(policy), None) => Some(Self::propagation_of(policy)?),
            (None, older) => older,
        };
        let condition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        let dry_run: Vec<&str> =
            object::items(body, "/dryRun").iter().map(|value| value.as_str().unwrap_or_default()).collect();
        if dry_run.iter().any(|value| *value != "All") {
            return Err(ApiError::invalid_dry_run(KIND, &dry_run));
        }
        Ok(Self {
            grace,
            uid: condition("uid"),
            resource_version: condition("resourceVersion"),
            dry_run: !dry_run.is_empty(),
            propagation,
        })
    }

    pub(crate) fn propagation_of(policy: &str) -> Result<Propagation, ApiError> {
        Propagation::parse(policy).ok_or_else(|| {
            let supported = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            let message = format!("Unsupported value: {policy:?}: supported values: {supported}");
            invalid("propagationPolicy", Reason::NotSupported, message)
        })
    }

    /// Checks the preconditions: UID and resource version.
    pub(crate) fn check(&self, resource: &Resource, current: &Value) -> Result<(), ApiError> {
        for (what, wanted, own) in [
            ("UID", &self.uid, object::uid(current)),
            ("ResourceVersion", &self.resource_version, object::resource_version(current)),
        ] {
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != own) {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {own}"
                );
                return Err(ApiError::conflict(resource, object::name(current), &why));
            }
        }
        Ok(())
    }
}

fn invalid(field: &str, reason: Reason, message: String) -> ApiError {
    ApiError::invalid_options(KIND, &[FieldError { field: field.to_owned(), reason, message }])
}

/// The effect on the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Remove the object now; this is its last state.
    Remove(Value),
    /// Mark the object as being deleted: it stays until its kubelet deletes it or its last finalizer is removed.
    Mark(Value),
    /// Leave the object, which is being deleted already, unchanged.
    Leave,
}

pub(crate) fn decide(
    resource: &Resource,
    current: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Decision {
    let marked_until = text(current, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
    let marked_grace = current.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let (begun, grace) = match (marked_until, marked_grace) {
        // Being deleted already: the grace period can only become shorter.
        (Some(until), Some(grace)) => match options.grace {
            Some(shorter) if shorter < grace => (earlier(until, grace), shorter),
            Some(_) | None => {
                let finalizers = finalizers_after(current, options);
                if finalizers == object::finalizers(current) {
                    return Decision::Leave;
                }
                return with_finalizers(current, finalizers);
            }
        },
        (Some(at), None) => (at, 0),
        (None, _) => (now, first_grace(resource, current, options)),
    };
    let mut object = current.clone();
    let changes_generation = resource.generation && marked_until.is_none();
    let generation = current.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0);
    let metadata = object::metadata(&mut object);
    let until = begun.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    metadata.insert("deletionTimestamp".to_owned(), json!(object::time(until)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
    if changes_generation {
        metadata.insert("generation".to_owned(), json!(generation + 1));
    }
    let finalizers = finalizers_after(current, options);
    if grace > 0 || !finalizers.is_empty() {
        object::set_list(metadata, "finalizers", finalizers);
        return Decision::Mark(object);
    }
    // If the object is removed at once, only kinds with a grace period are marked.
    let is_marked = marked_until.is_some() || resource.name == "pods";
    Decision::Remove(if is_marked { object } else { current.clone() })
}

/// The finalizers once a deletion with these options has begun.
fn finalizers_after(current: &Value, options: &DeleteOptions) -> Vec<Value> {
    let mut finalizers = object::finalizers(current).to_vec();
    if let Some(propagation) = options.propagation {
        finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
        finalizers.extend(propagation.finalizer().map(Value::from));
    }
    finalizers
}

/// The effect of other finalizers on an object that is being deleted.
pub(crate) fn with_finalizers(current: &Value, finalizers: Vec<Value>) -> Decision {
    let mut object = current.clone();
    object::set_list(object::metadata(&mut object), "finalizers", finalizers);
    if is_finished(&object) { Decision::Remove(object) } else { Decision::Mark(object) }
}

/// Whether the object is being deleted without finalizers and without a grace period, so that it can be removed.
pub(crate) fn is_finished(object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
    object::is_terminating(object)
        && object::finalizers(object).is_empty()
        && grace == Some(0)
        && text(object, "/kind") != "Namespace"
}

fn earlier(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
}

/// The grace period of the first deletion: only a running pod that is bound to a node has one.
fn first_grace(resource: &Resource, current: &Value, options: &DeleteOptions) -> i64 {
    if resource.name != "pods" || text(current, "/spec/nodeName").is_empty() || object::has_ended(current) {
        return 0;
    }
    let own = current.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let grace = options.grace.or(own).unwrap_or(DEFAULT_GRACE);
    if grace < 0 { 1 } else { grace }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    const BOUND: &str = "n";

    fn pod(node: &str, extra: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": "p", "uid": "u", "generation": 1},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 20},
            "status": {"phase": "Running"},
        });
        for (field, value) in extra.as_object().unwrap() {
            pod["metadata"][field] = value.clone();
        }
        pod
    }

    fn outcome(pod: &Value, grace: Option<i64>) -> String {
        let options = DeleteOptions { grace, ..DeleteOptions::default() };
        let pods = resources::stored("pods").unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let marks = |object: &Value| {
            format!(
                "{} {}",
                text(object, "/metadata/deletionTimestamp"),
                object["metadata"]["deletionGracePeriodSeconds"]
            )
        };
        match decide(pods, pod, &options, now) {
            Decision::Remove(last) => format!("remove {}", marks(&last)),
            Decision::Mark(object) => format!("mark {}", marks(&object)),
            Decision::Leave => "leave".to_owned(),
        }
    }

    #[test]
    fn bound_pod_gets_its_grace_period_and_unbound_pod_is_removed_at_once() {
        assert_eq!(outcome(&pod(BOUND, json!({})), None), "mark 2026-01-01T00:00:20Z 20");
        assert_eq!(outcome(&pod(BOUND, json!({})), Some(5)), "mark 2026-01-01T00:00:05Z 5");
        assert_eq!(outcome(&pod(BOUND, json!({})), Some(0)), "remove 2026-01-01T00:00:00Z 0");
        assert_eq!(outcome(&pod("", json!({})), None), "remove 2026-01-01T00:00:00Z 0");
        let mut finished = pod(BOUND, json!({}));
        finished["status"]["phase"] = json!("Succeeded");
        assert_eq!(outcome(&finished, None), "remove 2026-01-01T00:00:00Z 0");
    }

    #[test]
    fn second_deletion_can_only_shorten_the_grace_period() {
        let terminating = pod(
            BOUND,
            json!({"deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 20}),
        );
        assert_eq!(outcome(&terminating, None), "leave");
        assert_eq!(outcome(&terminating, Some(30)), "leave");
        assert_eq!(outcome(&terminating, Some(5)), "mark 2026-01-01T00:00:05Z 5");
        assert_eq!(outcome(&terminating, Some(0)), "remove 2026-01-01T00:00:00Z 0");
    }

    #[test]
    fn finalizer_keeps_an_object_without_grace_period() {
        let held = pod("", json!({"finalizers": ["a/b"]}));
        assert_eq!(outcome(&held, None), "mark 2026-01-01T00:00:00Z 0");
    }

    #[test]
    fn propagation_is_a_finalizer_until_the_garbage_collector_has_run() {
        let outcome = |held: &[&str], propagation| {
            let options = DeleteOptions { propagation, ..DeleteOptions::default() };
            let current = pod("", json!({"finalizers": held}));
            match decide(resources::stored("pods").unwrap(), &current, &options, Timestamp::UNIX_EPOCH) {
                Decision::Mark(object) => object["metadata"]["finalizers"].to_string(),
                Decision::Remove(_) => "removed".to_owned(),
                Decision::Leave => "left".to_owned(),
            }
        };
        assert_eq!(outcome(&[], None), "removed");
        assert_eq!(outcome(&[], Some(Propagation::Foreground)), r#"["foregroundDeletion"]"#);
        assert_eq!(
            outcome(&["a/b", "orphan"], Some(Propagation::Foreground)),
            r#"["a/b","foregroundDeletion"]"#
        );
        assert_eq!(outcome(&["foregroundDeletion"], Some(Propagation::Orphan)), r#"["orphan"]"#);
        assert_eq!(outcome(&["foregroundDeletion"], Some(Propagation::Background)), "removed");
        assert_eq!(outcome(&["orphan"], None), r#"["orphan"]"#);
    }

    #[test]
    fn deletion_that_has_begun_takes_another_propagation() {
        let waiting = pod(
            "",
            json!({
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 0,
                "finalizers": ["foregroundDeletion"],
            }),
        );
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        let decided = decide(resources::stored("pods").unwrap(), &waiting, &options, Timestamp::UNIX_EPOCH);
        assert!(matches!(decided, Decision::Remove(_)), "{decided:?}");
    }

    #[test]
    fn delete_options_check_preconditions() {
        let options =
            DeleteOptions::parse(&json!({"preconditions": {"uid": "other"}, "gracePeriodSeconds": -3}))
                .unwrap();
        assert_eq!(options.grace, Some(1));
        let pods = resources::stored("pods").unwrap();
        let refused = options.check(pods, &pod(BOUND, json!({}))).unwrap_err();
        assert_eq!((refused.code.as_u16(), refused.reason), (409, "Conflict"));
        let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
        let refused = |body: Value| DeleteOptions::parse(&body).unwrap_err();
        assert!(refused(both).message.contains("both set"));
        for body in [json!({"propagationPolicy": "Sideways"}), json!({"dryRun": ["Some"]})] {
            let refused = refused(body);
            assert!(refused.message.starts_with("DeleteOptions.meta.k8s.io \"\" is invalid: "), "{refused}");
            assert_eq!(refused.code.as_u16(), 422);
        }
    }
}
