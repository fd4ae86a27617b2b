use serde_json::json;

use super::*;
use crate::resources::{self, Kinds};

#[test]
fn each_served_kind_has_its_type_and_each_type_that_a_field_names_exists() {
    let kinds = Kinds { measured: true };
    for resource in kinds.all().filter(|resource| resource.advice.is_none()) {
        assert!(Schema::of(resource).is_some(), "{} has no type", resource.kind);
    }
    let mut count = 0;
    for of in SCHEMA.types.values().flat_map(BTreeMap::values) {
        assert!(of.fields.is_sorted_by_key(|field| field.name), "{}", of.name);
        for field in &of.fields {
            let mut shape = &field.shape;
            while let Shape::List(item) | Shape::Map(item) = shape {
                shape = item;
            }
            if let Shape::Struct(section, name) = shape {
                assert!(
                    Schema::find(section, name).is_some(),
                    "{}.{}: {section}.{name}",
                    of.name,
                    field.name
                );
            }
            count += 1;
        }
    }
    assert!(count > 1000, "{count} fields");
}

#[test]
fn fields_have_their_shape_and_how_they_are_merged() {
    let spec = Schema::find("core.v1", "PodSpec").unwrap();
    let containers = spec.field("containers").unwrap();
    assert!(containers.required);
    assert_eq!(containers.shape, Shape::List(Box::new(Shape::Struct("core.v1", "Container"))));
    assert_eq!((&containers.merge, containers.patch), (&Merge::ByKeys(vec!["name"]), Some("merge:name")));
    assert_eq!(spec.field("nodeSelector").unwrap().merge, Merge::Atomic);
    let ports = Schema::find("core.v1", "Container").unwrap().field("ports").unwrap();
    assert_eq!(ports.merge, Merge::ByKeys(vec!["containerPort", "protocol"]));
    assert_eq!(spec.field("nothing").map(|field| field.name), None);
}

#[test]
fn unknown_fields_are_named_by_their_path() {
    let unknown = |resource: &str, object| {
        unknown_fields(Schema::of(resources::stored(resource).unwrap()).unwrap(), &object)
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"any": "thing"}, "lables": {}},
        "spec": {"containers": [{"name": "main", "imagePullPolcy": "Never", "resources": {"limits": {"example.com/a": 1}}}]},
    });
    assert_eq!(unknown("pods", pod), ["metadata.lables", "spec.containers[0].imagePullPolcy"]);
    let map = json!({"kind": "ConfigMap", "data": {"a": "b"}, "binaryData": {"c": "ZA=="}});
    assert_eq!(unknown("configmaps", map), [""; 0]);
    let many: serde_json::Map<String, Value> = (0..200).map(|n| (format!("x{n}"), json!(1))).collect();
    assert_eq!(unknown("configmaps", Value::Object(many)).len(), MAX_UNKNOWN);
}
