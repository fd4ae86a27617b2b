//! Splits the JSON of a list into its items while it arrives.
//!
//! Only the text of one item is in memory at a time. What is inside an item is not parsed here: one that is malformed or too large
//! costs only itself. Fields of the list that are not needed are skipped, whatever their size and depth.

/// Limit for the metadata of a list in bytes.
const MAX_METADATA: usize = 64 << 10;
/// Limit for the name of a field of a list in bytes.
const MAX_NAME: usize = 256;

/// Strings are skipped by this many bytes at a time.
const STRIDE: usize = 64;

/// The text of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemText<'a> {
    pub(crate) json: &'a [u8],
    /// The item is larger than the limit: this is its beginning.
    pub(crate) is_cut: bool,
}

/// Receives one item after another.
pub(crate) type EachItem<'a> = dyn FnMut(ItemText<'_>) + Send + 'a;

/// Reads one list.
#[derive(Debug)]
pub(crate) struct ListScanner {
    state: State,
    max_item: usize,
    /// The name or value that is being read, as far as it is needed.
    text: Vec<u8>,
    metadata: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    /// Before the name of a field, or the end.
    Field,
    Name {
        is_escaped: bool,
    },
    Colon(Purpose),
    /// Before the value of a field.
    Before(Purpose),
    /// Before an item, or the end of the items.
    Items,
    Value(Purpose, Value),
    End,
}

/// What the value of a field is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Metadata,
    Items,
    Item,
    Nothing,
}

/// How much of a value was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Value {
    /// How many objects and lists are open.
    depth: usize,
    is_string: bool,
    is_escaped: bool,
    is_cut: bool,
}

impl ListScanner {
    /// Items of more than `max_item` bytes are cut.
    pub(crate) const fn new(max_item: usize) -> Self {
        Self { state: State::Start, max_item, text: Vec::new(), metadata: None }
    }

