//! Kubeconfig files: parses YAML into the [`Access`] of the current context.
//!
//! Unknown fields are ignored. Paths of files are relative to the directory of the kubeconfig.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use yaml::{Problem, Reading};

use crate::access::{
    Access, Content, IdentitySource, Impersonation, Login, Plugin, ProxyUrl, ServerUrl, Trust,
};
use crate::error::KubeconfigError;
use crate::proxy::ProxyEnv;

const PLUGIN_VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/// The cluster extension with configuration for exec plugins.
const PLUGIN_EXTENSION: &str = "client.authentication.k8s.io/exec";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct File {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<Cluster>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<Context>,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    extensions: Option<Vec<Extension>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Extension {
    name: String,
    #[serde(default)]
    extension: Value,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<Exec>,
    auth_provider: Option<Value>,
    #[serde(rename = "as")]
    act_as: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<BTreeMap<String, Vec<String>>>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Exec {
    api_version: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvVar>>,
    install_hint: Option<String>,
    provide_cluster_info: Option<bool>,
    interactive_mode: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct EnvVar {
    name: String,
    #[serde(default)]
    value: String,
}

/// Reads the access of the current context. `proxies` applies if the file sets no proxy.
///
/// # Errors
/// The file cannot be read or is not a kubeconfig, or a required field is missing or invalid.
pub fn read(path: &Path, proxies: &ProxyEnv) -> Result<Access, KubeconfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| KubeconfigError::Unreadable { path: path.to_owned(), problem: error.to_string() })?;
    parse(&text, path, proxies)
}

/// As [`read`], for a text that was read from `path`.
///
/// # Errors
/// The same as of [`read`].
pub fn parse(text: &str, path: &Path, proxies: &ProxyEnv) -> Result<Access, KubeconfigError> {
    let file =
        decode(text).map_err(|problem| KubeconfigError::Malformed { path: path.to_owned(), problem })?;
    resolve(&file, path, proxies).map_err(|(field, problem)| KubeconfigError::Field {
        path: path.to_owned(),
        field,
        problem,
    })
}

fn decode(text: &str) -> Result<File, String> {
    let malformed =
        |problem: Problem| format!("not valid {}: {}", yaml::format_of(text), problem.with_place());
    let document = yaml::read_one(text).map_err(malformed)?.ok_or("empty")?;
    Reading::lenient().read(&document).map_err(malformed)
}

/// A field, and the problem with it.
type Wrong = (String, String);

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Wrong {
    (field.into(), problem.into())
}

/// The cluster and user of the current context, with the names of their fields for errors.
struct Current<'a> {
    cluster: Cluster,
    cluster_field: String,
    users: &'a [NamedUser],
    user_name: String,
    context_field: String,
}

fn current(file: &File) -> Result<Current<'_>, Wrong> {
    let current = file.current_context.as_deref().filter(|name| !name.is_empty());
    let current = current.ok_or_else(|| wrong("current-context", "is not set"))?;
    let contexts = file.contexts.as_deref().unwrap_or_default();
    let context = contexts.iter().find(|context| context.name == current);
    let context =
        context.ok_or_else(|| wrong("current-context", format!("there is no context {current:?}")))?;
    let context_field = format!("contexts[{current}]");
    let context = context.context.clone().unwrap_or_default();
    let name = context.cluster.as_deref().unwrap_or_default();
    let clusters = file.clusters.as_deref().unwrap_or_default();
    let cluster = clusters.iter().find(|cluster| cluster.name == name);
    let cluster = cluster
        .ok_or_else(|| wrong(format!("{context_field}.cluster"), format!("there is no cluster {name:?}")))?;
    Ok(Current {
        cluster: cluster.cluster.clone().unwrap_or_default(),
        cluster_field: format!("clusters[{name}]"),
        users: file.users.as_deref().unwrap_or_default(),
        user_name: context.user.unwrap_or_default(),
        context_field,
    })
}

fn resolve(file: &File, path: &Path, proxies: &ProxyEnv) -> Result<Access, Wrong> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let Current { cluster, cluster_field, users, user_name: name, context_field } = current(file)?;
    let user = match users.iter().find(|user| user.name == name) {
        Some(user) => user.user.clone().unwrap_or_default(),
        // A server may allow requests without a user.
        None if name.is_empty() => User::default(),
        None => return Err(wrong(format!("{context_field}.user"), format!("there is no user {name:?}"))),
    };
    let user_field = format!("users[{name}]");

    let server = cluster.server.as_deref().filter(|server| !server.is_empty());
    let server = server.ok_or_else(|| wrong(format!("{cluster_field}.server"), "is not set"))?;
    let server = ServerUrl::parse(server)
        .map_err(|error| wrong(format!("{cluster_field}.server"), error.to_string()))?;
    let given_proxy = cluster.proxy_url.as_deref().filter(|url| !url.is_empty());
    let proxy = match given_proxy {
        Some(url) => Some(
            ProxyUrl::parse(url)
                .map_err(|error| wrong(format!("{cluster_field}.proxy-url"), error.to_string()))?,
        ),
        None => proxies.for_server(&server).map_err(|(name, problem)| wrong(name, problem))?,
    };
    Ok(Access {
        trust: trust(&cluster, &cluster_field, dir)?,
        server_name: cluster.tls_server_name.clone().filter(|name| !name.is_empty()),
        proxy,
        identity: identity(&user, &user_field, dir)?,
        login: login(&user, &user_field, dir, &cluster)?,
        impersonation: impersonation(&user, &user_field)?,
        server,
    })
}

