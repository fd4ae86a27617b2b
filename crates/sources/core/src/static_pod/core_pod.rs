//! The text from which the Go kubelet makes the UID of a static pod: its internal type `core.Pod` of Kubernetes 1.36,
//! printed field by field with the names of types and fields, as its hash function prints it.
//!
//! Owns the format; the types are in `core_pod.txt`. Never hashes. With the same text a change-over from the Go kubelet
//! keeps static pods running (docs/decisions/0043).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::k8s::{Container, Pod, PodSpec};
use serde_json::{Map, Value, json};

use super::defaults::apply_stored_defaults;
use super::quantity_text::Quantity;

const TYPES: &str = include_str!("core_pod.txt");
/// Fields that `v1.PodSpec` has itself and `core.PodSpec` has in its security context.
const HOST_FIELDS: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
const ZERO_TIME: &str = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}";

/// The text of a pod as written, with its defaults but without UID and name of its node. `None`: it has a value whose text
/// is not known here, such as a time or a negative quantity.
pub(super) fn core_pod_text(written: &Pod) -> Option<String> {
    let mut pod = written.clone();
    apply_stored_defaults(&mut pod);
    let mut value = serde_json::to_value(&pod).ok()?;
    let spec = value.get_mut("spec")?.as_object_mut()?;
    move_host_fields(spec);
    let computed = computed_pod_requests(written.spec.as_ref()?, pod.spec.as_ref()?)?;
    let mut printer = Printer { types: types(), computed, out: String::new() };
    if let Some(requests) = spec.get_mut("resources").and_then(|r| r.get_mut("requests")) {
        for (index, name) in printer.computed.iter().map(|(name, _)| *name).enumerate() {
            requests.as_object_mut()?.insert(name.to_owned(), json!({ COMPUTED: index }));
        }
    }
    printer.out.push_str("(*core.Pod)");
    printer.print("core.Pod", &value)?;
    Some(printer.out)
}

/// The member that replaces the text of a quantity without one.
const COMPUTED: &str = "computed";

type Computed = Vec<(&'static str, Quantity)>;

/// Pod-level requests that are the sum of those of the containers: sums have no text.
fn computed_pod_requests(written: &PodSpec, spec: &PodSpec) -> Option<Computed> {
    let Some(resources) = &written.resources else { return Some(Vec::new()) };
    if resources.limits.as_ref().is_none_or(BTreeMap::is_empty) {
        return Some(Vec::new());
    }
    let is_missing = |name: &&str| resources.requests.as_ref().is_none_or(|list| !list.contains_key(*name));
    let mut computed = Vec::new();
    for name in ["cpu", "memory"].into_iter().filter(is_missing) {
        computed.extend(sum_of_requests(spec, name)?.map(|sum| (name, sum)));
    }
    Some(computed)
}

/// What the containers request together: all regular ones and sidecars, or an init container with the sidecars before it.
fn sum_of_requests(spec: &PodSpec, name: &str) -> Option<Option<Quantity>> {
    let request = |container: &Container| -> Option<Option<Quantity>> {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        match requests.and_then(|requests| requests.get(name)) {
            Some(quantity) => Quantity::parse(&quantity.0).map(Some),
            None => Some(None),
        }
    };
    let (mut all, mut sidecars, mut init) = (None, None, None);
    for container in &spec.containers {
        add(&mut all, request(container)?)?;
    }
    for container in spec.init_containers.iter().flatten() {
        let mut current = request(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut all, current.clone())?;
            add(&mut sidecars, current)?;
            current = sidecars.clone();
        } else {
            add(&mut current, sidecars.clone())?;
        }
        take_larger(&mut init, current)?;
    }
    take_larger(&mut all, init)?;
    Some(all)
}

fn add(sum: &mut Option<Quantity>, more: Option<Quantity>) -> Option<()> {
    match (sum.as_mut(), more) {
        (_, None) => {}
        (Some(sum), Some(more)) => sum.add(&more)?,
        (None, more) => *sum = more,
    }
    Some(())
}

fn take_larger(of: &mut Option<Quantity>, other: Option<Quantity>) -> Option<()> {
    let Some(other) = other else { return Some(()) };
    let is_larger = match of {
        Some(of) => other.compare(of)? == Ordering::Greater,
        None => true,
    };
    if is_larger {
        *of = Some(other);
    }
    Some(())
}

fn move_host_fields(spec: &mut Map<String, Value>) {
    let moved = HOST_FIELDS.map(|name| (name.to_owned(), spec.remove(name).unwrap_or_default()));
    if let Some(context) = spec.get_mut("securityContext").and_then(Value::as_object_mut) {
        context.extend(moved);
    }
}

enum Shape<'a> {
    Struct(Vec<Field<'a>>),
    /// A named type that prints as this one.
    Named(&'a str),
}

struct Field<'a> {
    name: &'a str,
    /// Empty: embedded. `-`: never set in a manifest.
    json: &'a str,
    kind: &'a str,
}

fn types() -> BTreeMap<&'static str, Shape<'static>> {
    let mut types = BTreeMap::new();
    let mut current = "";
    for line in TYPES.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            current = words.next().unwrap_or_default();
        }
        for word in words {
            let field = word.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
            match (field, types.entry(current).or_insert_with(|| Shape::Struct(Vec::new()))) {
                (Some((name, (json, kind))), Shape::Struct(fields)) => {
                    fields.push(Field { name, json, kind })
                }
                (_, shape) => *shape = Shape::Named(word),
            }
        }
    }
    types
}

