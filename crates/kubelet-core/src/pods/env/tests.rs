//! Declared variables in, an environment out.

use api_core::env_objects::{EnvFile, EnvObjects};
use std::net::IpAddr;

use model::containers::find_container;
use model::k8s::Quantity;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// As [`super::expansion::expand`], with text as values.
fn expand<'v>(
    text: &str,
    max: usize,
    mut value_of: impl FnMut(&str) -> Option<&'v str>,
) -> Result<String, TooLong> {
    let expanded = super::expand(text, max, |name| value_of(name).map(str::as_bytes))?;
    Ok(String::from_utf8(expanded).unwrap())
}

/// The environment of container `a` with these fields, as `NAME=value`, or the error.
fn env_of(container: &Value, objects: &EnvObjects) -> String {
    match try_env_of(container, objects) {
        Ok(env) => env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
        Err(error) => format!("! {error}"),
    }
}

fn try_env_of(container: &Value, objects: &EnvObjects) -> Result<Vec<(String, EnvValue)>, EnvError> {
    let mut container = container.clone();
    container["name"] = json!("a");
    let sidecar =
        json!({"name": "b", "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "1500m"}}});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u",
            "labels": {"app": "web", "a/b": "c\"d"}, "annotations": {"note": "x\ny"},
        },
        "spec": {"nodeName": "n1", "serviceAccountName": "sa", "containers": [container, sidecar]},
    }))
    .unwrap();
    let ips = |text: &str| text.split(' ').map(|ip| ip.parse::<IpAddr>().unwrap()).collect::<Vec<_>>();
    let (pod_ips, host_ips) = (ips("10.0.0.7 fd00::7"), ips("192.168.0.1 fd01::1"));
    let allocatable = BTreeMap::from([
        ("cpu".to_owned(), Quantity("3500m".to_owned())),
        ("memory".to_owned(), Quantity("1Gi".to_owned())),
        ("hugepages-2Mi".to_owned(), Quantity("8Mi".to_owned())),
    ]);
    let facts =
        DownwardFacts { container: "a", pod_ips: &pod_ips, host_ips: &host_ips, allocatable: &allocatable };
    let container = find_container(&pod, "a").unwrap();
    compute_env(&pod, &container, &facts, objects)
}

#[track_caller]
fn check(env: &Value, expected: &str) {
    assert_eq!(env_of(&json!({ "env": env }), &EnvObjects::default()), expected);
}

#[track_caller]
fn check_field(path: &str, expected: &str) {
    check(&json!([{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]), expected);
}

#[track_caller]
fn check_resource(field: &Value, expected: &str) {
    check(&json!([{"name": "X", "valueFrom": {"resourceFieldRef": field}}]), expected);
}

#[test]
fn variables_keep_their_order_and_the_last_value_counts() {
    check(&json!([]), "");
    check(&json!([{"name": "B", "value": "1"}, {"name": "A"}]), "B=1 A=");
    check(
        &json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]),
        "A=3 B=2",
    );
}

