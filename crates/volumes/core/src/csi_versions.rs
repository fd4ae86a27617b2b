//! Versions that a plugin supports: which CSI driver may register, and with which version.
//!
//! The rules and messages are those of the Go kubelet: the highest 1.x counts, and a driver that is registered with the same or a
//! higher version is not replaced.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

/// Starts each message about CSI.
const CSI: &str = "kubernetes.io/csi";

/// A version of two or more numbers, `v1.2.3` or `1.2-alpha`; what follows the numbers is ignored. Zeros at the end make no
/// difference.
#[derive(Clone, Debug)]
pub struct Version {
    numbers: Vec<u64>,
}

/// Why a text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("could not parse {0:?} as version")]
    NotAVersion(String),
    #[error("illegal version string {0:?}")]
    TooShort(String),
    #[error("illegal zero-prefixed version component {component:?} in {text:?}")]
    ZeroPrefix { component: String, text: String },
    #[error(
        "illegal non-numeric version component {component:?} in {text:?}: \
         strconv.ParseUint: parsing {component:?}: value out of range"
    )]
    OutOfRange { component: String, text: String },
}

impl Version {
    /// # Errors
    /// The text does not start with two or more numbers.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let rest = rest.strip_prefix('v').unwrap_or(rest);
        let numbers = numbers_at_start(rest);
        let after = &rest[numbers.len()..];
        if numbers.is_empty() || after.contains('\n') {
            return Err(VersionError::NotAVersion(text.to_owned()));
        }
        let components: Vec<&str> = numbers.split('.').collect();
        let [first, _, ..] = *components else { return Err(VersionError::TooShort(text.to_owned())) };
        let of = |component: &str| (component.to_owned(), text.to_owned());
        if first.starts_with('0') && first != "0" {
            let (component, text) = of(first);
            return Err(VersionError::ZeroPrefix { component, text });
        }
        let parse = |component: &&str| {
            let (named, text) = of(component);
            component.parse().map_err(|_| VersionError::OutOfRange { component: named, text })
        };
        let numbers = components.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { numbers })
    }

    fn major(&self) -> u64 {
        self.numbers.first().copied().unwrap_or_default()
    }

    fn without_zeros(&self) -> &[u64] {
        let end = self.numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        &self.numbers[..end]
    }
}

