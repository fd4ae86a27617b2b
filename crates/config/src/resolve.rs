//! Resolves arguments and files to one value: built-in defaults, then the file, then drop-ins, then flags.
//!
//! Owns precedence. Values are checked in `validate`, and files are read only through [`Files`].

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::document::{self, Document};
use crate::error::{ConfigError, ConfigErrors};
use crate::flags::{self, Flag, Parsed, Target};
use crate::gates::FeatureGates;
use crate::kubeletconfig::{defaults, parts::VModuleRule};
use crate::load::Files;
use crate::{
    CredentialProviders, KubeletConfiguration, MachineFacts, NodeFlags, credential_providers, not_yet, tree,
    validate,
};

/// What a command line requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    Run(Box<Resolved>),
    /// `raw`: all build information, and not [`version_line`].
    Version {
        raw: bool,
    },
    /// The text to print.
    Help(String),
}

/// The resolved configuration: complete, valid, and never changed afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Every default is filled in.
    pub kubelet: KubeletConfiguration,
    pub flags: NodeFlags,
    pub gates: FeatureGates,
    pub credential_providers: CredentialProviders,
    /// Lines to log once at the start.
    pub warnings: Vec<String>,
    /// Names of settings that were set and have no effect in this build; see [`Resolved::not_yet_warning`].
    pub not_yet: Vec<String>,
}

/// The Kubernetes release that this kubelet is compatible with.
pub const KUBERNETES_VERSION: &str = "v1.36.2";

/// What `--version` prints.
#[must_use]
pub fn version_line() -> String {
    format!("Kubernetes {KUBERNETES_VERSION}")
}

impl Resolved {
    /// One line with all settings that were set and have no effect in this build; `None` if there are none.
    #[must_use]
    pub fn not_yet_warning(&self) -> Option<String> {
        let names = self.not_yet.join(", ");
        (!names.is_empty()).then(|| format!("These settings have no effect in this kubelet: {names}"))
    }

    /// Checks the settings that depend on the machine. Returns warnings.
    ///
    /// # Errors
    /// Every setting that this machine does not allow.
    pub fn check_machine(&self, facts: &MachineFacts) -> Result<Vec<String>, ConfigErrors> {
        validate::machine(&self.kubelet, facts)
    }

    /// The log level of `-v`.
    #[must_use]
    pub fn verbosity(&self) -> u32 {
        self.kubelet.logging.verbosity
    }

    /// The rules of `--vmodule`.
    #[must_use]
    pub fn vmodule(&self) -> &[VModuleRule] {
        &self.kubelet.logging.vmodule
    }

    /// The node's name on a host called `hostname`; see [`NodeFlags::node_name`].
    ///
    /// # Errors
    /// It is not a valid name of a node.
    pub fn node_name(&self, hostname: &str) -> Result<String, ConfigError> {
        self.flags.node_name(hostname)
    }
}

/// Reads a command line (without the program's own name) and the files that it refers to.
///
/// # Errors
/// All errors of the flags; if there are none, all errors of the files; if there are none, every invalid setting.
pub fn from_args(args: impl Iterator<Item = String>, files: &dyn Files) -> Result<Invocation, ConfigErrors> {
    let parsed = flags::parse(args)?;
    if parsed.help {
        return Ok(Invocation::Help(flags::help()));
    }
    if let Some(raw) = parsed.version {
        return Ok(Invocation::Version { raw });
    }
    resolve(&parsed, files).map(|resolved| Invocation::Run(Box::new(resolved)))
}

fn resolve(parsed: &Parsed, files: &dyn Files) -> Result<Resolved, ConfigErrors> {
    let mut warnings: Vec<String> = parsed.deprecations().collect();
    match resolve_with(parsed, files, &mut warnings) {
        Ok(resolved) => Ok(Resolved { warnings, ..resolved }),
        Err(errors) => Err(errors.after(warnings)),
    }
}

/// Adds warnings to `warnings`, even if it fails, and not to the result.
fn resolve_with(
    parsed: &Parsed,
    files: &dyn Files,
    warnings: &mut Vec<String>,
) -> Result<Resolved, ConfigErrors> {
    let flags = node_flags(parsed)?;
    let set = read_files(&flags, files, warnings)?;
    let merged = merge(parsed, set, !flags.config.is_empty());
    finish(parsed, flags, &merged, files, warnings)
}

/// What the files and flags set, and the defaults below it.
pub(crate) struct Merged {
    /// What the files and flags set.
    pub(crate) set: Value,
    /// The defaults that differ from those of the fields.
    base: Value,
    /// All of it, with the defaults that follow from other fields.
    pub(crate) tree: Value,
}

pub(crate) fn merge(parsed: &Parsed, mut set: Value, from_file: bool) -> Merged {
    let base = if from_file { tree::empty() } else { defaults::legacy() };
    let mut tree = base.clone();
    tree::merge_patch(&mut tree, set.clone());
    defaults::complete(&mut tree, from_file);
    for (flag, value) in parsed.given.values() {
        apply(&mut set, flag, value);
        apply(&mut tree, flag, value);
    }
    Merged { set, base, tree }
}

