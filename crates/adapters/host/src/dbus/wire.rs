//! Messages of D-Bus as bytes: as much of the format as calls to systemd and logind need. We write little endian only, and read what
//! is written so; the other side is on the same machine.

use std::os::fd::OwnedFd;

use super::{DbusError, Method};

/// Up to and with the length of the header's fields.
pub(super) const FIXED_HEADER: usize = 16;
const LITTLE_ENDIAN: u8 = b'l';
const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageType {
    Call,
    Return,
    Error,
    Signal,
}

/// What a variant holds here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Bool(bool),
    Number(u64),
    Bytes(Vec<u8>),
    Text(String),
    Texts(Vec<String>),
}

/// Arguments of a call, with their signature.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    signature: String,
    writer: Writer,
}

impl Body {
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.signature.push('s');
        self.writer.text(text);
        self
    }

    pub(crate) fn flag(mut self, flag: bool) -> Self {
        self.signature.push('b');
        self.writer.number(u32::from(flag));
        self
    }

    pub(crate) fn signed(mut self, number: i32) -> Self {
        self.signature.push('i');
        self.writer.number(number.cast_unsigned());
        self
    }

    /// `a(sv)`.
    pub(crate) fn properties(mut self, properties: &[(&str, Variant)]) -> Self {
        self.signature.push_str("a(sv)");
        self.writer.array(8, |writer| {
            for (name, value) in properties {
                writer.align(8);
                writer.text(name);
                writer.variant(value);
            }
        });
        self
    }

    /// `a(sa(sv))` with nothing in it.
    pub(crate) fn no_units(mut self) -> Self {
        self.signature.push_str("a(sa(sv))");
        self.writer.array(8, |_| {});
        self
    }
}

/// What was received.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: MessageType,
    pub(crate) interface: String,
    pub(crate) member: String,
    pub(crate) reply_to: Option<u32>,
    pub(crate) error_name: String,
    /// So many open files come with it.
    pub(super) file_count: u32,
    pub(crate) files: Vec<OwnedFd>,
    body: Vec<u8>,
}

impl Message {
    /// The arguments, one after the other.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { bytes: &self.body, at: 0 }
    }

    /// For fuzzers: reads the arguments as each kind that there is, and returns the body.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn read_as_anything(self) -> Vec<u8> {
        let text = self.reader().string();
        assert!(text.is_none_or(|text| text.len() <= self.body.len()));
        let _ = self.failure();
        let mut reader = self.reader();
        while reader.number().is_some() {}
        let mut reader = self.reader();
        while reader.string().is_some() {}
        let mut reader = self.reader();
        while reader.variant_number().is_some() || reader.variant_flag().is_some() {}
        self.body
    }

    /// The message of an error.
    pub(crate) fn failure(&self) -> DbusError {
        let message = self.reader().string().unwrap_or_default();
        DbusError::Failed { name: self.error_name.clone(), message }
    }

    pub(super) fn parse(bytes: Vec<u8>) -> Option<Self> {
        let kind = match bytes.get(1)? {
            1 => MessageType::Call,
            2 => MessageType::Return,
            3 => MessageType::Error,
            4 => MessageType::Signal,
            _ => return None,
        };
        let mut reader = Reader { bytes: &bytes, at: 4 };
        let body_length = reader.length()?;
        let (_serial, fields_end) = (reader.number()?, reader.length()?.checked_add(FIXED_HEADER)?);
        let mut message = Self {
            kind,
            interface: String::new(),
            member: String::new(),
            reply_to: None,
            error_name: String::new(),
            file_count: 0,
            files: Vec::new(),
            body: Vec::new(),
        };
        while reader.at < fields_end {
            reader.align(8);
            let field = reader.byte()?;
            match (field, reader.signature()?.as_str()) {
                (2, "s") => message.interface = reader.string()?,
                (3, "s") => message.member = reader.string()?,
                (4, "s") => message.error_name = reader.string()?,
                (5, "u") => message.reply_to = Some(reader.number()?),
                (9, "u") => message.file_count = reader.number()?,
                (_, "s" | "o") => drop(reader.string()?),
                (_, "g") => drop(reader.signature()?),
                (_, "u") => drop(reader.number()?),
                _ => return None,
            }
        }
        reader.align(8);
        let begin = reader.at;
        message.body = bytes.get(begin..begin.checked_add(body_length)?)?.to_vec();
        Some(message)
    }
}

