use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::{Position, Problem, Reading, format_of, read, read_json, read_located, read_one, write};

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Ship {
    name: String,
    #[serde(default)]
    crew: Vec<Sailor>,
    #[serde(default)]
    flags: BTreeMap<String, String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Sailor {
    age: u8,
}

fn ship(text: &str, reading: &Reading) -> Result<Ship, Problem> {
    let node = read_one(text)?.expect("a document");
    reading.read(&node)
}

fn complaint(text: &str) -> String {
    ship(text, &Reading::strict()).expect_err("a problem").with_place()
}

#[test]
fn yaml_and_json_are_parsed_to_the_same_value() {
    for text in [
        "name: Anna\ncrew:\n- age: 30\n",
        "# a ship\nname: \"Anna\"\ncrew: [{age: 30}]",
        r#"{"name": "Anna", "crew": [{"age": 30}]}"#,
        "{\n\t\"name\": \"Anna\",\n\t\"crew\": [\n\t\t{\"age\": 30}\n\t]\n}",
    ] {
        let anna = Ship { name: "Anna".to_owned(), crew: vec![Sailor { age: 30 }], flags: BTreeMap::new() };
        assert_eq!(ship(text, &Reading::strict()), Ok(anna), "{text}");
    }
}

#[test]
fn errors_have_field_and_position() {
    assert_eq!(
        complaint("name: Anna\ncrew:\n- age: old\n"),
        "crew[0].age: invalid type: string \"old\", expected u8 at line 3, column 8"
    );
    assert_eq!(complaint("crew: []"), "missing field `name` at line 1, column 1");
    assert_eq!(complaint("name: [Anna"), "unclosed bracket '[' at line 1, column 7");
}

#[test]
fn numbers_are_accepted_for_strings_only_in_lenient_mode() {
    let text = "name: 007\nflags: {top: true, stern: 1.5, bow: -2}";
    assert_eq!(complaint(text), "name: invalid type: integer `7`, expected a string at line 1, column 7");
    let ship = ship(text, &Reading::lenient()).expect("a ship");
    let flags = [("bow", "-2"), ("stern", "1.5"), ("top", "true")];
    assert_eq!(ship.name, "7");
    assert_eq!(ship.flags, flags.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[test]
fn unknown_fields_are_recorded() {
    let reading = Reading::strict();
    ship("name: Anna\ncrew:\n- {age: 30, rank: 2}\nmast: 3", &reading).expect("a ship");
    let unknown: Vec<String> = reading.into_unknown().iter().map(Problem::with_place).collect();
    assert_eq!(
        unknown,
        [
            "crew[0].rank: unknown field, ignored at line 3, column 19",
            "mast: unknown field, ignored at line 4, column 7"
        ]
    );
}

#[test]
fn last_value_of_a_duplicate_key_counts() {
    let text = "a: 1\nb:\n- {c: 1, c: 2}\na: 3\n";
    let (json, duplicates) = read_json(text).expect("a document");
    assert_eq!(json, json!({"a": 3, "b": [{"c": 2}]}));
    let found: Vec<_> = duplicates
        .iter()
        .map(|found| (found.path.as_str(), found.key.as_str(), found.position.map(|at| at.line)))
        .collect();
    assert_eq!(found, [("b[0].c", "c", Some(3)), ("a", "a", Some(4))]);
    let documents = read(text).expect("documents");
    assert_eq!(
        documents.duplicate.and_then(|problem| problem.position),
        Some(Position { line: 3, column: 10 })
    );
    assert_eq!(documents.documents.len(), 1);
    assert!(read_one(text).is_err());
}

#[test]
fn empty_documents_are_none() {
    for text in ["", "# nothing\n", "---\n"] {
        assert!(read_one(text).expect("no problem").is_none(), "{text:?}");
        assert_eq!(read_json(text).expect("no problem").0, json!(null), "{text:?}");
    }
    let two = read("a: 1\n---\n---\nb: 2\n").expect("documents");
    assert_eq!(two.documents.len(), 2);
    let problem = read_one("a: 1\n---\nb: 2\n").expect_err("two documents");
    assert_eq!(problem.with_place(), "only one document is expected at line 3, column 1");
}

#[test]
fn parse_errors_name_the_format() {
    assert_eq!(["a: [", " {\"a\":\t1"].map(format_of), ["YAML", "JSON"]);
    assert!(read("{\"a\":\t1").is_err());
}

#[test]
fn every_value_of_a_wrong_type_is_reported() {
    let node = read_one("name: Anna\ncrew: old\nflags: 7\nmast: 1\n").unwrap().unwrap();
    let reading = Reading::strict();
    let (found, problems) = reading.read_all::<Ship>(&node);
    let problems: Vec<String> = problems.iter().map(Problem::with_place).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].ends_with("line 2, column 7") && problems[1].ends_with("line 3, column 8"),
        "{problems:?}"
    );
    assert_eq!(found.unwrap().name, "Anna");
    assert_eq!(reading.into_unknown().len(), 1);
    let node = read_one("name: [Anna]\ncrew: []\n").unwrap().unwrap();
    let (found, problems) = Reading::strict().read_all::<Ship>(&node);
    assert_eq!((found, problems.len()), (None, 1), "that it has no name is no further problem");
}

#[test]
fn values_have_their_position_by_path() {
    let text = "name: Anna\ncrew:\n- age: 30\nflags:\n  fore: red\n";
    let located = read_located(text).unwrap();
    let at = |path: &str| located.positions.get(path).map(|at| (at.line, at.column));
    assert_eq!(at("name"), Some((1, 7)));
    assert_eq!(at("crew[0].age"), Some((3, 8)));
    assert_eq!(at("flags.fore"), Some((5, 9)));
    let node = read_one(text).unwrap().unwrap();
    assert_eq!(node.position_of("crew[0].age"), located.positions.get("crew[0].age").copied());
    assert_eq!(
        node.position_of("crew[0].name"),
        located.positions.get("crew[0]").copied(),
        "what contains it"
    );
    assert_eq!(node.position_of("crew[7].name"), located.positions.get("crew").copied());
}

#[test]
fn written_values_are_read_again() {
    for value in [
        json!({"a": [[1, "2"], {}, [], {"b": [[]]}], "": "", "yes": "no", "2026-11-29T11:43:41Z": "2026-11-29"}),
        json!({"text": "a\n\"b\" \\ \u{7}\u{7f}\u{85}\u{2028}é: # -", "number": -1.5, "flag": true, "nothing": null}),
        json!({"key: value": ["- a", "{b}", "~", "0x1", "1e3", "null", ".inf"]}),
        json!(["a", {"b": 1}]),
        json!({}),
        json!("text"),
    ] {
        let text = write(&value).unwrap();
        assert_eq!(read_json(&text).unwrap(), (value, Vec::new()), "{text}");
    }
}
