//! Rights that are missing, and objects that say nonsense: the node is protected all the same, and what is wrong is said.

use super::*;
use ebb_tests::api_server::{Fault, pod, pod_object};
use serde_json::json;

/// A right: methods, what the path has, and what the path has not.
type Right = (&'static [&'static str], &'static str, &'static str);

/// What is expected without a right.
struct Without {
    right: Right,
    /// Words of a record.
    says: &'static str,
    /// What `evictionTold` says was refused.
    refused: Option<&'static str>,
    is_deleted: bool,
    has_event: bool,
    is_tainted: bool,
}

fn all() -> [Without; 11] {
    let usual = |right, says| Without {
        right,
        says,
        refused: None,
        is_deleted: true,
        has_event: true,
        is_tainted: true,
    };
    let refused = |right, what| Without { refused: Some(what), ..usual(right, "") };
    let untainted = |right, says| Without { is_tainted: false, ..usual(right, says) };
    [
        usual((&["GET"], "/pods?", "//"), "pods of this node: 403"),
        usual((&["GET"], "/pods?", "watch=1"), "cannot list resource \"pods\""),
        usual((&["GET"], "spec.nodeName%3Dn1&watch=1", "//"), "cannot watch resource \"pods\""),
        untainted((&["GET"], "/nodes?", "//"), "the Node: 403"),
        usual((&["GET"], "/poddisruptionbudgets", "//"), "disruption budgets: 403"),
        refused((&["PATCH"], "hog/status", "//"), "patch pods/status: 403"),
        Without {
            is_deleted: false,
            ..refused((&["DELETE"], "pods/hog", "//"), "delete pods: 403")
        },
        Without {
            has_event: false,
            ..refused((&["POST"], "/ns/events", "//"), "create events: 403")
        },
        untainted((&["GET"], "/nodes/n1", "?"), "of the Node are not as they should be: 403"),
        untainted(
            (&["PATCH"], "/nodes/n1", "/status"),
            "of the Node are not as they should be: 403",
        ),
        usual((&["PATCH"], "/nodes/n1/status", "//"), "of the Node are not as they should be: 403"),
    ]
}

#[test]
fn without_any_one_right_the_node_is_protected_the_rest_is_told_and_what_is_missing_is_said() {
    for Without { right, says, refused, is_deleted, has_event, is_tainted } in all() {
        let (methods, has, has_not) = right;
        let (lab, hog, api) = beside_an_api_server();
        api.on_request(move |r| {
            let is_it = methods.contains(&r.method.as_str())
                && r.path.contains(has)
                && !r.path.contains(has_not);
            is_it.then_some(Fault::Refused(403, None))
        });
        let mut agent = start(&lab, &api, &["--enforce"]);
        // Where a shortage is the first thing that the Node is told, its taints go out by what was seen of it, and nobody reads it.
        wait_for("the Node to be told that all is well", || {
            has == "/nodes?" || api.writes().iter().any(|r| r.path == "/api/v1/nodes/n1/status")
        });
        lab.node.set_available(60);
        wait_for("the kill", || hog.payload.is_killed());
        let told = agent.wait("evictionTold");
        let what = told["refused"][0].as_str();
        assert_eq!(what.is_some(), refused.is_some(), "{right:?}: {told}");
        assert!(refused.is_none_or(|words| what.unwrap().starts_with(words)), "{right:?}: {told}");
        wait_for(&format!("{says:?} to be said"), || {
            agent.take_in();
            let of = |r: &Value| r["what"].as_str().unwrap_or_default().contains(says);
            agent.seen.iter().any(of)
        });
        if is_tainted {
            wait_for("the taint", || {
                api.get("/api/v1/nodes/n1").unwrap().to_string().contains("ebb.dev/memory-pressure")
            });
        }
        lab.node.gives_back(&hog.payload, 1500);
        agent.stop();
        let is_there = (api.uid_of("ns", "hog").is_none(), !events(&api).is_empty());
        assert_eq!(is_there, (is_deleted, has_event), "{right:?}");
        let written = api.writes().iter().filter(|r| r.path == "/api/v1/nodes/n1").count();
        assert!(is_tainted || has == "/nodes/n1" || written == 0, "{right:?}");
    }
}

/// What is said without a right to read, and which.
const UNREAD: [(&str, &str); 3] = [
    ("pods of this node: 403: ", "cannot list resource \"pods\""),
    ("the Node: 403: ", "cannot list resource \"nodes\""),
    ("disruption budgets: 403: ", "cannot list resource \"poddisruptionbudgets\""),
];

/// What `evictionTold` says without a right to write, and which.
const UNWRITTEN: [(&str, &str); 3] = [
    ("patch pods/status: 403: ", "cannot patch resource \"pods/status\""),
    ("delete pods: 403: ", "cannot delete resource \"pods\""),
    ("create events: 403: ", "cannot create resource \"events\""),
];

fn says(text: &Value, (begins, has): (&str, &str)) -> bool {
    text.as_str().is_some_and(|text| text.starts_with(begins) && text.contains(has))
}

