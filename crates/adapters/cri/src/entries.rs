//! Lists in the answers of a runtime: each entry is decoded by itself, so that one that is malformed costs only that entry. It is left
//! out, counted, and named in the log once.
//!
//! The protocol requires UTF-8 in every text, and a runtime in Go may send something else; `prost` refuses the whole message then.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use cri_api::RawCodec;
use http::uri::PathAndQuery;
use hyper::body::Bytes;
use parking_lot::Mutex;
use ports::runtime::{RuntimeResult, Scope};
use prost::Message;
use tonic::client::Grpc;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Request, Response, Status};

use crate::CriRuntime;
use crate::channel::{Connection, MAX_RECEIVE_BYTES};
use crate::trace::PropagateTrace;

/// Malformed entries that are remembered, so that each is logged once; beyond this number the oldest is forgotten.
const MAX_LOGGED: usize = 256;
/// The part of an entry's name that is logged.
const MAX_NAME: usize = 80;

/// All parts of a list that is streamed. A node has far less; a runtime that never ends its stream must not take all memory.
const MAX_STREAM_BYTES: usize = 16 * MAX_RECEIVE_BYTES;

type Decoded = Result<(), prost::DecodeError>;
/// Decodes one message of a list.
type Decode<'a> = dyn FnMut(Bytes) -> Decoded + Send + 'a;

/// A client for messages that are not decoded.
type Client = Grpc<InterceptedService<Connection, PropagateTrace>>;

/// A call: its name, its path, and the service that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    /// The path of the call that streams the same list in parts.
    pub(crate) stream: Option<&'static str>,
    pub(crate) is_of_images: bool,
}

/// Whether lists are streamed, for each of the two services. A runtime that does not implement that is asked once.
#[derive(Debug, Default)]
pub(crate) struct ListStreaming {
    runtime: AtomicBool,
    images: AtomicBool,
}

impl ListStreaming {
    pub(crate) const fn new(enabled: bool) -> Self {
        Self { runtime: AtomicBool::new(enabled), images: AtomicBool::new(enabled) }
    }

    const fn of(&self, method: Method) -> &AtomicBool {
        if method.is_of_images { &self.images } else { &self.runtime }
    }

    /// The path of the streaming call, if it is to be used.
    fn path(&self, method: Method) -> Option<&'static str> {
        method.stream.filter(|_| self.of(method).load(Ordering::Relaxed))
    }

    fn switch_off(&self, method: Method) {
        self.of(method).store(false, Ordering::Relaxed);
    }
}

/// The malformed entries that were logged.
#[derive(Debug, Default)]
pub(crate) struct Logged(Mutex<VecDeque<u64>>);

impl Logged {
    fn is_new(&self, call: &str, name: &str, why: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        (call, name, why).hash(&mut hasher);
        let (hash, mut logged) = (hasher.finish(), self.0.lock());
        if logged.contains(&hash) {
            return false;
        }
        if logged.len() >= MAX_LOGGED {
            logged.pop_front();
        }
        logged.push_back(hash);
        true
    }
}

/// The response of a listing. `prost` splits it into the entries, which refer to the bytes that were received.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct List {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    entries: Vec<Bytes>,
}

/// The first field of a message, as it was sent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct First {
    #[prost(bytes = "bytes", tag = "1")]
    first: Bytes,
}

/// What identifies an entry: its id, which is its first field, or the first field of that.
fn name_of(entry: &Bytes) -> String {
    let first = |bytes: &Bytes| First::decode(bytes.clone()).ok().map(|message| message.first);
    let is_text =
        |bytes: &Bytes| std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(char::is_control));
    let Some(outer) = first(entry) else { return String::new() };
    let name = if is_text(&outer) { outer } else { first(&outer).unwrap_or(outer) };
    let part = name.get(..name.len().min(MAX_NAME)).unwrap_or_default();
    part.escape_ascii().to_string()
}

