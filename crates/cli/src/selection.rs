//! Which pods a command is about: POD, `--namespace` and `--selector`.

use clap::{Arg, ArgMatches, Command};

use crate::client::escaped;

/// The arguments, as a part of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) words: String,
    namespace: String,
    selector: String,
}

pub(crate) fn pod_argument() -> Arg {
    Arg::new("pod")
        .value_name("POD")
        .help("Its name, namespace/name, or UID or the beginning of it (four characters or more)")
}

/// `-n`.
fn namespace_argument(help: &'static str) -> Arg {
    Arg::new("namespace").short('n').long("namespace").value_name("NAMESPACE").help(help)
}

/// `-c`.
pub(crate) fn container_argument() -> Arg {
    Arg::new("container")
        .short('c')
        .long("container")
        .value_name("CONTAINER")
        .help("The container; without it the pod must have only one")
}

/// POD, `-n` and `-l`, none of which is required.
pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(pod_argument())
        .arg(namespace_argument("Only pods of this namespace, and what is theirs"))
        .arg(
            Arg::new("selector")
                .short('l')
                .long("selector")
                .value_name("LABELS")
                .help("Only pods with these labels: app=web,tier!=cache,track in (a,b),!old"),
        )
}

/// POD, which is required, and `-n`.
pub(crate) fn one_pod(command: Command) -> Command {
    command.arg(pod_argument().required(true)).arg(namespace_argument("The namespace of the pod"))
}

impl Selection {
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        // A command that is about one pod has no selector.
        let text = |name| matches.try_get_one::<String>(name).ok().flatten().cloned().unwrap_or_default();
        Self { words: text("pod"), namespace: text("namespace"), selector: text("selector") }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The path with these parameters.
    pub(crate) fn path(&self, path: &str) -> String {
        let given = [("pod", &self.words), ("namespace", &self.namespace), ("selector", &self.selector)];
        let given = given.iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_is_a_query() {
        assert_eq!(Selection::default().path("/v1/pods"), "/v1/pods");
        let selection = Selection {
            words: "web".to_owned(),
            namespace: "default".to_owned(),
            selector: "app=web,!old".to_owned(),
        };
        assert_eq!(
            selection.path("/v1/pods"),
            "/v1/pods?pod=web&namespace=default&selector=app%3Dweb%2C%21old"
        );
    }
}
