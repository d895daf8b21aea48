//! Discovery again and again, against an API server in this process: what is asked for each time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use ebb_kube::{Discovery, Look};
use script::{Server, answer};

const VERSIONS: &str = r#"{"versions":["v1"]}"#;
const GROUPS: &str = r#"{"groups":[{"name":"x.io","versions":[{"version":"v1"}]}]}"#;
const OWN: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"v1."}}]}"#;

fn serves(kinds: &[&str]) -> String {
    let verbs = r#"["get","list","watch","delete"]"#;
    let served = kinds.iter().map(|kind| {
        format!(
            r#"{{"name":"{}s","kind":"{kind}","namespaced":true,"verbs":{verbs}}}"#,
            kind.to_lowercase()
        )
    });
    answer("200 OK", &format!(r#"{{"resources":[{}]}}"#, served.collect::<Vec<_>>().join(",")))
}

async fn look(
    discovery: &mut Discovery,
    server: &Server,
    api: &ebb_kube::Api,
    how: Look,
) -> (usize, Vec<String>) {
    server.asked.lock().unwrap().clear();
    let found = discovery.look(api, how).await.unwrap();
    assert!(found.failed.is_empty(), "{:?}", found.failed);
    let asked = server.asked.lock().unwrap().clone();
    let asked = asked.into_iter().filter(|path| !path.contains("apiregistration")).collect();
    (found.resources.len(), asked)
}

#[tokio::test]
async fn a_look_again_asks_for_what_may_have_changed_and_a_whole_one_for_everything() {
    let start = || [answer("200 OK", VERSIONS), answer("200 OK", GROUPS)];
    let again = || start().into_iter().chain([answer("200 OK", OWN)]);
    let mut answers: Vec<String> =
        start().into_iter().chain([serves(&["Pod"]), serves(&["A"])]).collect();
    // The second look finds another list: only the third one agrees with the one before it.
    answers.extend(again().chain([serves(&["Pod", "Node"]), serves(&["A"])]));
    answers.extend(again().chain([serves(&["Pod", "Node"]), serves(&["A", "B"])]));
    answers.extend(again().chain([serves(&["A", "B", "C"])]));
    answers.extend(start().into_iter().chain([serves(&["Pod"]), serves(&["A"])]));
    let server = Server::start(answers).await;
    let (api, mut discovery) = (server.api().await, Discovery::default());
    let all = ["/api", "/apis", "/api/v1", "/apis/x.io/v1"];
    let mut found = Vec::new();
    for (how, paths) in [
        (Look::Whole, &all[..]),
        (Look::Again, &all[..]),
        (Look::Again, &all[..]),
        (Look::Again, &["/api", "/apis", "/apis/x.io/v1"][..]),
        (Look::Whole, &all[..]),
    ] {
        let (count, asked) = look(&mut discovery, &server, &api, how).await;
        assert_eq!(asked, paths, "{how:?}");
        found.push(count);
    }
    assert_eq!(found, [2, 3, 4, 5, 2]);
}
