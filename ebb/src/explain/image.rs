//! An image of this node's runtime: why it is kept or when it is removed, who uses it, and what removing it would give.

use crate::images::{Fate, Shown, shown, skipped};
use crate::runtime::{Sight, ago, failure, short};
use crate::{Failure, json, plan::Output};
use anyhow::anyhow;
use ebb_journal::text::{bytes, plain};
use ebb_policy::Snapshot;
use ebb_policy::limits::ImageOrder;
use ebb_policy::plan::SkipReason;
use ebb_policy::snapshot::{ContainerState, Image, Workload};
use serde::Serialize;
use std::collections::BTreeSet;

/// The fewest characters of an id that name an image.
const SHORTEST: usize = 6;

/// Names that are listed at most.
const LISTED: usize = 8;

/// What is known of an image.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    /// `image`, as a pod and a cgroup have theirs.
    kind: &'static str,
    asked: &'a str,
    image: Shown<'a>,
    /// Whether an ebb has remembered when images were in use.
    is_remembered: bool,
    /// Whether the order in which images are removed depends on how much is needed.
    is_by_layers: bool,
    /// Whether images are also removed while no threshold is met.
    is_collected: bool,
    looked_at: u64,
    /// Containers that have it, dead ones too: `namespace/name` of the pod, and the container's name.
    containers: Vec<User<'a>>,
    /// Pods that have it mounted as a volume.
    mounted_by: Vec<&'a str>,
    /// Other images that have layers of it.
    shares_with: Vec<&'a str>,
    /// How full the filesystem of images is, percent; absent where that is not known.
    full_percent: Option<u64>,
    /// From how full on images are removed, and down to where, percent.
    high_percent: u8,
    low_percent: u8,
    /// Images unused for longer than this are removed; absent where age alone removes none.
    max_age_ms: Option<u64>,
}

/// A container that has the image.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct User<'a> {
    /// Absent for a pod that the runtime alone knows no name of.
    pod: Option<&'a str>,
    pod_uid: &'a str,
    container: &'a str,
    is_running: bool,
}

/// Explains the image that `reference` names, as the answer is wanted.
///
/// # Errors
/// There is no such image, or more than one.
pub(super) async fn explain(
    sight: &Sight,
    reference: &str,
    output: Output,
) -> Result<String, Failure> {
    let snapshot = &sight.snapshot;
    let image = match find(&snapshot.images, reference) {
        Ok(image) => image,
        // By a digest, which is not kept of images, or as only the runtime itself reads a name.
        Err(unknown) => {
            let named = sight.runtime.image(&without_tag(reference)).await.map_err(failure)?;
            let found = named.and_then(|named| snapshot.images.iter().find(|i| i.id == named.id));
            found.ok_or(unknown).map_err(Failure::Input)?
        }
    };
    let Some(own) = shown(sight)?.into_iter().find(|shown| shown.id == image.id) else {
        return Err(Failure::Failed(anyhow!(
            "image {reference}: the runtime lists it, and nothing was decided of it"
        )));
    };
    let (policy, options) = (sight.config.limits.image_gc(), sight.config.limits.options());
    let by_size_or_age = policy.high_percent < 100 || policy.max_age.is_some();
    let answer = Answer {
        kind: "image",
        asked: reference,
        image: own,
        is_remembered: sight.history.images.is_some(),
        is_by_layers: options.image_order == ImageOrder::LeastToPullAgain,
        is_collected: options.image_gc_period.0 > 0 && by_size_or_age,
        looked_at: snapshot.taken_at.0,
        containers: users(snapshot, &image.id),
        mounted_by: mounted_by(snapshot, &image.id),
        shares_with: sharing(snapshot, image),
        full_percent: sight.image_fs_full(),
        high_percent: policy.high_percent,
        low_percent: policy.low_percent,
        max_age_ms: policy.max_age.map(|age| age.0),
    };
    Ok(match output {
        Output::Json => json::pretty(&answer)? + "\n",
        Output::Text => text(&answer),
    })
}