#[test]
fn a_variable_may_use_those_before_it() {
    check(&json!([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}]), "A=1 B=12");
    check(&json!([{"name": "B", "value": "$(A)2"}, {"name": "A", "value": "1"}]), "B=$(A)2 A=1");
    check(&json!([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)$(A)"}]), "A=11");
}

#[test]
fn fields_of_the_pod_are_shown() {
    check_field("metadata.name", "X=p");
    check_field("metadata.namespace", "X=ns");
    check_field("metadata.uid", "X=u");
    check_field("metadata.labels['app']", "X=web");
    check_field("metadata.labels['a/b']", "X=c\"d");
    check_field("metadata.labels['none']", "X=");
    check_field("metadata.annotations['note']", "X=x\ny");
    check_field("metadata.labels", "X=a/b=\"c\\\"d\"\napp=\"web\"");
    check_field("metadata.annotations", "X=note=\"x\\ny\"");
    check_field("spec.nodeName", "X=n1");
    check_field("spec.serviceAccountName", "X=sa");
    check_field("status.hostIP", "X=192.168.0.1");
    check_field("status.hostIPs", "X=192.168.0.1,fd01::1");
    check_field("status.podIP", "X=10.0.0.7");
    check_field("status.podIPs", "X=10.0.0.7,fd00::7");
    check_field("spec.restartPolicy", "! unsupported fieldPath: spec.restartPolicy");
    check_field("metadata.finalizers['x']", "! unsupported fieldPath: metadata.finalizers['x']");
}

#[test]
fn resources_are_shown_in_units_of_the_divisor_rounded_up() {
    check_resource(&json!({"containerName": "b", "resource": "limits.memory"}), "X=67108864");
    check_resource(&json!({"containerName": "b", "resource": "limits.memory", "divisor": "1Mi"}), "X=64");
    check_resource(&json!({"containerName": "b", "resource": "requests.cpu"}), "X=2");
    check_resource(&json!({"containerName": "b", "resource": "requests.cpu", "divisor": "1m"}), "X=1500");
    check_resource(&json!({"containerName": "b", "resource": "requests.cpu", "divisor": "0"}), "X=2");
    check_resource(&json!({"resource": "requests.memory"}), "X=0");
}

#[test]
fn resource_field_of_a_container_without_limit_is_node_allocatable() {
    check_resource(&json!({"resource": "limits.cpu"}), "X=4");
    check_resource(&json!({"resource": "limits.memory", "divisor": "1Gi"}), "X=1");
    check_resource(&json!({"resource": "limits.ephemeral-storage"}), "X=0");
    check_resource(&json!({"resource": "limits.hugepages-2Mi"}), "X=0");
}

#[test]
fn unknown_resources_and_containers_are_refused() {
    check_resource(&json!({"resource": "limits.gpu"}), "! unsupported container resource : limits.gpu");
    check_resource(&json!({"resource": "cpu"}), "! unsupported container resource : cpu");
    check_resource(&json!({"resource": "maximum.cpu"}), "! unsupported container resource : maximum.cpu");
    check_resource(&json!({"containerName": "z", "resource": "limits.cpu"}), "! container z not found");
}

#[test]
fn objects_that_do_not_exist_are_an_error_unless_optional() {
    let from = |field: &str, optional: bool| json!([{"name": "X", "valueFrom": {field: {"name": "o", "key": "k", "optional": optional}}}]);
    check(&from("configMapKeyRef", false), "! configmap \"o\" not found");
    check(&from("secretKeyRef", false), "! secret \"o\" not found");
    check(&from("configMapKeyRef", true), "");
    check(&from("secretKeyRef", true), "");
    let all = |field: &str, optional: bool| {
        env_of(&json!({"envFrom": [{field: {"name": "o", "optional": optional}}]}), &EnvObjects::default())
    };
    assert_eq!(all("configMapRef", false), "! configmap \"o\" not found");
    assert_eq!(all("secretRef", false), "! secret \"o\" not found");
    assert_eq!(all("configMapRef", true), "");
    assert_eq!(all("secretRef", true), "");
}

fn objects() -> EnvObjects {
    let data = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
    };
    EnvObjects {
        config_maps: BTreeMap::from([("c".to_owned(), data(&[("k", "v"), ("A", "map")]))]),
        secrets: BTreeMap::from([
            ("s".to_owned(), BTreeMap::from([("pass".to_owned(), "word".into())])),
            (
                "b".to_owned(),
                BTreeMap::from([
                    ("raw".to_owned(), vec![0xff, 0xfe].into()),
                    ("text".to_owned(), "x".into()),
                ]),
            ),
        ]),
        services: data(&[("SVC_HOST", "1.2.3.4"), ("A", "service")]),
        files: None,
    }
}

#[test]
fn declared_variables_win_over_whole_objects_and_those_over_services() {
    let container = json!({
        "envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "S_", "secretRef": {"name": "s"}}],
        "env": [{"name": "k", "value": "own"}, {"name": "AT", "value": "$(SVC_HOST):$(S_pass)"}],
    });
    assert_eq!(env_of(&container, &objects()), "A=map k=own S_pass=word AT=1.2.3.4:word SVC_HOST=1.2.3.4");
}

#[test]
fn secret_value_that_is_not_utf8_is_passed_as_bytes() {
    let objects = EnvObjects { services: BTreeMap::new(), ..objects() };
    let raw = || EnvValue::from(vec![0xff, 0xfe]);
    let named = |name: &str, value: EnvValue| (name.to_owned(), value);
    let source = json!({"secretKeyRef": {"name": "b", "key": "raw"}});
    let env = json!({
        "envFrom": [{"prefix": "P_", "secretRef": {"name": "b"}}],
        "env": [{"name": "X", "valueFrom": source}, {"name": "Y", "value": "<$(X)>"}],
    });
    let expected = [
        named("P_raw", raw()),
        named("P_text", "x".into()),
        named("X", raw()),
        named("Y", b"<\xff\xfe>".as_slice().into()),
    ];
    assert_eq!(try_env_of(&env, &objects).unwrap(), expected);
}

