//! Telling of one eviction, step by step: status, deletion, Event. Each step may be done twice without harm.

use crate::words;
use ebb_agent::cluster::{ClusterNews, Eviction};
use ebb_kube::{About, Api, Failure, PodRef, backoff, pause_of};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

/// How often an eviction is asked for again at which the API server fails.
const ASKED_AGAIN: u32 = 2;

/// How often one is that it does not answer, which takes longer to find out.
const ASKED_AGAIN_IN_VAIN: u32 = 1;

/// How often it is tried again to have the object of a pod go of which nothing runs any more.
const FINISHED_AGAIN: u32 = 3;

/// The longest pause before any of that.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause that an API server with too much to do is granted: the node is short of something meanwhile.
const LONGEST_WANTED: Duration = Duration::from_secs(5);

/// How long an eviction that was not told yet is worth a deletion.
const LATE: Duration = Duration::from_secs(3600);

/// Why telling stopped: it is to be gone on with later.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) failure: Failure,
    /// The deletion was taken.
    pub(crate) is_deleted: bool,
}

/// The pod that an eviction is about.
fn pod_of(eviction: &Eviction) -> PodRef {
    let Eviction { namespace, name, uid, .. } = eviction;
    PodRef { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() }
}

/// Whether the same call may succeed later. A conflict that is not about the pod's UID is of others who write at the same time.
pub(crate) fn may_pass(failure: &Failure) -> bool {
    match failure.code() {
        None => true,
        Some(409) => !failure.is_about_uid(),
        Some(code) => matches!(code, 401 | 408 | 429) || code >= 500,
    }
}

/// Whether so much time has passed since the decision that what runs under the pod's UID now, if anything does, is not what was evicted: only the Event is written then.
fn is_late(eviction: &Eviction) -> bool {
    let decided = UNIX_EPOCH + Duration::from_millis(eviction.at);
    decided.elapsed().is_ok_and(|age| age > LATE)
}

/// Tells of an eviction, all three steps; `is_dead` says that nothing of the pod runs any more. The loop hears of the deletion as soon as it is taken.
pub(crate) async fn tell(
    api: &Api,
    node: &str,
    eviction: &Eviction,
    is_dead: bool,
    news: &Sender<ClusterNews>,
) -> Result<(bool, Vec<String>), Unfinished> {
    let pod = pod_of(eviction);
    let mut refused = Vec::new();
    let mut was_gone = false;
    let mut is_kept = false;
    let status = words::status(eviction, is_dead);
    let is_deleting = eviction.is_deleting || is_late(eviction);
    if !is_deleting && (status.phase.is_some() || status.condition.is_some()) {
        match api.set_pod_status(&pod, &status).await {
            Ok(()) => {}
            Err(failure) if failure.is_gone(&pod) => was_gone = true,
            Err(failure) if may_pass(&failure) => {
                return Err(Unfinished { failure, is_deleted: false });
            }
            Err(failure) => refused.push(format!("patch pods/status: {failure}")),
        }
    }
    if !(is_deleting || was_gone) {
        // Nothing needs time any more, and its kubelet may just have taken back that it has Failed.
        let grace = if is_dead { 0 } else { eviction.grace };
        match api.delete_pod(&pod, grace).await {
            Ok(()) => {}
            Err(failure) if failure.is_gone(&pod) => was_gone = true,
            Err(failure) if may_pass(&failure) => {
                return Err(Unfinished { failure, is_deleted: false });
            }
            Err(failure) => {
                is_kept = true;
                refused.push(format!("delete pods: {failure}"));
            }
        }
    }
    // One that is being deleted was told of when that was taken.
    if !(is_kept || is_deleting) {
        // It fails only when the loop has ended.
        let _ = news.send(ClusterNews::Deleted(eviction.uid.clone())).await;
    }
    match api.write_event(About::Pod(&pod), &words::event(eviction, node)).await {
        Ok(()) => {}
        Err(failure) if may_pass(&failure) => {
            return Err(Unfinished { failure, is_deleted: !is_kept });
        }
        Err(failure) => refused.push(format!("create events: {failure}")),
    }
    Ok((was_gone, refused))
}

/// Nothing runs any more of a pod that was deleted while something still did: it is told as Failed, and its object goes without its kubelet having to come round.
pub(crate) async fn finish(api: &Api, eviction: &Eviction) {
    let pod = pod_of(eviction);
    let status = words::status(eviction, true);
    for attempt in 0..=FINISHED_AGAIN {
        let taken = match api.set_pod_status(&pod, &status).await {
            Err(failure) if may_pass(&failure) => Err(failure),
            // Its object goes also where its status may not be written.
            _ => api.delete_pod(&pod, 0).await,
        };
        match taken {
            Err(failure) if may_pass(&failure) => sleep(backoff(attempt, LONGEST_PAUSE)).await,
            // What is refused for good its kubelet does, later.
            _ => return,
        }
    }
}

/// What became of an eviction that was left to the API server.
pub(crate) enum Asked {
    /// The pod is being deleted, or is gone.
    Done,
    /// A budget does not allow it.
    Refused(Failure),
    /// It could not be asked, or was not understood.
    Failed(Failure),
}

