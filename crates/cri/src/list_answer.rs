//! Splits responses with a list into their entries while they are received. With hundreds of pods a list has a megabyte, once a
//! second; of each entry the kubelet needs a tenth, and only until it has compared it with the one before.

use hyper::body::Bytes;

use crate::channel::MAX_RECEIVE_BYTES;
use crate::response_fields::{TakeFields, frame_into};
use crate::rewrite::Rewrite;

/// The field of the list in the responses of ListContainers and ListPodSandbox.
const LIST: u64 = 1;

/// Makes a message of each entry.
#[derive(Debug, Default)]
pub(crate) struct ListAnswer {
    /// What was received of the current entry.
    started: Vec<u8>,
    /// Complete entries as messages.
    messages: Vec<u8>,
}

impl Rewrite for ListAnswer {
    const MAX_BYTES: usize = MAX_RECEIVE_BYTES;

    fn messages(&mut self, _: bool) -> Bytes {
        std::mem::take(&mut self.messages).into()
    }
}

impl TakeFields for ListAnswer {
    fn take_number(&mut self, _: u64, _: u64) {}

    fn take_content(&mut self, field: u64, part: &[u8], is_last: bool) {
        if field != LIST {
            return;
        }
        if self.started.is_empty() && is_last {
            frame_into(&mut self.messages, part);
            return;
        }
        self.started.extend_from_slice(part);
        if is_last {
            frame_into(&mut self.messages, &self.started);
            self.started.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use cri_api::v1 as wire;
    use prost::Message as _;

    use super::*;
    use crate::response_fields::{HEADER_BYTES, framed};
    use crate::rewrite::Rewriting;

    fn container(id: &str) -> wire::Container {
        wire::Container { id: id.to_owned(), image_ref: "x".repeat(300), ..Default::default() }
    }

    fn split(bytes: &[u8], piece: usize) -> Result<Vec<wire::Container>, &'static str> {
        let (mut answer, mut received) = (Rewriting::<ListAnswer>::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            received.extend(answer.feed(piece)?);
        }
        assert!(answer.is_complete());
        let (mut rest, mut entries) = (received.as_slice(), Vec::new());
        while let Some((header, after)) = rest.split_at_checked(HEADER_BYTES) {
            let length = u32::from_be_bytes(header[1..].try_into().expect("four bytes"));
            let (content, after) = after.split_at(usize::try_from(length).expect("short"));
            entries.push(wire::Container::decode(content).expect("a container"));
            rest = after;
        }
        Ok(entries)
    }

    #[test]
    fn list_is_split_into_its_entries_however_it_is_received() {
        for ids in [&[][..], &["a"], &["a", "", "c"]] {
            let containers: Vec<_> = ids.iter().map(|id| container(id)).collect();
            let response = wire::ListContainersResponse { containers: containers.clone() };
            for piece in [1, 7, 200, 10_000] {
                assert_eq!(split(&framed(&response.encode_to_vec()), piece), Ok(containers.clone()));
            }
        }
        let empty = wire::ListContainersResponse { containers: vec![wire::Container::default()] };
        assert_eq!(split(&framed(&empty.encode_to_vec()), 3), Ok(empty.containers));
    }

    #[test]
    fn other_fields_are_ignored_and_lists_over_the_limit_are_errors() {
        let other = [0x12, 2, 9, 9, 0x18, 5, 0x0a, 3, 0x0a, 1, b'a'];
        let expected = wire::Container { id: "a".to_owned(), ..Default::default() };
        assert_eq!(split(&framed(&other), 1), Ok(vec![expected]));
        let length = u32::try_from(MAX_RECEIVE_BYTES + 1).expect("it fits").to_be_bytes();
        assert!(Rewriting::<ListAnswer>::default().feed(&[&[0], &length[..]].concat()).is_err());
    }
}