/// The image by a tag, as it is or as Docker's shorter form of it, by its id, or by as much of that as no other has.
fn find<'a>(images: &'a [Image], reference: &str) -> anyhow::Result<&'a Image> {
    let bare = reference.strip_prefix("sha256:").unwrap_or(reference);
    let by_tag = |image: &&Image| image.tags.iter().any(|tag| names(tag, reference));
    let by_id = |image: &&Image| {
        let id = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
        bare.len() >= SHORTEST && id.starts_with(bare)
    };
    let tagged: Vec<&Image> = images.iter().filter(by_tag).collect();
    let mut found = if tagged.is_empty() { images.iter().filter(by_id).collect() } else { tagged };
    // One that is kept for several runtime handlers is listed for each.
    found.dedup_by_key(|image| &image.id);
    match found.as_slice() {
        [image] => Ok(image),
        [] => {
            let hint = near(images, reference);
            Err(anyhow!(
                "image {reference}: it is not among the {} images of this node's runtime{hint}",
                images.len()
            ))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|image| image.id.as_str()).collect();
            Err(anyhow!("image {reference}: several are called so: {}; give an id", ids.join(", ")))
        }
    }
}

/// Whether a reference names this tag: `nginx` is `docker.io/library/nginx:latest`.
fn names(tag: &str, reference: &str) -> bool {
    // A colon before the last slash is a port's.
    let last = reference.rsplit('/').next().unwrap_or(reference);
    let whole = if last.contains(':') || last.contains('@') {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    };
    let short = tag.strip_prefix("docker.io/");
    tag == whole
        || short == Some(whole.as_str())
        || short.and_then(|short| short.strip_prefix("library/")) == Some(whole.as_str())
}

/// A reference that has a digest, without the tag that it may have beside that.
fn without_tag(reference: &str) -> String {
    let Some((name, digest)) = reference.split_once('@') else { return reference.to_owned() };
    let (path, last) = name.rsplit_once('/').map_or(("", name), |(path, last)| (path, last));
    let last = last.split(':').next().unwrap_or(last);
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{path}{slash}{last}@{digest}")
}

fn near(images: &[Image], reference: &str) -> String {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let like = |tag: &str| strsim::jaro_winkler(&last(tag), &last(reference));
    let tags = images.iter().flat_map(|image| &image.tags);
    let nearest = tags.map(|tag| (like(tag), tag)).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, tag)) if likeness > 0.6 => format!("; did you mean {tag}?"),
        _ => "; `ebb images` lists them".to_owned(),
    }
}

fn users<'a>(snapshot: &'a Snapshot, id: &str) -> Vec<User<'a>> {
    let named = |uid: &str| {
        let is_it = |workload: &&Workload| workload.key.uid.as_deref() == Some(uid);
        snapshot.workloads.iter().find(is_it).map(|workload| workload.key.name.as_str())
    };
    let own = snapshot.containers.iter().filter(|c| c.image.as_deref() == Some(id));
    let user = own.map(|container| User {
        pod: named(&container.pod_uid),
        pod_uid: &container.pod_uid,
        container: &container.name,
        is_running: container.state == ContainerState::Running,
    });
    user.collect()
}

fn mounted_by<'a>(snapshot: &'a Snapshot, id: &str) -> Vec<&'a str> {
    let has_it = |workload: &&Workload| workload.mounted_images.iter().any(|mounted| mounted == id);
    let pods = snapshot.workloads.iter().filter(has_it);
    pods.map(|workload| workload.key.name.as_str()).collect()
}

fn sharing<'a>(snapshot: &'a Snapshot, image: &Image) -> Vec<&'a str> {
    let own: BTreeSet<&str> = image.layers.iter().flatten().map(|layer| &**layer).collect();
    let others = snapshot.images.iter().filter(|other| other.id != image.id);
    others
        .filter(|other| other.layers.iter().flatten().any(|layer| own.contains(&**layer)))
        .map(|other| other.tags.first().map_or(other.id.as_str(), String::as_str))
        .collect()
}

fn text(answer: &Answer<'_>) -> String {
    let Answer { image, containers, mounted_by, shares_with, .. } = answer;
    let name = image.tags.first().map_or(image.id, String::as_str);
    let mut lines = vec![format!("image {name} ({}): {}", short(image.id), fate(answer))];
    let size = bytes(image.total.unwrap_or(image.size));
    let own = image.unique.map_or_else(
        || "how much of it others share is not known".to_owned(),
        |unique| format!("removing it frees {}", bytes(unique)),
    );
    lines.push(format!("  {size} on disk; {own}"));
    if !shares_with.is_empty() {
        lines.push(format!("  shares layers with {}", listed(shares_with)));
    }
    lines.push(match image.last_used {
        Some(used) if used >= answer.looked_at => "  in use now".to_owned(),
        Some(used) => format!("  last used {} ago", ago(answer.looked_at - used)),
        None => "  never used, as far as is known".to_owned(),
    });
    let users: Vec<String> = containers.iter().map(user).collect();
    if !users.is_empty() {
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        lines.push(format!("  used by {}", listed(&users)));
    }
    if !mounted_by.is_empty() {
        lines.push(format!("  mounted as a volume by {}", listed(mounted_by)));
    }
    lines.push(format!("  {}", when(answer)));
    lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
}

