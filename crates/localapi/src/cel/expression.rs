//! The tree of an expression. Its depth is bounded when it is built, so that whatever walks it may be recursive.

use super::value::Value;
use super::{CompileError, MAX_DEPTH};

#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) kind: Kind,
    depth: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Constant(Value),
    Variable(String),
    List(Vec<Expression>),
    Select(Box<Expression>, String),
    /// `has(a.b)`
    Has(Box<Expression>, String),
    Index(Box<Expression>, Box<Expression>),
    /// A function, or a method of the first argument.
    Call(Function, Vec<Expression>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    /// Any number of operands, so that long chains are flat.
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Condition(Box<[Expression; 3]>),
    /// A list or map, the name of its elements, and what is evaluated for each.
    Macro(Macro, Box<Expression>, String, Box<Expression>),
    /// `cel.bind(name, value, expression)`
    Bind(String, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

macro_rules! functions {
    ($($name:literal $function:ident),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Function { $($function),+ }

        impl Function {
            pub(super) fn of(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$function),)+
                    _ => None,
                }
            }

            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$function => $name),+
                }
            }
        }
    };
}

functions! {
    "asInteger" AsInteger,
    "compareTo" CompareTo,
    "contains" Contains,
    "dyn" Dyn,
    "endsWith" EndsWith,
    "includes" Includes,
    "int" Int,
    "isGreaterThan" IsGreaterThan,
    "isInteger" IsInteger,
    "isLessThan" IsLessThan,
    "isQuantity" IsQuantity,
    "isSemver" IsSemver,
    "lowerAscii" LowerAscii,
    "major" Major,
    "matches" Matches,
    "minor" Minor,
    "patch" Patch,
    "quantity" Quantity,
    "semver" Semver,
    "sign" Sign,
    "size" Size,
    "split" Split,
    "startsWith" StartsWith,
    "string" Text,
    "trim" Trim,
    "upperAscii" UpperAscii,
}

impl Function {
    /// Called as a function; the others are methods. `size` and `matches` are both.
    pub(super) const fn is_global(self) -> bool {
        matches!(
            self,
            Self::Dyn
                | Self::Int
                | Self::IsQuantity
                | Self::IsSemver
                | Self::Matches
                | Self::Quantity
                | Self::Semver
                | Self::Size
                | Self::Text
        )
    }

    pub(super) const fn is_method(self) -> bool {
        !self.is_global() || matches!(self, Self::Matches | Self::Size)
    }
}

impl Expression {
    pub(super) fn new(kind: Kind) -> Result<Self, CompileError> {
        let depth = 1 + kind.children().iter().map(|child| child.depth).max().unwrap_or_default();
        if depth > MAX_DEPTH { Err(CompileError::TooDeep) } else { Ok(Self { kind, depth }) }
    }

    /// The type of a value that does not depend on the device.
    pub(super) const fn constant_type(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Constant(value) => Some(value.type_name()),
            Kind::List(_) => Some("list"),
            Kind::Variable(_)
            | Kind::Select(..)
            | Kind::Has(..)
            | Kind::Index(..)
            | Kind::Call(..)
            | Kind::Not(_)
            | Kind::Negate(_)
            | Kind::And(_)
            | Kind::Or(_)
            | Kind::Binary(..)
            | Kind::Condition(_)
            | Kind::Macro(..)
            | Kind::Bind(..) => None,
        }
    }
}

impl Kind {
    fn children(&self) -> Vec<&Expression> {
        match self {
            Self::Constant(_) | Self::Variable(_) => Vec::new(),
            Self::List(all) | Self::Call(_, all) | Self::And(all) | Self::Or(all) => all.iter().collect(),
            Self::Select(of, _) | Self::Has(of, _) | Self::Not(of) | Self::Negate(of) => vec![&**of],
            Self::Index(one, two)
            | Self::Binary(_, one, two)
            | Self::Macro(_, one, _, two)
            | Self::Bind(_, one, two) => vec![&**one, &**two],
            Self::Condition(all) => all.iter().collect(),
        }
    }
}
