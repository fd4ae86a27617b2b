//! The client of a registration socket: what the plugin is, and whether the kubelet uses it.
//!
//! Each call has a connection of its own, because a plugin that starts again replaces its socket. Text of the plugin is bounded here;
//! what it means is decided elsewhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use grpc_api::plugin_registration as wire;
use grpc_api::plugin_registration::registration_client::RegistrationClient;
use ports::plugins::{PluginError, PluginInfo, PluginRegistration, PluginResult};
use tonic::transport::Channel;

use crate::call::{self, answer};

const INFO_TIMEOUT: Duration = Duration::from_secs(1);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_MESSAGE_BYTES: usize = 64 << 10;
const MAX_VERSIONS: usize = 64;
/// For the name, the type, and each version.
const MAX_TEXT_BYTES: usize = 512;
/// The longest path of Linux; that of a socket is shorter.
const MAX_ENDPOINT_BYTES: usize = 4096;
const MAX_REASON_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct RegistrationSocket {
    socket: PathBuf,
}

impl RegistrationSocket {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf() }
    }

    async fn client(&self) -> PluginResult<RegistrationClient<Channel>> {
        let channel = call::connect(&self.socket).await?;
        Ok(RegistrationClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }
}

#[async_trait]
impl PluginRegistration for RegistrationSocket {
    async fn info(&self) -> PluginResult<PluginInfo> {
        let mut client = self.client().await?;
        let info = answer("GetInfo", INFO_TIMEOUT, client.get_info(wire::InfoRequest {})).await?;
        bounded(info)
    }

    async fn notify(&self, outcome: Result<(), String>) -> PluginResult<()> {
        let mut client = self.client().await?;
        let plugin_registered = outcome.is_ok();
        let error = outcome.err().map(|why| shortened(&why).to_owned()).unwrap_or_default();
        let status = wire::RegistrationStatus { plugin_registered, error };
        answer("NotifyRegistrationStatus", NOTIFY_TIMEOUT, client.notify_registration_status(status)).await?;
        Ok(())
    }
}

