//! The command line of the binary. Flags are `--name value` or `--name=value`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tracing::Level;

use crate::auth::tokens::StaticToken;
use crate::options::{Approval, Options};

pub(crate) const USAGE: &str = "localapi --dir <directory> [--port <number>] [--listen <address>] [--node <name>]... \
[--bootstrap-token <id.secret>]... [--token <token:user[:group]>]... [--approve-by-hand] \
[--certificate-lifetime-seconds <number>] [--history <number>] [--bookmark-seconds <number>] \
[--audit-log-path <file>] [--database <file>] [--encryption-key <file>] [--bind-to <node>] [--kubelet-address <address>] [--local-volumes <directory>] [--node-kubeconfig <node>=<file>] [--admin-kubeconfig <file>] [--admin-kubeconfig-group <number>] [--parent <pid>] \
[--unknown-fields] [--managed-fields] [--no-service-accounts] [--refuse-services] [--anonymous] [--compacted] [--verbose]";

#[derive(Debug)]
pub(crate) struct Arguments {
    /// The directory of the state file and the kubeconfigs.
    pub(crate) directory: PathBuf,
    pub(crate) options: Options,
    /// Nodes to write a kubeconfig for.
    pub(crate) nodes: Vec<String>,
    /// A node and the file for its kubeconfig.
    pub(crate) node_kubeconfig: Option<(String, PathBuf)>,
    pub(crate) bootstrap_tokens: Vec<String>,
    /// Another file for the kubeconfig of the administrator.
    pub(crate) admin_kubeconfig: Option<PathBuf>,
    /// The group that may read it.
    pub(crate) admin_kubeconfig_group: Option<u32>,
    /// The process whose end ends this one.
    pub(crate) parent: Option<u32>,
    /// Discard the history of the previous run.
    pub(crate) compacted: bool,
    pub(crate) level: Level,
}

/// An invalid command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("unknown argument {0:?}\nusage: {USAGE}")]
    Unknown(String),
    #[error("{0} requires a value\nusage: {USAGE}")]
    NoValue(String),
    #[error("{0}: {1:?} is not {2}")]
    Invalid(String, String, &'static str),
    #[error("--dir is missing\nusage: {USAGE}")]
    NoDirectory,
}