/// The runtime's word alone says who is there.
#[test]
fn an_agent_that_is_refused_everything_evicts_the_right_pod_and_says_once_what_it_may_not_do() {
    let (mut lab, hog, api) = beside_an_api_server();
    let web = another(&mut lab, &api, "web", 100);
    let before = api.list("/");
    api.on_request(|_| Some(Fault::Refused(403, None)));
    let mut agent = start(&lab, &api, &["--enforce"]);
    kill(&lab, &hog);
    let told = agent.wait("evictionTold");
    let refused = told["refused"].as_array().unwrap();
    assert_eq!(refused.len(), UNWRITTEN.len(), "{told}");
    for (refused, right) in refused.iter().zip(UNWRITTEN) {
        assert!(says(refused, right), "{right:?}: {told}");
    }
    // Refused again, it is no news.
    wait_for("everything to be asked for again", || {
        let requests = api.requests();
        let lists = |kind: &str| requests.iter().filter(|r| r.path.contains(kind)).count();
        ["/pods?", "/nodes?", "/poddisruptionbudgets?"].iter().all(|kind| lists(kind) >= 4)
    });
    let records = agent.stop();
    assert!(!web.payload.is_killed());
    for right in UNREAD {
        let said = records.iter().filter(|record| says(&record["what"], right)).count();
        assert_eq!(said, 1, "{right:?}: {records:#?}");
    }
    for kind in ["decided", "evicted", "evictionTold"] {
        let times = records.iter().filter(|record| record["event"] == kind).count();
        assert_eq!(times, 1, "{kind}: {records:#?}");
    }
    assert_eq!(api.list("/"), before);
}

/// A watch goes on from a list. Pods that are newer than the list are known from the runtime, and told of by their UID.
#[test]
fn without_the_right_to_watch_the_first_list_of_pods_counts_and_without_that_to_list_none() {
    for (verb, is_known) in [("list", false), ("watch", true)] {
        let (mut lab, hog, api) = beside_an_api_server();
        let mut object = pod_object("ns", "hog", &hog.uid);
        object["metadata"]["annotations"] = json!({ "ebb.dev/evict": "never" });
        api.put(&pod("ns", "hog"), object);
        api.on_request(move |r| {
            let is_it = r.path.contains("/pods?") && is_watch(r, "pods") == (verb == "watch");
            is_it.then_some(Fault::Refused(403, None))
        });
        let honoured = format!("{CONFIG}  evictNeverIn: [ns]\n");
        let mut agent = start_with(&honoured, &lab, &api, &["--enforce"]);
        let refusal = format!("cannot {verb} resource \"pods\"");
        wait_for(&format!("{refusal:?} to be said"), || {
            agent.take_in();
            agent.seen.iter().any(|r| says(&r["what"], ("pods of this node: 403: ", &refusal)))
        });
        let late = another(&mut lab, &api, "late", 1000);
        wait_for("the runtime to be asked of it", || {
            lab.world().calls.iter().any(|call| format!("{call:?}").contains(&late.container))
        });
        let (victim, other, name) =
            if is_known { (&late, &hog, "late") } else { (&hog, &late, "hog") };
        kill(&lab, victim);
        agent.wait("evictionTold");
        let records = agent.stop();
        assert!(!other.payload.is_killed(), "{verb}: {records:#?}");
        assert_eq!(api.uid_of("ns", name), None, "{verb}");
        let said = records.iter().filter(|r| r["event"] == "apiServer" && r["up"] == false);
        assert_eq!(said.count(), 1, "{verb}: {records:#?}");
        let watched = api.requests().iter().filter(|r| is_watch(r, "pods")).count();
        assert_eq!(watched > 0, is_known, "{verb}");
    }
}

/// The hog is from long ago, the innocent is yet to come, and the API server's own clock is years off.
#[test]
fn neither_clocks_that_are_off_nor_nonsense_in_an_annotation_change_who_is_evicted() {
    let (mut lab, hog, api) = beside_an_api_server();
    let web = another(&mut lab, &api, "web", 100);
    for (own, name, at) in
        [(&hog, "hog", "2001-01-01T00:00:00Z"), (&web, "web", "2101-01-01T00:00:00Z")]
    {
        let mut object = pod_object("ns", name, &own.uid);
        object["metadata"]["creationTimestamp"] = at.into();
        object["metadata"]["annotations"] = json!({ "ebb.dev/evict": "nonsense" });
        object["status"] = json!({ "startTime": at, "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at }] });
        api.put(&pod("ns", name), object);
    }
    let mut agent = start(&lab, &api, &["--enforce"]);
    wait_until_pods_are_watched(&api);
    kill(&lab, &hog);
    agent.wait("evictionTold");
    let records = agent.stop();
    assert!(!web.payload.is_killed());
    assert_eq!(api.uid_of("ns", "web").as_deref(), Some(web.uid.as_str()));
    for name in ["hog", "web"] {
        let words = format!("pod ns/{name}: metadata.annotations");
        let says = |r: &&Value| r["what"].as_str().is_some_and(|what| what.starts_with(&words));
        assert_eq!(records.iter().filter(says).count(), 1, "{name}: {records:#?}");
    }
    // The Event has the node's own time.
    let at = events(&api)[0]["firstTimestamp"].as_str().unwrap().to_owned();
    assert!(!["2001", "2015", "2101"].iter().any(|year| at.starts_with(year)), "{at}");
}
