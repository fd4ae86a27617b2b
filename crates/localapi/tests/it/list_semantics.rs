//! Lists of a version, and pages of a collection that changes: the cases of client-go's pager and reflector.

use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::hostile::{get, post, send};
use crate::server::{Server, TIMEOUT, eventually};
use crate::watch_requests::{Known, Watch, name, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn create(client: &Client, name: &str) -> u64 {
    let map = json!({"metadata": {"name": name}, "data": {"a": "1"}});
    let created = post(client, MAPS, &map.to_string()).await;
    assert_eq!(created.code, 201, "{}", created.text());
    version(&created.json())
}

async fn set(client: &Client, name: &str, value: &str) -> u64 {
    let request =
        http::Request::patch(format!("{MAPS}/{name}")).header("content-type", "application/merge-patch+json");
    let patched = send(client, request, json!({"data": {"a": value}}).to_string()).await;
    assert_eq!(patched.code, 200, "{}", patched.text());
    version(&patched.json())
}

async fn delete(client: &Client, name: &str) {
    assert_eq!(send(client, http::Request::delete(format!("{MAPS}/{name}")), String::new()).await.code, 200);
}

/// The names and values of a list.
fn items(list: &Value) -> Vec<(String, String)> {
    let items = list["items"].as_array().expect("items").iter();
    items
        .map(|item| (name(item).to_owned(), item["data"]["a"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn list_of_a_version_is_exact_or_not_older() {
    let server = Server::start(&["--no-service-accounts"]);
    let client = server.client("admin.kubeconfig").await;
    create(&client, "a").await;
    let old = create(&client, "b").await;
    set(&client, "a", "2").await;
    delete(&client, "b").await;
    let new = create(&client, "c").await;
    let client = server.client_without_retries("admin.kubeconfig").await;
    let list = async |query: &str| get(&client, &format!("{MAPS}?{query}")).await;
    let then = named(&[("a", "1"), ("b", "1")]);
    let now = named(&[("a", "2"), ("c", "1")]);
    for (query, expected, of) in [
        (format!("resourceVersion={old}&resourceVersionMatch=Exact"), &then, old),
        (format!("resourceVersion={old}&resourceVersionMatch=Exact&limit=500"), &then, old),
        // A page of a version is of exactly that one, without a rule, too.
        (format!("resourceVersion={old}&limit=500"), &then, old),
        (format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"), &now, new),
        (format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan&limit=500"), &now, new),
        (format!("resourceVersion={old}"), &now, new),
        ("resourceVersion=0".to_owned(), &now, new),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), &now, new),
        (String::new(), &now, new),
    ] {
        let found = list(&query).await.json();
        assert_eq!((&items(&found), version(&found)), (expected, of), "{query}");
    }
    for rule in ["resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "limit=5"] {
        let future = list(&format!("{rule}&resourceVersion=999999999")).await;
        assert_eq!((future.code, &future.json()["reason"]), (504, &json!("Timeout")), "{rule}");
        let cause = &future.json()["details"]["causes"][0];
        assert_eq!(cause["reason"], "ResourceVersionTooLarge", "a client lists without a version then");
    }
}

/// Discards the history before now; returns the answer of a list that needs it.
async fn expired(server: &Server, client: &Client, path: &str) -> Value {
    server.compact();
    let (client, runtime, path) = (client.clone(), tokio::runtime::Handle::current(), path.to_owned());
    let poll = move || {
        eventually("the history to be discarded", || {
            let answer = runtime.block_on(get(&client, &path));
            (answer.code == 410).then(|| answer.json())
        })
    };
    tokio::task::spawn_blocking(poll).await.expect("the polling task")
}

#[tokio::test]
async fn list_of_an_expired_version_is_refused_and_that_of_any_is_not() {
    let server = Server::start(&["--no-service-accounts"]);
    let client = server.client("admin.kubeconfig").await;
    let old = create(&client, "a").await;
    set(&client, "a", "2").await;
    let exact = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    let refused = expired(&server, &client, &exact).await;
    assert_eq!(refused["reason"], "Expired");
    assert_eq!(refused["message"], "The resourceVersion for the provided list is too old.");
    let known =
        get(&client, &format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(items(&known.json()), named(&[("a", "2")]));
}

#[tokio::test]
async fn pages_of_a_changing_collection_are_one_moment_from_which_a_watch_goes_on() {
    let server = Server::start(&["--no-service-accounts"]);
    let client = server.client("admin.kubeconfig").await;
    for number in 0..10 {
        create(&client, &format!("m{number}")).await;
    }
    let mut page = get(&client, &format!("{MAPS}?limit=3")).await.json();
    let of = version(&page);
    let mut all = Vec::new();
    let mut changes = (0..).zip(["m4", "m8", "m1"]);
    loop {
        all.extend(page["items"].as_array().expect("items").clone());
        let next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        let left = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
        assert_eq!(
            (usize::try_from(left).expect("a number"), next.is_empty()),
            (10 - all.len(), all.len() == 10)
        );
        if next.is_empty() {
            break;
        }
        // Before, between and after the pages something appears, changes and disappears.
        if let Some((number, changed)) = changes.next() {
            create(&client, &format!("m{}x", 3 * number)).await;
            set(&client, changed, "2").await;
            delete(&client, ["m0", "m6", "m9"][number]).await;
        }
        page = get(&client, &format!("{MAPS}?limit=3&continue={next}")).await.json();
        assert_eq!(version(&page), of);
    }
    let expected: Vec<(String, String)> =
        (0..10).map(|number| (format!("m{number}"), "1".to_owned())).collect();
    let list = json!({"metadata": {"resourceVersion": of.to_string()}, "items": all});
    assert_eq!(items(&list), expected);
    let mut known = Known::of_list(&list);
    let now = get(&client, MAPS).await.json();
    let mut watch = Watch::open(&client, &format!("{MAPS}?resourceVersion={of}")).await;
    while known.version < version(&now) {
        known.apply(&watch.next().await.expect("an event"));
    }
    assert_eq!(known.objects, Known::of_list(&now).objects);
}

#[tokio::test]
async fn expired_continue_token_comes_with_one_for_the_rest_of_now() {
    let server = Server::start(&["--no-service-accounts"]);
    let client = server.client("admin.kubeconfig").await;
    for name in ["a", "b", "c", "d"] {
        create(&client, name).await;
    }
    let first = get(&client, &format!("{MAPS}?limit=2")).await.json();
    let next = first["metadata"]["continue"].as_str().expect("a continue token");
    delete(&client, "c").await;
    create(&client, "e").await;
    let refused = expired(&server, &client, &format!("{MAPS}?limit=1&continue={next}")).await;
    assert_eq!(refused["reason"], "Expired");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("use the continue token in this response"), "{message}");
    let mut next = refused["metadata"]["continue"].as_str().expect("a continue token").to_owned();
    let mut rest = Vec::new();
    let now = version(&get(&client, MAPS).await.json());
    while !next.is_empty() {
        let page = get(&client, &format!("{MAPS}?limit=1&continue={next}")).await.json();
        assert_eq!(version(&page), now);
        rest.extend(items(&page));
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(rest, named(&[("d", "1"), ("e", "1")]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paged_watcher_of_kube_has_every_object_of_a_changing_collection() {
    let server = Server::start(&["--no-service-accounts", "--bookmark-seconds=1"]);
    let client = server.client("admin.kubeconfig").await;
    for number in 0..25 {
        create(&client, &format!("m{number}")).await;
    }
    let writer = tokio::spawn({
        let client = client.clone();
        async move {
            for number in 0..25 {
                set(&client, &format!("m{number}"), "2").await;
                create(&client, &format!("n{number}")).await;
            }
            delete(&client, "m7").await;
        }
    });
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(client.clone());
    let config = watcher::Config::default().page_size(4);
    let mut events = std::pin::pin!(watcher::watcher(maps, config));
    let mut values = std::collections::BTreeMap::new();
    let is_complete = |values: &std::collections::BTreeMap<String, String>| {
        values.len() == 49
            && (0..25).all(|n| n == 7 || values.get(&format!("m{n}")).is_some_and(|value| value == "2"))
    };
    let follow = async {
        while !is_complete(&values) {
            match futures_util::StreamExt::next(&mut events)
                .await
                .expect("a watcher never ends")
                .expect("an event")
            {
                Event::Apply(map) | Event::InitApply(map) => {
                    let value = map.data.as_ref().and_then(|data| data.get("a")).cloned().unwrap_or_default();
                    values.insert(map.name_any(), value);
                }
                Event::Delete(map) => drop(values.remove(&map.name_any())),
                Event::Init | Event::InitDone => {}
            }
        }
    };
    tokio::time::timeout(TIMEOUT, follow).await.expect("all objects in time");
    writer.await.expect("the writer");
}
