//! Tokens of an expression.

use super::CompileError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(u64),
    Double(f64),
    Text(String),
    /// An operator or a parenthesis.
    Sign(&'static str),
    End,
}

/// A token, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Positioned {
    pub(super) token: Token,
    pub(super) at: usize,
}

/// The longer ones first.
const SIGNS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "<", ">", "+", "-",
    "*", "/", "%", "!",
];

/// The tokens of a text, with one at its end.
pub(super) fn tokens(text: &str) -> Result<Vec<Positioned>, CompileError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let at = lexer.at;
        let token = lexer.next()?;
        let is_end = token == Token::End;
        tokens.push(Positioned { token, at });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, what: impl Into<String>) -> CompileError {
        CompileError::Syntax { at: self.at, what: what.into() }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start().len();
            let comment = match rest.trim_start().strip_prefix("//") {
                Some(comment) => 2 + comment.find('\n').unwrap_or(comment.len()),
                None => 0,
            };
            if space + comment == 0 {
                return;
            }
            self.at += space + comment;
        }
    }

    /// Takes the characters at the front that fit.
    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Token, CompileError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let starts_raw =
            |prefix: &str| rest.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['"', '\'']));
        if starts_raw("r") || starts_raw("R") {
            self.at += 1;
            return self.string(true);
        }
        if starts_raw("b") || starts_raw("B") {
            return Err(CompileError::Unsupported("bytes".to_owned()));
        }
        match first {
            '"' | '\'' => self.string(false),
            '0'..='9' => self.number(),
            '_' | 'a'..='z' | 'A'..='Z' => {
                Ok(Token::Name(self.take_while(|c| c == '_' || c.is_ascii_alphanumeric()).to_owned()))
            }
            '.' if rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) => self.number(),
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                let sign = sign.ok_or_else(|| self.error(format!("unexpected character {first:?}")))?;
                self.at += sign.len();
                Ok(Token::Sign(sign))
            }
        }
    }

    fn number(&mut self) -> Result<Token, CompileError> {
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let number = u64::from_str_radix(digits, 16).map_err(|_| self.error("invalid number"))?;
            self.skip_unsigned_suffix();
            return Ok(Token::Int(number));
        }
        let from = self.at;
        self.take_while(|c| c.is_ascii_digit());
        let mut is_double = false;
        let mut after = self.rest().chars();
        if after.next() == Some('.') && after.next().is_some_and(|c| c.is_ascii_digit()) {
            is_double = true;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            is_double = true;
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            self.take_while(|c| c.is_ascii_digit());
        }
        let text = self.text.get(from..self.at).unwrap_or_default();
        let invalid = || CompileError::Syntax { at: from, what: format!("invalid number {text:?}") };
        if is_double {
            return text.parse().map(Token::Double).map_err(|_| invalid());
        }
        let number = text.parse().map_err(|_| invalid())?;
        self.skip_unsigned_suffix();
        Ok(Token::Int(number))
    }

    fn skip_unsigned_suffix(&mut self) {
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
        }
    }

    fn string(&mut self, is_raw: bool) -> Result<Token, CompileError> {
        let rest = self.rest();
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote));
        let quote = quote.ok_or_else(|| self.error("expected a text"))?;
        self.at += quote.len();
        let mut text = String::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(quote) {
                self.at += quote.len();
                return Ok(Token::Text(text));
            }
            match rest.chars().next() {
                None => return Err(self.error("the text has no end")),
                Some('\n') if quote.len() == 1 => return Err(self.error("the text has no end in its line")),
                Some('\\') if !is_raw => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                Some(c) => {
                    self.at += c.len_utf8();
                    text.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, CompileError> {
        let Some(c) = self.rest().chars().next() else { return Err(self.error("the text has no end")) };
        let digits = match c {
            'x' | 'X' => (1, 2, 16),
            'u' => (1, 4, 16),
            'U' => (1, 8, 16),
            '0'..='3' => (0, 3, 8),
            _ => {
                self.at += c.len_utf8();
                return match c {
                    'a' => Ok('\u{7}'),
                    'b' => Ok('\u{8}'),
                    'f' => Ok('\u{c}'),
                    'n' => Ok('\n'),
                    'r' => Ok('\r'),
                    't' => Ok('\t'),
                    'v' => Ok('\u{b}'),
                    '\\' | '?' | '"' | '\'' | '`' => Ok(c),
                    _ => Err(self.error(format!("invalid escape sequence \\{c}"))),
                };
            }
        };
        let (skipped, count, radix) = digits;
        let code = self.rest().get(skipped..skipped + count);
        let code = code.and_then(|code| u32::from_str_radix(code, radix).ok()).and_then(char::from_u32);
        let code = code.ok_or_else(|| self.error("invalid escape sequence"))?;
        self.at += skipped + count;
        Ok(code)
    }
}
