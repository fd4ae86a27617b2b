use super::*;

const KINDS: Kinds = Kinds { measured: true };

#[test]
fn document_of_a_group_has_its_kinds_with_fields_and_all_types_that_they_name() {
    let document = version_3(KINDS, "", "v1").unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let container = &schemas["io.k8s.api.core.v1.Container"];
    assert_eq!(container["required"], json!(["name"]));
    assert_eq!(container["properties"]["args"], json!({"type": "array", "items": {"type": "string"}}));
    let spec = &schemas["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
    assert_eq!(*spec, json!({"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}));
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 200);
    for reference in found {
        let name = reference.strip_prefix(IN_VERSION_3).unwrap();
        assert!(schemas.get(name).is_some_and(Value::is_object), "{name}");
    }
    assert!(version_3(KINDS, "apps", "v2").is_err());
}

#[test]
fn refused_kind_accepts_any_field() {
    let document = version_3(KINDS, "apps", "v1").unwrap();
    let schema = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true);
}

#[test]
fn measured_kind_has_its_fields_and_can_only_be_read() {
    let document = version_3(KINDS, "metrics.k8s.io", "v1beta1").unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let containers = &schemas["io.k8s.api.metrics.v1beta1.PodMetrics"]["properties"]["containers"];
    assert_eq!(
        containers["items"]["$ref"],
        json!(format!("{IN_VERSION_3}io.k8s.api.metrics.v1beta1.ContainerMetrics"))
    );
    let path = &document["paths"]["/apis/metrics.k8s.io/v1beta1/nodes/{name}"];
    let verbs: Vec<&str> = path.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(verbs, ["get"]);
    assert!(version_3(Kinds { measured: false }, "metrics.k8s.io", "v1beta1").is_err());
}