#[test]
fn command_with_a_variable_that_is_not_utf8_is_refused_with_the_variable() {
    let env: Vec<(String, EnvValue)> =
        vec![("A".to_owned(), "a".into()), ("RAW".to_owned(), vec![0xff].into())];
    let expanded = |word: &str| expand_all(&[word.to_owned()], &env).map_err(|error| error.to_string());
    assert_eq!(expanded("$(A)$$(RAW)").unwrap(), ["a$(RAW)"]);
    let error = "the command refers to environment variables that are not valid UTF-8: RAW";
    assert_eq!(expanded("$(A)$(RAW)").unwrap_err(), error);
    let path = |expression: &str| expand_sub_path(expression, &values_by_name(&env));
    assert_eq!(path("x/$(A)").as_deref(), Ok("x/a"));
    let error = "environment variables are not valid UTF-8: RAW";
    assert_eq!(path("x/$(RAW)").unwrap_err().to_string(), error);
}

#[test]
fn missing_config_map_or_secret_key_is_reported() {
    let from = |field: &str, name: &str, optional: bool| {
        let variable =
            json!({"name": "X", "valueFrom": {field: {"name": name, "key": "no", "optional": optional}}});
        env_of(&json!({"env": [variable]}), &EnvObjects { services: BTreeMap::new(), ..objects() })
    };
    assert_eq!(from("configMapKeyRef", "c", false), "! couldn't find key no in ConfigMap ns/c");
    assert_eq!(from("secretKeyRef", "s", false), "! couldn't find key no in Secret ns/s");
    assert_eq!(from("secretKeyRef", "s", true), "");
}

#[track_caller]
fn check_expand(text: &str, expected: &str) {
    let values = BTreeMap::from([("A", "1"), ("B", "$(A)"), ("", "empty"), ("A B", "two")]);
    assert_eq!(expand(text, 100, |name| values.get(name).copied()).as_deref(), Ok(expected), "{text}");
}

#[test]
fn variable_references_are_expanded_and_other_text_is_unchanged() {
    check_expand("", "");
    check_expand("plain", "plain");
    check_expand("$(A)", "1");
    check_expand("$(A)$(A)-$(A)", "11-1");
    check_expand("$(B)", "$(A)");
    check_expand("$(C)", "$(C)");
    check_expand("$$(A)", "$(A)");
    check_expand("$$$(A)", "$1");
    check_expand("$$$$(A)", "$$(A)");
    check_expand("$A", "$A");
    check_expand("$", "$");
    check_expand("$$", "$");
    check_expand("$(A", "$(A");
    check_expand("$((A))", "$((A))");
    check_expand("$()", "empty");
    check_expand("$(A B)", "two");
    check_expand("€$€$(A)€", "€$€1€");
}

#[test]
fn a_sub_path_needs_all_its_values() {
    let env = [("POD".to_owned(), "p".to_owned())];
    assert_eq!(expand_sub_path("logs/$(POD)/$$x", &values_by_name(&env)).as_deref(), Ok("logs/p/$x"));
    assert_eq!(
        expand_sub_path("$(NO)/$(POD)", &values_by_name(&env)).unwrap_err().to_string(),
        "missing value for NO"
    );
}

/// Variables of which each is the one before twice.
fn doublings(count: usize) -> Value {
    let first = json!({"name": "V0", "value": "x"});
    let others =
        (1..=count).map(|n| json!({"name": format!("V{n}"), "value": format!("$(V{0})$(V{0})", n - 1)}));
    json!({"env": std::iter::once(first).chain(others).collect::<Vec<_>>()})
}

#[test]
fn an_environment_that_doubles_a_value_is_refused_when_one_string_is_longer_than_execve_takes() {
    let fits = env_of(&doublings(16), &EnvObjects::default());
    assert!(fits.len() > 1 << 16 && !fits.starts_with('!'), "{:.80}", fits);
    // 2^17 bytes, the name and the NUL do not fit into MAX_ARG_STRLEN.
    let expected = "! environment variable \"V17\" is longer than the limit of 131072 bytes";
    assert_eq!(format!("{:.100}", env_of(&doublings(17), &EnvObjects::default())), expected);
    assert_eq!(format!("{:.100}", env_of(&doublings(24), &EnvObjects::default())), expected);
}