/// `1.2.3` of `1.2.3.-beta`.
fn numbers_at_start(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let end = text.find("..").unwrap_or(end).min(end);
    if text.starts_with('.') { "" } else { text[..end].trim_end_matches('.') }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.without_zeros() == other.without_zeros()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.without_zeros().cmp(other.without_zeros())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// The highest of the versions 1.x.
///
/// # Errors
/// There is none; the text is complete.
pub fn highest_supported_version(versions: &[String]) -> Result<Version, String> {
    if versions.is_empty() {
        return Err("empty array for supported versions".to_owned());
    }
    let (mut highest, mut error) = (None, None);
    for text in versions.iter().rev() {
        match Version::parse(text) {
            Ok(version) if version.major() <= 1 => highest = highest.max(Some(version)),
            Ok(_) => {}
            Err(why) => error = Some(why),
        }
    }
    let Some(highest) = highest else {
        let error = error.map_or_else(|| "<nil>".to_owned(), |error| error.to_string());
        let all = versions.join(" ");
        return Err(format!(
            "could not find a highest supported version from versions ([{all}]) reported: {error}"
        ));
    };
    if highest.major() == 1 {
        Ok(highest)
    } else {
        Err(format!("highest supported version reported is {highest}, must be v1.x"))
    }
}

/// The version with which a CSI driver registers. `registered`: that of the driver that is registered with this name. `caller` is
/// the step, for the message: `ValidatePlugin` or `RegisterPlugin`.
///
/// # Errors
/// The driver may not register; the text is complete.
pub fn compute_csi_version(
    caller: &str,
    name: &str,
    versions: &[String],
    registered: Option<&Version>,
) -> Result<Version, String> {
    let failed = format!("{CSI}: {caller} for CSI driver {name:?} failed.");
    if versions.is_empty() {
        return Err(format!("{failed} Plugin returned an empty list for supported versions"));
    }
    let version = highest_supported_version(versions).map_err(|error| {
        let all: Vec<String> = versions.iter().map(|version| format!("{version:?}")).collect();
        let all = all.join(" ");
        format!("{failed} None of the versions specified [{all}] are supported. err={error}")
    })?;
    match registered.filter(|registered| **registered >= version) {
        None => Ok(version),
        Some(registered) => Err(format!(
            "{failed} Another driver with the same name is already registered with a higher supported version: \
             \"{registered}\""
        )),
    }
}

/// Whether a CSI driver may register.
///
/// # Errors
/// It may not; the text is complete.
pub fn check_csi_driver(
    name: &str,
    endpoint: &Path,
    versions: &[String],
    registered: Option<&Version>,
) -> Result<(), String> {
    let checked = compute_csi_version("ValidatePlugin", name, versions, registered);
    checked.map(|_| ()).map_err(|error| {
        format!("validation failed for CSI Driver {name} at endpoint {}: {error}", endpoint.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: &str = "/var/log/kubelet/plugins_registry/myplugin/csi.sock";

    fn texts(versions: &[&str]) -> Vec<String> {
        versions.iter().map(|version| (*version).to_owned()).collect()
    }

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn csi_driver_needs_a_version_1_x() {
        let cases: &[(&[&str], bool)] = &[
            (&["v1.0.0"], true),
            (&["0.3.0"], false),
            (&["0.2.0"], false),
            (&["0.2.0", "v0.3.0"], false),
            (&["0.2.0", "v1.0.0"], true),
            (&["0.2.0", "v1.2.3"], true),
            (&["v1.2.3", "v0.3.0"], true),
            (&["v1.2.3", "v0.3.0", "2.0.1"], true),
            (&["v1.2.3", "4.9.12", "v0.3.0", "2.0.1"], true),
            (&["v1.2.3", "boo", "v0.3.0", "2.0.1"], true),
            (&["4.9.12", "2.0.1"], false),
            (&[], false),
            (&["var", "boo", "foo"], false),
        ];
        for (versions, is_valid) in cases {
            let checked = check_csi_driver("test.plugin", Path::new(ENDPOINT), &texts(versions), None);
            assert_eq!(checked.is_ok(), *is_valid, "{versions:?}: {checked:?}");
        }
    }

    #[test]
    fn csi_driver_replaces_only_one_with_a_lower_version() {
        let check = |registered: &[&str], versions: &[&str]| {
            let registered = highest_supported_version(&texts(registered)).unwrap();
            check_csi_driver("test.plugin", Path::new(ENDPOINT), &texts(versions), Some(&registered))
        };
        assert!(check(&["v1.0.0"], &["v1.0.0"]).is_err());
        assert!(check(&["v0.3.0", "v0.2.0", "v1.0.0"], &["v1.0.1"]).is_ok());
        assert!(check(&["v1.10.0"], &["v1.9.0"]).is_err());
    }

    #[test]
    fn refusals_of_csi_drivers_read_as_in_the_go_kubelet() {
        let refused = |versions: &[&str], registered: Option<&str>| {
            let registered = registered.map(version);
            compute_csi_version("ValidatePlugin", "test.plugin", &texts(versions), registered.as_ref())
                .unwrap_err()
        };
        let failed = "kubernetes.io/csi: ValidatePlugin for CSI driver \"test.plugin\" failed.";
        assert_eq!(
            refused(&[], None),
            format!("{failed} Plugin returned an empty list for supported versions")
        );
        assert_eq!(
            refused(&["0.2.0", "v0.3.0"], None),
            format!(
                "{failed} None of the versions specified [\"0.2.0\" \"v0.3.0\"] are supported. \
                 err=highest supported version reported is 0.3.0, must be v1.x"
            )
        );
        assert_eq!(
            refused(&["4.9.12", "2.0.1"], None),
            format!(
                "{failed} None of the versions specified [\"4.9.12\" \"2.0.1\"] are supported. \
                 err=could not find a highest supported version from versions ([4.9.12 2.0.1]) reported: <nil>"
            )
        );
        assert_eq!(
            refused(&["var", "boo"], None),
            format!(
                "{failed} None of the versions specified [\"var\" \"boo\"] are supported. \
                 err=could not find a highest supported version from versions ([var boo]) reported: \
                 could not parse \"var\" as version"
            )
        );
        assert_eq!(
            refused(&["v1.0.0"], Some("1.0.0")),
            format!(
                "{failed} Another driver with the same name is already registered with a higher supported version: \
                 \"1.0.0\""
            )
        );
        let named = check_csi_driver("test.plugin", Path::new(ENDPOINT), &[], None).unwrap_err();
        let start = format!("validation failed for CSI Driver test.plugin at endpoint {ENDPOINT}: {failed} ");
        assert!(named.starts_with(&start), "{named}");
    }

    #[test]
    fn versions_are_parsed_and_compared_as_generic_versions() {
        let shown = |text: &str| Version::parse(text).map_or_else(|e| e.to_string(), |v| v.to_string());
        assert_eq!(shown(" v1.2.3-alpha.1+build"), "1.2.3");
        assert_eq!(shown("1.2.x"), "1.2");
        assert_eq!(shown("1.02"), "1.2");
        assert_eq!(shown("1..2"), "illegal version string \"1..2\"");
        assert_eq!(shown("1"), "illegal version string \"1\"");
        assert_eq!(shown("v01.2"), "illegal zero-prefixed version component \"01\" in \"v01.2\"");
        assert_eq!(shown("vv1.2"), "could not parse \"vv1.2\" as version");
        assert_eq!(shown(""), "could not parse \"\" as version");
        assert!(shown("1.99999999999999999999").ends_with("value out of range"));
        assert!(version("1.10") > version("1.9.9"));
        assert_eq!(version("1.2"), version("1.2.0.0"));
        assert!(version("1.2") < version("1.2.0.1"));
    }
}
