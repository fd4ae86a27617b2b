//! LimitRanges: defaults for the requests and limits of new containers, and the range that containers, pods and claims must be in.

use model::Amount;
use serde_json::{Value, json};

use crate::amounts::{self, Amounts};
use crate::object::{self, items, text};
use crate::store::Objects;

/// Names what was set, for users who look for the origin of a limit.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The LimitRanges of a namespace, in the order of their names.
fn ranges<'a>(objects: &'a Objects, namespace: &str) -> impl Iterator<Item = &'a Value> {
    objects.of("limitranges", Some(namespace)).map(|(_, range)| &**range)
}

/// Sets the defaults of a new pod; returns whether there were any.
pub(super) fn set_defaults(objects: &Objects, pod: &mut Value) -> bool {
    let namespace = object::namespace(pod).to_owned();
    let mut set = Vec::new();
    for range in ranges(objects, &namespace) {
        for list in ["containers", "initContainers"] {
            let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.map(Vec::as_mut_slice).unwrap_or_default() {
                set.extend(set_container_defaults(range, list, container));
            }
        }
    }
    if set.is_empty() {
        return false;
    }
    let note = format!("LimitRanger plugin set: {}", set.join("; "));
    let metadata = object::metadata(pod);
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(ANNOTATION.to_owned(), Value::String(note));
    }
    true
}

/// Returns what it has set, in the words of the annotation.
fn set_container_defaults(range: &Value, list: &str, container: &mut Value) -> Vec<String> {
    if !container.is_object() {
        return Vec::new();
    }
    let kind = if list == "containers" { "container" } else { "init container" };
    let name = text(container, "/name").to_owned();
    let mut set = Vec::new();
    for (side, default, word) in [("requests", "defaultRequest", "request"), ("limits", "default", "limit")] {
        let mut names = Vec::new();
        for item in items(range, "/spec/limits").iter().filter(|item| text(item, "/type") == "Container") {
            for (resource, quantity) in item.get(default).and_then(Value::as_object).into_iter().flatten() {
                let quantities =
                    object::map_at(container, "resources").entry(side).or_insert_with(|| json!({}));
                let Some(quantities) = quantities.as_object_mut() else { continue };
                if !quantities.contains_key(resource) {
                    quantities.insert(resource.clone(), quantity.clone());
                    names.push(resource.clone());
                }
            }
        }
        if !names.is_empty() {
            names.sort_unstable();
            set.push(format!("{} {word} for {kind} {name}", names.join(", ")));
        }
    }
    set
}

/// What of a new pod is outside of the ranges.
pub(super) fn check_pod(objects: &Objects, pod: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for range in ranges(objects, object::namespace(pod)) {
        for item in items(range, "/spec/limits") {
            match text(item, "/type") {
                "Container" => {
                    for container in ["/spec/containers", "/spec/initContainers"]
                        .into_iter()
                        .flat_map(|list| items(pod, list))
                    {
                        let used = Used::of(|side| amounts::of_container(container, side));
                        used.check("Container", item, &mut problems);
                    }
                }
                "Pod" => Used::of(|side| amounts::of_pod(pod, side)).check("Pod", item, &mut problems),
                _ => {}
            }
        }
    }
    problems
}

/// What of a new or larger claim is outside of the ranges.
pub(super) fn check_claim(objects: &Objects, claim: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let requested = amounts::of_map(claim.pointer("/spec/resources/requests"));
    let Some(storage) = requested.get("storage").copied() else { return problems };
    let of_claims = |item: &&Value| text(item, "/type") == "PersistentVolumeClaim";
    for item in ranges(objects, object::namespace(claim))
        .flat_map(|range| items(range, "/spec/limits"))
        .filter(of_claims)
    {
        let bound = |side: &str| amounts::of_map(item.get(side)).get("storage").copied();
        let mut add = |word: &str, bound: Amount| {
            let (bound, storage) = (amounts::text("storage", bound), amounts::text("storage", storage));
            problems.push(format!(
                "{word} storage usage per PersistentVolumeClaim is {bound}, but request is {storage}"
            ));
        };
        if let Some(least) = bound("min").filter(|least| storage < *least) {
            add("minimum", least);
        }
        if let Some(most) = bound("max").filter(|most| storage > *most) {
            add("maximum", most);
        }
    }
    problems
}

/// What a container or a pod requests, and its limits.
struct Used {
    requests: Amounts,
    limits: Amounts,
}

impl Used {
    fn of(side: impl Fn(&str) -> Amounts) -> Self {
        Self { requests: side("requests"), limits: side("limits") }
    }

    fn check(&self, kind: &str, item: &Value, problems: &mut Vec<String>) {
        let bounds = |field: &str| amounts::of_map(item.get(field));
        for (resource, least) in bounds("min") {
            problems.extend(self.below(kind, &resource, least));
        }
        for (resource, most) in bounds("max") {
            problems.extend(self.above(kind, &resource, most));
        }
        for (resource, ratio) in bounds("maxLimitRequestRatio") {
            problems.extend(self.ratio(kind, &resource, ratio));
        }
    }

