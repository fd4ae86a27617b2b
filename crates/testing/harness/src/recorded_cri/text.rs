//! Messages in the text format of protobuf, without what a test does not read.

use std::sync::LazyLock;

use protox::prost_reflect::prost::Message;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, MapKey, MessageDescriptor, MethodDescriptor, ReflectMessage, Value,
};

/// Where the directory of a test is in a recording.
const DIR: &str = "@DIR@";
/// Ids are cut to the length that `crictl` prints.
const ID: usize = 64;
const SHORT_ID: usize = 13;
/// The annotation with the image of a sandbox in CRI-O.
const IMAGE: &str = "io.kubernetes.cri-o.ImageName";

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/cri-api/proto");
    // Without definitions every call is unknown, which each test with a recording reports.
    let files = protox::compile(["runtime/v1/api.proto"], [definitions]);
    files.ok().and_then(|files| DescriptorPool::from_file_descriptor_set(files).ok()).unwrap_or_default()
});

/// The method of a path `/runtime.v1.RuntimeService/Version`, or of a name `Version`.
pub(super) fn method(path: &str) -> Option<MethodDescriptor> {
    let name = path.rsplit('/').next().unwrap_or_default();
    POOL.services().find_map(|service| service.methods().find(|method| method.name() == name))
}

/// A request, reduced to what identifies it: the full configuration of a pod or container is a test of its own elsewhere.
pub(super) fn request(of: MessageDescriptor, bytes: &[u8], dir: &str) -> String {
    let Ok(mut message) = DynamicMessage::decode(of, bytes) else { return "undecodable".to_owned() };
    message.clear_field_by_name("sandbox_config");
    if let Some(Value::Message(config)) = message.get_field_by_name_mut("config") {
        let names: Vec<String> = config.descriptor().fields().map(|field| field.name().to_owned()).collect();
        for name in names.iter().filter(|name| *name != "metadata" && *name != "image") {
            config.clear_field_by_name(name);
        }
    }
    shortened(&message.to_text_format(), dir)
}

/// An answer, without the specification of the OCI runtime.
pub(super) fn answer(of: MessageDescriptor, bytes: &[u8], dir: &str) -> String {
    let Ok(mut message) = DynamicMessage::decode(of, bytes) else { return "undecodable".to_owned() };
    if let Some(Value::Map(info)) = message.get_field_by_name_mut("info") {
        for value in info.values_mut() {
            let Value::String(text) = value else { continue };
            *text = without_runtime_spec(text);
        }
        info.retain(|key, _| *key == MapKey::String("info".to_owned()));
    }
    shortened(&message.to_text_format(), dir)
}

fn without_runtime_spec(text: &str) -> String {
    let mut parsed: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let annotations = parsed.pointer("/runtimeSpec/annotations").cloned().unwrap_or_default();
    if let Some(fields) = parsed.as_object_mut() {
        fields.retain(|key, _| ["image", "pid", "sandboxId"].contains(&key.as_str()));
        if let Some(image) = annotations.get(IMAGE) {
            fields.insert("runtimeSpec".to_owned(), serde_json::json!({ "annotations": { IMAGE: image } }));
        }
    }
    parsed.to_string()
}

/// The bytes of an answer of the recording.
pub(super) fn bytes(of: MessageDescriptor, text: &str, dir: &str) -> Result<Vec<u8>, String> {
    let message = DynamicMessage::parse_text_format(of, &text.replace(DIR, dir));
    message.map(|message| message.encode_to_vec()).map_err(|error| error.to_string())
}

/// Cuts ids and replaces the directory of the test.
pub(super) fn shortened(text: &str, dir: &str) -> String {
    let text = text.replace(dir, DIR);
    let mut short = String::with_capacity(text.len());
    let mut run = 0;
    for character in text.chars() {
        run = if character.is_ascii_hexdigit() { run + 1 } else { 0 };
        short.push(character);
        if run == ID {
            short.truncate(short.len() - (ID - SHORT_ID));
        }
    }
    short
}
