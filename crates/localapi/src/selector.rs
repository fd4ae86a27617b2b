//! Which objects of a list a client asks for: by label and by field.
//!
//! Owns the grammar, the matching and the words of a refusal. Never lists anything.

mod field;
mod label;
mod lexer;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// A selector that is not one. Answered with 400, and this text as the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