/// How much follows the first part of a message; `None` if that is none.
pub(super) fn rest_of(fixed: &[u8]) -> Option<usize> {
    if *fixed.first()? != LITTLE_ENDIAN {
        return None;
    }
    let mut reader = Reader { bytes: fixed, at: 4 };
    let body = reader.length()?;
    reader.at = 12;
    reader.length()?.checked_next_multiple_of(8)?.checked_add(body)
}

/// Reads arguments; `None` where they end or are of another type.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        self.align(4);
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// Of a text or of the path of an object.
    pub(crate) fn string(&mut self) -> Option<String> {
        let length = self.length()?;
        self.ended(length)
    }

    /// Of a variant that holds a large number.
    pub(crate) fn variant_number(&mut self) -> Option<u64> {
        if self.signature()? != "t" {
            return None;
        }
        self.align(8);
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Of a variant that is true or false.
    pub(crate) fn variant_flag(&mut self) -> Option<bool> {
        if self.signature()? != "b" {
            return None;
        }
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        self.ended(length)
    }

    fn ended(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8(self.take(length)?.to_vec()).ok()?;
        self.take(1)?;
        Some(text)
    }
}

#[derive(Clone, Debug, Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.bytes.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(length_of(text.len()));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.bytes.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.bytes.extend(signature.as_bytes());
        self.bytes.push(0);
    }

    /// The length counts from the first item, not from the gap before it.
    fn array(&mut self, align: usize, items: impl FnOnce(&mut Self)) {
        self.number(0);
        let at = self.bytes.len() - 4;
        self.align(align);
        let begin = self.bytes.len();
        items(self);
        let length = length_of(self.bytes.len() - begin).to_le_bytes();
        if let Some(length_field) = self.bytes.get_mut(at..at + 4) {
            length_field.copy_from_slice(&length);
        }
    }

    fn variant(&mut self, value: &Variant) {
        match value {
            Variant::Bool(flag) => {
                self.signature("b");
                self.number(u32::from(*flag));
            }
            Variant::Number(number) => {
                self.signature("t");
                self.align(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Variant::Bytes(bytes) => {
                self.signature("ay");
                self.array(1, |writer| writer.bytes.extend(bytes));
            }
            Variant::Text(text) => {
                self.signature("s");
                self.text(text);
            }
            Variant::Texts(texts) => {
                self.signature("as");
                self.array(4, |writer| texts.iter().for_each(|text| writer.text(text)));
            }
        }
    }
}

/// The messages that the kubelet sends are short.
fn length_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A call as it goes over the wire.
pub(super) fn method_call(serial: u32, method: Method, body: &Body) -> Vec<u8> {
    let fields = [
        (1, "o", method.path),
        (2, "s", method.interface),
        (3, "s", method.member),
        (6, "s", method.destination),
    ];
    let mut writer = Writer { bytes: vec![LITTLE_ENDIAN, 1, 0, VERSION] };
    writer.number(length_of(body.writer.bytes.len()));
    writer.number(serial);
    writer.array(8, |writer| {
        for (field, signature, text) in fields {
            writer.align(8);
            writer.bytes.push(field);
            writer.signature(signature);
            writer.text(text);
        }
        if !body.signature.is_empty() {
            writer.align(8);
            writer.bytes.push(8);
            writer.signature("g");
            writer.signature(&body.signature);
        }
    });
    writer.align(8);
    writer.bytes.extend(&body.writer.bytes);
    writer.bytes
}
