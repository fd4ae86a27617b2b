//! Label and field selectors.
//!
//! Owns their grammar, their matching and their error messages.

mod field;
mod label;
mod lexer;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// An invalid selector. The response is 400 with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