#[test]
fn the_total_of_environment_and_command_is_bounded_as_execve_bounds_it() {
    let value = "v".repeat(100_000);
    let variables = |count| -> Value {
        let all = (0..count).map(|n| json!({"name": format!("V{n}"), "value": value}));
        json!({"env": all.collect::<Vec<_>>()})
    };
    assert!(!env_of(&variables(20), &EnvObjects::default()).starts_with('!'));
    let too_large = "! environment and command are larger than the limit of 2097152 bytes together";
    assert_eq!(format!("{:.100}", env_of(&variables(21), &EnvObjects::default())), too_large);

    let env: Vec<(String, String)> = (0..20).map(|n| (format!("V{n}"), value.clone())).collect();
    let word = |text: &str| expand_all(&[text.to_owned()], &env).map(|words| words[0].len());
    assert_eq!(word("$(V0)"), Err(ExpansionError::Total), "20 variables leave less than 100,000 bytes");
    assert_eq!(word("$(V0"), Ok(4));
    let one = &env[..1];
    assert_eq!(expand_all(&["$(V0)$(V0)".to_owned()], one), Err(ExpansionError::Argument));
    assert_eq!(expand_all(&vec!["$(V0)".to_owned(); 19], one).map(|words| words.len()), Ok(19));
    assert_eq!(expand_all(&vec!["$(V0)".to_owned(); 20], one), Err(ExpansionError::Total));
    assert_eq!(expand_all(&vec![String::new(); 300_000], one), Err(ExpansionError::Total), "pointers count");
}

#[test]
fn values_from_objects_services_files_and_fields_count_towards_the_limits() {
    let large = "v".repeat(200_000);
    let map = |value: &str| BTreeMap::from([("key".to_owned(), value.to_owned())]);
    let objects = EnvObjects {
        config_maps: BTreeMap::from([("c".to_owned(), map(&large))]),
        secrets: BTreeMap::from([(
            "s".to_owned(),
            BTreeMap::from([("key".to_owned(), large.as_str().into())]),
        )]),
        ..EnvObjects::default()
    };
    let too_long = "! environment variable \"key\" is longer than the limit of 131072 bytes";
    assert_eq!(env_of(&json!({"envFrom": [{"configMapRef": {"name": "c"}}]}), &objects), too_long);
    assert_eq!(env_of(&json!({"envFrom": [{"secretRef": {"name": "s"}}]}), &objects), too_long);
    let from =
        json!({"env": [{"name": "key", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "key"}}}]});
    assert_eq!(env_of(&from, &objects), too_long);
    let services = EnvObjects { services: map(&large), ..EnvObjects::default() };
    assert_eq!(env_of(&json!({}), &services), too_long);
    let name = "N".repeat(200_000);
    let refused = env_of(&json!({"env": [{"name": name}]}), &EnvObjects::default());
    assert!(refused.starts_with("! environment variable \"NNN") && refused.len() < 250, "{:.300}", refused);
}

#[test]
fn a_variable_that_is_set_again_and_again_is_refused_after_a_few_copies() {
    let value = "v".repeat(100_000);
    let again: Vec<Value> = (0..100).map(|_| json!({"name": "V", "value": "$(W)"})).collect();
    let all: Vec<Value> = std::iter::once(json!({"name": "W", "value": value})).chain(again).collect();
    let few: Vec<Value> = all[..80].to_vec();
    assert!(env_of(&json!({"env": few}), &EnvObjects::default()).starts_with("W=v"));
    let refused = env_of(&json!({"env": all}), &EnvObjects::default());
    assert_eq!(refused, "! environment and command are larger than the limit of 2097152 bytes together");
}

#[test]
fn unterminated_references_are_scanned_in_linear_time() {
    let openings = "$(".repeat(1 << 20);
    assert_eq!(expand(&openings, openings.len(), |_| None).as_deref(), Ok(openings.as_str()));
    assert_eq!(expand(&openings, openings.len() - 1, |_| None), Err(TooLong));
}

