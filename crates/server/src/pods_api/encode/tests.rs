//! The table against the types of `k8s-openapi`, which are made from the definition of the API, and what it encodes against a decoder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::k8s::{ObjectMeta, PodSpec, PodStatus};
use prost::Message;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
    value::StrDeserializer,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::json;

use super::*;

/// A deserializer of a value with every field of every type in it, that records the types and fields that it is asked for.
struct Everything<'a>(&'a mut BTreeMap<&'static str, BTreeSet<&'static str>>);

#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// The fields of a struct, or one entry of a map.
struct Fields<'a> {
    names: std::iter::Copied<std::slice::Iter<'static, &'static str>>,
    seen: &'a mut BTreeMap<&'static str, BTreeSet<&'static str>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        let key = |name: &'static str| -> StrDeserializer<'static, Refused> { name.into_deserializer() };
        self.names.next().map(|name| seed.deserialize(key(name))).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        seed.deserialize(Everything(self.seen))
    }
}

/// One item of a list.
struct Items<'a>(bool, &'a mut BTreeMap<&'static str, BTreeSet<&'static str>>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if std::mem::replace(&mut self.0, true) {
            return Ok(None);
        }
        seed.deserialize(Everything(self.1)).map(Some)
    }
}

impl<'de> Deserializer<'de> for Everything<'_> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_i32(7)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bool(true)
    }

    /// A time, because nothing refuses that.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_str("2026-01-01T00:00:00Z")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(Items(false, self.0))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_map(Fields { names: ["key"].iter().copied(), seen: self.0 })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.0.entry(name).or_default().extend(fields);
        visitor.visit_map(Fields { names: fields.iter().copied(), seen: self.0 })
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
        ignored_any
    }
}

/// A pod with a value in every field, and the types and fields in it.
fn full_pod() -> (Pod, BTreeMap<&'static str, BTreeSet<&'static str>>) {
    let mut seen = BTreeMap::new();
    let pod = Pod {
        metadata: ObjectMeta::deserialize(Everything(&mut seen)).unwrap(),
        spec: Some(PodSpec::deserialize(Everything(&mut seen)).unwrap()),
        status: Some(PodStatus::deserialize(Everything(&mut seen)).unwrap()),
    };
    (pod, seen)
}

/// The fields of a message as JSON has them.
fn json_fields(table: &Table, message: &str) -> BTreeSet<&'static str> {
    let fields = table.0[message].iter();
    fields
        .flat_map(|field| {
            if let Type::Inline(inner) = field.kind {
                return json_fields(table, inner);
            }
            [field.name].into()
        })
        .collect()
}

#[test]
fn table_of_pod_fields_has_every_field_of_the_kubernetes_api_and_no_other() {
    let table = Table::parse(FIELDS);
    let (_, api) = full_pod();
    assert!(api.len() > 100, "{}", api.len());
    for (message, fields) in &api {
        let message = message.rsplit('.').next().unwrap();
        assert_eq!(json_fields(&table, message), *fields, "{message}");
    }
    let inline = ["LocalObjectReference", "VolumeSource", "ProbeHandler", "Pod"];
    let more: Vec<_> = table.0.keys().filter(|message| !api.contains_key(*message)).collect();
    assert!(more.iter().all(|message| inline.contains(message)), "{more:?}");
}

#[test]
fn table_of_pod_fields_is_parsed_completely_and_in_the_order_of_numbers() {
    let table = Table::parse(FIELDS);
    assert_eq!(table.0.len(), FIELDS.lines().count());
    for (message, fields) in &table.0 {
        let line = FIELDS.lines().find(|line| line.split(' ').next() == Some(message)).unwrap();
        assert_eq!(fields.len(), line.split(' ').count() - 1, "{message}");
        assert!(fields.windows(2).all(|pair| pair[0].number < pair[1].number), "{message}");
        for field in fields {
            if let Type::Message(inner) | Type::Inline(inner) = field.kind {
                assert!(table.0.contains_key(inner), "{message}: {inner}");
            }
        }
    }
}

#[test]
fn pod_with_a_value_in_every_field_is_encoded() {
    let (pod, api) = full_pod();
    let encoded = encode_pod(&pod).unwrap();
    let text = "2026-01-01T00:00:00Z".as_bytes();
    let count = encoded.windows(text.len()).filter(|window| *window == text).count();
    assert!(count > api.len(), "{count} texts");
}

// A part of the messages with numbers of their own, to decode with `prost`.

#[derive(Clone, PartialEq, Message)]
struct DecodedPod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(message, optional, tag = "8")]
    created: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(message, repeated, tag = "1")]
    volumes: Vec<Volume>,
    #[prost(message, repeated, tag = "2")]
    containers: Vec<DecodedContainer>,
    #[prost(bool, tag = "11")]
    host_network: bool,
    #[prost(message, optional, tag = "14")]
    security: Option<Security>,
}

