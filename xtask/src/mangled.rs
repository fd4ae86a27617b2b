//! Names of functions as the linker knows them, in Rust's v0 mangling: a path with the types it was compiled for, in one word.
//!
//! Owns: splitting such a name into its parts. What differs from build to build without a change of the source is a wildcard: the
//! hash of a crate, and the number of a reference to an earlier place in the name.

/// What every name begins with.
pub const PREFIX: &str = "_R";

/// A part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The root of a crate, whose name follows.
    Crate(&'a str),
    /// Repeats something of earlier in the name.
    Reference(&'a str),
    /// A name, with its length as it is written.
    Identifier { written: &'a str, name: &'a str },
    /// Says how the parts around it belong together, as it is written.
    Other(&'a str),
}

impl Part<'_> {
    /// The part in a pattern of the linker. A `?` is any character: a `*` would match the middle of longer names, too.
    pub fn pattern(self) -> String {
        let any = |tag: &str, written: &str| format!("{tag}{}_", "?".repeat(written.len() - tag.len() - 1));
        match self {
            Self::Crate(written) => any("Cs", written),
            Self::Reference(written) => any("B", written),
            Self::Identifier { written, .. } | Self::Other(written) => written.to_owned(),
        }
    }
}

/// The parts of a name, or of a pattern; none if it is mangled otherwise.
pub fn parts(name: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = name.strip_prefix(PREFIX).unwrap_or_default();
    std::iter::from_fn(move || {
        let (part, after) = first_part(rest)?;
        rest = after;
        Some(part)
    })
}

fn first_part(text: &str) -> Option<(Part<'_>, &str)> {
    let first = text.chars().next()?;
    let other = |length: usize| text.split_at_checked(length).map(|(part, after)| (Part::Other(part), after));
    match first {
        'C' => number_after(text, "Cs").map(|end| (Part::Crate(&text[..end]), &text[end..])),
        'B' => number_after(text, "B").map(|end| (Part::Reference(&text[..end]), &text[end..])),
        // The number of a closure or implementation, and of a lifetime.
        's' | 'L' | 'G' => number_after(text, &text[..1]).and_then(other),
        'K' => constant(text).and_then(other),
        '1'..='9' => identifier(text),
        _ => None,
    }
    .or_else(|| other(first.len_utf8()))
}

/// The length of a tag and its number: letters and digits, or wildcards, and an underscore.
fn number_after(text: &str, tag: &str) -> Option<usize> {
    let number = text.strip_prefix(tag)?;
    let end = number.find(|c: char| !c.is_ascii_alphanumeric() && c != '?')?;
    number[end..].starts_with('_').then_some(tag.len() + end + 1)
}

/// The length of a constant: `K`, a lower-case letter for its type, digits, and an underscore.
fn constant(text: &str) -> Option<usize> {
    let value = text.strip_prefix('K')?.strip_prefix(|c: char| c.is_ascii_lowercase())?;
    let end = value.find(|c: char| !c.is_ascii_hexdigit() && c != 'n')?;
    value[end..].starts_with('_').then_some(text.len() - value.len() + end + 1)
}

/// Its length, an underscore if it would begin with a digit or underscore itself, and the name.
fn identifier(text: &str) -> Option<(Part<'_>, &str)> {
    let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let rest = rest.strip_prefix('_').unwrap_or(rest);
    let (name, after) = rest.split_at_checked(digits.parse().ok()?)?;
    let written = &text[..text.len() - after.len()];
    Some((Part::Identifier { written, name }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(name: &str) -> String {
        parts(name).map(Part::pattern).collect()
    }

    #[test]
    fn what_differs_between_builds_is_a_wildcard() {
        let name = "_RINvNtNtCscLBKiIf1Z4Q_5tokio7runtime4taskNCNvMs0_NtNtCs1a_5agent4podsNtB5_6Worker3run0E";
        let expected =
            "INvNtNtCs???????????_5tokio7runtime4taskNCNvMs0_NtNtCs??_5agent4podsNtB?_6Worker3run0E";
        assert_eq!(pattern(name), expected);
        assert_eq!(pattern(&format!("_R{expected}")), expected, "the same for a pattern");
    }

    #[test]
    fn names_that_begin_with_an_underscore_are_separated_from_their_length() {
        let names: Vec<&str> = parts("_RNvNvNtCs1_6config7kubelets_1__5visit")
            .filter_map(|part| match part {
                Part::Identifier { name, .. } => Some(name),
                Part::Crate(_) | Part::Reference(_) | Part::Other(_) => None,
            })
            .collect();
        assert_eq!(names, ["config", "kubelet", "_", "visit"]);
    }

    #[test]
    fn digits_of_constants_and_lifetimes_are_no_lengths() {
        assert_eq!(pattern("_RINvCs1_1aKj40_L1_E"), "INvCs?_1aKj40_L1_E");
        let all: Vec<Part<'_>> = parts("_RKj40_L1_").collect();
        assert_eq!(all, [Part::Other("Kj40_"), Part::Other("L1_")]);
    }

    #[test]
    fn names_that_are_cut_off_or_mangled_otherwise_have_no_identifiers() {
        assert_eq!(parts("_ZN5agent4pods17h0123456789abcdefE").count(), 0);
        assert_eq!(parts("_R99agent").map(Part::pattern).collect::<String>(), "99agent");
    }
}
