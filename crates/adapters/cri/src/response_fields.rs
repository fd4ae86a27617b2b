//! Parses the fields of one gRPC response while it is received, so that the whole response is never in memory. Knows no messages.

/// Header of each gRPC message: whether it is compressed, and its length.
pub(crate) const HEADER_BYTES: usize = 5;

/// Gets the fields of a message in their order.
pub(crate) trait TakeFields {
    fn take_number(&mut self, field: u64, value: u64);
    /// The next bytes of a field with a length.
    fn take_content(&mut self, field: u64, part: &[u8]);
}

/// Parser state of a response.
#[derive(Debug)]
pub(crate) struct ResponseFields {
    header: Vec<u8>,
    /// Bytes of the message that were not received yet.
    left: usize,
    /// The current varint: its value so far, and the position of its next seven bits.
    number: (u64, u32),
    part: Part,
    is_complete: bool,
}

/// The next part of the message.
#[derive(Clone, Copy, Debug)]
enum Part {
    Tag,
    Number { field: u64 },
    Length { field: u64 },
    Content { field: u64, left: usize },
}

impl ResponseFields {
    pub(crate) const fn new() -> Self {
        Self { header: Vec::new(), left: 0, number: (0, 0), part: Part::Tag, is_complete: false }
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Parses the next bytes of the response.
    pub(crate) fn feed(&mut self, mut data: &[u8], fields: &mut impl TakeFields) -> Result<(), &'static str> {
        while let Some((&byte, rest)) = data.split_first() {
            if self.is_complete {
                return Err("the response has more than one message");
            }
            data = if self.header.len() < HEADER_BYTES {
                self.take_header_byte(byte)?;
                rest
            } else {
                let taken = self.take(data, fields)?;
                self.left = self.left.checked_sub(taken).ok_or("a field is longer than its message")?;
                data.get(taken..).unwrap_or_default()
            };
            if self.header.len() == HEADER_BYTES && self.left == 0 {
                self.is_complete = true;
                if !matches!((self.part, self.number), (Part::Tag, (0, 0))) {
                    return Err("the response ends within a field");
                }
            }
        }
        Ok(())
    }

    fn take_header_byte(&mut self, byte: u8) -> Result<(), &'static str> {
        self.header.push(byte);
        if let [compressed, length @ ..] = &*self.header
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            if *compressed != 0 {
                return Err("the response is compressed, which was not requested");
            }
            self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    /// Reads at least one byte of the message; returns how many.
    fn take(&mut self, data: &[u8], fields: &mut impl TakeFields) -> Result<usize, &'static str> {
        if let Part::Content { field, left } = self.part {
            let taken = left.min(data.len());
            fields.take_content(field, data.get(..taken).unwrap_or_default());
            self.part = if taken == left { Part::Tag } else { Part::Content { field, left: left - taken } };
            return Ok(taken);
        }
        let byte = data.first().copied().unwrap_or_default();
        let (value, shift) = self.number;
        if shift >= u64::BITS {
            return Err("a number is longer than 64 bits");
        }
        let value = value | u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            self.number = (0, 0);
            self.take_number(value, fields)?;
        } else {
            self.number = (value, shift + 7);
        }
        Ok(1)
    }

    fn take_number(&mut self, value: u64, fields: &mut impl TakeFields) -> Result<(), &'static str> {
        let content = |field: u64, length: u64| match usize::try_from(length) {
            Ok(0) => Part::Tag,
            length => Part::Content { field, left: length.unwrap_or(usize::MAX) },
        };
        self.part = match self.part {
            Part::Tag => match (value >> 3, value & 7) {
                (field, 0) => Part::Number { field },
                (field, 1) => content(field, 8),
                (field, 2) => Part::Length { field },
                (field, 5) => content(field, 4),
                _ => return Err("a field has an unknown type"),
            },
            Part::Number { field } => {
                fields.take_number(field, value);
                Part::Tag
            }
            Part::Length { field } => content(field, value),
            part @ Part::Content { .. } => part,
        };
        Ok(())
    }
}

/// A message with its header.
pub(crate) fn framed(content: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(HEADER_BYTES + content.len());
    framed.push(0);
    framed.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend_from_slice(content);
    framed
}
