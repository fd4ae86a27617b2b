//! Which drivers of dynamic resources may register, and with which version of the protocol.

use model::dra::DraVersion;
use model::plugins::RegisteredPlugin;

/// The type of plugin.
pub const KIND: &str = "DRAPlugin";

/// Why a driver may not register. The messages are those of the Go kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    #[error("DRA driver name is empty")]
    Nameless,
    #[error(
        "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: empty list of supported gRPC services \
         (aka supported versions)"
    )]
    NoServices { driver: String, endpoint: String },
    #[error(
        "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: none of services supported by the plugin \
         ([{offered}]) are supported by the kubelet ([{supported}])"
    )]
    NoCommonService { driver: String, endpoint: String, offered: String, supported: String },
}

/// The first service of the driver's list that the kubelet has.
///
/// # Errors
/// There is none.
pub fn choose_version(plugin: &RegisteredPlugin) -> Result<DraVersion, DriverError> {
    if plugin.name.is_empty() {
        return Err(DriverError::Nameless);
    }
    let (driver, endpoint) = (plugin.name.clone(), plugin.endpoint.display().to_string());
    if plugin.versions.is_empty() {
        return Err(DriverError::NoServices { driver, endpoint });
    }
    let version = |service: &String| DraVersion::ALL.into_iter().find(|known| known.service() == service);
    let quoted = |services: &mut dyn Iterator<Item = &str>| {
        services.map(|service| format!("{service:?}")).collect::<Vec<_>>().join(" ")
    };
    plugin.versions.iter().find_map(version).ok_or_else(|| DriverError::NoCommonService {
        driver,
        endpoint,
        offered: quoted(&mut plugin.versions.iter().map(String::as_str)),
        supported: quoted(&mut DraVersion::ALL.into_iter().map(DraVersion::service)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_service_of_the_driver_that_the_kubelet_has_is_used() {
        let chosen = |services: &[&str]| {
            let versions = services.iter().map(|service| (*service).to_owned()).collect();
            let plugin = RegisteredPlugin { name: "d.org".to_owned(), endpoint: "/d.sock".into(), versions };
            choose_version(&plugin).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&["v1.DRAPlugin"]), Ok(DraVersion::V1));
        assert_eq!(chosen(&["v1beta1.DRAPlugin", "v1.DRAPlugin"]), Ok(DraVersion::V1Beta1));
        assert_eq!(chosen(&["v1alpha1.DRAResourceHealth", "v1.DRAPlugin"]), Ok(DraVersion::V1));
        let begin = "invalid supported gRPC versions of DRA driver plugin d.org at endpoint /d.sock: ";
        let empty = "empty list of supported gRPC services (aka supported versions)";
        assert_eq!(chosen(&[]), Err(format!("{begin}{empty}")));
        let none = r#"none of services supported by the plugin (["1.0.0" "v2.DRAPlugin"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])"#;
        assert_eq!(chosen(&["1.0.0", "v2.DRAPlugin"]), Err(format!("{begin}{none}")));
    }
}
