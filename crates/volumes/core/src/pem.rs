//! PEM text: its blocks, and certificates. What the base64 of a block means is not looked at.

/// The label of a certificate.
pub(super) const CERTIFICATE: &str = "CERTIFICATE";
/// Characters of base64 in a line.
const LINE: usize = 64;

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// `CERTIFICATE`.
    pub label: &'a str,
    /// Its content in one line.
    pub base64: String,
}

/// The blocks of a text. Text around them and their headers are left out, and so are blocks that are not base64.
pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut found, mut open): (Vec<Block<'_>>, Option<Block<'_>>) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(label) = label(line, "-----BEGIN ") {
            open = Some(Block { label, base64: String::new() });
        } else if let Some(label) = label(line, "-----END ") {
            found.extend(open.take().filter(|block| block.label == label && is_base64(&block.base64)));
        } else if let Some(block) = &mut open
            && !line.contains(':')
        {
            block.base64.push_str(line);
        }
    }
    found
}

fn label<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.strip_prefix(marker)?.strip_suffix("-----")
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.chars().all(is_digit)
}

/// The certificate of that base64 as a block.
pub(super) fn certificate(base64: &str) -> String {
    let mut text = format!("-----BEGIN {CERTIFICATE}-----\n");
    let mut rest = base64;
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(LINE).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END ");
    text.push_str(CERTIFICATE);
    text.push_str("-----\n");
    text
}
