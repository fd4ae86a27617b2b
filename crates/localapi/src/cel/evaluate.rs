//! The value of an expression for one device. Each step costs, and there is a limit.

use std::sync::Arc;

use super::EvaluationError;
use super::cost::Cost;
use super::expression::{Expression, Kind, Macro, Operator};
use super::functions;
use super::value::Value;

type Result<T> = std::result::Result<T, EvaluationError>;

pub(super) struct Evaluation {
    device: Value,
    /// Those of macros, the innermost last.
    variables: Vec<(String, Value)>,
    cost: Cost,
}

impl Evaluation {
    pub(super) fn new(device: Value) -> Self {
        Self { device, variables: Vec::new(), cost: Cost::default() }
    }

    pub(super) fn run(&mut self, expression: &Expression) -> Result<Value> {
        self.cost.spend(1)?;
        match &expression.kind {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Variable(name) => Ok(self.variable(name)),
            Kind::List(items) => {
                let items: Vec<Value> = items.iter().map(|item| self.run(item)).collect::<Result<_>>()?;
                Ok(Value::List(items.into()))
            }
            Kind::Select(of, field) => {
                let of = self.run(of)?;
                index(&of, &Value::text(field))
            }
            Kind::Has(of, field) => {
                let of = self.run(of)?;
                let Value::Map(map) = &of else { return Err(EvaluationError::no_overload("has", &[&of])) };
                Ok(Value::Bool(map.entries.contains_key(field.as_str())))
            }
            Kind::Index(of, at) => {
                let of = self.run(of)?;
                let at = self.run(at)?;
                index(&of, &at)
            }
            Kind::Call(function, arguments) => {
                let values: Vec<Value> = arguments.iter().map(|one| self.run(one)).collect::<Result<_>>()?;
                functions::call(&mut self.cost, *function, &values)
            }
            Kind::Not(of) => Ok(Value::Bool(!self.condition(of, "!")?)),
            Kind::Negate(of) => {
                let of = self.run(of)?;
                if let Value::Double(number) = of {
                    return Ok(Value::Double(-number));
                }
                let Value::Int(number) = of else { return Err(EvaluationError::no_overload("-", &[&of])) };
                number.checked_neg().map(Value::Int).ok_or_else(overflow)
            }
            Kind::And(all) => self.decide(all, false, "&&"),
            Kind::Or(all) => self.decide(all, true, "||"),
            Kind::Binary(operator, one, two) => {
                let one = self.run(one)?;
                let two = self.run(two)?;
                // A sum of texts or lists is a new one.
                self.cost.spend(match operator {
                    Operator::In | Operator::Add => one.size() + two.size(),
                    Operator::Equal
                    | Operator::NotEqual
                    | Operator::Less
                    | Operator::LessOrEqual
                    | Operator::Greater
                    | Operator::GreaterOrEqual
                    | Operator::Subtract
                    | Operator::Multiply
                    | Operator::Divide
                    | Operator::Remainder => one.size().min(two.size()),
                })?;
                binary(*operator, &one, &two)
            }
            Kind::Condition(parts) => {
                let [condition, then, otherwise] = &**parts;
                if self.condition(condition, "?:")? { self.run(then) } else { self.run(otherwise) }
            }
            Kind::Macro(called, of, name, body) => self.expand(*called, of, name, body),
            Kind::Bind(name, value, body) => {
                let value = self.run(value)?;
                self.with(name, value, body)
            }
        }
    }

    /// The value of an operand that must be a condition.
    fn condition(&mut self, of: &Expression, sign: &str) -> Result<bool> {
        let value = self.run(of)?;
        let Value::Bool(is_true) = value else { return Err(EvaluationError::no_overload(sign, &[&value])) };
        Ok(is_true)
    }

    fn variable(&self, name: &str) -> Value {
        let found = self.variables.iter().rev().find(|(known, _)| known == name);
        found.map_or_else(|| self.device.clone(), |(_, value)| value.clone())
    }

    fn with(&mut self, name: &str, value: Value, body: &Expression) -> Result<Value> {
        self.variables.push((name.to_owned(), value));
        let result = self.run(body);
        self.variables.pop();
        result
    }