struct Printer<'a> {
    types: BTreeMap<&'a str, Shape<'a>>,
    computed: Computed,
    out: String,
}

impl<'a> Printer<'a> {
    /// A value with its type before it.
    fn print_typed(&mut self, kind: &'a str, value: &Value) -> Option<()> {
        self.push(&["(", kind, ")"]);
        match kind.strip_prefix('*') {
            Some(_) if value.is_null() => self.push(&["<nil>"]),
            Some(target) => self.print(target, value)?,
            None => self.print(kind, value)?,
        }
        Some(())
    }

    fn print(&mut self, kind: &'a str, value: &Value) -> Option<()> {
        if let Some(element) = kind.strip_prefix("[]") {
            return self.print_list(element, value);
        }
        if let Some(element) = kind.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return self.print_map(element.1, value);
        }
        match kind {
            "string" => self.push(&[text_of(value)?]),
            "bool" => self.push(&[if bool_of(value)? { "true" } else { "false" }]),
            "int32" | "int64" => self.push(&[&int_of(value)?.to_string()]),
            "v1.Time" => self.push(&[value.is_null().then_some(ZERO_TIME)?]),
            "resource.Quantity" => self.push(&[&Quantity::parse(text_of(value)?)?.print()]),
            "intstr.IntOrString" => self.push(&[&int_or_string_text(value)?]),
            _ => return self.print_named(kind, value),
        }
        Some(())
    }

    fn print_list(&mut self, element: &'a str, value: &Value) -> Option<()> {
        let Some(items) = value.as_array() else {
            self.push(&["<nil>"]);
            return value.is_null().then_some(());
        };
        self.push(&["["]);
        for (index, item) in items.iter().enumerate() {
            self.push(&[if index > 0 { " " } else { "" }]);
            self.print(element, item)?;
        }
        self.push(&["]"]);
        Some(())
    }

    /// By name, as JSON objects are here.
    fn print_map(&mut self, element: &'a str, value: &Value) -> Option<()> {
        let Some(entries) = value.as_object() else {
            self.push(&["<nil>"]);
            return value.is_null().then_some(());
        };
        let sorted: BTreeMap<&String, &Value> = entries.iter().collect();
        self.push(&["map["]);
        for (index, (key, item)) in sorted.into_iter().enumerate() {
            self.push(&[if index > 0 { " " } else { "" }, key, ":"]);
            match element {
                "resource.Quantity" => self.print_resource(item)?,
                _ => self.print(element, item)?,
            }
        }
        self.push(&["]"]);
        Some(())
    }

    /// A quantity in a list of resources.
    fn print_resource(&mut self, value: &Value) -> Option<()> {
        let computed = value.get(COMPUTED).and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok());
        let mut quantity = match computed {
            Some(index) => self.computed.get(index)?.1.clone(),
            None => Quantity::parse(text_of(value)?)?,
        };
        quantity.round_up_to_milli()?;
        self.push(&[&quantity.print()]);
        Some(())
    }

    fn print_named(&mut self, kind: &'a str, value: &Value) -> Option<()> {
        let fields: Vec<(&'a str, &'a str, &'a str)> = match self.types.get(kind)? {
            Shape::Named(target) => {
                let target = *target;
                return self.print(target, value);
            }
            Shape::Struct(fields) => {
                fields.iter().map(|field| (field.name, field.json, field.kind)).collect()
            }
        };
        self.push(&["{"]);
        for (index, (name, json, kind)) in fields.into_iter().enumerate() {
            self.push(&[if index > 0 { " " } else { "" }, name, ":"]);
            let member = match json {
                "" => value,
                "-" => &Value::Null,
                json => value.get(json).unwrap_or(&Value::Null),
            };
            self.print_typed(kind, member)?;
        }
        self.push(&["}"]);
        Some(())
    }

    fn push(&mut self, parts: &[&str]) {
        self.out.extend(parts.iter().copied());
    }
}

fn text_of(value: &Value) -> Option<&str> {
    if value.is_null() { Some("") } else { value.as_str() }
}

fn bool_of(value: &Value) -> Option<bool> {
    if value.is_null() { Some(false) } else { value.as_bool() }
}

fn int_of(value: &Value) -> Option<i64> {
    if value.is_null() { Some(0) } else { value.as_i64() }
}

fn int_or_string_text(value: &Value) -> Option<String> {
    let (kind, number, text) = match value.as_str() {
        Some(text) => (1, 0, text),
        None => (0, int_of(value)?, ""),
    };
    Some(format!("{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_a_field_names_is_known() {
        let types = types();
        let bare = |kind: &'static str| {
            let kind = kind.trim_start_matches('*').trim_start_matches("[]");
            kind.strip_prefix("map[")
                .and_then(|rest| rest.split_once(']'))
                .map_or(kind, |(_, element)| element)
        };
        let basic = [
            "string",
            "bool",
            "int32",
            "int64",
            "v1.Time",
            "v1.FieldsV1",
            "resource.Quantity",
            "intstr.IntOrString",
        ];
        for (name, shape) in &types {
            let kinds: Vec<&'static str> = match shape {
                Shape::Struct(fields) => fields.iter().filter(|f| f.json != "-").map(|f| f.kind).collect(),
                Shape::Named(kind) => vec![kind],
            };
            for kind in kinds {
                assert!(basic.contains(&bare(kind)) || types.contains_key(bare(kind)), "{kind} of {name}");
            }
        }
    }
}