/// Why it is kept, or when it is removed.
fn fate(answer: &Answer<'_>) -> String {
    match &answer.image.fate {
        Fate::Skipped { why: SkipReason::TooYoung { .. } } if !answer.is_remembered => {
            "unused, since when is not known: no ebb here has remembered it".to_owned()
        }
        Fate::Skipped { why: SkipReason::TooYoung { wait } } => {
            format!("unused, may be removed in {} s", wait.0)
        }
        Fate::Skipped { why } => skipped(why).replacen("skipped: ", "kept: ", 1),
        Fate::Unused { .. } if answer.is_by_layers => {
            "unused, removed when what is needed takes it".to_owned()
        }
        Fate::Unused { place: 1 } => "unused, the first to be removed".to_owned(),
        Fate::Unused { place } => format!("unused, removed after {} others", place - 1),
    }
}

/// When images are removed at all.
fn when(answer: &Answer<'_>) -> String {
    let mut when = vec!["when a threshold on their filesystem is met".to_owned()];
    if answer.is_collected && answer.high_percent < 100 {
        let full = answer.full_percent.map(|full| format!(" ({full} % now)")).unwrap_or_default();
        when.push(format!(
            "once that is {} % full{full}, down to {} %",
            answer.high_percent, answer.low_percent
        ));
    }
    if answer.is_collected
        && let Some(age) = answer.max_age_ms
    {
        when.push(format!("after {} without use", ago(age)));
    }
    format!("unused images are removed {}", when.join(", "))
}

fn user(of: &User<'_>) -> String {
    let pod = of.pod.map_or_else(|| format!("uid {}", of.pod_uid), str::to_owned);
    let ended = if of.is_running { "" } else { ", not running" };
    format!("pod {pod} (container {}{ended})", of.container)
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, tag: &str) -> Image {
        Image {
            id: id.to_owned(),
            runtime_handler: None,
            tags: vec![tag.to_owned()],
            size: 1,
            layers: None,
            pinned: false,
            last_used: None,
            first_detected: None,
        }
    }

    #[test]
    fn an_image_is_found_as_docker_and_kubectl_name_it() {
        let images = [
            image("sha256:0123456789", "docker.io/library/nginx:latest"),
            image("sha256:0123456abc", "docker.io/grafana/loki:3"),
            image("sha256:fedcba9876", "registry.local:5000/app:1"),
        ];
        let found = |reference: &str| find(&images, reference).ok().map(|image| image.id.as_str());
        for (reference, at) in [
            ("nginx", 0),
            ("nginx:latest", 0),
            ("docker.io/library/nginx", 0),
            ("grafana/loki:3", 1),
            ("registry.local:5000/app:1", 2),
            ("sha256:fedcba", 2),
            ("fedcba9876", 2),
        ] {
            assert_eq!(found(reference), Some(images[at].id.as_str()), "{reference}");
        }
        for unknown in ["nginx:1", "loki:3", "fedcb", "app:1"] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
        let several = find(&images, "012345").unwrap_err().to_string();
        assert!(several.contains("several are called so") && several.contains("abc"), "{several}");
        let twice = [images[0].clone(), images[0].clone()];
        assert!(find(&twice, "nginx").is_ok(), "one for each runtime handler");
        let digest = "sha256:0123";
        for (reference, bare) in [
            ("nginx", "nginx".to_owned()),
            (&*format!("nginx:1@{digest}"), format!("nginx@{digest}")),
            (&*format!("r:5000/a/b@{digest}"), format!("r:5000/a/b@{digest}")),
            (&*format!("r:5000/a/b:1@{digest}"), format!("r:5000/a/b@{digest}")),
        ] {
            assert_eq!(without_tag(reference), bare);
        }
        let near = find(&images, "ngnix").unwrap_err().to_string();
        assert!(near.ends_with("did you mean docker.io/library/nginx:latest?"), "{near}");
    }
}
