//! The expressions by which claims and device classes select devices: the part of CEL (github.com/google/cel-spec) that such selectors use,
//! with the additions of Kubernetes for quantities and versions. `docs/decisions/0122` says why it is our own.
//!
//! Owns no state. An expression is compiled once and evaluated for each device; text, nesting and steps are bounded, and what is not
//! supported is named when the expression is compiled.

mod cost;
mod evaluate;
mod expression;
mod functions;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;
mod value;
mod version;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Amount;

use evaluate::Evaluation;
use expression::Expression;
use value::{Map, Value};
pub(crate) use version::Version;

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 10 * 1024;
/// The levels of nesting of an expression.
const MAX_DEPTH: usize = 100;
/// The steps of one evaluation.
const MAX_COST: u64 = 1_000_000;

/// Why an expression is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("the expression has more than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("the expression is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("syntax error at byte {at}: {what}")]
    Syntax { at: usize, what: String },
    #[error("undeclared reference to '{0}'")]
    Undeclared(String),
    #[error("undefined field '{0}': device has driver, attributes, capacity and allowMultipleAllocations")]
    UndefinedField(String),
    #[error("{0} is not supported here")]
    Unsupported(String),
    #[error("must evaluate to bool or the unknown type, not {0}")]
    NotBool(&'static str),
}

/// Why an expression has no value for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EvaluationError {
    #[error("no such key: {0}")]
    NoSuchKey(String),
    #[error("no such overload: {function} of {operands}")]
    NoSuchOverload { function: String, operands: String },
    #[error("got '{0}', expected iterable type")]
    NotIterable(&'static str),
    #[error("{0}")]
    InvalidValue(String),
    #[error("CEL result of type {0} could not be converted to bool")]
    NotBool(&'static str),
    #[error("actual cost limit exceeded: more than {MAX_COST} steps")]
    TooExpensive,
}

impl EvaluationError {
    fn no_overload(function: &str, operands: &[&Value]) -> Self {
        let operands: Vec<&str> = operands.iter().map(|operand| operand.type_name()).collect();
        Self::NoSuchOverload { function: function.to_owned(), operands: operands.join(", ") }
    }

    fn invalid(what: impl Into<String>) -> Self {
        Self::InvalidValue(what.into())
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Bool(bool),
    Int(i64),
    Text(String),
    Version(Version),
}

/// What an expression sees of a device. Attributes and capacities by their domain and their name in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) driver: String,
    pub(crate) attributes: BTreeMap<(String, String), Attribute>,
    pub(crate) capacity: BTreeMap<(String, String), Amount>,
    pub(crate) allow_multiple_allocations: bool,
}

/// A device as a value of the language.
#[derive(Clone, Debug)]
pub(crate) struct Input(Value);

impl Device {
    pub(crate) fn input(&self) -> Input {
        let attributes = self.attributes.iter().map(|(name, attribute)| {
            let value = match attribute {
                Attribute::Bool(value) => Value::Bool(*value),
                Attribute::Int(value) => Value::Int(*value),
                Attribute::Text(text) => Value::text(text),
                Attribute::Version(version) => Value::Version(Arc::new(version.clone())),
            };
            (name, value)
        });
        let capacity = self.capacity.iter().map(|(name, amount)| (name, Value::Quantity(*amount)));
        let fields = [
            ("driver", Value::text(&self.driver)),
            ("attributes", by_domain(attributes)),
            ("capacity", by_domain(capacity)),
            ("allowMultipleAllocations", Value::Bool(self.allow_multiple_allocations)),
        ];
        let entries = fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect();
        Input(Value::Map(Arc::new(Map { entries, has_every_domain: false })))
    }
}

fn by_domain<'a>(values: impl Iterator<Item = (&'a (String, String), Value)>) -> Value {
    let mut domains: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Value>> = BTreeMap::new();
    for ((domain, name), value) in values {
        domains.entry(Arc::from(domain.as_str())).or_default().insert(Arc::from(name.as_str()), value);
    }
    let of_domain = |entries| Value::Map(Arc::new(Map { entries, has_every_domain: false }));
    let entries = domains.into_iter().map(|(domain, names)| (domain, of_domain(names))).collect();
    Value::Map(Arc::new(Map { entries, has_every_domain: true }))
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Program(Expression);

impl Program {
    pub(crate) fn compile(text: &str) -> Result<Self, CompileError> {
        if text.len() > MAX_LENGTH {
            return Err(CompileError::TooLong);
        }
        let expression = parser::parse(text)?;
        match expression.constant_type() {
            Some(other) if other != "bool" => Err(CompileError::NotBool(other)),
            Some(_) | None => Ok(Self(expression)),
        }
    }

    /// Whether the expression is true for the device.
    pub(crate) fn matches(&self, device: &Input) -> Result<bool, EvaluationError> {
        let value = Evaluation::new(device.0.clone()).run(&self.0)?;
        let Value::Bool(is_true) = value else { return Err(EvaluationError::NotBool(value.type_name())) };
        Ok(is_true)
    }
}
