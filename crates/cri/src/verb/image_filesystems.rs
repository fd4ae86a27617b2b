//! ImageFsInfo.

use cri_api::v1 as wire;
use ports::runtime::{ImageFilesystem, RuntimeResult};

use crate::CriRuntime;
use crate::convert::image;

pub(crate) async fn image_filesystems(cri: &CriRuntime) -> RuntimeResult<Vec<ImageFilesystem>> {
    let call = cri.call("ImageFsInfo");
    let answer = call.answer(cri.images().image_fs_info(call.request(wire::ImageFsInfoRequest {}))).await?;
    Ok(answer.image_filesystems.into_iter().map(image::filesystem).collect())
}
