//! How the graph grows: bytes an object and events a second for 100,000, 300,000 and 1,000,000 objects.
//!
//! Each Deployment owns a ReplicaSet, and each ReplicaSet eight Pods. Memory is what the kernel counts as resident.
//! Run with `cargo run --release -p ebb-policy-cluster --example size [COUNT]`.
//! Memory that one size gives back the next one uses again: for bytes an object, give one count.

use ebb_policy_cluster::{
    Exclusions, Graph, Kind, Object, OwnerReference, Resource, Scope, State, Time, Uid,
};
use std::time::Instant;

/// Objects of one chain: a Deployment, a ReplicaSet and its Pods.
const CHAIN: u64 = 10;

fn main() {
    println!(
        "objects    bytes each    names each    observed/s    changed/s    judged/s    forgotten/s"
    );
    let asked: Vec<u64> = std::env::args().skip(1).filter_map(|count| count.parse().ok()).collect();
    let counts = if asked.is_empty() { vec![100_000, 300_000, 1_000_000] } else { asked };
    counts.into_iter().for_each(measure);
}

fn uid(number: u64) -> Uid {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b) = (scattered >> 32, scattered & 0xffff_ffff);
    Uid::new(&format!("{a:08x}-{:04x}-4{:03x}-8000-{number:012x}", b >> 16, b & 0xfff))
}

fn kind(number: u64) -> Kind {
    match number % CHAIN {
        0 => Kind::new("apps/v1", "Deployment"),
        1 => Kind::new("apps/v1", "ReplicaSet"),
        _ => Kind::new("v1", "Pod"),
    }
}

fn name(number: u64) -> String {
    format!("workload-{number}-7f9c4d5b6")
}

fn object(number: u64) -> Object {
    let owner = match number % CHAIN {
        0 => None,
        1 => Some(number - 1),
        place => Some(number - place + 1),
    };
    let owners = owner.map(|owner| OwnerReference {
        kind: kind(owner),
        name: name(owner),
        uid: uid(owner),
        controller: true,
        block_owner_deletion: true,
    });
    Object {
        uid: uid(number),
        kind: kind(number),
        namespace: Some(format!("namespace-{}", number / CHAIN % 100)),
        name: name(number),
        resource_version: number.to_string(),
        owners: owners.into_iter().collect(),
        finalizers: vec![],
        deleting_since: None,
        held: false,
    }
}

/// Resident bytes; 0 where the kernel does not say.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}

fn measure(count: u64) {
    let before = resident();
    let mut graph = Graph::new(Exclusions::default());
    for number in 0..3 {
        let resource = Resource::from(&kind(number));
        graph.set_resource(resource, Some((Scope::Namespaced, State::Synced)));
    }
    let rate = |what: &mut dyn FnMut(u64)| {
        let begun = Instant::now();
        (0..count).for_each(what);
        count * 1_000 / u64::try_from(begun.elapsed().as_millis().max(1)).unwrap_or(u64::MAX)
    };
    let observed = rate(&mut |number| _ = graph.observe(object(number)));
    let bytes = resident().saturating_sub(before) / count;
    let names = (0..count).map(|number| name(number).len() as u64).sum::<u64>() / count;
    let changed = rate(&mut |number| {
        let changed = Object { resource_version: format!("{number}1"), ..object(number) };
        graph.observe(Object { deleting_since: Some(Time(1)), ..changed });
    });
    let judged = rate(&mut |number| _ = std::hint::black_box(graph.verdict(&uid(number))));
    let forgotten =
        rate(&mut |number| _ = graph.forget(&uid(number), ebb_policy_cluster::Gone::Deleted));
    println!(
        "{count:>9}{bytes:>12}{names:>14}{observed:>14}{changed:>13}{judged:>12}{forgotten:>15}"
    );
}
