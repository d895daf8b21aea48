//! Discovery again and again, against an API server in this process: what is asked for each time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use ebb_kube::{Discovery, Look};
use script::{Server, answer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

/// What is answered at each path; one that is not there hangs.
type Answers = Arc<Mutex<BTreeMap<String, String>>>;

async fn server(answers: &Answers) -> Server {
    let answers = Arc::clone(answers);
    Server::answering(move |path| answers.lock().unwrap().get(path.split('?').next()?).cloned())
        .await
}

fn say(answers: &Answers, path: &str, text: String) {
    answers.lock().unwrap().insert(path.into(), text);
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
    let mut asked: Vec<String> =
        asked.into_iter().filter(|path| !path.contains("apiregistration")).collect();
    // Versions are asked beside each other.
    asked.sort();
    (found.resources.len(), asked)
}

#[tokio::test]
async fn a_look_again_asks_for_what_may_have_changed_and_a_whole_one_for_everything() {
    let answers = Answers::default();
    say(&answers, "/api", answer("200 OK", VERSIONS));
    say(&answers, "/apis", answer("200 OK", GROUPS));
    say(&answers, "/apis/apiregistration.k8s.io/v1/apiservices", answer("200 OK", OWN));
    let server = server(&answers).await;
    let (api, mut discovery) = (server.api().await, Discovery::default());
    let all = ["/api", "/api/v1", "/apis", "/apis/x.io/v1"];
    let mut found = Vec::new();
    // The second look finds another list: only the third one agrees with the one before it.
    for (how, core, extension, paths) in [
        (Look::Whole, &["Pod"][..], &["A"][..], &all[..]),
        (Look::Again, &["Pod", "Node"], &["A"], &all[..]),
        (Look::Again, &["Pod", "Node"], &["A", "B"], &all[..]),
        (Look::Again, &[], &["A", "B", "C"], &["/api", "/apis", "/apis/x.io/v1"]),
        (Look::Whole, &["Pod"], &["A"], &all[..]),
    ] {
        say(&answers, "/api/v1", serves(core));
        say(&answers, "/apis/x.io/v1", serves(extension));
        let (count, asked) = look(&mut discovery, &server, &api, how).await;
        assert_eq!(asked, paths, "{how:?}");
        found.push(count);
    }
    assert_eq!(found, [2, 3, 4, 5, 2]);
}

#[tokio::test]
async fn a_group_that_hangs_delays_nobody_for_long_and_counts_as_failed() {
    let answers = Answers::default();
    let groups = r#"{"groups":[{"name":"a.io","versions":[{"version":"v1"}]},{"name":"x.io","versions":[{"version":"v1"}]},
        {"name":"z.io","versions":[{"version":"v1"}]}]}"#;
    say(&answers, "/api", answer("200 OK", VERSIONS));
    say(&answers, "/apis", answer("200 OK", groups));
    say(&answers, "/api/v1", serves(&["Pod"]));
    say(&answers, "/apis/x.io/v1", serves(&["A"]));
    let server = server(&answers).await;
    let (api, begun) = (server.api().await, Instant::now());
    let found = Discovery::default().look(&api, Look::Whole).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!(found.failed.keys().collect::<Vec<_>>(), ["a.io", "z.io"]);
    assert_eq!(found.resources.len(), 2);
}
