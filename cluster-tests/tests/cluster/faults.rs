//! What ebb does while something is broken between it and the API server, or in the API server.
//!
//! ebb speaks through a proxy that breaks what a test wants broken. Each delete is held against the store at its moment:
//! nothing goes that has an owner which is there and not itself being deleted in the foreground. What should go is gone
//! within [`SOON`] of the fault's end.
use crate::Alone;
use crate::kinds::{self, Kind};
use crate::pods;
use crate::session::Session;
use crate::world::{Made, World, blocking, items, to};
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Policy::{Background, Foreground, Orphan};
use ebb_cluster_tests::api::never;
use ebb_cluster_tests::collector::{ALONE, Collector, Running};
use ebb_cluster_tests::proxy::{Asked, Fate, Proxy};
use ebb_cluster_tests::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const TESTS: [Alone; 9] = [
    ("a_watch_that_is_cut_leads_to_no_wrong_delete", |s| play(s, watch_cut)),
    ("a_watch_whose_history_is_gone_lists_anew", |s| play(s, expired)),
    ("a_kind_that_cannot_be_converted_costs_only_what_depends_on_it", |s| play(s, conversion)),
    ("an_aggregated_api_that_does_not_answer_costs_only_what_depends_on_it", |s| {
        play(s, aggregated)
    }),
    ("a_cascade_goes_on_when_the_api_server_was_restarted", |s| play(s, restarted)),
    ("a_kind_that_discovery_does_not_show_for_a_moment_keeps_its_dependents", |s| {
        play(s, discovery_shrinks)
    }),
    ("an_owner_made_anew_while_its_dependents_are_judged_keeps_those_that_it_adopts", |s| {
        play(s, made_anew)
    }),
    ("a_leader_that_was_paused_past_its_lease_does_no_harm", leader_paused),
    ("a_lease_is_judged_by_its_changes_and_not_by_its_times", skewed_lease),
];

/// Without the pod collector.
const OWNERS: &str = "--collectors=owner-references";
/// Within so long of a fault's end everything is as it should be, on a busy machine too: idle ones take a second or two.
const SOON: Duration = Duration::from_secs(60);
/// Until a fault has shown.
const PATIENCE: Duration = Duration::from_secs(180);

/// Plays a test while ebb acts through a proxy.
fn play(session: &Session, test: fn(&World, &Proxy, &mut Running) -> Result<()>) -> Result<()> {
    session.stop()?;
    let world = World::new(session, Collector::Ebb)?;
    let proxy = session.with_plane(Proxy::start)?;
    let mut ebb = session.with_plane(|p| Running::through("ebb", p, &proxy, &[ALONE, OWNERS]))?;
    ebb.says(PATIENCE, &["\"record\":\"ready\""])?;
    let result = test(&world, &proxy, &mut ebb);
    let result = result.with_context(|| format!("{}; {}", world.namespace, ebb.last_words()));
    proxy.mend();
    let judged = proxy.judged();
    let cleared = world.clear().context("cannot clear up");
    let ended = ebb.end();
    let judged = result.and(judged)?;
    ensure!(judged > 0, "no delete was judged");
    cleared.and(ended)
}

/// Config maps that own secrets, and what is done to them while a collector may not see all of it.
struct Scene {
    goes: Made,
    keeper: Made,
    adopted: Made,
    former: Made,
    follows: Made,
}

impl Scene {
    fn new(world: &World) -> Result<Self> {
        let secret =
            |name: &str, owner: &Made| world.make_kind(Kind::Secret, name, &[to(owner)], &[]);
        let goes = world.make("goes", &[])?;
        let keeper = world.make("keeper", &[])?;
        let former = world.make("owner", &[])?;
        let adopted = secret("adopted", &goes)?;
        let follows = secret("follows", &former)?;
        secret("garbage", &goes)?;
        secret("kept", &keeper)?;
        let made =
            "adopted of goes|follows of owner|garbage of goes|goes|keeper|kept of keeper|owner";
        world.becomes(&made.split('|').collect::<Vec<_>>())?;
        Ok(Self { goes, keeper, adopted, former, follows })
    }

