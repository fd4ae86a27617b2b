//! Kubeconfig files in all forms, and errors of invalid ones.

use serde_json::json;

use super::*;

const PATH: &str = "/etc/kubernetes/kubelet.conf";

fn with(cluster: &Value, user: &Value) -> Result<Access, KubeconfigError> {
    let mut all = json!({"server": "https://10.0.0.1:6443"});
    for (key, value) in cluster.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let file = json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "here",
        "contexts": [{"name": "there"}, {"name": "here", "context": {"cluster": "k", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "k", "cluster": all}],
        "users": [{"name": "u", "user": user}],
    });
    parse(&file.to_string(), Path::new(PATH), &ProxyEnv::default())
}

fn user(user: &Value) -> Access {
    with(&json!({}), user).unwrap()
}

fn problem(cluster: Value, user: Value) -> String {
    let error = with(&cluster, &user).unwrap_err().to_string();
    error.strip_prefix(&format!("kubeconfig {PATH}: ")).expect("the file is named").to_owned()
}

#[test]
fn kubeconfig_of_kubeadm_is_parsed() {
    let text = "\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: aGVs
      bG8=
    server: https://control-plane.example:6443
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
preferences: {}
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
";
    let access = parse(text, Path::new(PATH), &ProxyEnv::default()).unwrap();
    assert_eq!(access.server.to_string(), "https://control-plane.example:6443");
    assert_eq!(access.trust, Trust::Authorities(Content::Inline(b"hello".to_vec())));
    let pem = Content::File("/var/lib/kubelet/pki/kubelet-client-current.pem".into());
    assert_eq!(access.identity, Some(IdentitySource { certificate: pem.clone(), key: pem }));
    assert_eq!((access.login, access.proxy, access.server_name), (Login::None, None, None));
}

#[test]
fn files_are_relative_to_the_kubeconfig() {
    let cluster = json!({"certificate-authority": "pki/ca.crt"});
    let access = with(&cluster, &json!({"tokenFile": "../token"})).unwrap();
    assert_eq!(access.trust, Trust::Authorities(Content::File("/etc/kubernetes/pki/ca.crt".into())));
    assert_eq!(access.login, Login::TokenFile("/etc/kubernetes/../token".into()));
}

#[test]
fn every_kind_of_credentials_is_parsed() {
    assert_eq!(user(&json!({"token": "t"})).login, Login::Token("t".to_owned()));
    let both = user(&json!({"token": "t", "tokenFile": "/f"})).login;
    assert_eq!(both, Login::TokenFile("/f".into()), "the token file takes precedence");
    let password = Login::Password { name: "jane".to_owned(), password: "p".to_owned() };
    assert_eq!(user(&json!({"username": "jane", "password": "p"})).login, password);
    assert_eq!(user(&json!({"token": "", "auth-provider": null})).login, Login::None);
    let acting =
        user(&json!({"as": "jane", "as-uid": "7", "as-groups": ["a"], "as-user-extra": {"k": ["v"]}}));
    assert_eq!(acting.impersonation.user.as_deref(), Some("jane"));
    assert_eq!(acting.impersonation.groups, ["a"]);
    assert_eq!(acting.impersonation.extra["k"], ["v"]);
}

#[test]
fn exec_plugin_gets_cluster_info_if_requested() {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "bin/login", "args": ["--fast"],
        "env": [{"name": "REGION", "value": "here"}], "installHint": "ask jane",
        "provideClusterInfo": true, "interactiveMode": "IfAvailable",
    });
    let cluster = json!({
        "certificate-authority-data": "aGVsbG8=", "tls-server-name": "api", "future": true,
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    });
    let Login::Plugin(plugin) = with(&cluster, &json!({"exec": exec})).unwrap().login else {
        panic!("no plugin")
    };
    assert_eq!(
        (plugin.command.as_str(), plugin.args.as_slice()),
        ("/etc/kubernetes/bin/login", &["--fast".to_owned()][..])
    );
    assert_eq!(plugin.env["REGION"], "here");
    let expected = json!({"server": "https://10.0.0.1:6443", "tls-server-name": "api",
        "certificate-authority-data": "aGVsbG8=", "config": {"audience": "a"}});
    assert_eq!(plugin.cluster, Some(expected));
    let bare = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "login", "args": null}});
    let Login::Plugin(plugin) = user(&bare).login else { panic!("no plugin") };
    assert_eq!((plugin.command.as_str(), plugin.cluster), ("login", None));
}

