use super::*;

/// The name of the driver in `staging/src/k8s.io/dynamic-resource-allocation/cel/compile_test.go`.
const DRIVER: &str = "dra.example.com";

fn named(name: &str) -> (String, String) {
    let (domain, id) = name.split_once('/').unwrap_or((DRIVER, name));
    (domain.to_owned(), id.to_owned())
}

/// `true`, `false`, or the error.
fn evaluated(expression: &str, attributes: &[(&str, Attribute)], capacity: &[(&str, &str)]) -> String {
    let device = Device {
        driver: DRIVER.to_owned(),
        attributes: attributes.iter().map(|(name, value)| (named(name), value.clone())).collect(),
        capacity: capacity.iter().map(|(name, value)| (named(name), Amount::parse(value).unwrap())).collect(),
        allow_multiple_allocations: false,
    };
    match Program::compile(expression) {
        Err(error) => format!("compile: {error}"),
        Ok(program) => match program.matches(&device.input()) {
            Ok(is_true) => is_true.to_string(),
            Err(error) => error.to_string(),
        },
    }
}

fn text(text: &str) -> Attribute {
    Attribute::Text(text.to_owned())
}

fn version(text: &str) -> Attribute {
    Attribute::Version(Version::parse(text).unwrap())
}

/// Expressions, attributes and results of the table `testcases` there. `D` stands for `device.attributes["dra.example.com"]`, `C` for the
/// capacity.
#[test]
fn selectors_of_the_originals_tests_have_the_same_results() {
    let name = |value: Attribute| vec![("name", value)];
    let none = Vec::new;
    for (expression, attributes, expected) in [
        ("true", none(), "true"),
        ("false", none(), "false"),
        ("D.name", name(Attribute::Bool(true)), "true"),
        (r#"D["name"]"#, name(Attribute::Bool(true)), "true"),
        ("cel.bind(dra, D, dra.name)", name(Attribute::Bool(true)), "true"),
        (
            r#"device.attributes["other.example.com"].name"#,
            vec![("other.example.com/name", Attribute::Bool(true))],
            "true",
        ),
        (
            r#"device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))"#,
            none(),
            "no such key: noSuchAttr",
        ),
        (
            r#"device.attributes["no-such-domain"]["noSuchAttr"].isGreaterThan(quantity("0"))"#,
            none(),
            "no such key: noSuchAttr",
        ),
        (r#""no-such-domain" in device.attributes"#, none(), "false"),
        (r#""dra.example.com" in device.attributes"#, name(Attribute::Bool(true)), "true"),
        (r#"device.driver == "dra.example.com""#, none(), "true"),
        (r#"device.driver == """#, none(), "false"),
        ("D.name > 0", name(Attribute::Int(1)), "true"),
        (r#"D.name == "fish""#, name(text("fish")), "true"),
        ("D.name.exists(x, x > 0)", name(Attribute::Int(1)), "got 'int', expected iterable type"),
        (r#"D.name.includes("fish")"#, name(text("fish")), "true"),
        ("D.name.includes(true)", name(Attribute::Bool(false)), "false"),
        (r#"D.name.isGreaterThan(semver("0.0.1"))"#, name(version("1.0.0")), "true"),
        (
            r#"D.name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)"#,
            name(version("1.0.0")),
            "true",
        ),
        (r#"device.attributes.exists_one(x, x == "dra.example.com")"#, name(text("a")), "true"),
        (r#"D.exists_one(x, x == "name")"#, name(text("a")), "true"),
        (r#"D.name.split("example").size() >= 2"#, name(text("some_example_value")), "true"),
        (r#"D.name.matches("[^a]?sym")"#, name(text("asymetric")), "true"),
        ("device.allowMultipleAllocations == false", none(), "true"),
        ("D.name", name(Attribute::Int(1)), "CEL result of type int could not be converted to bool"),
        ("1", none(), "compile: must evaluate to bool or the unknown type, not int"),
    ] {
        let whole = expression.replace("D", r#"device.attributes["dra.example.com"]"#);
        assert_eq!(evaluated(&whole, &attributes, &[]), expected, "{expression}");
    }
    for (expression, capacity, expected) in [
        (r#"C.name.isGreaterThan(quantity("1Ki"))"#, Some("1Mi"), "true"),
        (r#""name" in C && C.name.isGreaterThan(quantity("1Ki"))"#, Some("1Mi"), "true"),
        (r#"!("name" in C) || C.name.isGreaterThan(quantity("1Ki"))"#, None, "true"),
        (r#"C.name.compareTo(quantity("1Gi")) >= 0"#, Some("1Gi"), "true"),
        (r#"C.name.compareTo(quantity("2Gi")) >= 0"#, Some("1Gi"), "false"),
        (r#"device.capacity.exists_one(x, x == "dra.example.com")"#, Some("1Mi"), "true"),
        (r#"C.exists_one(x, x == "name")"#, Some("1Mi"), "true"),
    ] {
        let whole = expression.replace("C.", r#"device.capacity["dra.example.com"]."#);
        let whole = whole.replace("in C", r#"in device.capacity["dra.example.com"]"#);
        let capacity: Vec<(&str, &str)> = capacity.map(|value| ("name", value)).into_iter().collect();
        assert_eq!(evaluated(&whole, &[], &capacity), expected, "{expression}");
    }
}

#[test]
fn operators_bind_and_compare_as_in_cel() {
    for (expression, expected) in [
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", "true"),
        ("10 - 2 - 3 == 5 && 7 / 2 == 3 && -7 % 3 == -1", "true"),
        ("!false && -(-1) == 1", "true"),
        ("true ? false : true", "false"),
        ("false || true && false", "false"),
        (r#""a" + 'b' == "ab" && "a" < "b""#, "true"),
        ("1 == 1.0 && 1 < 1.5 && 0x10 == 16 && 1u == 1", "true"),
        ("2 in [1, 2] && !(3 in [1, 2])", "true"),
        ("[1] + [2] == [1, 2]", "true"),
        (r#""1" == 1"#, "false"),
        ("null == null", "true"),
        (r#"quantity("1Ki") == quantity("1024")"#, "true"),
        (r#"semver("1.2.3").minor() == 2"#, "true"),
        (r#""x\u00e4\n" == r'xä' + "\n" // comment"#, "true"),
        (r#"'''a"b''' == "a\"b""#, "true"),
        ("[1, 2, 3].map(x, x * 20).filter(e, e > 50).exists(e, e == 60)", "true"),
        ("[1, 2].all(x, x > 0) && size([1, 2]) == 2 && 'abc'.size() == 3", "true"),
        (r#"has(device.attributes["a"].b)"#, "false"),
        ("-9223372036854775808 < 0", "true"),
        // An operand that decides is enough.
        (r#"device.attributes["a"].b || true"#, "true"),
        (r#"device.attributes["a"].b && false"#, "false"),
        (r#"device.attributes["a"].b && true"#, "no such key: b"),
        (r#"[1, 2].exists(x, x == 2 || device.attributes["a"].b)"#, "true"),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("1 / 0 == 1", "division by zero"),
        (r#"1 + "a" == "1a""#, "no such overload: + of int, string"),
        (r#""a".matches("(")"#, "pattern \"(\": "),
        (r#"quantity("much") == quantity("1")"#, "quantity \"much\" is not a number"),
    ] {
        let actual = evaluated(expression, &[], &[]);
        assert!(actual.starts_with(expected), "{expression}: {actual}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    for (expression, expected) in [
        ("?!", "syntax error at byte 0: expected a value, found \"?\""),
        ("true true", "syntax error at byte 5: expected an operator or the end, found \"true\""),
        ("(true", "syntax error at byte 5: expected \")\", found the end"),
        ("\"a", "syntax error at byte 2: the text has no end"),
        ("true # no", "syntax error at byte 5: unexpected character '#'"),
        ("", "syntax error at byte 0: expected a value, found the end"),
        ("dev.driver == ''", "undeclared reference to 'dev'"),
        (
            "device.name == ''",
            "undefined field 'name': device has driver, attributes, capacity and allowMultipleAllocations",
        ),
        ("device.driver.reverse() == ''", "undeclared reference to 'reverse'"),
        ("timestamp('') == ''", "undeclared reference to 'timestamp'"),
        ("{'a': 1}.size() == 1", "a map in the expression is not supported here"),
        ("b'a' == b'a'", "bytes is not supported here"),
        (
            "has(device)",
            "syntax error at byte 11: expected a field in has(), such as has(a.b), found the end",
        ),
        ("99999999999999999999 == 1", "syntax error at byte 0: invalid number \"99999999999999999999\""),
    ] {
        assert_eq!(
            Program::compile(expression).map(|_| ()).unwrap_err().to_string(),
            expected,
            "{expression}"
        );
    }
}

#[test]
fn length_nesting_and_steps_are_bounded() {
    assert_eq!(
        evaluated(&format!("{}true", " ".repeat(MAX_LENGTH)), &[], &[]),
        "compile: the expression has more than 10240 bytes"
    );
    let deep = "compile: the expression is nested more than 100 levels deep";
    for (open, inner, close) in [
        ("(", "true", ")"),
        ("!", "true", ""),
        ("[", "1", "]"),
        ("- ", "- 1", ""),
        ("true ? true : ", "true", ""),
    ] {
        let expression = format!("{}{inner}{}", open.repeat(200), close.repeat(200));
        assert_eq!(evaluated(&expression, &[], &[]), deep, "{open}");
    }
    assert_eq!(evaluated(&format!("1{} > 0", "+1".repeat(3000)), &[], &[]), deep);
    assert_eq!(evaluated(&format!("device{}", ".driver".repeat(1000)), &[], &[]), deep);
    assert_eq!(evaluated(&format!("true{}", "&&true".repeat(1500)), &[], &[]), "true", "a chain is flat");
    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let nested =
        (0..7).fold("'1'.matches('[0-9]*')".to_owned(), |body, n| format!("{ten}.all(x{n}, {body})"));
    let limit = "actual cost limit exceeded: more than 1000000 steps";
    assert_eq!(evaluated(&nested, &[], &[]), limit);
    let doubled = (0..40)
        .fold("x0 == x0".to_owned(), |body, n| format!("cel.bind(x{n}, [x{}, x{}], {body})", n + 1, n + 1));
    assert_eq!(
        evaluated(&format!("cel.bind(x40, 1, {doubled})"), &[], &[]),
        limit,
        "lists of the same lists"
    );
    assert_eq!(evaluated(&format!("false || ({nested}) || true"), &[], &[]), limit, "no operand excuses it");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9.\"'()\\[\\]?:!&|<>=+*/% \\\\-]{0,60}") {
        evaluated(&text, &[("a", Attribute::Int(1))], &[]);
    }
}