impl CriRuntime {
    /// Reports an entry that is left out.
    pub(crate) fn leave_out(&self, call: &'static str, entry: &str, why: &str) {
        if let Some(observer) = self.observer.get() {
            observer.entry_malformed(call);
        }
        if self.logged.is_new(call, entry, why) {
            tracing::warn!(
                call,
                entry,
                err = why,
                "Ignoring a malformed entry in an answer of the container runtime"
            );
        }
    }

    /// Decodes entries one by one.
    pub(crate) fn decode_entries<E: Message + Default>(
        &self,
        call: &'static str,
        entries: Vec<Bytes>,
    ) -> Vec<E> {
        entries.into_iter().filter_map(|entry| self.decode_entry(call, &entry, Ok)).collect()
    }

    fn decode_entry<E: Message + Default, S>(
        &self,
        call: &'static str,
        entry: &Bytes,
        take: impl FnOnce(E) -> Result<S, &'static str>,
    ) -> Option<S> {
        let taken = match E::decode(entry.clone()) {
            Ok(message) => take(message).map_err(str::to_owned),
            Err(error) => Err(error.to_string()),
        };
        taken.inspect_err(|why| self.leave_out(call, &name_of(entry), why)).ok()
    }

    /// Calls a method whose response is a list of `E`; returns what `take` makes of its entries. Each part of a streamed list is decoded
    /// as it arrives; after an error what was decoded is discarded.
    pub(crate) async fn list<E: Message + Default, S: Send>(
        &self,
        method: Method,
        message: &impl Message,
        take: impl Fn(E) -> Result<S, &'static str> + Send + Sync,
    ) -> RuntimeResult<Vec<S>> {
        let mut taken = Vec::new();
        let mut decode = |part: Bytes| {
            let list = List::decode(part)?;
            let entries = list.entries.iter();
            taken.extend(entries.filter_map(|entry| self.decode_entry(method.name, entry, &take)));
            Ok(())
        };
        let decoded = self.read_parts(method, Bytes::from(message.encode_to_vec()), &mut decode).await?;
        decoded.map_err(|error| self.call(method.name).malformed(error.to_string()))?;
        Ok(taken)
    }

    /// Reads the messages of a list: its parts if it is streamed, else one. Both ways have one deadline together.
    async fn read_parts(
        &self,
        method: Method,
        message: Bytes,
        decode: &mut Decode<'_>,
    ) -> RuntimeResult<Decoded> {
        let Some(path) = self.list_streaming.path(method) else {
            return Ok(decode(self.raw(method, message).await?));
        };
        let call = self.call(method.name);
        let answer = async move {
            let streamed = stream(self.client(method), call.request(message.clone()), path, decode).await;
            match streamed {
                Err(status) if status.code() == Code::Unimplemented => {
                    self.list_streaming.switch_off(method);
                    let answer = unary(self.client(method), call.request(message), method.path).await?;
                    Ok(Response::new(decode(answer.into_inner())))
                }
                streamed => streamed.map(Response::new),
            }
        };
        call.answer(answer).await
    }

    /// Calls a method whose response has lists next to other fields; returns it as it was sent.
    pub(crate) async fn raw(&self, method: Method, message: impl Into<Bytes>) -> RuntimeResult<Bytes> {
        let call = self.call(method.name);
        let request = call.request(message.into());
        call.answer(unary(self.client(method), request, method.path)).await
    }

    /// A client of the service that has the method.
    fn client(&self, method: Method) -> Client {
        let connection = if method.is_of_images { self.images.clone() } else { self.runtime.clone() };
        let service = InterceptedService::new(connection, self.trace.clone());
        Grpc::new(service).max_decoding_message_size(MAX_RECEIVE_BYTES)
    }

    /// Leaves out entries that a listing has twice, because a second ready sandbox would mean that the pod has to be restarted; and
    /// those of other pods, because they would be taken for containers of this one.
    pub(crate) fn checked<S>(
        &self,
        call: &'static str,
        scope: &Scope,
        listed: Vec<S>,
        identity: impl Fn(&S) -> (&str, &str),
    ) -> Vec<S> {
        let mut listed = self.distinct(call, listed, |entry| (identity(entry).0, ""));
        listed.retain(|entry| {
            let (id, uid) = identity(entry);
            let is_requested = match scope {
                Scope::Node => true,
                Scope::Pod(pod) => pod.as_str() == uid,
            };
            if !is_requested {
                self.leave_out(call, id, "it belongs to another pod than the requested one");
            }
            is_requested
        });
        listed
    }