#[test]
fn a_sub_path_longer_than_path_max_is_refused() {
    let env = [("V".to_owned(), "v".repeat(2000))];
    assert_eq!(expand_sub_path("$(V)/$(V)", &values_by_name(&env)).map(|path| path.len()), Ok(4001));
    assert_eq!(expand_sub_path("$(V)/$(V)/$(V)", &values_by_name(&env)), Err(SubPathError::TooLong));
}

proptest! {
    #[test]
    fn expansion_never_makes_more_than_its_limit(text in "[a$()]{0,40}", max in 0_usize..60) {
        let whole = expand(&text, usize::MAX >> 1, |_| Some("value")).unwrap();
        let expected = if whole.len() <= max { Ok(whole) } else { Err(TooLong) };
        prop_assert_eq!(expand(&text, max, |_| Some("value")), expected);
    }

    #[test]
    fn text_without_dollars_is_untouched(text in "[^$]{0,40}") {
        prop_assert_eq!(expand(&text, 200, |_| None), Ok(text));
    }

    #[test]
    fn doubled_dollars_protect_any_text(text in "\\PC{0,40}") {
        prop_assert_eq!(expand(&text.replace('$', "$$"), 200, |_| Some("!")), Ok(text));
    }

    #[test]
    fn without_values_only_escapes_change(text in "[a$()]{0,12}") {
        let expanded = expand(&text, 200, |_| None).unwrap();
        prop_assert_eq!(expanded.replace('$', ""), text.replace('$', ""));
    }
}

#[test]
fn file_key_ref_reads_values_from_existing_files() {
    let from = |volume: &str, key: &str, optional: bool| {
        let source = json!({"volumeName": volume, "path": "env", "key": key, "optional": optional});
        json!({"env": [{"name": "X", "valueFrom": {"fileKeyRef": source}}, {"name": "Y", "value": "$(X)"}]})
    };
    let file = |volume: &str, text: &str| {
        (EnvFile { volume: volume.to_owned(), path: "env".to_owned() }, text.to_owned())
    };
    let files = BTreeMap::from([file("v", "A='1'\n"), file("odd", "\nA=1\n")]);
    let objects = EnvObjects { files: Some(files), ..EnvObjects::default() };
    let check = |container: &Value, expected: &str| assert_eq!(env_of(container, &objects), expected);
    check(&from("v", "A", false), "X=1 Y=1");
    check(&from("v", "B", true), "Y=$(X)");
    check(&from("none", "A", true), "Y=$(X)");
    check(
        &from("v", "B", false),
        "! environment variable key \"B\" not found in file \"env\" of volume \"v\"",
    );
    check(&from("none", "A", false), "! env file \"env\" not found in volume \"none\"");
    check(
        &from("odd", "A", true),
        "! couldn't parse env file \"env\" of volume \"odd\": line 2: the value must be enclosed in single quotes",
    );
    assert_eq!(
        env_of(&from("v", "A", false), &EnvObjects::default()),
        "! environment variable \"X\": fileKeyRef needs the feature gate EnvFiles, which is off"
    );
}

