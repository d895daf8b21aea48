//! Runtimes that hang, refuse, die and come back.

use super::{DEADLINES, PATIENCE, SHORT, at_once, client, client_with, next, start, until};
use ebb_cri::{Deadlines, DialError, Error, Link, RuntimeEvent};
use ebb_tests::runtime::{Fault, Flavour};
use std::time::{Duration, Instant};

fn fault(fake: &ebb_tests::runtime::FakeRuntime, call: &str, fault: Fault) {
    fake.world().faults.insert(call.to_owned(), fault);
}

/// Waits until the runtime was asked this.
async fn is_asked(fake: &ebb_tests::runtime::FakeRuntime, call: &str) {
    let look = async {
        while fake.world().count(call) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("it was never asked");
}

#[tokio::test]
async fn a_call_that_hangs_keeps_no_other_call_waiting() {
    let fake = start(Flavour::Containerd2);
    let (runtime, _events) = client(&fake);
    fault(&fake, "ListContainers", Fault::Hang);
    let other = runtime.clone();
    let hung = tokio::spawn(async move { other.containers().await });
    is_asked(&fake, "ListContainers").await;
    runtime.images().await.unwrap();
    assert!(!hung.is_finished(), "the other call waited for this one");
    hung.abort();
}

#[tokio::test]
async fn a_call_that_hangs_costs_its_deadline_and_not_the_connection() {
    let fake = start(Flavour::Containerd2);
    // Only questions are short of time, so only who asks one may meet its deadline.
    let (runtime, mut events) = client_with(&fake, Deadlines { read: SHORT, ..DEADLINES });
    next(&mut events, |e| matches!(e, RuntimeEvent::Up(_)).then_some(())).await;
    fault(&fake, "ListContainers", Fault::Hang);
    let asked = Instant::now();
    let hung = runtime.containers().await;
    assert!(matches!(hung, Err(Error::Deadline { call: "ListContainers", .. })), "{hung:?}");
    assert!(asked.elapsed() >= SHORT);
    // One question that is not answered makes it suspect, another one that is clears it.
    runtime.stop_sandbox("gone").await.unwrap();
    assert!(matches!(runtime.link(), Link::Up { .. }));
}

#[tokio::test]
async fn a_runtime_that_hangs_is_found_out_and_found_again() {
    let fake = start(Flavour::Containerd2);
    let short = Deadlines { connect: SHORT, read: SHORT, ..DEADLINES };
    let (runtime, mut events) = client_with(&fake, short);
    // On a slow machine the first attempts may meet their deadline.
    next(&mut events, |e| matches!(e, RuntimeEvent::Up(_)).then_some(())).await;
    fault(&fake, "*", Fault::Hang);
    assert!(matches!(runtime.images().await, Err(Error::Deadline { .. })));
    let link = until(&runtime, |link| matches!(link, Link::Down { .. })).await;
    let Link::Down { why, .. } = link else { panic!("{link:?}") };
    assert!(matches!(*why, DialError::Silent { .. }), "{why}");
    next(&mut events, |e| matches!(e, RuntimeEvent::Down(_)).then_some(())).await;
    assert!(matches!(at_once(runtime.images()).await, Err(Error::Unreachable { .. })));
    fake.world().faults.clear();
    next(&mut events, |e| matches!(e, RuntimeEvent::Up(_)).then_some(())).await;
    runtime.stop_sandbox("gone").await.unwrap();
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
    let Link::Down { since, attempts, why } = link else { panic!("{link:?}") };
    assert!(since >= stopped && (attempts > 0 || matches!(*why, DialError::Closed(_))), "{why}");
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
    is_asked(&fake, "RemoveImage").await;
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
    fault(&fake, "RemoveImage", Fault::HeldAfter(0));
    let mut removals = tokio::task::JoinSet::new();
    for n in 0..300 {
        let runtime = runtime.clone();
        removals.spawn(async move { runtime.remove_image(&format!("image-{n}")).await });
    }
    while fake.world().count("RemoveImage") < 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    runtime.images().await.unwrap();
    // All have been taken or refused once those for which there is no room are back.
    let (mut done, mut busy) = (0, 0);
    while busy < 44 {
        match removals.join_next().await.expect("there is room for more than there should be") {
            Ok(Err(Error::Busy { .. })) => busy += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fake.world().count("RemoveImage"), 8, "more calls are in flight than may be");
    fake.world().faults.clear();
    while let Some(result) = removals.join_next().await {
        // There is no such image, which is what was wanted.
        result.unwrap().unwrap();
        done += 1;
    }
    assert_eq!((done, busy), (256, 44));
}

#[tokio::test]
async fn the_last_handle_takes_the_connection_along() {
    let fake = start(Flavour::Containerd2);
    let (runtime, mut events) = client(&fake);
    runtime.images().await.unwrap();
    drop(runtime);
    let end = async { while events.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the supervisor outlived its runtime");
}