#[test]
fn errors_name_the_invalid_field() {
    let none = || json!({});
    for (cluster, user, expected) in [
        (json!({"server": ""}), none(), "clusters[k].server: is not set"),
        (json!({"server": "ftp://x"}), none(), "clusters[k].server: \"ftp://x\" must begin with"),
        (
            json!({"certificate-authority-data": "%"}),
            none(),
            "clusters[k].certificate-authority-data: is not valid base64",
        ),
        (
            json!({"certificate-authority": "a", "certificate-authority-data": "aGVsbG8="}),
            none(),
            "clusters[k].certificate-authority: and clusters[k].certificate-authority-data may not both be set",
        ),
        (
            json!({"certificate-authority": "a", "insecure-skip-tls-verify": true}),
            none(),
            "clusters[k].certificate-authority: and insecure-skip-tls-verify may not both be set",
        ),
        (
            json!({"proxy-url": "socks5://p"}),
            none(),
            "clusters[k].proxy-url: \"socks5://p\" is a SOCKS proxy",
        ),
        (none(), json!({"client-certificate": "c"}), "users[u].client-key: is not set"),
        (none(), json!({"client-key": "c"}), "users[u].client-certificate: is not set"),
        (
            none(),
            json!({"username": "j", "token": "t"}),
            "users[u].username: and a token may not both be set",
        ),
        (none(), json!({"as-groups": ["g"]}), "users[u].as: is not set"),
        (
            none(),
            json!({"auth-provider": {"name": "gcp"}}),
            "users[u].auth-provider: auth providers were removed",
        ),
        (none(), json!({"exec": {"command": "x"}}), "users[u].exec.apiVersion: is \"\", but must be"),
        (
            none(),
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
            "users[u].exec.command: is not set",
        ),
        (
            none(),
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "interactiveMode": "Always"}}),
            "users[u].exec.interactiveMode: is Always",
        ),
    ] {
        let error = problem(cluster, user);
        assert!(error.starts_with(expected), "{error:?} should begin with {expected:?}");
    }
}

#[test]
fn current_context_must_refer_to_an_existing_cluster_and_user() {
    for (text, expected) in [
        ("kind: Config", "current-context: is not set"),
        ("current-context: x\ncontexts: []", "current-context: there is no context \"x\""),
        ("current-context: x\ncontexts: [{name: x}]", "contexts[x].cluster: there is no cluster \"\""),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: k, user: u}}]\n\
             clusters: [{name: k, cluster: {server: 'https://a'}}]\nusers: null",
            "contexts[x].user: there is no user \"u\"",
        ),
    ] {
        let error = parse(text, Path::new(PATH), &ProxyEnv::default()).unwrap_err().to_string();
        assert_eq!(error, format!("kubeconfig {PATH}: {expected}"));
    }
    let without_user = "current-context: x\ncontexts: [{name: x, context: {cluster: k}}]\n\
                   clusters: [{name: k, cluster: {server: 'http://a:8080'}}]";
    let access = parse(without_user, Path::new(PATH), &ProxyEnv::default()).unwrap();
    assert_eq!((access.login, access.trust), (Login::None, Trust::System));
}

#[test]
fn errors_name_the_invalid_file() {
    for (text, expected) in [
        ("", "is empty"),
        ("a: [", "is not valid YAML: "),
        ("{\"a\":\t1", "is not valid JSON: "),
        ("clusters: [{cluster: {}}]", "is not valid YAML: "),
    ] {
        let error = parse(text, Path::new(PATH), &ProxyEnv::default()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("kubeconfig {PATH} {expected}")), "{error}");
    }
    let error = read(Path::new("/nonexistent/config"), &ProxyEnv::default()).unwrap_err().to_string();
    assert!(error.starts_with("failed to read kubeconfig /nonexistent/config: "), "{error}");
}

#[test]
fn kubeconfig_of_a_bootstrapped_node_has_the_cluster_and_the_pem_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bootstrap.conf");
    let bootstrap = json!({
        "current-context": "b",
        "contexts": [{"name": "b", "context": {"cluster": "k", "user": "token"}}],
        "clusters": [{"name": "k", "cluster": {
            "server": "https://10.0.0.1:6443", "certificate-authority": "ca: #1.crt", "tls-server-name": "api",
            "proxy-url": "http://me:secret@proxy:3128",
        }}],
        "users": [{"name": "token", "user": {"token": "abcdef.0123456789abcdef"}}],
    });
    std::fs::write(&path, bootstrap.to_string()).unwrap();
    let text = for_node(&path, Path::new("/pki/kubelet-client-current.pem")).unwrap();
    assert!(!text.contains("abcdef"), "{text}");
    for part in ["current-context: default-context", "name: default-cluster", "user: default-auth"] {
        assert!(text.contains(part), "{text}");
    }
    let access = parse(&text, Path::new("/etc/kubernetes/kubelet.conf"), &ProxyEnv::default()).unwrap();
    assert_eq!(access.server.to_string(), "https://10.0.0.1:6443");
    assert_eq!(access.server_name.as_deref(), Some("api"));
    assert_eq!(access.proxy.unwrap().userinfo.as_deref(), Some("me:secret"));
    assert_eq!(access.trust, Trust::Authorities(Content::File(dir.path().join("ca: #1.crt"))));
    let pem = Content::File("/pki/kubelet-client-current.pem".into());
    assert_eq!(access.identity.unwrap(), IdentitySource { certificate: pem.clone(), key: pem });
    assert_eq!(access.login, Login::None);
}

#[test]
fn errors_name_the_invalid_field_of_a_bootstrap_kubeconfig() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bootstrap.conf");
    let error = for_node(&path, Path::new("/p")).unwrap_err().to_string();
    assert!(error.starts_with(&format!("failed to read kubeconfig {}", path.display())), "{error}");
    std::fs::write(&path, "current-context: nowhere").unwrap();
    let error = for_node(&path, Path::new("/p")).unwrap_err().to_string();
    assert!(error.ends_with("current-context: there is no context \"nowhere\""), "{error}");
}