    /// What rests on knowledge that may be old: dependents change their owner, and only then it goes.
    fn changes(&self, world: &World) -> Result<()> {
        world.set_owners(&self.adopted, &[to(&self.keeper)])?;
        world.delete(&self.goes, Background)?;
        world.set_owners(&self.follows, &[])?;
        world.delete(&self.former, Background)?;
        let anew = world.make("owner", &[])?;
        world.set_owners(&self.follows, &[to(&anew)])?;
        world.make_kind(Kind::Secret, "late", &[to(&self.former)], &[])?;
        Ok(())
    }

    fn is_as_it_should_be(world: &World) -> Result<()> {
        world.becomes_in(
            SOON,
            &["adopted of keeper", "follows of owner", "keeper", "kept of keeper", "owner"],
        )?;
        world.stays(&[
            "adopted of keeper",
            "follows of owner",
            "keeper",
            "kept of keeper",
            "owner",
        ])?;
        world.clear()
    }
}

fn is_any(asked: &Asked, plurals: &[&str]) -> bool {
    plurals.iter().any(|plural| asked.is_watch_of(plural))
}

/// Closes these watches and refuses them until the proxy is mended.
fn without_watches(proxy: &Proxy, plurals: &'static [&'static str], fate: Fate) -> Result<()> {
    // After a list, a watch takes a moment to be open.
    wait::until_some(
        PATIENCE,
        || format!("watches of {plurals:?} are open"),
        || {
            Ok(plurals
                .iter()
                .all(|one| proxy.is_open(|asked| asked.is_watch_of(one)))
                .then_some(()))
        },
    )?;
    let before = proxy.count(|asked| is_any(asked, plurals));
    proxy.fault(move |asked| if is_any(asked, plurals) { fate.clone() } else { Fate::Pass });
    // One may have ended by itself just now.
    proxy.cut(|asked| is_any(asked, plurals));
    wait::until_some(
        PATIENCE,
        || format!("watches of {plurals:?} are refused"),
        || Ok((proxy.count(|asked| is_any(asked, plurals)) > before).then_some(())),
    )
}

/// What hangs on nothing that is broken goes meanwhile: an object of a kind that is watched, its owner too.
fn others_go_on(world: &World) -> Result<()> {
    let fleet = world.make_kind(Kind::Fleet, "fleet", &[], &[])?;
    world.make_kind(Kind::Gadget, "gadget", &[to(&fleet)], &[])?;
    world.delete(&fleet, Background)?;
    let begun = Instant::now();
    let path = Kind::Gadget.path(&world.namespace);
    wait::until_some(
        SOON,
        || "what hangs on nothing broken goes".into(),
        || Ok(items(&world.api.get(&path)?).next().is_none().then_some(())),
    )?;
    eprintln!("meanwhile others went within {} ms", begun.elapsed().as_millis());
    Ok(())
}

fn watch_cut(world: &World, proxy: &Proxy, _: &mut Running) -> Result<()> {
    const DEPENDENTS: &[&str] = &["secrets"];
    const OWNERS: &[&str] = &["configmaps"];
    const BOTH: &[&str] = &["secrets", "configmaps"];
    for plurals in [DEPENDENTS, OWNERS, BOTH] {
        let scene = Scene::new(world)?;
        without_watches(proxy, plurals, Fate::Close)?;
        scene.changes(world)?;
        others_go_on(world)?;
        proxy.mend();
        Scene::is_as_it_should_be(world)?;
    }
    Ok(())
}

