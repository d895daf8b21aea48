//! An image of this node's runtime: whether it stays and why, or when it goes, who uses it, and what removing it would give.

use crate::images::{Fate, Shown, shown, skipped};
use crate::runtime::{Sight, ago, short};
use crate::{Failure, json, plan::Output};
use anyhow::anyhow;
use ebb_journal::text::{bytes, plain};
use ebb_policy::Snapshot;
use ebb_policy::snapshot::{Image, Workload};
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
    image: Shown<'a>,
    looked_at: u64,
    /// Containers that have it, dead ones too: `namespace/name` of the pod, and the container's name.
    containers: Vec<User<'a>>,
    /// Other images that have layers of it.
    shares_with: Vec<&'a str>,
    /// How full the filesystem of images is, percent; absent where that is not known.
    full_percent: Option<u64>,
    /// From how full on images are removed, and down to where, percent.
    high_percent: u8,
    low_percent: u8,
    /// Images unused for longer than this go, milliseconds; absent where age alone removes none.
    max_age: Option<u64>,
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
pub(super) fn explain(sight: &Sight, reference: &str, output: Output) -> Result<String, Failure> {
    let snapshot = &sight.snapshot;
    let image = find(&snapshot.images, reference).map_err(Failure::Input)?;
    let Some(own) = shown(sight)?.into_iter().find(|shown| shown.id == image.id) else {
        return Err(Failure::Input(anyhow!(
            "image {reference}: the runtime lists it, and whether it stays was not decided; ask again"
        )));
    };
    let policy = sight.config.limits.image_gc();
    let answer = Answer {
        image: own,
        looked_at: snapshot.taken_at.0,
        containers: users(snapshot, &image.id),
        shares_with: sharing(snapshot, image),
        full_percent: sight.image_fs_full(),
        high_percent: policy.high_percent,
        low_percent: policy.low_percent,
        max_age: policy.max_age.map(|age| age.0),
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
    let found = if tagged.is_empty() { images.iter().filter(by_id).collect() } else { tagged };
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

fn near(images: &[Image], reference: &str) -> String {
    let like = |tag: &str| strsim::jaro_winkler(tag.rsplit('/').next().unwrap_or(tag), reference);
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
        is_running: container.state == ebb_policy::snapshot::ContainerState::Running,
    });
    user.collect()
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
    let Answer { image, containers, shares_with, .. } = answer;
    let name = image.tags.first().map_or(image.id, String::as_str);
    let fate = match &image.fate {
        Fate::Unused { place: 1 } => "unused, the first to go".to_owned(),
        Fate::Unused { place } => format!("unused, goes after {} others", place - 1),
        Fate::Skipped { why } => skipped(why).replacen("skipped: ", "stays: ", 1),
    };
    let mut lines = vec![format!("image {name} ({}): {fate}", short(image.id))];
    let size = bytes(image.total.unwrap_or(image.size));
    let own = image.unique.map_or_else(
        || "how much of it others share is not known".to_owned(),
        |unique| format!("{} of it go with it", bytes(unique)),
    );
    lines.push(format!("  {size} on disk, {own}"));
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
    let full = answer
        .full_percent
        .map_or_else(|| "how full it is is not known".to_owned(), |full| format!("{full} % now"));
    lines.push(format!(
        "  images are removed once their filesystem is {} % full, down to {} % ({full}){}",
        answer.high_percent,
        answer.low_percent,
        answer.max_age.map(|age| format!(", and when unused for {}", ago(age))).unwrap_or_default()
    ));
    lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
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
        let near = find(&images, "ngnix").unwrap_err().to_string();
        assert!(near.ends_with("did you mean docker.io/library/nginx:latest?"), "{near}");
    }
}
