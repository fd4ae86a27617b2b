//! ImageFsInfo.

use cri_api::v1 as wire;
use ports::runtime::{ImageFilesystems, RuntimeResult};

use crate::CriRuntime;
use crate::convert::stats;

pub(crate) async fn image_filesystems(cri: &CriRuntime) -> RuntimeResult<ImageFilesystems> {
    let call = cri.call("ImageFsInfo");
    let answer = call.answer(cri.images().image_fs_info(call.request(wire::ImageFsInfoRequest {}))).await?;
    Ok(ImageFilesystems {
        images: answer.image_filesystems.into_iter().map(stats::filesystem).collect(),
        containers: answer.container_filesystems.into_iter().map(stats::filesystem).collect(),
    })
}