fn expired(world: &World, proxy: &Proxy, _: &mut Running) -> Result<()> {
    const BOTH: &[&str] = &["secrets", "configmaps"];
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old resource version",
    });
    let in_the_stream = json!({"type": "ERROR", "object": status});
    let is_list = |asked: &Asked, plural: &str| {
        asked.method == "GET" && asked.path.contains(&format!("/{plural}?limit="))
    };
    for fate in [Fate::Answer(410, status), Fate::Stream(in_the_stream)] {
        let scene = Scene::new(world)?;
        // While it lists it may not watch: changes fall between.
        without_watches(proxy, BOTH, Fate::Close)?;
        scene.changes(world)?;
        let lists = BOTH.iter().map(|one| proxy.count(|asked| is_list(asked, one)));
        let lists: Vec<usize> = lists.collect();
        // Each watch is answered so once: what is listed then is the truth.
        let told = Mutex::new(BTreeSet::new());
        proxy.fault(move |asked| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = is_any(asked, BOTH) && told.insert(asked.place().to_owned());
            if is_first { fate.clone() } else { Fate::Pass }
        });
        Scene::is_as_it_should_be(world)?;
        for (one, before) in BOTH.iter().zip(lists) {
            let now = proxy.count(|asked| is_list(asked, one));
            ensure!(now > before, "{one} were not listed anew");
        }
    }
    Ok(())
}

/// A kind of its own for a test, and one object of it.
fn defined(world: &World, kind: &str, owner: Option<&Made>) -> Result<(String, Value)> {
    let version = kinds::define(&world.api, kind, "Namespaced")?;
    let path = format!("/apis/{version}/namespaces/{}/{}s", world.namespace, kind.to_lowercase());
    kinds::served(&world.api, &path)?;
    let owners: Vec<Value> = owner.map(to).into_iter().collect();
    let object = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": "it", "ownerReferences": owners},
    });
    let made = world.api.create(&path, &object)?;
    let reference = json!({
        "apiVersion": version, "kind": kind, "name": "it", "uid": made["metadata"]["uid"],
    });
    Ok((path, reference))
}

fn conversion(world: &World, _: &Proxy, ebb: &mut Running) -> Result<()> {
    let kind = format!("Turned{}", world.namespace);
    let a = world.make("a", &[])?;
    let (path, reference) = defined(world, &kind, Some(&a))?;
    ebb.says(PATIENCE, &[&kind, "added"])?;
    world.make("b", &[reference])?;
    let plural = format!("{}s", kind.to_lowercase());
    let definition =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.tests.ebb.dev");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, is_stored: bool| json!({"name": name, "served": true, "storage": is_stored, "schema": schema});
    let nowhere = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:9/"}},
    });
    let broken = json!({"spec": {
        "versions": [version("v1", false), version("v2", true)], "conversion": nowhere,
    }});
    world.api.merge(&definition, &broken)?;
    ebb.says(PATIENCE, &[&kind, "broken"])?;
    // Its object hangs on what is gone, and cannot be judged; whether it is an owner cannot be seen.
    world.delete(&a, Background)?;
    others_go_on(world)?;
    world.stays(&["b of it"])?;
    ensure!(world.api.ask("GET", &format!("{path}/it"), None)?.0 == 200, "what is broken went");
    let mended = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    world.api.merge(&definition, &mended)?;
    wait::until_some(
        SOON,
        || "its object goes, and what hangs on it".into(),
        || {
            Ok((world.left()?.is_empty()
                && world.api.ask("GET", &format!("{path}/it"), None)?.0 == 404)
                .then_some(()))
        },
    )?;
    world.api.delete(&definition, &json!({}))
}