    /// Reads the next piece of the list, and passes each item that is complete to `each`.
    ///
    /// # Errors
    /// This is not a list.
    pub(crate) fn feed(&mut self, piece: &[u8], each: &mut EachItem<'_>) -> Result<(), String> {
        let mut rest = piece;
        while let Some(first) = rest.first() {
            let used = match self.state {
                State::Value(purpose, value) => self.value(purpose, value, rest, each)?,
                State::Name { is_escaped } => self.name(is_escaped, *first)?,
                State::Start
                | State::Field
                | State::Colon(_)
                | State::Before(_)
                | State::Items
                | State::End => self.structure(*first)?,
            };
            rest = rest.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// The JSON of the list's metadata.
    ///
    /// # Errors
    /// The list is not complete.
    pub(crate) fn finish(self) -> Result<Vec<u8>, String> {
        if self.state != State::End {
            return Err("the list ends too early".to_owned());
        }
        Ok(self.metadata.unwrap_or_default())
    }

    /// A byte between names and values; a value begins with it, and is read from there.
    fn structure(&mut self, byte: u8) -> Result<usize, String> {
        if byte.is_ascii_whitespace() {
            return Ok(1);
        }
        let (state, used) = match (self.state, byte) {
            (State::Start, b'{') => (State::Field, 1),
            (State::Field, b'"') => (State::Name { is_escaped: false }, 1),
            (State::Field, b',') => (State::Field, 1),
            (State::Field, b'}') => (State::End, 1),
            (State::Colon(purpose), b':') => (State::Before(purpose), 1),
            (State::Before(Purpose::Items), b'[') | (State::Items, b',') => (State::Items, 1),
            // Go encodes an empty list as null.
            (State::Before(Purpose::Items), b'n') => (State::Value(Purpose::Nothing, Value::default()), 0),
            (State::Before(Purpose::Items), _) => return Err("its items are not a list".to_owned()),
            (State::Items, b']') => (State::Field, 1),
            (State::Items, _) => (State::Value(Purpose::Item, Value::default()), 0),
            (State::Before(purpose), _) => (State::Value(purpose, Value::default()), 0),
            (state, _) => {
                let byte = char::from(byte);
                return Err(format!("unexpected {byte:?} {}", state.description()));
            }
        };
        self.state = state;
        Ok(used)
    }

    fn name(&mut self, is_escaped: bool, byte: u8) -> Result<usize, String> {
        if byte != b'"' || is_escaped {
            if self.text.len() == MAX_NAME {
                return Err(format!("the name of a field is longer than {MAX_NAME} bytes"));
            }
            self.text.push(byte);
            self.state = State::Name { is_escaped: byte == b'\\' && !is_escaped };
            return Ok(1);
        }
        let purpose = match &*self.text {
            b"metadata" => Purpose::Metadata,
            b"items" => Purpose::Items,
            _ => Purpose::Nothing,
        };
        self.text.clear();
        self.state = State::Colon(purpose);
        Ok(1)
    }

    fn value(
        &mut self,
        purpose: Purpose,
        mut value: Value,
        bytes: &[u8],
        each: &mut EachItem<'_>,
    ) -> Result<usize, String> {
        let (used, is_complete) = value.read(bytes);
        if used == 0 && self.text.is_empty() && purpose != Purpose::Nothing {
            return Err("a value is missing".to_owned());
        }
        let limit = match purpose {
            Purpose::Item => self.max_item,
            Purpose::Metadata => MAX_METADATA,
            Purpose::Items | Purpose::Nothing => 0,
        };
        let space = limit - self.text.len().min(limit);
        self.text.extend_from_slice(bytes.get(..used.min(space)).unwrap_or_default());
        value.is_cut |= used > space;
        self.state = State::Value(purpose, value);
        if is_complete {
            self.complete(purpose, value.is_cut, each)?;
        }
        Ok(used)
    }

    fn complete(&mut self, purpose: Purpose, is_cut: bool, each: &mut EachItem<'_>) -> Result<(), String> {
        self.state = State::Field;
        match purpose {
            Purpose::Item => {
                each(ItemText { json: &self.text, is_cut });
                self.state = State::Items;
            }
            Purpose::Metadata if is_cut => {
                return Err(format!("its metadata is larger than {} KiB", MAX_METADATA >> 10));
            }
            Purpose::Metadata => self.metadata = Some(self.text.clone()),
            Purpose::Items | Purpose::Nothing => {}
        }
        self.text.clear();
        Ok(())
    }
}

impl State {
    const fn description(self) -> &'static str {
        match self {
            Self::Start => "where a list should begin",
            Self::End => "after the end of the list",
            Self::Field
            | Self::Name { .. }
            | Self::Colon(_)
            | Self::Before(_)
            | Self::Items
            | Self::Value(..) => "in the list",
        }
    }
}

impl Value {
    /// Reads up to the end of the value: how many bytes belong to it, and whether it is complete. A number, `true`, `false` or `null`
    /// ends before the next mark.
    fn read(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match (self.is_string, byte) {
                (true, _) if self.is_escaped => self.is_escaped = false,
                (true, b'\\') => self.is_escaped = true,
                (true, b'"') => {
                    self.is_string = false;
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                (true, _) => at += plain_text(bytes.get(at + 1..).unwrap_or_default()),
                (false, b'"') => self.is_string = true,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') if self.depth <= 1 => return (at + self.depth, true),
                (false, b'}' | b']') => self.depth -= 1,
                (false, b',') if self.depth == 0 => return (at, true),
                (false, byte) if self.depth == 0 && byte.is_ascii_whitespace() => return (at, true),
                (false, _) => {}
            }
            at += 1;
        }
        (bytes.len(), false)
    }
}

/// How many of these bytes of a string can be skipped at once.
fn plain_text(bytes: &[u8]) -> usize {
    let is_plain = |part: &&[u8]| !part.contains(&b'"') && !part.contains(&b'\\');
    bytes.chunks_exact(STRIDE).take_while(is_plain).count() * STRIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items, those that were cut with a mark, and the metadata or the error; the same in whatever pieces the list is read.
    fn read(json: &str, max_item: usize) -> (Vec<String>, Result<String, String>) {
        let in_pieces_of = |size: usize| {
            let (mut items, mut scanner) = (Vec::new(), ListScanner::new(max_item));
            let mut each = |item: ItemText<'_>| {
                let mark = if item.is_cut { "..." } else { "" };
                items.push(format!("{}{mark}", String::from_utf8_lossy(item.json)));
            };
            let fed = json.as_bytes().chunks(size).try_for_each(|piece| scanner.feed(piece, &mut each));
            let metadata = fed.and_then(|()| scanner.finish());
            (items, metadata.map(|json| String::from_utf8(json).unwrap()))
        };
        let whole = in_pieces_of(json.len().max(1));
        for size in 1..8 {
            assert_eq!(in_pieces_of(size), whole, "in pieces of {size} bytes");
        }
        whole
    }

