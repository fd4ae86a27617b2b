//! Every path that is answered, by every method, for who may and for who may all the rest.

use super::*;

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];

/// Each path of the table with words for its parameters, and with it the endpoint.
fn paths() -> Vec<(String, Endpoint)> {
    let mut paths = Vec::new();
    for endpoint in Endpoint::ALL {
        let answered = crate::endpoints::router::answers(*endpoint);
        let answered = answered.iter().map(|(path, _)| *path);
        // What is not answered yet has its rules already.
        for path in answered.chain(["", "/some/thing/below"]) {
            let parts = path.split('/').map(|part| if part.starts_with('{') { "word" } else { part });
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
        // Permissions change with each question here.
        authorization: AuthorizationMode::Review {
            cluster,
            allowed_ttl: Duration::ZERO,
            denied_ttl: Duration::ZERO,
        },
        ..everybody()
    }
}

#[tokio::test]
async fn each_path_opens_to_its_own_subresources_and_the_methods_verb_and_to_nothing_else() {
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
                    let (user, asked, of) = question(review);
                    user == "scraper" && asked == verb && of == *subresource
                });
                let status = status().await;
                assert!(![401, 403].contains(&status), "{method} {path} as {subresource}: {status}");
            }
            cluster.set_access(move |review| !own.contains(&question(review).2.as_str()));
            assert_eq!(status().await, 403, "{method} {path} with everything else");
            cluster.set_access(move |review| question(review).1 != verb);
            assert_eq!(status().await, 403, "{method} {path} with every other verb");
        }
    }
}
