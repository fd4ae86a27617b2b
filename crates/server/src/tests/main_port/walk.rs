//! Every path with every method, for a user with exactly the required permission, and with all but that.

use super::*;

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];

/// Each path of the table with values for its parameters, and its endpoint.
fn paths() -> Vec<(String, Endpoint)> {
    let mut paths = Vec::new();
    for endpoint in Endpoint::ALL {
        let answered = crate::endpoints::router::answers(*endpoint);
        let answered = answered.iter().map(|(path, _)| *path);
        // Paths without a handler have their permissions already.
        for path in answered.chain(["", "/some/thing/below"]) {
            let parts = path.split('/').map(|part| if part.starts_with('{') { "name" } else { part });
            let path = format!("{}{}", endpoint.root(), parts.collect::<Vec<_>>().join("/"));
            if !paths.contains(&(path.clone(), *endpoint)) {
                paths.push((path, *endpoint));
            }
        }
    }
    paths
}

fn fresh(cluster: &FakeCluster) -> AccessSettings {
    let cluster = Arc::new(cluster.clone());
    AccessSettings {
        token_review: Some(TokenReviews { cluster: cluster.clone(), ttl: TTL }),
        anonymous: false,
        // Permissions change with each request here.
        authorization: AuthorizationMode::Review {
            cluster,
            allowed_ttl: Duration::ZERO,
            denied_ttl: Duration::ZERO,
        },
        ..allow_all()
    }
}

#[tokio::test]
async fn each_path_requires_its_subresources_and_the_verb_of_the_method() {
    let cluster = FakeCluster::new();
    cluster.accept_token("good", "scraper");
    let agent = Agent { log: Some(String::new()), ..Agent::default() };
    let port = Port::start(agent, fresh(&cluster), KubeletConfiguration::default()).await;
    let caller = Caller { token: Some("good"), ..Caller::default() };
    let paths = paths();
    assert!(paths.len() > 30, "the table was walked: {paths:?}");
    for (path, endpoint) in &paths {
        for method in METHODS {
            let verb = crate::access::verb(&Method::from_bytes(method.as_bytes()).unwrap());
            let own = endpoint.subresources();
            let status = async || port.ask(method, path, &caller).await.status();
            for subresource in own {
                cluster.set_access(move |review| {
                    let (user, requested, of) = attributes(review);
                    user == "scraper" && requested == verb && of == *subresource
                });
                let status = status().await;
                assert!(![401, 403].contains(&status), "{method} {path} as {subresource}: {status}");
            }
            cluster.set_access(move |review| !own.contains(&attributes(review).2.as_str()));
            assert_eq!(status().await, 403, "{method} {path} with everything else");
            cluster.set_access(move |review| attributes(review).1 != verb);
            assert_eq!(status().await, 403, "{method} {path} with every other verb");
        }
    }
}
