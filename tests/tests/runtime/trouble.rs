//! Runtimes that hang, refuse, die and come back.

use super::{DEADLINES, client, next, start, until};
use ebb_cri::{DialError, Error, Link, RuntimeEvent};
use ebb_tests::runtime::{Fault, Flavour};
use std::time::{Duration, Instant};

fn fault(fake: &ebb_tests::runtime::FakeRuntime, call: &str, fault: Fault) {
    fake.world().faults.insert(call.to_owned(), fault);
}

#[tokio::test]
async fn a_call_that_hangs_costs_its_deadline_and_no_other_call() {
    let fake = start(Flavour::Containerd2);
    let (runtime, _events) = client(&fake);
    fault(&fake, "ListContainers", Fault::Hang);
    let asked = Instant::now();
    let (hung, fine) = tokio::join!(runtime.containers(), runtime.images());
    assert!(matches!(hung, Err(Error::Deadline { call: "ListContainers", .. })), "{hung:?}");
    assert!(asked.elapsed() >= DEADLINES.read);
    fine.unwrap();
    // One question that is not answered makes it suspect, another one that is clears it.
    assert!(runtime.images().await.is_ok());
    assert!(matches!(runtime.link(), Link::Up { .. }));
}

#[tokio::test]
async fn a_runtime_that_hangs_is_found_out_and_found_again() {
    let fake = start(Flavour::Containerd2);
    let (runtime, mut events) = client(&fake);
    runtime.images().await.unwrap();
    fault(&fake, "*", Fault::Hang);
    assert!(matches!(runtime.images().await, Err(Error::Deadline { .. })));
    let link = until(&runtime, |link| matches!(link, Link::Down { .. })).await;
    let Link::Down { why, .. } = link else { panic!("{link:?}") };
    assert!(matches!(*why, DialError::Silent { .. }), "{why}");
    next(&mut events, |e| matches!(e, RuntimeEvent::Down(_)).then_some(())).await;
    let asked = Instant::now();
    assert!(matches!(runtime.images().await, Err(Error::Unreachable { .. })));
    assert!(asked.elapsed() < DEADLINES.read / 2, "a runtime that hangs was waited for");
    fake.world().faults.clear();
    next(&mut events, |e| matches!(e, RuntimeEvent::Up(_)).then_some(())).await;
    runtime.images().await.unwrap();
}

#[tokio::test]
async fn a_runtime_that_dies_is_known_at_once_and_comes_back_as_another() {
    let mut fake = start(Flavour::Containerd16);
    let (runtime, mut events) = client(&fake);
    runtime.images().await.unwrap();
    let up = runtime.link();
    assert!(matches!(up, Link::Up { .. }));
    let stopped = Instant::now();
    fake.stop();
    let link = until(&runtime, |link| matches!(link, Link::Down { .. })).await;
    // Nobody asked anything in the meantime: the socket told.
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
    let Link::Down { since, .. } = link else { panic!("{link:?}") };
    assert!(since >= stopped);
    fake.world().flavour = Flavour::Containerd2;
    fake.resume().unwrap();
    let version = next(&mut events, |event| match event {
        RuntimeEvent::Up(identity) => Some(identity.version.clone()),
        _ => None,
    });
    // The first is the one from before.
    assert_eq!(version.await, "1.6.20~ds1");
    let version = next(&mut events, |event| match event {
        RuntimeEvent::Up(identity) => Some(identity.version.clone()),
        _ => None,
    });
    assert_eq!(version.await, "2.1.9+unknown");
    runtime.images().await.unwrap();
}

#[tokio::test]
async fn an_absence_is_one_event_however_many_attempts_it_takes() {
    let mut fake = start(Flavour::Containerd2);
    let (runtime, mut events) = client(&fake);
    runtime.images().await.unwrap();
    fake.stop();
    until(&runtime, |link| matches!(link, Link::Down { attempts, .. } if *attempts >= 3)).await;
    fake.resume().unwrap();
    until(&runtime, |link| link.identity().is_some()).await;
    let (mut ups, mut downs) = (0, 0);
    while ups < 2 {
        match events.next().await.unwrap() {
            RuntimeEvent::Up(_) => ups += 1,
            RuntimeEvent::Down(_) => downs += 1,
            _ => {}
        }
    }
    assert_eq!(downs, 1);
}

#[tokio::test]
async fn a_break_during_a_change_leaves_its_outcome_open() {
    let mut fake = start(Flavour::Containerd2);
    let (runtime, _events) = client(&fake);
    let image = fake.world().add_image("r/a:1", &[("a", 10)]);
    runtime.images().await.unwrap();
    fault(&fake, "RemoveImage", Fault::DoneAndSilent);
    let other = runtime.clone();
    let removal = tokio::spawn(async move { other.remove_image(&image).await });
    while fake.world().count("RemoveImage") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fake.stop();
    let error = removal.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert!(error.outcome_is_unknown());
    assert!(fake.world().images.is_empty());
}

#[tokio::test]
async fn what_a_runtime_refuses_is_said_in_its_words() {
    let fake = start(Flavour::Containerd2);
    let (runtime, _events) = client(&fake);
    fault(&fake, "RemoveContainer", Fault::Refuse(13, "device or resource busy".into()));
    let error = runtime.remove_container("c1").await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Refused { .. }), "{text}");
    for part in ["RemoveContainer", "c1", "Internal", "device or resource busy"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!error.outcome_is_unknown());
}

#[tokio::test]
async fn slow_changes_keep_no_question_waiting_and_the_queue_has_an_end() {
    let fake = start(Flavour::Containerd2);
    let (runtime, _events) = client(&fake);
    runtime.images().await.unwrap();
    fault(&fake, "RemoveImage", Fault::Hang);
    let mut removals = tokio::task::JoinSet::new();
    for n in 0..300 {
        let runtime = runtime.clone();
        removals.spawn(async move { runtime.remove_image(&format!("image-{n}")).await });
    }
    while fake.world().count("RemoveImage") < 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    runtime.images().await.unwrap();
    let sent = fake.world().count("RemoveImage");
    let (mut late, mut busy) = (0, 0);
    while let Some(result) = removals.join_next().await {
        match result.unwrap() {
            Err(Error::Deadline { .. } | Error::Unreachable { .. }) => late += 1,
            Err(Error::Busy { .. }) => busy += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((late, busy), (256, 44));
    // Later ones are sent as the first reach their deadline, so this holds of the moment when none had.
    assert_eq!(sent, 8, "more calls were in flight than may be");
}

#[tokio::test]
async fn the_last_handle_takes_the_connection_along() {
    let fake = start(Flavour::Containerd2);
    let (runtime, mut events) = client(&fake);
    runtime.images().await.unwrap();
    drop(runtime);
    let end = async { while events.next().await.is_some() {} };
    tokio::time::timeout(super::PATIENCE, end).await.expect("the keeper outlived its runtime");
}