fn aggregated(world: &World, proxy: &Proxy, ebb: &mut Running) -> Result<()> {
    let group = format!("nowhere{}.example.com", world.namespace);
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1.{group}")},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nowhere"},
        },
    });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    world.api.create(services, &service)?;
    ebb.says(PATIENCE, &[&format!("*.{group}"), "broken"])?;
    // And now it does not even say that it does not.
    let (hangs, root) = (Arc::new(AtomicBool::new(true)), format!("/apis/{group}/"));
    let held = Arc::clone(&hangs);
    proxy.fault(move |asked| {
        while asked.path.starts_with(&root) && held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Fate::Pass
    });
    let widget =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "name": "w", "uid": "w"});
    world.make("of-nowhere", &[widget])?;
    let a = world.make("a", &[])?;
    world.make("b", &[to(&a)])?;
    let c = world.make("c", &[])?;
    world.make("d", &[blocking(&c)])?;
    world.delete(&a, Orphan)?;
    world.delete(&c, Foreground)?;
    others_go_on(world)?;
    // Who is to be kept may be there: until that is known, the finalizer stays.
    world.stays(&["a with orphan terminating", "b", "of-nowhere of w"])?;
    hangs.store(false, Ordering::SeqCst);
    world.api.delete(&format!("{services}/v1.{group}"), &json!({}))?;
    world.becomes_in(SOON, &["b", "of-nowhere of w"])?;
    world.stays(&["b", "of-nowhere of w"])
}

fn restarted(world: &World, proxy: &Proxy, _: &mut Running) -> Result<()> {
    const CHAINS: usize = 60;
    const OUTAGE: Duration = Duration::from_secs(15);
    let keeper = world.make("keeper", &[])?;
    world.make_kind(Kind::Secret, "kept", &[blocking(&keeper)], &[])?;
    let root = world.make("root", &[])?;
    for at in 0..CHAINS {
        let gadget =
            world.make_kind(Kind::Gadget, &format!("gadget-{at}"), &[blocking(&root)], &[])?;
        let owners = [blocking(&gadget), to(&keeper)];
        // Of some, one owner stays.
        let owners = &owners[..if at % 10 == 0 { 2 } else { 1 }];
        world.make_kind(Kind::Secret, &format!("secret-{at}"), owners, &[])?;
    }
    let is_delete = |asked: &Asked| asked.method == "DELETE";
    let before = proxy.count(is_delete);
    // Caught in the middle: some deletes pass, and what is written after them is on its way until there is no server.
    let passed = AtomicUsize::new(0);
    let is_away = Arc::new(AtomicBool::new(false));
    let until_away = Arc::clone(&is_away);
    proxy.fault(move |asked| {
        let is_early = || passed.fetch_add(1, Ordering::SeqCst) < CHAINS / 3;
        while asked.is_write() && !is_early() && !until_away.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Fate::Pass
    });
    world.delete(&root, Foreground)?;
    wait::until_some(
        PATIENCE,
        || "the cascade is under way".into(),
        || Ok((proxy.count(is_delete) > before + CHAINS / 3).then_some(())),
    )?;
    world.session.with_plane_mut(|plane| {
        plane.stop_server();
        Ok(())
    })?;
    is_away.store(true, Ordering::SeqCst);
    proxy.mend();
    // Long enough for pauses that double with each failure to be as long as they get.
    let writes = proxy.count(Asked::is_write);
    std::thread::sleep(OUTAGE);
    let in_vain = proxy.count(Asked::is_write) - writes;
    ensure!((1..=25).contains(&in_vain), "{in_vain} writes to an API server that was not there");
    world.session.with_plane_mut(|plane| plane.start_server())?;
    let begun = Instant::now();
    let mut left = vec!["keeper".to_owned(), "kept of keeper!".to_owned()];
    left.extend((0..CHAINS).step_by(10).map(|at| format!("secret-{at} of keeper")));
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    world.becomes_in(SOON, &left)?;
    eprintln!("as it should be {} ms after the start of the server", begun.elapsed().as_millis());
    world.stays(&left)
}