    #[test]
    fn list_is_split_into_its_items_in_whatever_pieces_it_arrives() {
        let json = r#" {"kind":"PodList", "n":1, "metadata": {"resourceVersion":"7"}, "items" : [ {"a":"]}\"\\"} , {"b":[{}]},3 ,"x",null], "later":[[{"items":[1]}]]} "#;
        let (items, metadata) = read(json, 100);
        assert_eq!(items, [r#"{"a":"]}\"\\"}"#, r#"{"b":[{}]}"#, "3", "\"x\"", "null"]);
        assert_eq!(metadata.unwrap(), r#"{"resourceVersion":"7"}"#);
        for json in [r#"{"items":null,"metadata":{}}"#, r#"{"metadata":{},"items":[]}"#] {
            assert_eq!(read(json, 100), (Vec::new(), Ok("{}".to_owned())));
        }
    }

    #[test]
    fn marks_in_long_strings_are_found() {
        for before in [0, 1, 63, 64, 65, 127, 128, 300] {
            for mark in [r#"\""#, r"\\", "]}", r#"\"]"#, ""] {
                let item = format!(r#"{{"a":"{}{mark}{}","b":[]}}"#, "a".repeat(before), "c".repeat(200));
                let (items, _) = read(&format!(r#"{{"items":[{item},{item}],"metadata":{{}}}}"#), 1000);
                assert_eq!(items, [&*item, &*item], "{before} bytes before {mark}");
            }
        }
    }

    #[test]
    fn malformed_or_large_item_costs_only_itself() {
        let json = r#"{"items":[{"a":tru},{"b":{]},{"c":"ccccccccccccccccccc"},{"d":1}],"metadata":{}}"#;
        let (items, metadata) = read(json, 10);
        assert_eq!(items, [r#"{"a":tru}"#, r#"{"b":{]}"#, r#"{"c":"cccc..."#, r#"{"d":1}"#]);
        assert!(metadata.is_ok());
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        let error = |json: &str| read(json, 100).1.unwrap_err();
        assert_eq!(error("<html>"), "unexpected '<' where a list should begin");
        assert_eq!(error(r#"{"items":{}}"#), "its items are not a list");
        assert_eq!(error(r#"{"items":[{}]"#), "the list ends too early");
        assert_eq!(error(r#"{"items":[]} {"#), "unexpected '{' after the end of the list");
        assert_eq!(error(""), "the list ends too early");
        assert_eq!(error(r#"{"metadata":}"#), "a value is missing");
        let name = "n".repeat(300);
        assert_eq!(error(&format!(r#"{{"{name}":1}}"#)), "the name of a field is longer than 256 bytes");
        let metadata = "m".repeat(MAX_METADATA);
        assert_eq!(error(&format!(r#"{{"metadata":"{metadata}"}}"#)), "its metadata is larger than 64 KiB");
    }
}