fn bounded(info: wire::PluginInfo) -> PluginResult<PluginInfo> {
    let wire::PluginInfo { r#type: kind, name, endpoint, supported_versions } = info;
    let too_long = |what: &str, limit: usize| {
        Err(PluginError::Malformed(format!("the plugin's {what} is longer than {limit} bytes")))
    };
    if kind.len() > MAX_TEXT_BYTES {
        return too_long("type", MAX_TEXT_BYTES);
    }
    if name.len() > MAX_TEXT_BYTES {
        return too_long("name", MAX_TEXT_BYTES);
    }
    if endpoint.len() > MAX_ENDPOINT_BYTES {
        return too_long("endpoint", MAX_ENDPOINT_BYTES);
    }
    if supported_versions.len() > MAX_VERSIONS {
        let count = supported_versions.len();
        return Err(PluginError::Malformed(format!(
            "the plugin supports {count} versions, more than {MAX_VERSIONS}"
        )));
    }
    if supported_versions.iter().any(|version| version.len() > MAX_TEXT_BYTES) {
        return too_long("version", MAX_TEXT_BYTES);
    }
    Ok(PluginInfo { kind, name, endpoint, supported_versions })
}

/// The start of a text, up to the limit.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_REASON_BYTES)]
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use fakes::plugin_registrar::{PluginRegistrar, RegistrarFault};
    use ports::plugins::Plugins;

    use super::*;
    use crate::UnixPlugins;

    fn info() -> PluginInfo {
        PluginInfo {
            kind: "CSIPlugin".to_owned(),
            name: "test.csi.example.com".to_owned(),
            endpoint: "/var/lib/kubelet/plugins/test/csi.sock".to_owned(),
            supported_versions: vec!["1.0.0".to_owned()],
        }
    }

    #[tokio::test]
    async fn info_and_outcomes_cross_the_socket_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("test-reg.sock");
        let registrar = PluginRegistrar::serve(&socket, info());
        let registration = UnixPlugins.registration(&socket);
        assert_eq!(registration.info().await, Ok(info()));
        assert_eq!(registration.notify(Ok(())).await, Ok(()));
        assert_eq!(registration.notify(Err("no handler".to_owned())).await, Ok(()));
        assert_eq!(registrar.notified(), [Ok(()), Err("no handler".to_owned())]);
    }

    #[tokio::test]
    async fn long_reason_is_shortened_at_a_character() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("test-reg.sock");
        let registrar = PluginRegistrar::serve(&socket, info());
        let why = format!("x{}", "ä".repeat(MAX_REASON_BYTES));
        assert_eq!(UnixPlugins.registration(&socket).notify(Err(why.clone())).await, Ok(()));
        assert_eq!(registrar.notified(), [Err(why[..MAX_REASON_BYTES - 1].to_owned())]);
    }

    #[tokio::test]
    async fn registration_socket_can_be_called_again_after_its_plugin_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("test-reg.sock");
        let first = PluginRegistrar::serve(&socket, info());
        let registration = UnixPlugins.registration(&socket);
        assert_eq!(registration.info().await, Ok(info()));
        drop(first);
        let gone = registration.info().await;
        assert!(matches!(&gone, Err(PluginError::Unreachable { .. })), "{gone:?}");
        let newer = PluginInfo { supported_versions: vec!["1.11.0".to_owned()], ..info() };
        let _second = PluginRegistrar::serve(&socket, newer.clone());
        assert_eq!(registration.info().await, Ok(newer));
    }

    #[tokio::test]
    async fn plugin_that_listens_and_never_answers_fails_get_info_after_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("test-reg.sock");
        let _silent = UnixListener::bind(&socket).unwrap();
        let timed_out = PluginError::TimedOut { call: "GetInfo", after: INFO_TIMEOUT };
        assert_eq!(UnixPlugins.registration(&socket).info().await, Err(timed_out.clone()));
        drop(std::fs::remove_file(&socket));
        let registrar = PluginRegistrar::serve(&socket, info());
        registrar.set_fault(Some(RegistrarFault::Hangs));
        assert_eq!(UnixPlugins.registration(&socket).info().await, Err(timed_out));
    }

    #[tokio::test]
    async fn plugin_that_is_not_grpc_fails_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("test-reg.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let other = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.writable().await.unwrap();
                stream.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            }
        };
        let registration = UnixPlugins.registration(&socket);
        let failed = tokio::select! { () = other => unreachable!(), failed = registration.info() => failed };
        assert!(failed.is_err(), "{failed:?}");
    }

    #[tokio::test]
    async fn error_of_the_plugin_reads_as_that_of_a_go_client() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("test-reg.sock");
        let registrar = PluginRegistrar::serve(&socket, info());
        registrar.set_fault(Some(RegistrarFault::FailsNotification));
        let registration = UnixPlugins.registration(&socket);
        assert_eq!(registration.info().await, Ok(info()));
        let failed = registration.notify(Ok(())).await.unwrap_err();
        assert_eq!(failed.to_string(), "rpc error: code = Unknown desc = not now");
    }

    #[test]
    fn info_beyond_the_bounds_is_malformed() {
        let of = |info: PluginInfo| wire::PluginInfo {
            r#type: info.kind,
            name: info.name,
            endpoint: info.endpoint,
            supported_versions: info.supported_versions,
        };
        let long = |length: usize| "x".repeat(length);
        assert_eq!(bounded(of(info())), Ok(info()));
        let refused = |info: PluginInfo| bounded(of(info)).unwrap_err().to_string();
        assert_eq!(
            refused(PluginInfo { name: long(513), ..info() }),
            "the plugin's name is longer than 512 bytes"
        );
        assert_eq!(
            refused(PluginInfo { kind: long(513), ..info() }),
            "the plugin's type is longer than 512 bytes"
        );
        assert_eq!(
            refused(PluginInfo { endpoint: long(4097), ..info() }),
            "the plugin's endpoint is longer than 4096 bytes"
        );
        assert_eq!(
            refused(PluginInfo { supported_versions: vec![long(513)], ..info() }),
            "the plugin's version is longer than 512 bytes"
        );
        assert_eq!(
            refused(PluginInfo { supported_versions: vec![long(1); 65], ..info() }),
            "the plugin supports 65 versions, more than 64"
        );
    }
}
