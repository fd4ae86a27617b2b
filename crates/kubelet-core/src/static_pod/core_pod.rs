//! The text from which the Go kubelet makes the UID of a static pod: its internal type `core.Pod` of Kubernetes 1.36,
//! printed field by field with the names of types and fields, as its hash function prints it.
//!
//! Owns the format; the types are in `core_pod.txt`. Never hashes. With the same text a change-over from the Go kubelet
//! keeps static pods running (docs/decisions/0043).

use std::collections::BTreeMap;
use std::fmt::Write;

use model::k8s::Pod;
use serde_json::{Map, Value};

const TYPES: &str = include_str!("core_pod.txt");
/// Fields that `v1.PodSpec` has itself and `core.PodSpec` has in its security context.
const HOST_FIELDS: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
const ZERO_TIME: &str = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}";

/// The text of a pod that has its defaults, but neither UID nor the name of its node. `None`: it has a value whose text
/// is not known here, such as a time or a quantity beyond 64 bits.
pub(super) fn core_pod_text(pod: &Pod) -> Option<String> {
    let mut value = serde_json::to_value(pod).ok()?;
    move_host_fields(value.get_mut("spec")?.as_object_mut()?);
    let mut printer = Printer { types: types(), out: String::new() };
    printer.out.push_str("(*core.Pod)");
    printer.print("core.Pod", &value)?;
    Some(printer.out)
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
            "resource.Quantity" => self.push(&[&quantity_text(text_of(value)?)?]),
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
            self.print(element, item)?;
        }
        self.push(&["]"]);
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
            // Our defaults write out the divisor that the Go kubelet leaves empty.
            let is_default = name == "Divisor" && member.as_str() == Some("0");
            self.print_typed(kind, if is_default { &Value::Null } else { member })?;
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

/// `resource.Quantity` as parsing leaves it: a number with a decimal scale, and the text itself where it is canonical.
fn quantity_text(text: &str) -> Option<String> {
    let (value, scale, format, canonical) = match text {
        "" => (0, 0, "", false),
        "0" => (0, 0, "DecimalSI", true),
        text => parse_quantity(text)?,
    };
    let kept = if canonical { text } else { "" };
    let mut out =
        format!("{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} ");
    write!(
        out,
        "d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){kept} Format:(resource.Format){format}}}"
    )
    .ok()?;
    Some(out)
}

/// Value, scale, format, and whether the text is canonical. `None`: the Go kubelet keeps it as a large decimal number.
fn parse_quantity(text: &str) -> Option<(i64, i32, &'static str, bool)> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, suffix) = unsigned.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = Some(whole.trim_start_matches('0')).filter(|whole| !whole.is_empty()).unwrap_or("0");
    let shifted = format!("{whole}{fraction}");
    let value: i64 = shifted.parse().ok()?;
    let signed = |value: i64| if is_negative { -value } else { value };
    let length = i32::try_from(shifted.len()).ok()?;
    let of =
        |list: [&str; 6]| list.into_iter().position(|s| s == suffix).and_then(|at| i32::try_from(at).ok());
    if let Some(power) = of(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) {
        let exponent = (power + 1) * 10;
        let is_small = 15 - length - exponent * 3 / 10 > 0;
        let value_in_bytes = value.checked_mul(1_i64.checked_shl(exponent.unsigned_abs())?)?;
        let is_canonical = value & 7 != 0;
        return (fraction.is_empty() && is_small).then_some((
            signed(value_in_bytes),
            0,
            "BinarySI",
            is_canonical,
        ));
    }
    let exponent = match suffix {
        "" => 0,
        "m" => -3,
        _ => (of(["k", "M", "G", "T", "P", "E"])? + 1) * 3,
    };
    let scale = exponent - i32::try_from(fraction.len()).ok()?;
    // Below a thousandth the API rounds, and above 18 digits numbers are decimal ones.
    if length > 18 || scale < -3 {
        return None;
    }
    let is_canonical = scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0');
    Some((signed(value), scale, "DecimalSI", is_canonical))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> String {
        let text = quantity_text(text).unwrap();
        let text =
            text.replace("(int64)", "").replace("(resource.Scale)", "").replace("(resource.Format)", "");
        text.replace("d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} ", "")
            .replace("(resource.int64Amount)", "")
    }

    // By the rules of ParseQuantity of Kubernetes 1.36.
    #[test]
    fn quantities_keep_their_text_where_it_is_canonical() {
        assert_eq!(quantity("250m"), "{i:{value:250 scale:-3} s:(string)250m Format:DecimalSI}");
        assert_eq!(quantity("1"), "{i:{value:1 scale:0} s:(string)1 Format:DecimalSI}");
        assert_eq!(quantity("0.5"), "{i:{value:5 scale:-1} s:(string) Format:DecimalSI}");
        assert_eq!(quantity("1000m"), "{i:{value:1000 scale:-3} s:(string) Format:DecimalSI}");
        assert_eq!(quantity("100Mi"), "{i:{value:104857600 scale:0} s:(string)100Mi Format:BinarySI}");
        assert_eq!(quantity("128Mi"), "{i:{value:134217728 scale:0} s:(string) Format:BinarySI}");
        assert_eq!(quantity("2G"), "{i:{value:2 scale:9} s:(string)2G Format:DecimalSI}");
        assert_eq!(quantity("0"), "{i:{value:0 scale:0} s:(string)0 Format:DecimalSI}");
        for unknown in ["1.5Gi", "0.0001", "1e3", "1234567890123456789", "x"] {
            assert_eq!(quantity_text(unknown), None, "{unknown}");
        }
    }

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
