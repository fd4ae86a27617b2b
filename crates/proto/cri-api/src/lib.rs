//! The CRI v1 protocol, generated from the definitions in this repository.
//!
//! Owns `proto/runtime/v1/api.proto` and the Rust messages, clients and servers generated from it.
//!
//! Architecture invariants:
//! - only the `.proto` file and this module with its codec are written manually (`cargo run -p xtask -- codegen`);
//! - only `cri` and `testing` may import this crate: protobuf types do not leave the adapter.
#![forbid(unsafe_code)]

use std::marker::PhantomData;

use prost::bytes::{Buf, BufMut, Bytes};
use tonic::codec::{BufferSettings, DecodeBuf, EncodeBuf};
use tonic_prost::ProstCodec;

/// The usual codec with smaller initial buffers: most CRI messages have a few hundred bytes, a node has hundreds of calls in
/// flight when it starts, and the default of 8 KiB for each direction would be most of their memory.
#[derive(Clone, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Initial size of a buffer, and the size at which it is passed to the transport.
const FIRST_BYTES: usize = 512;
const YIELD_BYTES: usize = 32 << 10;

fn buffers() -> BufferSettings {
    BufferSettings::new(FIRST_BYTES, YIELD_BYTES)
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: prost::Message + 'static,
    U: prost::Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as tonic::codec::Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as tonic::codec::Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffers())
    }
}

/// The same for messages that the caller encodes and decodes itself: each is passed on as it is.
#[derive(Clone, Copy, Debug)]
pub struct RawCodec;

impl tonic::codec::Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl tonic::codec::Encoder for RawCodec {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, message: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        target.put(message);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl tonic::codec::Decoder for RawCodec {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// Messages, `runtime_service_client`, `image_service_client` and their server counterparts.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    missing_debug_implementations,
    unreachable_pub,
    unused_lifetimes,
    unused_qualifications,
    deprecated,
    reason = "generated code"
)]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/runtime.v1.rs");
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::v1;

    /// The number of the only field that is set.
    fn number(message: &impl Message) -> u64 {
        let bytes = message.encode_to_vec();
        let tag = prost::encoding::decode_varint(&mut bytes.as_slice()).unwrap();
        tag >> 3
    }

    macro_rules! numbers {
        ($($message:ident . $field:ident = $value:expr => $number:literal;)*) => {
            $(
                let message = v1::$message { $field: $value, ..Default::default() };
                assert_eq!(number(&message), $number, concat!(stringify!($message), ".", stringify!($field)));
            )*
        };
    }

    /// Fields newer than containerd 1.6, against which the contract suite runs: no other test would find a wrong number.
    #[test]
    #[allow(clippy::needless_update, reason = "some messages have no other field yet")]
    fn newer_cri_fields_have_their_numbers() {
        let text = || "x".to_owned();
        numbers! {
            StatusResponse.runtime_handlers = vec![v1::RuntimeHandler::default()] => 3;
            StatusResponse.features = Some(v1::RuntimeFeatures::default()) => 4;
            RuntimeHandler.features = Some(v1::RuntimeHandlerFeatures::default()) => 2;
            RuntimeHandlerFeatures.recursive_read_only_mounts = true => 1;
            RuntimeHandlerFeatures.user_namespaces = true => 2;
            RuntimeFeatures.supplemental_groups_policy = true => 1;
            RuntimeConfigResponse.linux = Some(v1::LinuxRuntimeConfiguration::default()) => 1;
            LinuxRuntimeConfiguration.cgroup_driver = 1 => 1;
            ImageSpec.user_specified_image = text() => 18;
            ImageSpec.runtime_handler = text() => 19;
            ImageSpec.image_ref = text() => 20;
            Mount.recursive_read_only = true => 8;
            Mount.image = Some(v1::ImageSpec::default()) => 9;
            Mount.image_sub_path = text() => 10;
            ContainerConfig.cdi_devices = vec![v1::CdiDevice::default()] => 17;
            ContainerConfig.stop_signal = 1 => 18;
            LinuxContainerSecurityContext.supplemental_groups_policy = 1 => 17;
            LinuxSandboxSecurityContext.supplemental_groups_policy = 1 => 11;
            Container.image_id = text() => 10;
            ContainerStatus.image_id = text() => 17;
            ContainerStatus.user = Some(v1::ContainerUser::default()) => 18;
            ContainerStatus.stop_signal = 1 => 19;
            ContainerEventResponse.pod_sandbox_status = Some(v1::PodSandboxStatus::default()) => 4;
            ImageFsInfoResponse.container_filesystems = vec![v1::FilesystemUsage::default()] => 2;
            UpdatePodSandboxResourcesRequest.resources = Some(v1::LinuxContainerResources::default()) => 3;
        }
        assert_eq!(v1::CgroupDriver::Cgroupfs as i32, 1);
        assert_eq!(v1::Signal::Sigterm as i32, 23);
        assert_eq!(v1::Signal::Sigrtmax as i32, 65);
    }
}