    /// `&&` and `||`: one operand that decides is enough, even if others have errors.
    fn decide(&mut self, all: &[Expression], deciding: bool, sign: &str) -> Result<Value> {
        let mut failed = None;
        for one in all {
            match self.condition(one, sign) {
                Ok(value) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(_) => {}
                Err(EvaluationError::TooExpensive) => return Err(EvaluationError::TooExpensive),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn expand(&mut self, called: Macro, of: &Expression, name: &str, body: &Expression) -> Result<Value> {
        let of = self.run(of)?;
        let items = elements(&of)?;
        self.cost.spend(items.len() as u64)?;
        let (mut kept, mut count, mut failed) = (Vec::new(), 0, None);
        for item in items {
            let value = match self.with(name, item.clone(), body) {
                Err(EvaluationError::TooExpensive) => return Err(EvaluationError::TooExpensive),
                Err(error) if matches!(called, Macro::All | Macro::Exists) => {
                    failed = failed.or(Some(error));
                    continue;
                }
                value => value?,
            };
            if called == Macro::Map {
                kept.push(value);
                continue;
            }
            let Value::Bool(is_true) = value else {
                return Err(EvaluationError::no_overload("a macro", &[&value]));
            };
            match called {
                Macro::All if !is_true => return Ok(Value::Bool(false)),
                Macro::Exists if is_true => return Ok(Value::Bool(true)),
                Macro::ExistsOne => count += u32::from(is_true),
                Macro::Filter if is_true => kept.push(item),
                Macro::All | Macro::Exists | Macro::Filter | Macro::Map => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(match called {
            Macro::All => Value::Bool(true),
            Macro::Exists => Value::Bool(false),
            Macro::ExistsOne => Value::Bool(count == 1),
            Macro::Filter | Macro::Map => Value::List(kept.into()),
        })
    }
}

fn elements(of: &Value) -> Result<Vec<Value>> {
    if let Value::List(items) = of {
        return Ok(items.to_vec());
    }
    let Value::Map(map) = of else { return Err(EvaluationError::NotIterable(of.type_name())) };
    Ok(map.entries.keys().map(|key| Value::Text(Arc::clone(key))).collect())
}

fn index(of: &Value, at: &Value) -> Result<Value> {
    match (of, at) {
        (Value::Map(map), Value::Text(key)) => {
            map.get(key).ok_or_else(|| EvaluationError::NoSuchKey(key.to_string()))
        }
        (Value::List(items), Value::Int(at)) => {
            let found = usize::try_from(*at).ok().and_then(|at| items.get(at));
            found.cloned().ok_or_else(|| EvaluationError::InvalidValue(format!("index out of bounds: {at}")))
        }
        (of, at) => Err(EvaluationError::no_overload("[]", &[of, at])),
    }
}

fn binary(operator: Operator, one: &Value, two: &Value) -> Result<Value> {
    let ordered = |fits: fn(std::cmp::Ordering) -> bool| {
        let is_ordered = !matches!(one, Value::Quantity(_) | Value::Version(_));
        let order = one.compare(two).filter(|_| is_ordered);
        order
            .map(|order| Value::Bool(fits(order)))
            .ok_or_else(|| EvaluationError::no_overload(operator.sign(), &[one, two]))
    };
    match operator {
        Operator::Equal => Ok(Value::Bool(one.equals(two))),
        Operator::NotEqual => Ok(Value::Bool(!one.equals(two))),
        Operator::Less => ordered(std::cmp::Ordering::is_lt),
        Operator::LessOrEqual => ordered(std::cmp::Ordering::is_le),
        Operator::Greater => ordered(std::cmp::Ordering::is_gt),
        Operator::GreaterOrEqual => ordered(std::cmp::Ordering::is_ge),
        Operator::In => match (one, two) {
            (one, Value::List(items)) => Ok(Value::Bool(items.iter().any(|item| item.equals(one)))),
            (Value::Text(key), Value::Map(map)) => Ok(Value::Bool(map.entries.contains_key(key))),
            _ => Err(EvaluationError::no_overload("in", &[one, two])),
        },
        Operator::Add => add(one, two),
        Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
            calculate(operator, one, two)
        }
    }
}

fn add(one: &Value, two: &Value) -> Result<Value> {
    match (one, two) {
        (Value::Text(one), Value::Text(two)) => Ok(Value::text(&format!("{one}{two}"))),
        (Value::List(one), Value::List(two)) => {
            Ok(Value::List(one.iter().chain(two.iter()).cloned().collect()))
        }
        _ => calculate(Operator::Add, one, two),
    }
}

fn calculate(operator: Operator, one: &Value, two: &Value) -> Result<Value> {
    let unknown = || EvaluationError::no_overload(operator.sign(), &[one, two]);
    match (one, two) {
        (Value::Int(one), Value::Int(two)) => {
            let result = match operator {
                Operator::Add => one.checked_add(*two),
                Operator::Subtract => one.checked_sub(*two),
                Operator::Multiply => one.checked_mul(*two),
                Operator::Divide if *two == 0 => return Err(EvaluationError::invalid("division by zero")),
                Operator::Remainder if *two == 0 => return Err(EvaluationError::invalid("modulus by zero")),
                Operator::Divide => one.checked_div(*two),
                Operator::Remainder => one.checked_rem(*two),
                Operator::Equal
                | Operator::NotEqual
                | Operator::Less
                | Operator::LessOrEqual
                | Operator::Greater
                | Operator::GreaterOrEqual
                | Operator::In => return Err(unknown()),
            };
            result.map(Value::Int).ok_or_else(overflow)
        }
        (Value::Double(one), Value::Double(two)) => match operator {
            Operator::Add => Ok(Value::Double(one + two)),
            Operator::Subtract => Ok(Value::Double(one - two)),
            Operator::Multiply => Ok(Value::Double(one * two)),
            Operator::Divide => Ok(Value::Double(one / two)),
            Operator::Remainder
            | Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual
            | Operator::In => Err(unknown()),
        },
        _ => Err(unknown()),
    }
}

fn overflow() -> EvaluationError {
    EvaluationError::invalid("integer overflow")
}
