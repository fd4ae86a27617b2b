//! From tokens to the tree of an expression. Names are resolved here: an expression that compiles knows all its variables and functions.

use super::expression::{Expression, Function, Kind, Macro, Operator};
use super::lexer::{Positioned, Token, tokens};
use super::value::Value;
use super::{CompileError, MAX_DEPTH};

const DEVICE: &str = "device";
const FIELDS: [&str; 4] = ["driver", "attributes", "capacity", "allowMultipleAllocations"];
/// Names that no variable has.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
/// Operators by how closely they bind, the loosest first.
const LEVELS: [&[(&str, Operator)]; 3] = [
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<", Operator::Less),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        (">=", Operator::GreaterOrEqual),
        ("in", Operator::In),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

pub(super) fn parse(text: &str) -> Result<Expression, CompileError> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, level: 0, variables: Vec::new() };
    let expression = parser.condition()?;
    if *parser.peek() == Token::End {
        Ok(expression)
    } else {
        Err(parser.unexpected("an operator or the end"))
    }
}

struct Parser {
    tokens: Vec<Positioned>,
    next: usize,
    /// Of parentheses, brackets and prefixes around the next token.
    level: usize,
    /// Those of macros.
    variables: Vec<String>,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |positioned| &positioned.token)
    }

    fn unexpected(&self, expected: &str) -> CompileError {
        let at = self.tokens.get(self.next).map_or(0, |positioned| positioned.at);
        let found = match self.peek() {
            Token::Name(name) => format!("{name:?}"),
            Token::Int(number) => number.to_string(),
            Token::Double(number) => number.to_string(),
            Token::Text(text) => format!("{text:?}"),
            Token::Sign(sign) => format!("{sign:?}"),
            Token::End => "the end".to_owned(),
        };
        CompileError::Syntax { at, what: format!("expected {expected}, found {found}") }
    }

    /// Takes the sign if it is next.
    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        self.next += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), CompileError> {
        if self.takes(sign) { Ok(()) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    fn name(&mut self) -> Result<String, CompileError> {
        let Token::Name(name) = self.peek() else { return Err(self.unexpected("a name")) };
        let name = name.clone();
        self.next += 1;
        Ok(name)
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        self.level += 1;
        if self.level > MAX_DEPTH {
            return Err(CompileError::TooDeep);
        }
        let parsed = parse(self);
        self.level -= 1;
        parsed
    }

    /// A whole expression.
    fn condition(&mut self) -> Result<Expression, CompileError> {
        self.deeper(|parser| {
            let condition = parser.or()?;
            if !parser.takes("?") {
                return Ok(condition);
            }
            let then = parser.or()?;
            parser.expect(":")?;
            let otherwise = parser.condition()?;
            Expression::new(Kind::Condition(Box::new([condition, then, otherwise])))
        })
    }

    fn or(&mut self) -> Result<Expression, CompileError> {
        let first = self.and()?;
        let mut all = vec![first];
        while self.takes("||") {
            all.push(self.and()?);
        }
        single_or(all, Kind::Or)
    }

    fn and(&mut self) -> Result<Expression, CompileError> {
        let first = self.binary(0)?;
        let mut all = vec![first];
        while self.takes("&&") {
            all.push(self.binary(0)?);
        }
        single_or(all, Kind::And)
    }

    fn operator(&mut self, level: usize) -> Option<Operator> {
        let sign = match self.peek() {
            Token::Sign(sign) => *sign,
            Token::Name(name) if name == "in" => "in",
            Token::Name(_) | Token::Int(_) | Token::Double(_) | Token::Text(_) | Token::End => return None,
        };
        let found = LEVELS.get(level)?.iter().find(|(known, _)| *known == sign)?;
        self.next += 1;
        Some(found.1)
    }

    fn binary(&mut self, level: usize) -> Result<Expression, CompileError> {
        if level >= LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(level) {
            let right = self.binary(level + 1)?;
            left = Expression::new(Kind::Binary(operator, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, CompileError> {
        if self.takes("!") {
            let operand = self.deeper(Self::unary)?;
            return Expression::new(Kind::Not(Box::new(operand)));
        }
        if self.takes("-") {
            if let Token::Int(number) = *self.peek() {
                // The smallest number has no positive counterpart.
                let negative = 0i64.checked_sub_unsigned(number);
                let negative = negative.ok_or_else(|| self.unexpected("a number of 64 bits"))?;
                self.next += 1;
                let constant = Expression::new(Kind::Constant(Value::Int(negative)))?;
                return self.suffixes(constant);
            }
            let operand = self.deeper(Self::unary)?;
            return Expression::new(Kind::Negate(Box::new(operand)));
        }
        let primary = self.primary()?;
        self.suffixes(primary)
    }

    fn suffixes(&mut self, mut of: Expression) -> Result<Expression, CompileError> {
        loop {
            if self.takes("[") {
                let index = self.condition()?;
                self.expect("]")?;
                of = Expression::new(Kind::Index(Box::new(of), Box::new(index)))?;
            } else if self.takes(".") {
                if self.takes("?") {
                    return Err(CompileError::Unsupported("optional selection".to_owned()));
                }
                let name = self.name()?;
                of = match self.takes("(") {
                    true => self.method(of, &name)?,
                    false => select(of, name)?,
                };
            } else {
                return Ok(of);
            }
        }
    }

    fn method(&mut self, of: Expression, name: &str) -> Result<Expression, CompileError> {
        let called = match name {
            "all" => Some(Macro::All),
            "exists" => Some(Macro::Exists),
            "exists_one" => Some(Macro::ExistsOne),
            "filter" => Some(Macro::Filter),
            "map" => Some(Macro::Map),
            _ => None,
        };
        if let Some(called) = called {
            let variable = self.variable()?;
            self.expect(",")?;
            let body = self.with_variable(&variable)?;
            if self.takes(",") {
                return Err(CompileError::Unsupported(format!("{name} with three arguments")));
            }
            self.expect(")")?;
            return Expression::new(Kind::Macro(called, Box::new(of), variable, Box::new(body)));
        }
        let function = Function::of(name).filter(|function| function.is_method());
        let function = function.ok_or_else(|| CompileError::Undeclared(name.to_owned()))?;
        let mut arguments = vec![of];
        arguments.extend(self.arguments(")")?);
        Expression::new(Kind::Call(function, arguments))
    }

    /// The name of a variable that a macro declares.
    fn variable(&mut self) -> Result<String, CompileError> {
        let name = self.name()?;
        let is_taken =
            RESERVED.contains(&name.as_str()) || ["true", "false", "null", "in"].contains(&name.as_str());
        if is_taken { Err(CompileError::Undeclared(name)) } else { Ok(name) }
    }

    fn with_variable(&mut self, name: &str) -> Result<Expression, CompileError> {
        self.variables.push(name.to_owned());
        let body = self.condition();
        self.variables.pop();
        body
    }

    /// Expressions up to the closing sign.
    fn arguments(&mut self, end: &str) -> Result<Vec<Expression>, CompileError> {
        let mut arguments = Vec::new();
        if self.takes(end) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.condition()?);
            if self.takes(end) {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Result<Expression, CompileError> {
        if self.takes("(") {
            let inner = self.condition()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.takes("[") {
            let items = self.arguments("]")?;
            return Expression::new(Kind::List(items));
        }
        let constant = match self.peek().clone() {
            Token::Int(number) => {
                let number = i64::try_from(number).map_err(|_| self.unexpected("a number of 64 bits"))?;
                Value::Int(number)
            }
            Token::Double(number) => Value::Double(number),
            Token::Text(text) => Value::text(&text),
            Token::Name(name) => {
                self.next += 1;
                return self.named(name);
            }
            Token::Sign("{") => return Err(CompileError::Unsupported("a map in the expression".to_owned())),
            Token::Sign(_) | Token::End => return Err(self.unexpected("a value")),
        };
        self.next += 1;
        Expression::new(Kind::Constant(constant))
    }

    /// What begins with a name: a constant, a variable, a function or a macro.
    fn named(&mut self, name: String) -> Result<Expression, CompileError> {
        match name.as_str() {
            "true" | "false" => return Expression::new(Kind::Constant(Value::Bool(name == "true"))),
            "null" => return Expression::new(Kind::Constant(Value::Null)),
            "cel" => return self.bind(),
            _ => {}
        }
        if self.takes("(") {
            if name == "has" {
                return self.has();
            }
            let function = Function::of(&name).filter(|function| function.is_global());
            let function = function.ok_or(CompileError::Undeclared(name))?;
            let arguments = self.arguments(")")?;
            return Expression::new(Kind::Call(function, arguments));
        }
        match name == DEVICE || self.variables.contains(&name) {
            true => Expression::new(Kind::Variable(name)),
            false => Err(CompileError::Undeclared(name)),
        }
    }

    fn has(&mut self) -> Result<Expression, CompileError> {
        let argument = self.condition()?;
        self.expect(")")?;
        let Kind::Select(of, field) = argument.kind else {
            return Err(self.unexpected("a field in has(), such as has(a.b)"));
        };
        Expression::new(Kind::Has(of, field))
    }

    fn bind(&mut self) -> Result<Expression, CompileError> {
        self.expect(".")?;
        let name = self.name()?;
        if name != "bind" {
            return Err(CompileError::Undeclared(format!("cel.{name}")));
        }
        self.expect("(")?;
        let variable = self.variable()?;
        self.expect(",")?;
        let value = self.condition()?;
        self.expect(",")?;
        let body = self.with_variable(&variable)?;
        self.expect(")")?;
        Expression::new(Kind::Bind(variable, Box::new(value), Box::new(body)))
    }
}

/// The only operand itself, or the operands together.
fn single_or(
    mut all: Vec<Expression>,
    together: impl FnOnce(Vec<Expression>) -> Kind,
) -> Result<Expression, CompileError> {
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (last, _) => {
            all.extend(last);
            Expression::new(together(all))
        }
    }
}

fn select(of: Expression, field: String) -> Result<Expression, CompileError> {
    let is_device = matches!(&of.kind, Kind::Variable(name) if name == DEVICE);
    if is_device && !FIELDS.contains(&field.as_str()) {
        return Err(CompileError::UndefinedField(field));
    }
    Expression::new(Kind::Select(Box::new(of), field))
}
