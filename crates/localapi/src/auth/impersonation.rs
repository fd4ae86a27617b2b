//! Impersonation: the headers with which a client requests to act as another user, and the permissions that it needs. Pure.

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::attributes::Attributes;
use super::service_account;
use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::http::query::decode;
use crate::validation::names;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The most parts of one request, because each is authorized.
const MAX_TARGETS: usize = 200;

/// One part of the requested user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    ServiceAccount { namespace: String, name: String },
    User(String),
    Group(String),
    Extra { key: String, value: String },
    Uid(String),
}

/// What the headers request: nothing, or a user first. `Err` is the message of the refusal.
pub(crate) fn targets(headers: &HeaderMap) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    let user = headers.get(USER).map(text).unwrap_or_default();
    if !user.is_empty() {
        targets.push(user_target(user));
    }
    targets.extend(headers.get_all(GROUP).iter().map(|group| Target::Group(text(group))));
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            // Unlike in a query, a plus sign is itself.
            let key = decode(&key.replace('+', "%2B"));
            targets.push(Target::Extra { key, value: text(value) });
        }
    }
    let uid = headers.get(UID).map(text).unwrap_or_default();
    if !uid.is_empty() {
        targets.push(Target::Uid(uid));
    }
    match targets.first() {
        None | Some(Target::User(_) | Target::ServiceAccount { .. }) => {}
        Some(Target::Group(_) | Target::Extra { .. } | Target::Uid(_)) => {
            let described: Vec<String> = targets.iter().map(Target::describe).collect();
            return Err(format!("requested [{}] without impersonating a user", described.join(" ")));
        }
    }
    if targets.len() > MAX_TARGETS {
        return Err(format!("more than {MAX_TARGETS} impersonation headers"));
    }
    Ok(targets)
}

/// A value that is not UTF-8 must not count as missing, so it is read with replacement characters.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn user_target(user: String) -> Target {
    let account = service_account::parts(&user).filter(|(namespace, name)| {
        names::label_problems(namespace).is_empty() && names::subdomain_problems(name).is_empty()
    });
    match account {
        Some((namespace, name)) => {
            Target::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() }
        }
        None => Target::User(user),
    }
}

impl Target {
    /// The request that must be authorized.
    pub(crate) fn attributes(&self) -> Attributes {
        let (group, resource, subresource, namespace, name) = match self {
            Self::ServiceAccount { namespace, name } => ("", "serviceaccounts", "", namespace.as_str(), name),
            Self::User(name) => ("", "users", "", "", name),
            Self::Group(name) => ("", "groups", "", "", name),
            Self::Extra { key, value } => (AUTHENTICATION, "userextras", key.as_str(), "", value),
            Self::Uid(uid) => (AUTHENTICATION, "uids", "", "", uid),
        };
        Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.clone(),
            ..Attributes::default()
        }
    }

    /// As the real server prints it: an object reference without names of its fields.
    fn describe(&self) -> String {
        let version = format!("{AUTHENTICATION}/v1");
        let (kind, namespace, name, version, path) = match self {
            Self::ServiceAccount { namespace, name } => ("ServiceAccount", namespace.as_str(), name, "", ""),
            Self::User(name) => ("User", "", name, "", ""),
            Self::Group(name) => ("Group", "", name, "", ""),
            Self::Extra { key, value } => ("UserExtra", "", value, version.as_str(), key.as_str()),
            Self::Uid(uid) => ("UID", "", uid, version.as_str(), ""),
        };
        format!("{{{kind} {namespace} {name}  {version}  {path}}}")
    }
}

/// The user that consists of these parts.
pub(crate) fn user(targets: Vec<Target>) -> User {
    let has_groups = targets.iter().any(|target| matches!(target, Target::Group(_)));
    let mut user = User::default();
    for target in targets {
        match target {
            Target::ServiceAccount { namespace, name } => {
                user.name = service_account::user_name(&namespace, &name);
                if !has_groups {
                    user.groups.extend(service_account::groups(&namespace));
                }
            }
            Target::User(name) => user.name = name,
            Target::Group(group) => user.groups.push(group),
            Target::Extra { key, value } => user.extra.entry(key).or_default().push(value),
            Target::Uid(uid) => user.uid = uid,
        }
    }
    let implied = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !user.is_in(implied) && !user.is_in(UNAUTHENTICATED) {
        user.groups.push(implied.to_owned());
    }
    user
}