    /// Leaves out entries with a key that an earlier one has. A key begins with the id.
    pub(crate) fn distinct<S>(
        &self,
        call: &'static str,
        mut listed: Vec<S>,
        key: impl Fn(&S) -> (&str, &str),
    ) -> Vec<S> {
        let is_first: Vec<bool> = {
            let mut keys = HashSet::with_capacity(listed.len());
            listed.iter().map(|entry| keys.insert(key(entry))).collect()
        };
        let mut is_first = is_first.into_iter();
        listed.retain(|entry| {
            let is_first = is_first.next().unwrap_or(true);
            if !is_first {
                self.leave_out(call, key(entry).0, "an entry with this id precedes it");
            }
            is_first
        });
        listed
    }
}

async fn unary(
    mut client: Client,
    request: Request<Bytes>,
    path: &'static str,
) -> Result<Response<Bytes>, Status> {
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    client.unary(request, PathAndQuery::from_static(path), RawCodec).await
}

/// Decodes the messages of a stream one after another.
async fn stream(
    mut client: Client,
    request: Request<Bytes>,
    path: &'static str,
    decode: &mut Decode<'_>,
) -> Result<Decoded, Status> {
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static(path);
    let mut messages = client.server_streaming(request, path, RawCodec).await?.into_inner();
    let mut size: usize = 0;
    while let Some(part) = messages.message().await? {
        size = size.saturating_add(part.len());
        if size > MAX_STREAM_BYTES {
            return Err(Status::out_of_range(format!("the list has more than {MAX_STREAM_BYTES} bytes")));
        }
        if let Err(error) = decode(part) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use cri_api::v1 as wire;

    use super::*;

    #[test]
    fn entry_is_named_by_its_id_also_if_that_is_no_text_or_in_its_attributes() {
        let encoded = |message: &dyn Fn() -> Vec<u8>| Bytes::from(message());
        let container = wire::Container { id: "c1".to_owned(), ..Default::default() };
        assert_eq!(name_of(&encoded(&|| container.encode_to_vec())), "c1");
        let attributes = Some(wire::ContainerAttributes { id: "c2".to_owned(), ..Default::default() });
        let stats = wire::ContainerStats { attributes, ..Default::default() };
        assert_eq!(name_of(&encoded(&|| stats.encode_to_vec())), "c2");
        assert_eq!(name_of(&Bytes::from_static(b"\x0a\x03a\xffb")), "a\\xffb");
        assert_eq!(name_of(&Bytes::from_static(b"\x0a\x09a")), "");
    }

    #[test]
    fn list_is_split_into_its_entries_and_other_fields_are_ignored() {
        let container = |id: &str| wire::Container { id: id.to_owned(), ..Default::default() };
        let split = |bytes: Vec<u8>| -> Vec<wire::Container> {
            let entries = List::decode(Bytes::from(bytes)).expect("a list").entries;
            entries.into_iter().map(|entry| wire::Container::decode(entry).expect("a container")).collect()
        };
        for ids in [&[][..], &["a"], &["a", "", "c"]] {
            let containers: Vec<_> = ids.iter().map(|id| container(id)).collect();
            let response = wire::ListContainersResponse { containers: containers.clone() };
            assert_eq!(split(response.encode_to_vec()), containers);
        }
        let other = [0x12, 2, 9, 9, 0x18, 5, 0x0a, 3, 0x0a, 1, b'a'];
        assert_eq!(split(other.to_vec()), [container("a")]);
    }

    #[test]
    fn malformed_entry_is_logged_once_and_the_memory_of_it_is_bounded() {
        let logged = Logged::default();
        assert!(logged.is_new("ListImages", "a", "no id") && !logged.is_new("ListImages", "a", "no id"));
        assert!((0..1000).all(|number| logged.is_new("ListImages", &number.to_string(), "no id")));
        assert_eq!(logged.0.lock().len(), MAX_LOGGED);
    }
}
