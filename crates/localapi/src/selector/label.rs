//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::SelectorError;
use super::lexer::{Token, tokens};
use crate::validation::names;

/// All requirements must match. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    /// An object without the label does not match.
    In(BTreeSet<String>),
    /// An object without the label matches.
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Parses a `labelSelector` parameter.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                Token::End => break,
                Token::Word(_) | Token::Symbol("!") => {}
                other @ Token::Symbol(_) => {
                    return Err(unexpected(other, "!, identifier, or 'end of string'"));
                }
            }
            let requirement = parser
                .requirement()
                .map_err(|error| SelectorError(format!("unable to parse requirement: {}", error.0)))?;
            requirements.push(requirement);
            match parser.next() {
                Token::End => break,
                Token::Symbol(",") => match parser.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other @ (Token::Symbol(_) | Token::End) => {
                        return Err(unexpected(other, "identifier after ','"));
                    }
                },
                other @ (Token::Symbol(_) | Token::Word(_)) => {
                    return Err(unexpected(&other, "',' or 'end of string'"));
                }
            }
        }
        Ok(Self { requirements })
    }

    /// Reads the form that objects have: `matchLabels` and `matchExpressions`. `None` for an operator that does not exist.
    #[must_use]
    pub fn of_object(selector: &Value) -> Option<Self> {
        let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let mut requirements: Vec<Requirement> = equal
            .map(|(key, value)| Requirement {
                key: key.clone(),
                test: Test::In(value.as_str().map(str::to_owned).into_iter().collect()),
            })
            .collect();
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let listed = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = listed.filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match expression.get("operator").and_then(Value::as_str)? {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                _ => return None,
            };
            let key = expression.get("key").and_then(Value::as_str)?.to_owned();
            requirements.push(Requirement { key, test });
        }
        Some(Self { requirements })
    }

    /// Whether the labels of an object match.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn holds(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = labels.and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Above(limit) => number().is_some_and(|number| number > *limit),
            Test::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.peek().is("!");
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other @ (Token::Symbol(_) | Token::End) => return Err(unexpected(&other, "identifier")),
        };
        if let Some(problem) = names::label_key_problems(&key).into_iter().next() {
            return Err(SelectorError(format!("key: Invalid value: \"{key}\": {problem}")));
        }
        let test = if absent { Test::Absent } else { self.test(&key)? };
        Ok(Requirement { key, test })
    }

    fn test(&mut self, key: &str) -> Result<Test, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Test::Exists);
        }
        let operator = self.next();
        match operator.text() {
            "in" => Ok(Test::In(self.values(key)?)),
            "notin" => Ok(Test::NotIn(self.values(key)?)),
            "=" | "==" => Ok(Test::In([self.value(key)?].into())),
            "!=" => Ok(Test::NotIn([self.value(key)?].into())),
            ">" => Ok(Test::Above(self.integer(key)?)),
            "<" => Ok(Test::Below(self.integer(key)?)),
            _ => Err(unexpected(&operator, "in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// The value after an equality operator; a missing one is empty.
    fn value(&mut self, key: &str) -> Result<String, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => checked(key, value),
            other @ (Token::Symbol(_) | Token::End) => Err(unexpected(&other, "identifier")),
        }
    }

    fn integer(&mut self, key: &str) -> Result<i64, SelectorError> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            SelectorError(format!(
                "values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            ))
        })
    }

    /// `(a,b,)`: an empty element is the empty value.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.next();
        if !open.is("(") {
            return Err(SelectorError(format!("found '{}' expected: '('", open.text())));
        }
        let mut values = BTreeSet::new();
        let mut last = String::new();
        loop {
            match self.next() {
                Token::Word(value) if last.is_empty() => last = checked(key, value)?,
                Token::Symbol(",") => {
                    values.insert(std::mem::take(&mut last));
                }
                Token::Symbol(")") => {
                    values.insert(last);
                    return Ok(values);
                }
                other @ (Token::Word(_) | Token::Symbol(_) | Token::End) => {
                    return Err(unexpected(&other, "',', or ')'"));
                }
            }
        }
    }
}

fn checked(key: &str, value: String) -> Result<String, SelectorError> {
    match names::label_value_problems(&value).into_iter().next() {
        None => Ok(value),
        Some(problem) => {
            Err(SelectorError(format!("values[0][{key}]: Invalid value: \"{value}\": {problem}")))
        }
    }
}

fn unexpected(found: &Token, expected: &str) -> SelectorError {
    SelectorError(format!("found '{}', expected: {expected}", found.text()))
}