/// Removes the headers, so that a request that is forwarded does not have them.
pub(crate) fn remove_headers(headers: &mut HeaderMap) {
    let is_own = |name: &HeaderName| {
        [USER, GROUP, UID].contains(&name.as_str()) || name.as_str().starts_with(EXTRA_PREFIX)
    };
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    /// The resources that must be authorized, and the resulting user.
    fn acting(pairs: &[(&str, &str)]) -> (Vec<String>, User) {
        let targets = targets(&headers(pairs)).unwrap();
        let needed = targets.iter().map(Target::attributes).map(|attributes| {
            let Attributes { verb, group, resource, subresource, namespace, name, .. } = attributes;
            assert_eq!(verb, "impersonate");
            format!("{group}/{resource}/{subresource} {namespace} {name}")
        });
        (needed.collect(), user(targets))
    }

    #[test]
    fn each_part_of_the_user_needs_a_permission() {
        let (needed, user) = acting(&[
            ("Impersonate-User", "joe"),
            ("Impersonate-Group", "one"),
            ("Impersonate-Group", "two"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Scopes%2fof+x", "a"),
        ]);
        let expected = [
            "/users/  joe",
            "/groups/  one",
            "/groups/  two",
            "authentication.k8s.io/userextras/scopes/of+x  a",
            "authentication.k8s.io/uids/  7",
        ];
        assert_eq!(needed, expected);
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("joe", "7"));
        assert_eq!(user.groups, ["one", "two", AUTHENTICATED]);
        assert_eq!(user.extra["scopes/of+x"], ["a"]);
    }

    #[test]
    fn service_accounts_and_anonymous_users_have_their_groups() {
        let (needed, user) = acting(&[("Impersonate-User", "system:serviceaccount:a:robot")]);
        assert_eq!(needed, ["/serviceaccounts/ a robot"]);
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED]);
        let (_, user) =
            acting(&[("Impersonate-User", "system:serviceaccount:a:robot"), ("Impersonate-Group", "g")]);
        assert_eq!(user.groups, ["g", AUTHENTICATED]);
        let (needed, user) = acting(&[("Impersonate-User", "system:serviceaccount:A:b:c")]);
        assert_eq!(needed, ["/users/  system:serviceaccount:A:b:c"]);
        assert_eq!(user.groups, [AUTHENTICATED]);
        let (_, user) = acting(&[("Impersonate-User", ANONYMOUS)]);
        assert_eq!(user.groups, [UNAUTHENTICATED]);
        let (_, user) = acting(&[("Impersonate-User", "joe"), ("Impersonate-Group", UNAUTHENTICATED)]);
        assert_eq!(user.groups, [UNAUTHENTICATED]);
    }

    #[test]
    fn groups_without_a_user_are_refused() {
        assert_eq!(targets(&headers(&[("accept", "a")])), Ok(Vec::new()));
        for (pairs, expected) in [
            (vec![("Impersonate-Group", "developers")], "{Group  developers    }"),
            (vec![("Impersonate-Uid", "7")], "{UID  7  authentication.k8s.io/v1  }"),
            (
                vec![("Impersonate-User", ""), ("Impersonate-Extra-Key", "v")],
                "{UserExtra  v  authentication.k8s.io/v1  key}",
            ),
        ] {
            let expected = format!("requested [{expected}] without impersonating a user");
            assert_eq!(targets(&headers(&pairs)), Err(expected));
        }
        let many = vec![("Impersonate-Group", "g"); MAX_TARGETS];
        let pairs = [vec![("Impersonate-User", "joe")], many].concat();
        assert!(targets(&headers(&pairs)).unwrap_err().starts_with("more than 200"));
    }

    #[test]
    fn headers_are_removed() {
        let mut sent = headers(&[
            ("Impersonate-User", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Group", "c"),
            ("Impersonate-Extra-Key", "d"),
            ("accept", "e"),
        ]);
        remove_headers(&mut sent);
        assert_eq!(sent, headers(&[("accept", "e")]));
    }
}