/// `kubelet_pods_test.go`, TestMakeEnvironmentVariables: expansion, and what is taken from whole objects.
#[test]
fn make_environment_variables_table() {
    let expanded = json!([
        {"name": "TEST_LITERAL", "value": "test-test-test"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "OUT_OF_ORDER_TEST", "value": "$(OUT_OF_ORDER_TARGET)"},
        {"name": "OUT_OF_ORDER_TARGET", "value": "FOO"},
        {"name": "EMPTY_VAR"},
        {"name": "EMPTY_TEST", "value": "foo-$(EMPTY_VAR)"},
        {"name": "POD_NAME_TEST2", "value": "test2-$(POD_NAME)"},
        {"name": "POD_NAME_TEST3", "value": "$(POD_NAME_TEST2)-3"},
        {"name": "LITERAL_TEST", "value": "literal-$(TEST_LITERAL)"},
        {"name": "SERVICE_VAR_TEST", "value": "$(TEST_SERVICE_HOST):$(TEST_SERVICE_PORT)"},
        {"name": "TEST_UNDEFINED", "value": "$(UNDEFINED_VAR)"},
    ]);
    let sorted = |text: &str| {
        let mut words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        words.sort();
        words
    };
    let data = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let services = EnvObjects {
        services: data(&[("TEST_SERVICE_HOST", "1.2.3.3"), ("TEST_SERVICE_PORT", "8083")]),
        ..EnvObjects::default()
    };
    assert_eq!(
        sorted(&env_of(&json!({"env": expanded}), &services)),
        sorted(
            "TEST_LITERAL=test-test-test POD_NAME=p OUT_OF_ORDER_TEST=$(OUT_OF_ORDER_TARGET) OUT_OF_ORDER_TARGET=FOO \
             EMPTY_VAR= EMPTY_TEST=foo- POD_NAME_TEST2=test2-p POD_NAME_TEST3=test2-p-3 \
             LITERAL_TEST=literal-test-test-test SERVICE_VAR_TEST=1.2.3.3:8083 TEST_UNDEFINED=$(UNDEFINED_VAR) \
             TEST_SERVICE_HOST=1.2.3.3 TEST_SERVICE_PORT=8083"
        ),
        "env expansion, service env vars"
    );
    let own = json!([{"name": "TEST_LITERAL", "value": "test-test-test"},
        {"name": "EXPANSION_TEST", "value": "$(REPLACE_ME)"}, {"name": "DUPE_TEST", "value": "ENV_VAR"}]);
    let object =
        || BTreeMap::from([("o".to_owned(), data(&[("REPLACE_ME", "FROM"), ("DUPE_TEST", "WHOLE")]))]);
    let values = |data: BTreeMap<String, String>| {
        data.into_iter().map(|(key, value)| (key, value.into())).collect::<BTreeMap<_, EnvValue>>()
    };
    let secrets = object().into_iter().map(|(name, data)| (name, values(data))).collect();
    let both = EnvObjects { config_maps: object(), secrets, ..EnvObjects::default() };
    for (kind, prefix) in [("configMapRef", "p_"), ("configMapRef", "1_"), ("secretRef", "p_")] {
        let from = json!([{kind: {"name": "o"}}, {"prefix": prefix, kind: {"name": "o"}}]);
        let expected = format!(
            "TEST_LITERAL=test-test-test REPLACE_ME=FROM EXPANSION_TEST=FROM DUPE_TEST=ENV_VAR \
             {prefix}REPLACE_ME=FROM {prefix}DUPE_TEST=WHOLE"
        );
        let found = env_of(&json!({"envFrom": from, "env": own}), &both);
        assert_eq!(sorted(&found), sorted(&expected), "{kind} {prefix}");
    }
    let odd = EnvObjects {
        config_maps: BTreeMap::from([("o".to_owned(), data(&[("1234", "abc")]))]),
        ..EnvObjects::default()
    };
    let found = env_of(&json!({"envFrom": [{"prefix": "p_", "configMapRef": {"name": "o"}}]}), &odd);
    assert_eq!(found, "p_1234=abc", "configmap_invalid_keys_valid");
}

/// `container/helpers_test.go`, TestExpandVolumeMountsWithSubpath.
#[test]
fn expand_volume_mounts_with_sub_path_table() {
    for (name, expression, env, expected) in [
        ("no expansion", "foo", vec![], Ok("foo")),
        ("expanded", "foo/$(POD_NAME)", vec![("POD_NAME", "bar")], Ok("foo/bar")),
        ("empty", "", vec![("POD_NAME", "bar")], Ok("")),
        ("no variables", "/foo/$(POD_NAME)", vec![], Err("missing value for POD_NAME")),
        ("leading variable", "$(POD_NAME)/bar", vec![("POD_NAME", "foo")], Ok("foo/bar")),
        (
            "empty variable",
            "foo/$(POD_NAME)/$(ANNOTATION)",
            vec![("ANNOTATION", "")],
            Err("missing value for ANNOTATION, POD_NAME"),
        ),
        (
            "missing variable",
            "foo/$(ODD_NAME)/$(POD_NAME)",
            vec![("ODD_NAME", "bar")],
            Err("missing value for POD_NAME"),
        ),
        ("empty expansion", "$()", vec![], Err("missing value for ")),
        (
            "nested",
            "$(POD_NAME$(ANNOTATION))",
            vec![("POD_NAME", "foo"), ("ANNOTATION", "bar")],
            Err("missing value for POD_NAME$(ANNOTATION"),
        ),
    ] {
        let env: Vec<_> = env.into_iter().map(|(k, v): (&str, &str)| (k.to_owned(), v.to_owned())).collect();
        let found = expand_sub_path(expression, &values_by_name(&env)).map_err(|error| error.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name}");
    }
}