/// The kubeconfig (YAML) of a node that was bootstrapped with the kubeconfig `path`: the same cluster, and a client
/// certificate and key that are both in the file `pem`.
///
/// # Errors
/// As [`read`], for the bootstrap kubeconfig.
pub fn for_node(path: &Path, pem: &Path) -> Result<String, KubeconfigError> {
    let unreadable = |problem: String| KubeconfigError::Unreadable { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let file =
        decode(&text).map_err(|problem| KubeconfigError::Malformed { path: path.to_owned(), problem })?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let cluster = current(&file).and_then(|current| {
        // Relative paths depend on the directory of the file.
        let authority = current.cluster.certificate_authority.as_ref().filter(|file| !file.is_empty());
        let authority = authority.map(|file| std::path::absolute(dir.join(file))).transpose();
        let authority = authority.map_err(|error| {
            wrong(format!("{}.certificate-authority", current.cluster_field), error.to_string())
        })?;
        Ok((current.cluster, authority.map(|path| path.display().to_string())))
    });
    let (cluster, authority) = cluster.map_err(|(field, problem)| KubeconfigError::Field {
        path: path.to_owned(),
        field,
        problem,
    })?;
    let mut lines = vec!["apiVersion: v1".to_owned(), "clusters:".to_owned(), "- cluster:".to_owned()];
    let mut set = |field: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            // A JSON string is also a valid YAML string.
            lines.push(format!("    {field}: {}", Value::from(value)));
        }
    };
    set("certificate-authority-data", cluster.certificate_authority_data.as_deref());
    set("certificate-authority", authority.as_deref());
    set("server", cluster.server.as_deref());
    set("tls-server-name", cluster.tls_server_name.as_deref());
    set("proxy-url", cluster.proxy_url.as_deref());
    if cluster.insecure_skip_tls_verify == Some(true) {
        lines.push("    insecure-skip-tls-verify: true".to_owned());
    }
    let pem = Value::from(pem.display().to_string());
    lines.push(format!(
        "  name: default-cluster\n\
         contexts:\n\
         - context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  \
           name: default-context\n\
         current-context: default-context\n\
         kind: Config\n\
         preferences: {{}}\n\
         users:\n\
         - name: default-auth\n  user:\n    client-certificate: {pem}\n    client-key: {pem}\n"
    ));
    Ok(lines.join("\n"))
}

/// The data or the file of a field; not both.
fn content(
    data: Option<&String>,
    file: Option<&String>,
    field: &str,
    dir: &Path,
) -> Result<Option<Content>, Wrong> {
    let data = data.filter(|data| !data.is_empty());
    let file = file.filter(|file| !file.is_empty());
    match (data, file) {
        (None, None) => Ok(None),
        (None, Some(file)) => Ok(Some(Content::File(dir.join(file)))),
        (Some(_), Some(_)) => Err(wrong(field, format!("and {field}-data may not both be set"))),
        (Some(data), None) => {
            let packed: String = data.split_ascii_whitespace().collect();
            let bytes = BASE64_STANDARD
                .decode(packed)
                .map_err(|error| wrong(format!("{field}-data"), format!("is not valid base64: {error}")))?;
            Ok(Some(Content::Inline(bytes)))
        }
    }
}

fn trust(cluster: &Cluster, field: &str, dir: &Path) -> Result<Trust, Wrong> {
    let authority_field = format!("{field}.certificate-authority");
    let authorities = content(
        cluster.certificate_authority_data.as_ref(),
        cluster.certificate_authority.as_ref(),
        &authority_field,
        dir,
    )?;
    match (authorities, cluster.insecure_skip_tls_verify.unwrap_or(false)) {
        (None, true) => Ok(Trust::Anyone),
        (None, false) => Ok(Trust::System),
        (Some(authorities), false) => Ok(Trust::Authorities(authorities)),
        (Some(_), true) => {
            let problem = "and insecure-skip-tls-verify may not both be set";
            Err(wrong(authority_field, problem))
        }
    }
}

