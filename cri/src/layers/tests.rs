//! Stores put together: who needs what, and what would be free.

use super::*;

fn blob(bytes: u64, content: &[&str], snapshots: &[&str]) -> Blob {
    Blob {
        bytes,
        content: content.iter().map(|&s| s.into()).collect(),
        snapshots: snapshots.iter().map(|&s| ("overlayfs".into(), s.into())).collect(),
        is_root: false,
    }
}

fn snapshot(parent: Option<&str>, is_committed: bool, bytes: u64) -> Snapshot {
    let parent = parent.map(Into::into);
    Snapshot { parent, is_committed, is_root: false, bytes, inodes: 1 }
}

/// Two images on one base layer; `b` has another name through an index.
fn stores() -> Stores {
    let content = [
        ("m-a", blob(1, &["sha256:a", "l-base", "l-a"], &[])),
        ("sha256:a", blob(2, &[], &["base+a"])),
        ("index-b", blob(1, &["m-b", "m-other-platform"], &[])),
        ("m-b", blob(1, &["sha256:b", "l-base", "l-b"], &[])),
        ("sha256:b", blob(2, &[], &["base+b"])),
        ("l-base", blob(100, &[], &[])),
        ("l-a", blob(10, &[], &[])),
        ("l-b", blob(20, &[], &[])),
        ("orphan", blob(7, &[], &[])),
    ];
    let snapshots = [
        ("base", snapshot(None, true, 1000)),
        ("base+a", snapshot(Some("base"), true, 300)),
        ("base+b", snapshot(Some("base"), true, 500)),
    ];
    let names = [("sha256:a", "m-a"), ("r/a:1", "m-a"), ("sha256:b", "m-b"), ("r/b:1", "index-b")];
    Stores {
        names: names.into_iter().map(|(n, t)| (n.into(), t.into())).collect(),
        content: content.into_iter().map(|(d, b)| (d.into(), b)).collect(),
        snapshots: snapshots
            .into_iter()
            .map(|(k, s)| (("overlayfs".into(), k.into()), s))
            .collect(),
    }
}

#[test]
fn a_shared_layer_is_free_only_when_both_images_go() {
    let layers = stores().put_together();
    assert_eq!(layers.freed_by(["sha256:a"]), (1 + 2 + 10 + 300, 4));
    assert_eq!(layers.freed_by(["sha256:b"]), (1 + 1 + 2 + 20 + 500, 5));
    assert_eq!(
        layers.freed_by(["sha256:a", "sha256:b"]),
        (1 + 2 + 10 + 300 + 1 + 1 + 2 + 20 + 500 + 100 + 1000, 11)
    );
    assert_eq!(layers.total("sha256:a"), Some(1 + 2 + 10 + 100 + 300 + 1000));
}

#[test]
fn layers_below_a_container_stay_when_its_image_goes() {
    let mut stores = stores();
    let container = snapshot(Some("base+a"), false, 50);
    stores.snapshots.insert(("overlayfs".into(), "container".into()), container);
    let layers = stores.put_together();
    assert_eq!(layers.freed_by(["sha256:a"]), (1 + 2 + 10, 3));
}

#[test]
fn what_another_name_keeps_is_held() {
    let mut stores = stores();
    stores.names.insert("someone/elses:1".into(), "l-a".into());
    let layers = stores.put_together();
    assert_eq!(layers.freed_by(["sha256:a"]).0, 1 + 2 + 300);
}

#[test]
fn an_unknown_image_frees_nothing_and_has_no_size() {
    let layers = stores().put_together();
    assert_eq!(layers.freed_by(["sha256:x"]), (0, 0));
    assert_eq!(layers.total("sha256:x"), None);
}

#[test]
fn references_in_a_circle_end() {
    let mut stores = stores();
    stores.content.insert("l-a".into(), blob(10, &["m-a"], &[]));
    assert_eq!(stores.put_together().freed_by(["sha256:a"]).0, 1 + 2 + 10 + 300);
}
