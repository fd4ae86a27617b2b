//! Truncation of text from outside.

use std::borrow::Cow;

/// The end of a truncated text.
const CUT_MARK: &str = "...";

/// The text if it has at most `max` bytes; else its beginning, truncated at a character and marked with `...`, with at most
/// `max` bytes in total.
#[must_use]
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(max.saturating_sub(CUT_MARK.len()));
    let mark = CUT_MARK.get(..max.min(CUT_MARK.len())).unwrap_or_default();
    Cow::Owned([text.get(..end).unwrap_or_default(), mark].concat())
}

/// As [`cut`] for an owned text: a short one is returned unchanged, a truncated one is reallocated to free memory.
#[must_use]
pub fn cut_owned(text: String, max: usize) -> String {
    if text.len() <= max { text } else { cut(&text, max).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_at_a_character_and_marked() {
        assert_eq!(cut("", 0), "");
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("ab€defg", 6), "ab...");
        assert_eq!(cut("€€€", 8), "€...");
        assert_eq!(cut("abcdef", 2), "..");
        assert_eq!(cut_owned("abcdefg".to_owned(), 6), "abc...");
        let long = "ä".repeat(1000);
        assert!((0..1999).all(|max| cut(&long, max).len() <= max));
    }
}