/// Asks the API server to evict a pod, and again where that may help: the runtime, which is asked otherwise, knows no budgets.
pub(crate) async fn evict(api: &Api, eviction: &Eviction) -> Asked {
    let pod = pod_of(eviction);
    let mut attempts = 0;
    loop {
        match api.evict_pod(&pod, eviction.grace).await {
            Ok(()) => return Asked::Done,
            Err(failure) if failure.is_gone(&pod) => return Asked::Done,
            Err(failure) if failure.is_by_budget() => return Asked::Refused(failure),
            Err(failure) if may_pass(&failure) && attempts < again(&failure) => {
                let wanted = failure.retry_after().unwrap_or_default().min(LONGEST_WANTED);
                sleep(pause_of(wanted, attempts, LONGEST_PAUSE)).await;
                attempts += 1;
            }
            // Many nodes evict under one budget at the same time: it refuses for now, and is not passed over.
            Err(failure) if failure.code() == Some(409) => return Asked::Refused(failure),
            Err(failure) => return Asked::Failed(failure),
        }
    }
}

fn again(failure: &Failure) -> u32 {
    if matches!(failure, Failure::Deadline(_)) { ASKED_AGAIN_IN_VAIN } else { ASKED_AGAIN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_tests::api_server::{ApiServer, Fault};
    use tokio::sync::mpsc;

    /// A server with a pod, a client of it, and the pod's eviction.
    async fn set_up() -> (ApiServer, Api, Eviction) {
        let server = ApiServer::start("n").unwrap();
        server.add_pod("ns", "p", "u");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), server.kubeconfig()).unwrap();
        let api = ebb_kube::connect(Some(file.path()), None).await.unwrap();
        let eviction = Eviction {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            grace: 1,
            reason: "Evicted".to_owned(),
            message: "low".to_owned(),
            condition: true,
            annotations: Vec::new(),
            at: u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap(),
            is_deleting: false,
        };
        (server, api, eviction)
    }

    /// The loop kills what is started again of a pod that is deleted; of one that stays it must not.
    #[tokio::test]
    async fn a_deletion_that_is_refused_is_not_told_as_one() {
        for is_forbidden in [true, false] {
            let (server, api, eviction) = set_up().await;
            if is_forbidden {
                server.on_request(|request| {
                    (request.method == "DELETE").then_some(Fault::Refused(403, None))
                });
            }
            let (news, mut inbox) = mpsc::channel(4);
            let (was_gone, refused) = tell(&api, "n", &eviction, true, &news).await.unwrap();
            assert_eq!(
                (was_gone, refused.len()),
                (false, usize::from(is_forbidden)),
                "{refused:?}"
            );
            let told = inbox.try_recv();
            assert_eq!(told.is_err(), is_forbidden, "{told:?}");
        }
    }

    /// Weeks may have passed since another run wrote down what it could not tell: what runs under the UID now was not evicted.
    #[tokio::test]
    async fn an_eviction_of_long_ago_is_told_and_deletes_nobody() {
        let (server, api, eviction) = set_up().await;
        let long_ago = Eviction { at: eviction.at - 2 * 3_600_000, ..eviction };
        let (news, mut inbox) = mpsc::channel(4);
        tell(&api, "n", &long_ago, false, &news).await.unwrap();
        assert!(inbox.try_recv().is_err(), "nothing was deleted");
        assert_eq!(server.uid_of("ns", "p").as_deref(), Some("u"));
        let methods: Vec<String> = server.requests().into_iter().map(|r| r.method).collect();
        assert_eq!(methods, ["POST"]);
    }

    /// Its containers have their grace, and what of it was started since may be all of it.
    #[tokio::test]
    async fn whose_event_alone_is_left_is_not_told_of_as_deleted_again() {
        let (_server, api, eviction) = set_up().await;
        let rest = Eviction { is_deleting: true, ..eviction };
        let (news, mut inbox) = mpsc::channel(4);
        tell(&api, "n", &rest, false, &news).await.unwrap();
        assert!(inbox.try_recv().is_err());
    }

    /// Many nodes evict what one budget covers.
    #[tokio::test]
    async fn a_budget_that_others_write_is_not_passed_over() {
        let (server, api, eviction) = set_up().await;
        server.on_request(|_| Some(Fault::Refused(409, None)));
        let asked = evict(&api, &eviction).await;
        assert!(matches!(asked, Asked::Refused(_)));
        assert_eq!(server.requests().len(), 3, "asked again twice");
    }

    /// A kubelet that has no time would keep its object for half a minute.
    #[tokio::test]
    async fn what_is_dead_goes_at_once_also_where_its_status_says_otherwise() {
        for is_dead in [true, false] {
            let (server, api, eviction) = set_up().await;
            server.set_graceful();
            server.on_request(|request| {
                (request.method == "PATCH").then_some(Fault::Refused(403, None))
            });
            let (news, _inbox) = mpsc::channel(4);
            tell(&api, "n", &eviction, is_dead, &news).await.unwrap();
            assert_eq!(server.uid_of("ns", "p").is_none(), is_dead);
        }
    }
}