#[derive(Clone, PartialEq, Message)]
struct Security {
    #[prost(int64, repeated, packed = "false", tag = "4")]
    groups: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Volume {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    source: Option<Source>,
}

#[derive(Clone, PartialEq, Message)]
struct Source {
    #[prost(message, optional, tag = "19")]
    config_map: Option<ConfigMap>,
}

#[derive(Clone, PartialEq, Message)]
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    reference: Option<Reference>,
    #[prost(int32, tag = "3")]
    mode: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Reference {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct DecodedContainer {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, optional, tag = "8")]
    resources: Option<Resources>,
    #[prost(message, optional, tag = "10")]
    liveness: Option<DecodedProbe>,
}

#[derive(Clone, PartialEq, Message)]
struct Resources {
    #[prost(btree_map = "string, message", tag = "1")]
    limits: BTreeMap<String, DecodedQuantity>,
}

#[derive(Clone, PartialEq, Message)]
struct DecodedQuantity {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct DecodedProbe {
    #[prost(message, optional, tag = "1")]
    handler: Option<Handler>,
    #[prost(int32, tag = "2")]
    delay: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Handler {
    #[prost(message, optional, tag = "3")]
    tcp: Option<Tcp>,
}

#[derive(Clone, PartialEq, Message)]
struct Tcp {
    #[prost(message, optional, tag = "1")]
    port: Option<Port>,
}

#[derive(Clone, PartialEq, Message)]
struct Port {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int32, tag = "2")]
    number: i32,
    #[prost(string, tag = "3")]
    name: String,
}

fn decoded(pod: &Value) -> DecodedPod {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    DecodedPod::decode(&*encode_pod(&pod).unwrap()).unwrap()
}

#[test]
fn encoded_pod_is_decoded_to_the_same_values() {
    let pod = decoded(&json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:01Z",
            "labels": {"b": "2", "a": "1"},
        },
        "spec": {
            "volumes": [{"name": "v", "configMap": {"name": "settings", "defaultMode": 420}}],
            "containers": [{
                "name": "app", "command": ["sh", "-c", ""],
                "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
                "livenessProbe": {"tcpSocket": {"port": "http"}, "initialDelaySeconds": -1},
            }, {"name": "other", "livenessProbe": {"tcpSocket": {"port": 8080}}}],
            "hostNetwork": true, "securityContext": {"supplementalGroups": [5, 4_294_967_295_i64]},
        },
    }));
    let metadata = pod.metadata.unwrap();
    assert_eq!((&*metadata.name, &*metadata.namespace, &*metadata.uid), ("web", "default", "u1"));
    assert_eq!(metadata.created, Some(Time { seconds: 1_767_225_601, nanos: 0 }));
    assert_eq!(metadata.labels, BTreeMap::from([("a", "1"), ("b", "2")].map(|(k, v)| (k.into(), v.into()))));
    let spec = pod.spec.unwrap();
    let source = spec.volumes[0].source.clone().unwrap().config_map.unwrap();
    assert_eq!((spec.volumes[0].name.as_str(), source.mode), ("v", 420));
    assert_eq!(source.reference.unwrap().name, "settings");
    assert!(spec.host_network);
    assert_eq!(spec.security.unwrap().groups, [5, 4_294_967_295]);
    let [app, other] = &spec.containers[..] else { panic!("{:?}", spec.containers) };
    assert_eq!(
        (app.name.as_str(), &app.command[..]),
        ("app", &["sh".into(), "-c".into(), String::new()][..])
    );
    let limits = app.resources.clone().unwrap().limits;
    let limits: Vec<_> = limits.iter().map(|(name, amount)| format!("{name} {}", amount.text)).collect();
    assert_eq!(limits, ["cpu 1500m", "memory 64Mi"]);
    let probe = app.liveness.clone().unwrap();
    let port = |probe: DecodedProbe| probe.handler.unwrap().tcp.unwrap().port.unwrap();
    assert_eq!(probe.delay, -1);
    assert_eq!(port(probe), Port { kind: 1, number: 0, name: "http".into() });
    assert_eq!(port(other.liveness.clone().unwrap()), Port { kind: 0, number: 8080, name: String::new() });
}

#[test]
fn value_of_another_type_is_an_error_without_the_value() {
    let table = Table::parse(FIELDS);
    for (object, field) in [
        (json!({"metadata": {"name": 7}}), "name"),
        (json!({"metadata": {"labels": {"a": 1}}}), "labels"),
        (json!({"spec": {"containers": {"name": "secret"}}}), "containers"),
        (json!({"spec": {"priority": 1.5}}), "priority"),
        (json!({"status": {"startTime": "yesterday"}}), "startTime"),
    ] {
        let Value::Object(object) = object else { panic!("no object") };
        let error = table.encode(POD, &object, &mut Vec::new()).unwrap_err();
        assert_eq!(error, EncodeError::Type(field));
    }
}