fn discovery_shrinks(world: &World, proxy: &Proxy, ebb: &mut Running) -> Result<()> {
    const GROUP: &str = "tests.ebb.dev";
    let kind = format!("Shrinks{}", world.namespace);
    let (path, reference) = defined(world, &kind, None)?;
    ebb.says(PATIENCE, &[&kind, "added"])?;
    let (keeper, goes) = (
        world.make_kind(Kind::Gadget, "keeper", &[], &[])?,
        world.make_kind(Kind::Gadget, "goes", &[], &[])?,
    );
    world.make("kept", &[to(&keeper)])?;
    world.make("garbage", &[to(&goes)])?;
    world.make("of-it", &[reference])?;
    world.stays(&["garbage of goes", "goes", "keeper", "kept of keeper", "of-it of it"])?;
    // The answer lacks what is there, without an error, and what is not listed is not served either.
    let groups = world.api.get("/apis")?;
    let mut fewer = groups.clone();
    if let Some(all) = fewer["groups"].as_array_mut() {
        all.retain(|group| group["name"] != GROUP);
    }
    ensure!(fewer != groups, "{GROUP} was not listed");
    let is_group = |asked: &Asked| asked.place().starts_with(&format!("/apis/{GROUP}/"));
    proxy.fault(move |asked| match asked.place() {
        "/apis" => Fate::Answer(200, fewer.clone()),
        _ if is_group(asked) => Fate::Answer(404, json!("404 page not found")),
        _ => Fate::Pass,
    });
    proxy.cut(is_group);
    let is_discovery = |asked: &Asked| asked.place() == "/apis";
    let discoveries = proxy.count(is_discovery);
    world.delete(&goes, Background)?;
    wait::until_some(
        PATIENCE,
        || "discovery has looked".into(),
        || Ok((proxy.count(is_discovery) > discoveries + 1).then_some(())),
    )?;
    world.stays(&["garbage of goes", "keeper", "kept of keeper", "of-it of it"])?;
    proxy.mend();
    world.becomes_in(SOON, &["keeper", "kept of keeper", "of-it of it"])?;
    world.stays(&["keeper", "kept of keeper", "of-it of it"])?;
    world.api.delete(&format!("{path}/it"), &Background.options())?;
    world.becomes_in(SOON, &["keeper", "kept of keeper"])
}

/// While a delete of a dependent is on its way, its owner's successor adopts the dependent.
fn made_anew(world: &World, proxy: &Proxy, _: &mut Running) -> Result<()> {
    const TIMES: usize = 40;
    let owners: Vec<Made> =
        (0..TIMES).map(|at| world.make(&format!("o{at}"), &[])).collect::<Result<_>>()?;
    for (at, owner) in owners.iter().enumerate() {
        for name in ["adopted", "left"] {
            world.make_kind(Kind::Secret, &format!("{name}-{at}"), &[to(owner)], &[])?;
        }
    }
    // Deletes of dependents that are to be adopted wait until they are.
    let (api, namespace) = (world.api.clone(), world.namespace.clone());
    let (raced, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, not_done) = (Arc::clone(&raced), Arc::clone(&failed));
    let adopts = move |path: &str| -> Result<()> {
        let at = path.rsplit('-').next().unwrap_or_default();
        let of = Kind::ConfigMap.path(&namespace);
        let body = json!({"metadata": {"name": format!("o{at}"), "labels": {"tests.ebb.dev/case": namespace}}});
        let (status, anew) = api.ask("POST", &of, Some(&body))?;
        // Another delete of the same came first.
        if status == 201 {
            let owner = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{at}"), "uid": anew["metadata"]["uid"],
            });
            api.merge(path, &json!({"metadata": {"ownerReferences": [owner]}}))?;
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    };
    proxy.fault(move |asked| {
        let is_one = asked.method == "DELETE" && asked.place().contains("/secrets/adopted-");
        if is_one && adopts(asked.place()).is_err() {
            not_done.fetch_add(1, Ordering::SeqCst);
        }
        Fate::Pass
    });
    for owner in &owners {
        world.delete(owner, Background)?;
    }
    let mut left: Vec<String> = (0..TIMES).map(|at| format!("adopted-{at} of o{at}")).collect();
    left.extend((0..TIMES).map(|at| format!("o{at}")));
    left.sort();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    world.becomes_in(SOON, &left)?;
    world.stays(&left)?;
    ensure!(failed.load(Ordering::SeqCst) == 0, "not all could be adopted");
    ensure!(raced.load(Ordering::SeqCst) == TIMES, "not all were adopted in a race");
    Ok(())
}