/// Decodes and validates.
pub(crate) fn finish(
    parsed: &Parsed,
    flags: NodeFlags,
    merged: &Merged,
    files: &dyn Files,
    warnings: &mut Vec<String>,
) -> Result<Resolved, ConfigErrors> {
    let mut kubelet = decode(&merged.tree)?;
    if flags.single_node {
        let authority = flags.single_node_dir().join("ca.crt");
        ask_own_api(&mut kubelet, &authority);
    }
    let (gates, gate_warnings, gate_errors) = FeatureGates::resolve(&kubelet.feature_gates);
    warnings.extend(gate_warnings);
    warnings.extend(kubelet.invalid_cluster_dns().map(|server| format!("Invalid clusterDNS IP {server:?}")));
    let gate_errors = gate_errors.into_iter().map(ConfigError::from).collect();
    let mut errors = ConfigErrors { errors: gate_errors, ..ConfigErrors::default() };
    flags.check(&mut errors);
    validate::settings(&kubelet, &flags, &gates, &mut errors);
    let mut credential_providers = CredentialProviders::default();
    // One flag without the other is an error already.
    if !flags.image_credential_provider_config.is_empty()
        && !flags.image_credential_provider_bin_dir.is_empty()
    {
        match credential_providers::read(&flags.image_credential_provider_config, files, &gates) {
            Ok(found) => credential_providers = found,
            Err(wrong) => errors.extend(wrong),
        }
    }
    errors.into_result()?;
    let mut not_yet = not_yet_names(&merged.set, &merged.base, parsed);
    not_yet.extend(not_yet::gates(&gates));
    Ok(Resolved { kubelet, flags, gates, credential_providers, warnings: Vec::new(), not_yet })
}

/// The API of a single node decides who may do what on its kubelet, too: it signs certificates of users with few permissions, whom
/// `AlwaysAllow`, which a machine without an API has, would let execute commands in every pod.
fn ask_own_api(kubelet: &mut KubeletConfiguration, authority: &Path) {
    let client_ca = &mut kubelet.authentication.x509.client_ca_file;
    if client_ca.is_empty() {
        // The API server reads logs and executes commands with a certificate of this authority.
        *client_ca = authority.display().to_string();
    }
    kubelet.authentication.webhook.enabled = true;
    "Webhook".clone_into(&mut kubelet.authorization.mode);
}

pub(crate) fn node_flags(parsed: &Parsed) -> Result<NodeFlags, ConfigErrors> {
    let mut tree = tree::empty();
    for (flag, value) in parsed.given.values() {
        if let Target::Node(field) | Target::DeprecatedNode(field) = flag.target {
            tree::set(&mut tree, field, value.clone());
        }
    }
    let mut flags: NodeFlags = serde_json::from_value(tree)
        .map_err(|error| ConfigErrors::from(ConfigError::Conflict { problem: error.to_string() }))?;
    if flags.single_node && flags.kubeconfig.is_empty() {
        flags.kubeconfig = flags.single_node_kubeconfig().display().to_string();
    }
    Ok(flags)
}

/// The file and the drop-ins merged, without values that mean "not set".
fn read_files(
    flags: &NodeFlags,
    files: &dyn Files,
    warnings: &mut Vec<String>,
) -> Result<Value, ConfigErrors> {
    let mut tree = tree::empty();
    let mut errors = ConfigErrors::default();
    let mut paths = Vec::new();
    if !flags.config.is_empty() {
        paths.push(Path::new(&flags.config).to_owned());
    }
    if !flags.config_dir.is_empty() {
        let dir = Path::new(&flags.config_dir);
        match files.list_conf_files(dir) {
            Ok(found) => paths.extend(found),
            Err(source) => {
                errors.push(ConfigError::Read { what: "--config-dir", path: dir.to_owned(), source });
            }
        }
    }
    for path in paths {
        match read_file(&path, files) {
            Ok(document) => {
                tree::merge_patch(&mut tree, document.tree);
                warnings.extend(document.warnings.iter().map(ToString::to_string));
            }
            Err(wrong) => errors.extend(wrong),
        }
    }
    errors.into_result()?;
    tree::drop_nulls(&mut tree);
    defaults::drop_unset(&mut tree);
    Ok(tree)
}

fn read_file(path: &Path, files: &dyn Files) -> Result<Document, ConfigErrors> {
    let (text, absolute) = read_text(path, files)?;
    document::read(&text, &absolute)
}

/// The text of a file, and its absolute path.
pub(crate) fn read_text(path: &Path, files: &dyn Files) -> Result<(String, PathBuf), ConfigError> {
    let read_error = |source| ConfigError::Read { what: "configuration file", path: path.to_owned(), source };
    let absolute = if path.is_absolute() {
        path.to_owned()
    } else {
        files.current_dir().map_err(read_error)?.join(path)
    };
    let text = files.read(&absolute).map_err(read_error)?;
    Ok((text, absolute))
}

/// Applies the value of a flag to the tree. Feature gates are merged, other values are replaced.
fn apply(tree: &mut Value, flag: &Flag, value: &Value) {
    let Some(path) = flag.field() else { return };
    if path == "featureGates" {
        tree::merge_patch(tree, json!({ path: value }));
    } else {
        tree::set(tree, path, value.clone());
    }
}

pub(crate) fn decode(tree: &Value) -> Result<KubeletConfiguration, ConfigErrors> {
    serde_json::from_value(tree.clone())
        .map_err(|error| ConfigError::Conflict { problem: error.to_string() }.into())
}

fn not_yet_names(set: &Value, base: &Value, parsed: &Parsed) -> Vec<String> {
    let mut defaults = KubeletConfiguration::shape();
    tree::merge_patch(&mut defaults, base.clone());
    // An optional part has no default: all that is set in it differs.
    tree::remove(&mut defaults, "tracing");
    let mut names = not_yet::fields(set, &defaults);
    let flags = parsed.given.keys().filter(|name| not_yet::flag(name));
    names.extend(flags.map(|name| format!("--{name}")));
    names
}