impl Arguments {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, ArgumentError> {
        let mut parsed = Self {
            directory: PathBuf::new(),
            options: Options::default(),
            nodes: Vec::new(),
            node_kubeconfig: None,
            bootstrap_tokens: Vec::new(),
            admin_kubeconfig: None,
            admin_kubeconfig_group: None,
            parent: None,
            compacted: false,
            level: Level::WARN,
        };
        let mut rest = arguments;
        while let Some(argument) = rest.next() {
            let (flag, own) = match argument.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (argument, None),
            };
            if parsed.switch(&flag) {
                continue;
            }
            let value = own.or_else(|| rest.next()).ok_or_else(|| ArgumentError::NoValue(flag.clone()))?;
            parsed.set(&flag, value)?;
        }
        parsed.options.bootstrap_tokens.clone_from(&parsed.bootstrap_tokens);
        if parsed.directory.as_os_str().is_empty() { Err(ArgumentError::NoDirectory) } else { Ok(parsed) }
    }

    /// Flags without a value.
    fn switch(&mut self, flag: &str) -> bool {
        let behaviour = &mut self.options.behaviour;
        match flag {
            "--approve-by-hand" => behaviour.approval = Approval::Manual,
            "--unknown-fields" => behaviour.unknown_fields = true,
            "--managed-fields" => behaviour.managed_fields = true,
            "--no-service-accounts" => behaviour.service_accounts = false,
            "--refuse-services" => behaviour.refuse_services = true,
            "--anonymous" => behaviour.anonymous = true,
            "--compacted" => self.compacted = true,
            "--verbose" => self.level = Level::DEBUG,
            _ => return false,
        }
        true
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), ArgumentError> {
        let invalid = |what| ArgumentError::Invalid(flag.to_owned(), value.clone(), what);
        let number = || value.parse::<u64>().map_err(|_| invalid("an integer"));
        let behaviour = &mut self.options.behaviour;
        match flag {
            "--dir" => self.directory = PathBuf::from(value),
            "--port" => {
                let port = value.parse().map_err(|_| invalid("a port"))?;
                self.options.listen.set_port(port);
            }
            "--listen" => {
                let address = value.parse().map_err(|_| invalid("an IP address"))?;
                self.options.listen = SocketAddr::new(address, self.options.listen.port());
            }
            "--audit-log-path" => self.options.audit_log = Some(PathBuf::from(value)),
            "--node-kubeconfig" => {
                let (node, file) = value.split_once('=').ok_or_else(|| invalid("<node>=<file>"))?;
                self.node_kubeconfig = Some((node.to_owned(), PathBuf::from(file)));
            }
            "--local-volumes" => behaviour.local_volumes = Some(PathBuf::from(value)),
            "--bind-to" => behaviour.bind_to = Some(value),
            "--kubelet-address" => {
                behaviour.kubelet_address = Some(value.parse().map_err(|_| invalid("an IP address"))?);
            }
            "--admin-kubeconfig" => self.admin_kubeconfig = Some(PathBuf::from(value)),
            "--admin-kubeconfig-group" => {
                let group = u32::try_from(number()?).map_err(|_| invalid("the number of a group"))?;
                self.admin_kubeconfig_group = Some(group);
            }
            "--parent" => {
                self.parent = Some(u32::try_from(number()?).map_err(|_| invalid("the number of a process"))?);
            }
            "--encryption-key" => self.options.encryption_key = Some(PathBuf::from(value)),
            "--database" => {
                // The API of a node has users, who apply; a test has a server of its own, and asks for it.
                behaviour.managed_fields = true;
                self.options.database = Some(PathBuf::from(value));
            }
            "--node" => self.nodes.push(value),
            "--bootstrap-token" => self.bootstrap_tokens.push(value),
            "--token" => {
                let token = static_token(&value).ok_or_else(|| invalid("token:user or token:user:group"))?;
                self.options.tokens.push(token);
            }
            "--certificate-lifetime-seconds" => {
                behaviour.certificate_lifetime = Duration::from_secs(number()?.max(1));
            }
            "--bookmark-seconds" => behaviour.bookmark_interval = Duration::from_secs(number()?.max(1)),
            "--history" => {
                self.options.history =
                    usize::try_from(number()?).map_err(|_| invalid("a number of changes"))?;
            }
            _ => return Err(ArgumentError::Unknown(flag.to_owned())),
        }
        Ok(())
    }
}

/// `token:user` or `token:user:group`; the group may contain colons.
fn static_token(text: &str) -> Option<StaticToken> {
    let mut parts = text.splitn(3, ':');
    let (token, user) = (parts.next()?, parts.next()?);
    let groups = parts.next().map(str::to_owned).into_iter().collect();
    let good = !token.is_empty() && !user.is_empty();
    good.then(|| StaticToken { token: token.to_owned(), user: user.to_owned(), uid: String::new(), groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, ArgumentError> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_set_the_options() {
        let parsed = parse("--dir /d --port=7 --node a --node b --token t:u:system:masters --certificate-lifetime-seconds 120 --compacted").unwrap();
        assert_eq!(parsed.options.listen.port(), 7);
        assert_eq!(parsed.nodes, ["a", "b"]);
        assert_eq!(parsed.options.tokens[0].groups, ["system:masters"]);
        assert_eq!(parsed.options.behaviour.certificate_lifetime, Duration::from_secs(120));
        assert!(parsed.compacted);
    }

    #[test]
    fn invalid_arguments_are_reported_by_name() {
        assert_eq!(parse("--port 1").unwrap_err(), ArgumentError::NoDirectory);
        assert_eq!(parse("--dir").unwrap_err(), ArgumentError::NoValue("--dir".to_owned()));
        assert!(parse("--dir /d --port x").unwrap_err().to_string().contains("is not a port"));
        let named = parse("--dir /d --kubelet-address localhost").unwrap_err().to_string();
        assert!(named.contains("--kubelet-address") && named.contains("is not an IP address"), "{named}");
        assert!(parse("--sideways 1").unwrap_err().to_string().contains("unknown argument"));
    }
}
