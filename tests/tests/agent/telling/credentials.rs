//! Credentials that the API server does not accept, as a token that has expired: what to check is said, the node is protected, and nothing is lost.

use super::*;
use ebb_tests::api_server::Fault;
use std::time::{Duration, Instant};

const ADVICE: &str = "401: Unauthorized; it does not accept this token or certificate: has it expired, or is it another cluster's?";

/// What fails, as records begin.
const FAILS: [&str; 4] = [
    "pods of this node: ",
    "the Node: ",
    "disruption budgets: ",
    "the API server is not told of evictions yet: ",
];

/// How often it was said that this fails, and what to check.
fn times(agent: &Agent, what: &str) -> usize {
    let words = format!("{what}{ADVICE}");
    let says = |r: &&Value| r["what"].as_str().is_some_and(|what| what.starts_with(&words));
    agent.seen.iter().filter(says).count()
}

/// Until the credentials are good, the runtime's word and what the API server told before are all that is known.
#[test]
fn while_credentials_are_not_accepted_the_node_is_protected_and_the_eviction_is_told_once_when_they_are()
 {
    for is_so_at_first in [true, false] {
        let (mut lab, hog, api) = beside_an_api_server();
        let web = another(&mut lab, &api, "web", 100);
        let refuse = || api.on_request(|_| Some(Fault::Refused(401, None)));
        if is_so_at_first {
            refuse();
        }
        let mut agent = start(&lab, &api, &["--enforce"]);
        if !is_so_at_first {
            wait_until_pods_are_watched(&api);
            refuse();
            api.end_watches();
        }
        kill(&lab, &hog);
        for what in FAILS {
            wait_for(&format!("{what:?} to be said"), || {
                agent.take_in();
                times(&agent, what) > 0
            });
        }
        assert!(events(&api).is_empty() && api.uid_of("ns", "hog").is_some());
        let accepted = Instant::now();
        api.on_request(|_| None);
        assert_eq!(told(&mut agent, 1), ["ns/hog"]);
        wait_for("the pods to be known again", || {
            agent.take_in();
            let mut of = agent.seen.iter().filter(|record| record["event"] == "apiServer");
            of.next_back().is_some_and(|record| record["up"] == true)
        });
        wait_for("the Node to say what it is short of", || {
            let node = api.get("/api/v1/nodes/n1").unwrap().to_string();
            node.contains("EbbHasMemoryPressure") && node.contains("ebb.dev/memory-pressure")
        });
        for what in FAILS {
            assert_eq!(times(&agent, what), 1, "{what:?}: {:#?}", agent.seen);
        }
        let records = agent.stop();
        for kind in ["evicted", "evictionTold"] {
            let of = records.iter().filter(|record| record["event"] == kind);
            assert_eq!(of.count(), 1, "{kind}: {records:#?}");
        }
        assert!(!web.payload.is_killed());
        let deletions = api.writes().into_iter().filter(|r| r.method == "DELETE");
        assert_eq!(deletions.filter(|r| r.at >= accepted).count(), 1);
        assert_eq!((api.uid_of("ns", "hog"), events(&api).len()), (None, 1));
        assert_eq!(api.uid_of("ns", "web").as_deref(), Some(web.uid.as_str()));
    }
}

/// As long as a token that was read counts, at most: a service account's is put in its file anew while the old one is good for a few minutes more.
const REREAD: Duration = Duration::from_secs(50);

/// ebb has given up its privileges by then, and is to read the file all the same.
#[test]
fn a_token_that_is_renewed_in_its_file_is_used_before_the_old_one_expires() {
    let (lab, hog, api) = beside_an_api_server();
    let file = lab.dir("state").join("token");
    std::fs::write(&file, "first").unwrap();
    let by_file = format!("user: {{tokenFile: '{}'}}", file.display());
    let begun = Instant::now();
    let mut agent =
        start_by(&api.kubeconfig().replace("user: {}", &by_file), CONFIG, &lab, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    let renewed = lab.dir("state").join("token.new");
    std::fs::write(&renewed, "second").unwrap();
    std::fs::rename(&renewed, &file).unwrap();
    wait_for("the first token to be old", || begun.elapsed() > REREAD);
    let is_by = |request: &Request, token: &str| request.token.as_deref() == Some(token);
    assert!(api.requests().iter().all(|request| is_by(request, "first")));
    // What is watched is watched again, each time by the token that counts.
    wait_for("the second token to be used", || {
        api.end_watches();
        std::thread::sleep(Duration::from_millis(500));
        api.requests().iter().any(|request| is_by(request, "second"))
    });
    // Now the first has expired.
    api.on_request(move |request| (!is_by(request, "second")).then_some(Fault::Refused(401, None)));
    kill(&lab, &hog);
    assert_eq!(told(&mut agent, 1), ["ns/hog"]);
    assert_eq!((api.uid_of("ns", "hog"), events(&api).len()), (None, 1));
    for record in agent.stop() {
        assert!(!record.to_string().contains("401: "), "{record:#}");
    }
}