    fn below(&self, kind: &str, resource: &str, least: Amount) -> Option<String> {
        let shown = |amount| amounts::text(resource, amount);
        let start = format!("minimum {resource} usage per {kind} is {}", shown(least));
        let limit = self.limits.get(resource).copied();
        match self.requests.get(resource).copied() {
            None => Some(format!("{start}.  No request is specified")),
            Some(request) if request < least => Some(format!("{start}, but request is {}", shown(request))),
            Some(_) => {
                let limit = limit.filter(|limit| *limit < least)?;
                Some(format!("{start}, but limit is {}", shown(limit)))
            }
        }
    }

    fn above(&self, kind: &str, resource: &str, most: Amount) -> Option<String> {
        let shown = |amount| amounts::text(resource, amount);
        let start = format!("maximum {resource} usage per {kind} is {}", shown(most));
        match self.limits.get(resource).copied() {
            None => Some(format!("{start}.  No limit is specified")),
            Some(limit) if limit > most => Some(format!("{start}, but limit is {}", shown(limit))),
            Some(_) => {
                let request = self.requests.get(resource).copied().filter(|request| *request > most)?;
                Some(format!("{start}, but request is {}", shown(request)))
            }
        }
    }

    fn ratio(&self, kind: &str, resource: &str, allowed: Amount) -> Option<String> {
        let start = format!("{resource} max limit to request ratio per {kind} is {allowed}");
        let used = |side: &Amounts| side.get(resource).copied().filter(|amount| !amount.is_zero());
        let Some(request) = used(&self.requests) else {
            return Some(format!("{start}, but no request is specified or request is 0"));
        };
        let Some(limit) = used(&self.limits) else {
            return Some(format!("{start}, but no limit is specified or limit is 0"));
        };
        let is_above =
            i128::from(limit.milli()) * 1000 > i128::from(request.milli()) * i128::from(allowed.milli());
        #[expect(clippy::cast_precision_loss, reason = "only for the message, which has six digits")]
        let ratio = limit.milli() as f64 / request.milli() as f64;
        is_above.then(|| format!("{start}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Key, NotStored, Store, Write};

    fn store(limits: Value) -> Store {
        let store = Store::new(10);
        let range = json!({"metadata": {"name": "r", "namespace": "a"}, "spec": {"limits": [limits]}});
        let key = Key::new("limitranges", "a", "r");
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(range))).unwrap();
        store
    }

    fn pod(resources: Value) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "a"},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
        })
    }

    fn problems(limits: Value, resources: Value) -> String {
        store(limits).read(|objects| check_pod(objects, &pod(resources))).join("; ")
    }

    #[test]
    fn defaults_are_set_where_nothing_is_and_named_in_an_annotation() {
        let limits = json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
        let mut new = pod(json!({"limits": {"memory": "2Gi"}}));
        assert!(store(limits.clone()).read(|objects| set_defaults(objects, &mut new)));
        let resources = &new["spec"]["containers"][0]["resources"];
        assert_eq!(*resources, json!({"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "100m"}}));
        let note = "LimitRanger plugin set: cpu request for container main; cpu limit for container main";
        assert_eq!(new["metadata"]["annotations"][ANNOTATION], note);
        assert!(!store(limits).read(|objects| set_defaults(objects, &mut new)));
    }

    #[test]
    fn containers_and_pods_outside_of_the_range_are_named_with_the_range() {
        let range = json!({"type": "Container", "min": {"cpu": "200m"}, "max": {"cpu": "800m"}});
        let used =
            |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        assert_eq!(problems(range.clone(), used("500m", "800m")), "");
        assert_eq!(
            problems(range.clone(), used("100m", "1500m")),
            "minimum cpu usage per Container is 200m, but request is 100m; maximum cpu usage per Container is 800m, but limit is 1500m"
        );
        assert_eq!(
            problems(range, json!({})),
            "minimum cpu usage per Container is 200m.  No request is specified; maximum cpu usage per Container is 800m.  No limit is specified"
        );
        let ratio = json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}});
        assert_eq!(problems(ratio.clone(), used("100m", "200m")), "");
        assert_eq!(
            problems(ratio, used("100m", "250m")),
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 2.500000"
        );
    }

    #[test]
    fn claims_outside_of_the_range_are_refused() {
        let range =
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        let claim = |size: &str| json!({"metadata": {"namespace": "a"}, "spec": {"resources": {"requests": {"storage": size}}}});
        let problems = |size| store(range.clone()).read(|objects| check_claim(objects, &claim(size)));
        assert!(problems("2Gi").is_empty());
        let expected = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi";
        assert_eq!(problems("3Gi"), [expected]);
        let expected = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi";
        assert_eq!(problems("1Mi"), [expected]);
    }
}
