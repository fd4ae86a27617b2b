//! The tokens of a label selector.

/// The meaning of a token depends on its position: `in` may be an operator, a key or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// One of `! = == != < > ( ) ,`.
    Symbol(&'static str),
    Word(String),
    End,
}

impl Token {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Symbol(symbol) => symbol,
            Self::Word(word) => word,
            Self::End => "",
        }
    }

    pub(super) fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(own) if *own == symbol)
    }
}

/// Longest first, so that `==` is not two tokens.
const SYMBOLS: [&str; 9] = ["==", "!=", "!", "=", "<", ">", "(", ")", ","];

/// The last token is always [`Token::End`].
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "!=<>(),".contains(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}