fn leader_paused(session: &Session) -> Result<()> {
    const DEPENDENTS: usize = 40;
    session.stop()?;
    let world = World::new(session, Collector::Ebb)?;
    let proxies = [session.with_plane(Proxy::start)?, session.with_plane(Proxy::start)?];
    let lease = format!("--lease-namespace={}", world.namespace);
    let start = |name, proxy| session.with_plane(|p| Running::through(name, p, proxy, &[&lease]));
    let mut first = start("ebb-first", &proxies[0])?;
    first.collects(&world.api)?;
    let mut second = start("ebb-second", &proxies[1])?;
    second.says(PATIENCE, &["ready"])?;
    second.says(PATIENCE, &["holds the Lease"])?;
    let keeper = world.make("keeper", &[])?;
    let owner = world.make("owner", &[])?;
    let secrets: Vec<Made> = (0..DEPENDENTS)
        .map(|at| world.make_kind(Kind::Secret, &format!("s{at}"), &[to(&owner)], &[]))
        .collect::<Result<_>>()?;
    world.collects_other_things()?;
    // The first five deletes pass; the others are on their way when their sender is paused, and arrive after all is over.
    // The mark of a pod arrives during the pause, and its sender has the answer to read when it wakes up.
    let passed = AtomicUsize::new(0);
    let held = Arc::new(AtomicUsize::new(0));
    let [deletes, marks] = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
    let (holds, waiting) = ([&deletes, &marks].map(Arc::clone), Arc::clone(&held));
    proxies[0].fault(move |asked| {
        let [deletes, marks] = &holds;
        let is_held = match asked.method.as_str() {
            "DELETE" if passed.fetch_add(1, Ordering::SeqCst) >= 5 => deletes,
            "PATCH" if asked.place().ends_with("/status") => marks,
            _ => return Fate::Pass,
        };
        waiting.fetch_add(1, Ordering::SeqCst);
        while is_held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Fate::Pass
    });
    let marked = pods::of_a_node_that_is_gone(&world, "marked", &[])?;
    wait::until_some(
        PATIENCE,
        || "the mark of the pod is on its way".into(),
        || Ok((held.load(Ordering::SeqCst) == 1).then_some(())),
    )?;
    world.delete(&owner, Background)?;
    // One that was let go but has not reached the proxy would still reach it after the pause. What ebb says of it is a moment old: it is so once it has been so for a second.
    let mut lasts: Option<(usize, Instant)> = None;
    wait::until_some(
        PATIENCE,
        || "all that it sent has reached the proxy".into(),
        || {
            let held = held.load(Ordering::SeqCst);
            let is_all = held > 1 && first.requests_in_flight()? == held;
            lasts = lasts.filter(|(before, _)| is_all && *before == held);
            let (_, since) = *lasts.get_or_insert((held, Instant::now()));
            Ok((is_all && since.elapsed() > Duration::from_secs(1)).then_some(()))
        },
    )?;
    first.pause()?;
    let paused = Instant::now();
    marks.store(false, Ordering::SeqCst);
    wait::until_some(
        SOON,
        || "the pod is marked".into(),
        || Ok((world.read(&marked)?["status"]["phase"] == "Failed").then_some(())),
    )?;
    // What the first one knows of these is old from now on.
    // Any of them may be among the five that are gone.
    let mut others = secrets.iter().rev();
    let last = others.find(|secret| world.set_owners(secret, &[to(&keeper)]).is_ok());
    let last = last.context("no dependent could be given to the keeper")?;
    let left = [format!("{} of keeper", last.name)];
    let left: Vec<&str> = ["keeper"].into_iter().chain(left.iter().map(String::as_str)).collect();
    world.becomes_in(SOON, &left)?;
    eprintln!("the standby had done it {} ms after the pause", paused.elapsed().as_millis());
    second.says(PATIENCE, &["\"acts\":true"])?;
    let is_object_write = |asked: &Asked| asked.is_write() && !asked.place().contains("/leases");
    let sent = proxies[0].count(is_object_write);
    first.resume()?;
    deletes.store(false, Ordering::SeqCst);
    wait::until_some(
        SOON,
        || "the first one finds that another holds the Lease".into(),
        || {
            let output = first.output()?;
            let last = output.lines().rfind(|line| line.contains("\"record\":\"leader\""));
            Ok(last.is_some_and(|line| line.contains("\"acts\":false")).then_some(()))
        },
    )?;
    world.stays(&left)?;
    let after = proxies[0].count(is_object_write);
    ensure!(sent == after, "the first one sent {} requests more", after - sent);
    // And when the second one goes, the first one acts again, at once.
    second.end()?;
    world.collects_other_things()?;
    world.clear()?;
    first.end()?;
    for proxy in &proxies {
        ensure!(proxy.judged()? > 0, "no delete was judged");
    }
    Ok(())
}

