//! ImageFsInfo.

use cri_api::v1 as wire;
use hyper::body::Bytes;
use model::stats::FilesystemUsage;
use ports::runtime::{ImageFilesystems, RuntimeResult};
use prost::Message as _;

use crate::CriRuntime;
use crate::convert::stats;
use crate::entries::Method;

const METHOD: Method = Method {
    name: "ImageFsInfo",
    path: "/runtime.v1.ImageService/ImageFsInfo",
    stream: None,
    is_of_images: true,
};

/// The response with entries that are not decoded.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Filesystems {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    images: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    containers: Vec<Bytes>,
}

pub(crate) async fn image_filesystems(cri: &CriRuntime) -> RuntimeResult<ImageFilesystems> {
    let answer = cri.raw(METHOD, wire::ImageFsInfoRequest {}.encode_to_vec()).await?;
    let answer =
        Filesystems::decode(answer).map_err(|error| cri.call(METHOD.name).malformed(error.to_string()))?;
    let filesystems = |entries: Vec<Bytes>| -> Vec<FilesystemUsage> {
        cri.decode_entries(METHOD.name, entries).into_iter().map(stats::filesystem).collect()
    };
    Ok(ImageFilesystems { images: filesystems(answer.images), containers: filesystems(answer.containers) })
}