fn identity(user: &User, field: &str, dir: &Path) -> Result<Option<IdentitySource>, Wrong> {
    let (certificate_field, key_field) =
        (format!("{field}.client-certificate"), format!("{field}.client-key"));
    let certificate = content(
        user.client_certificate_data.as_ref(),
        user.client_certificate.as_ref(),
        &certificate_field,
        dir,
    )?;
    let key = content(user.client_key_data.as_ref(), user.client_key.as_ref(), &key_field, dir)?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(IdentitySource { certificate, key })),
        (Some(_), None) => Err(wrong(key_field, "is not set, but client-certificate is")),
        (None, Some(_)) => Err(wrong(certificate_field, "is not set, but client-key is")),
    }
}

fn login(user: &User, field: &str, dir: &Path, cluster: &Cluster) -> Result<Login, Wrong> {
    let set = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let (token, token_file) = (set(&user.token), set(&user.token_file));
    let name = set(&user.username);
    if name.is_some() && (token.is_some() || token_file.is_some()) {
        return Err(wrong(format!("{field}.username"), "and a token may not both be set"));
    }
    if let Some(file) = token_file {
        return Ok(Login::TokenFile(dir.join(file)));
    }
    if let Some(token) = token {
        return Ok(Login::Token(token));
    }
    if let Some(name) = name {
        return Ok(Login::Password { name, password: user.password.clone().unwrap_or_default() });
    }
    if let Some(exec) = &user.exec {
        return plugin(exec, &format!("{field}.exec"), dir, cluster);
    }
    if user.auth_provider.as_ref().is_some_and(|provider| !provider.is_null()) {
        let problem = "auth providers were removed in Kubernetes 1.26: use exec";
        return Err(wrong(format!("{field}.auth-provider"), problem));
    }
    Ok(Login::None)
}

fn plugin(exec: &Exec, field: &str, dir: &Path, cluster: &Cluster) -> Result<Login, Wrong> {
    let api_version = exec.api_version.clone().unwrap_or_default();
    if !PLUGIN_VERSIONS.contains(&api_version.as_str()) {
        let allowed = PLUGIN_VERSIONS.join(" or ");
        return Err(wrong(
            format!("{field}.apiVersion"),
            format!("is {api_version:?}, but must be {allowed}"),
        ));
    }
    if exec.interactive_mode.as_deref() == Some("Always") {
        return Err(wrong(
            format!("{field}.interactiveMode"),
            "is Always, but a kubelet cannot run an interactive plugin",
        ));
    }
    let command = exec.command.clone().filter(|command| !command.is_empty());
    let command = command.ok_or_else(|| wrong(format!("{field}.command"), "is not set"))?;
    // A bare name is looked up in PATH.
    let command = if command.contains('/') { dir.join(&command).display().to_string() } else { command };
    let env = exec.env.iter().flatten().map(|var| (var.name.clone(), var.value.clone())).collect();
    Ok(Login::Plugin(Box::new(Plugin {
        api_version,
        command,
        args: exec.args.clone().unwrap_or_default(),
        env,
        install_hint: exec.install_hint.clone().unwrap_or_default(),
        cluster: exec
            .provide_cluster_info
            .unwrap_or(false)
            .then(|| cluster_info(cluster, dir))
            .transpose()
            .map_err(|problem| wrong(format!("{field}.provideClusterInfo"), problem))?,
    })))
}

/// `ExecCredential.spec.cluster`.
fn cluster_info(cluster: &Cluster, dir: &Path) -> Result<Value, String> {
    let mut info = json!({"server": cluster.server});
    let mut set = |key: &str, value: Value| {
        if let Some(fields) = info.as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    };
    let texts = [("tls-server-name", &cluster.tls_server_name), ("proxy-url", &cluster.proxy_url)];
    for (key, text) in texts {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            set(key, json!(text));
        }
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        set("insecure-skip-tls-verify", json!(true));
    }
    let authorities = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) if !data.is_empty() => Some(data.clone()),
        (_, Some(file)) if !file.is_empty() => {
            let path = dir.join(file);
            let pem = std::fs::read(&path)
                .map_err(|error| format!("failed to read {}: {error}", path.display()))?;
            Some(BASE64_STANDARD.encode(pem))
        }
        _ => None,
    };
    if let Some(authorities) = authorities {
        set("certificate-authority-data", json!(authorities));
    }
    let extensions = cluster.extensions.as_deref().unwrap_or_default();
    if let Some(extension) = extensions.iter().find(|extension| extension.name == PLUGIN_EXTENSION) {
        set("config", extension.extension.clone());
    }
    Ok(info)
}

fn impersonation(user: &User, field: &str) -> Result<Impersonation, Wrong> {
    let set = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let impersonation = Impersonation {
        user: set(&user.act_as),
        uid: set(&user.as_uid),
        groups: user.as_groups.clone().unwrap_or_default(),
        extra: user.as_user_extra.clone().unwrap_or_default(),
    };
    let incomplete = impersonation.user.is_none() && impersonation != Impersonation::default();
    if incomplete {
        return Err(wrong(format!("{field}.as"), "is not set, but other fields of impersonation are"));
    }
    Ok(impersonation)
}

#[cfg(test)]
mod tests;
