//! The arguments of `iscsiadm`, and what its output means.

use std::collections::BTreeMap;

/// Of `iscsiadm`: a session or record of that kind exists already.
pub const EXISTS: i32 = 15;
/// Nothing to log out of, or to delete.
const ABSENT: [i32; 2] = [2, 21];
const CHAP: &str = "CHAP";
const AUTH_FIELDS: [&str; 4] = ["username", "password", "username_in", "password_in"];

/// Whether the exit status means that there was nothing to end.
#[must_use]
pub fn is_absent(code: Option<i32>) -> bool {
    code.is_some_and(|code| ABSENT.contains(&code))
}

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|argument| (*argument).to_owned()).collect()
}

/// Commands about an interface.
#[must_use]
pub fn iface(name: &str, operation: &str) -> Vec<String> {
    args(&["-m", "iface", "-I", name, "-o", operation])
}

#[must_use]
pub fn update_iface(name: &str, key: &str, value: &str) -> Vec<String> {
    args(&["-m", "iface", "-I", name, "-o", "update", "-n", key, "-v", value])
}

/// A portal, as it is reached through an interface.
#[derive(Clone, Copy, Debug)]
pub struct Portal<'a> {
    pub portal: &'a str,
    pub iqn: &'a str,
    pub iface: &'a str,
}

impl Portal<'_> {
    fn discovery_args(&self, rest: &[&str]) -> Vec<String> {
        let begin = ["-m", "discoverydb", "-t", "sendtargets", "-p", self.portal, "-I", self.iface];
        args(&[&begin, rest].concat())
    }

    #[must_use]
    pub fn discovery(&self, operation: &str) -> Vec<String> {
        self.discovery_args(&["-o", operation])
    }

    #[must_use]
    pub fn discover(&self) -> Vec<String> {
        self.discovery_args(&["--discover"])
    }

    /// Sets up authentication for the discovery.
    #[must_use]
    pub fn authenticate_discovery(&self, secret: &BTreeMap<String, String>) -> Vec<Vec<String>> {
        let fields = auth_fields("discovery.sendtargets.auth.", secret);
        fields
            .iter()
            .map(|(key, value)| self.discovery_args(&["-o", "update", "-n", key, "-v", value]))
            .collect()
    }

    fn node_args(&self, rest: &[&str]) -> Vec<String> {
        let begin = ["-m", "node", "-p", self.portal, "-T", self.iqn, "-I", self.iface];
        args(&[&begin, rest].concat())
    }

    /// Keeps the kernel from finding disks of the target that no volume asked for.
    #[must_use]
    pub fn scan_manually(&self) -> Vec<String> {
        self.node_args(&["-o", "update", "-n", "node.session.scan", "-v", "manual"])
    }

    /// Sets up authentication for the session.
    #[must_use]
    pub fn authenticate_session(&self, secret: &BTreeMap<String, String>) -> Vec<Vec<String>> {
        let fields = auth_fields("node.session.auth.", secret);
        fields.iter().map(|(key, value)| self.node_args(&["-o", "update", "-n", key, "-v", value])).collect()
    }

    #[must_use]
    pub fn login(&self) -> Vec<String> {
        self.node_args(&["--login"])
    }

    #[must_use]
    pub fn discard_node(&self) -> Vec<String> {
        args(&["-m", "node", "-p", self.portal, "-I", self.iface, "-T", self.iqn, "-o", "delete"])
    }

    /// The node does not log in while it boots.
    #[must_use]
    pub fn start_manually(&self) -> Vec<String> {
        let begin = ["-m", "node", "-p", self.portal, "-T", self.iqn];
        args(&[&begin[..], &["-o", "update", "-n", "node.startup", "-v", "manual"]].concat())
    }

    #[must_use]
    pub fn logout(&self) -> Vec<String> {
        args(&["-m", "node", "-p", self.portal, "-T", self.iqn, "--logout", "-I", self.iface])
    }

    #[must_use]
    pub fn delete_node(&self) -> Vec<String> {
        args(&["-m", "node", "-p", self.portal, "-T", self.iqn, "-o", "delete", "-I", self.iface])
    }
}

/// The method, and each value that the Secret has.
fn auth_fields(prefix: &str, secret: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let method = (format!("{prefix}authmethod"), CHAP.to_owned());
    let values = AUTH_FIELDS.iter().filter_map(|field| {
        let key = format!("{prefix}{field}");
        let value = secret.get(&key).filter(|value| !value.is_empty())?.clone();
        Some((key, value))
    });
    [method].into_iter().chain(values).collect()
}

/// The transport of an interface, from what `iscsiadm` shows of it; `None` if it says nothing.
#[must_use]
pub fn transport(shown: &str) -> Option<&str> {
    let transport = shown.lines().find_map(|line| line.split_once("iface.transport_name = "))?.1;
    Some(if transport == "<empty>" { "tcp" } else { transport })
}

/// The settings of an interface that a copy of it gets.
///
/// # Errors
/// A line is not a setting.
pub fn settings(shown: &str) -> Result<BTreeMap<String, String>, String> {
    let mut settings = BTreeMap::new();
    for line in shown.lines().filter(|line| line.starts_with("iface.") && !line.contains("<empty>")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            // It is the name, which never changes.
            ["iface.iscsi_ifacename", "=", _] => {}
            [key, "=", value] => {
                settings.insert((*key).to_owned(), (*value).to_owned());
            }
            other => return Err(format!("error: invalid iface setting: [{}]", other.join(" "))),
        }
    }
    Ok(settings)
}