/// The clocks of two holders are decades apart; neither is read.
fn skewed_lease(session: &Session) -> Result<()> {
    /// Longer than this process may be kept from renewing it.
    const LASTS: Duration = Duration::from_secs(10);
    session.stop()?;
    let world = World::new(session, Collector::Ebb)?;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", world.namespace);
    let held = |year: u16, beat: u64| {
        let time = format!("{year}-01-01T00:00:00.000000Z");
        json!({"metadata": {"name": "ebb-controller"}, "spec": {
            "holderIdentity": "other", "leaseDurationSeconds": LASTS.as_secs(), "leaseTransitions": beat,
            "renewTime": time, "acquireTime": time,
        }})
    };
    world.api.create(&leases, &held(2001, 0))?;
    let proxy = session.with_plane(Proxy::start)?;
    let lease = format!("--lease-namespace={}", world.namespace);
    let mut ebb = session.with_plane(|p| Running::through("ebb", p, &proxy, &[&lease, OWNERS]))?;
    world.make("garbage", &[never(&world.namespace)])?;
    let path = format!("{leases}/ebb-controller");
    // Renewed every second by a clock decades behind: it has expired by its times, and is held all the same.
    let is_ready = AtomicBool::new(false);
    let mut beats = 0;
    let mut since = None;
    while since.is_none_or(|since: Instant| since.elapsed() < LASTS + LASTS / 2) {
        beats += 1;
        world.api.merge(&path, &held(2001, beats))?;
        std::thread::sleep(Duration::from_secs(1));
        if !is_ready.load(Ordering::SeqCst) && ebb.output()?.contains("\"record\":\"ready\"") {
            is_ready.store(true, Ordering::SeqCst);
            since = Some(Instant::now());
        }
        ensure!(since.is_some() || beats < 300, "ebb is not ready: {}", ebb.last_words());
    }
    ensure!(world.left()? == ["garbage of never"], "ebb acted while another held the Lease");
    ensure!(proxy.count(Asked::is_write) == 0, "ebb wrote while another held the Lease");
    // Renewed for the last time by a clock decades ahead: it is not held until then.
    let last = Instant::now();
    world.api.merge(&path, &held(2099, beats + 1))?;
    world.becomes_in(SOON, &[])?;
    let took = last.elapsed();
    eprintln!("taken over {} ms after the last renewal", took.as_millis());
    ensure!(took >= LASTS, "taken over before the Lease ran out, after {took:?}");
    ebb.end()?;
    ensure!(proxy.judged()? > 0, "no delete was judged");
    Ok(())
}
