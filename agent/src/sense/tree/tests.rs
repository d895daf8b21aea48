//! The tree on fake nodes: temporary directories laid out like the trees of real machines.
use super::*;
use std::ffi::OsStr;
use std::fs;

/// Makes cgroups from lines of `path [p] [g]`: `p` has a process, `g` has memory.oom.group.
fn fake(lines: &[&str]) -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    for line in lines {
        let mut words = line.split(' ');
        let path = dir.path().join(words.next().unwrap());
        fs::create_dir_all(&path).unwrap();
        let marks: Vec<_> = words.collect();
        if marks.contains(&"g") {
            fs::write(path.join("memory.oom.group"), "1\n").unwrap();
        }
        if marks.contains(&"p") {
            fs::write(path.join("cgroup.procs"), "1234\n").unwrap();
            let mut up = path.as_path();
            while up != dir.path() {
                fs::write(up.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
                up = up.parent().unwrap();
            }
        }
    }
    let tree = Tree::scan(dir.path()).unwrap();
    (dir, tree)
}

fn workload_paths(tree: &Tree) -> Vec<String> {
    let mut paths: Vec<String> = tree
        .workloads(None)
        .into_iter()
        .map(|id| tree.get(id).unwrap().path.to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths
}

#[test]
fn a_systemd_machine_has_its_units_as_workloads_and_user_managers_are_looked_into() {
    let (_dir, tree) = fake(&[
        "init.scope p",
        "system.slice/sshd.service p",
        "system.slice/docker-abc.scope/inner p",
        "user.slice/user-1000.slice/user@1000.service/app.slice/browser.scope p",
        "user.slice/user-1000.slice/user@1000.service/init.scope p",
        "system.slice/stopped.service",
    ]);
    assert_eq!(
        workload_paths(&tree),
        [
            "init.scope",
            "system.slice/docker-abc.scope",
            "system.slice/sshd.service",
            "user.slice/user-1000.slice/user@1000.service/app.slice/browser.scope",
            "user.slice/user-1000.slice/user@1000.service/init.scope",
        ]
    );
}

#[test]
fn below_a_pod_each_container_is_a_workload_and_knows_its_pod_under_either_driver() {
    let (_dir, tree) = fake(&[
        "kubepods/burstable/pod5a0b9c1e-1111-2222-3333-444455556666/c1 p",
        "kubepods/burstable/pod5a0b9c1e-1111-2222-3333-444455556666/c2/nested p",
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod5a0b9c1e_1111_2222_3333_444455556667.slice/cri-containerd-x.scope p",
    ]);
    let found: Vec<_> = tree.workloads(None).into_iter().filter_map(|id| tree.get(id)).collect();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|n| n.pod_uid().unwrap().starts_with("5a0b9c1e-1111")));
}

#[test]
fn hand_made_groups_with_processes_are_workloads_and_oom_group_joins_what_is_below() {
    let (_dir, tree) = fake(&["apps/a p", "apps/b p", "job g", "job/one p", "job/two p"]);
    assert_eq!(workload_paths(&tree), ["apps/a", "apps/b", "job"]);
}

#[test]
fn where_threads_are_in_threaded_cgroups_the_one_above_is_the_workload() {
    // The first thread of its only process ended elsewhere, so that it lists nobody.
    let (dir, _) = fake(&["apps.slice/d/t p"]);
    let above = dir.path().join("apps.slice/d");
    fs::write(above.join("cgroup.type"), "domain threaded\n").unwrap();
    assert_eq!(workload_paths(&Tree::scan(dir.path()).unwrap()), ["apps.slice/d"]);
}

#[test]
fn the_operators_own_list_replaces_the_rules() {
    let (_dir, tree) = fake(&["apps/a p", "apps/b p", "system.slice/x.service p"]);
    let chosen = |p: &Path| p == Path::new("apps");
    let ids = tree.workloads(Some(&chosen));
    assert_eq!(ids, [tree.id_of(Path::new("apps")).unwrap()]);
}

#[test]
fn a_name_that_was_given_to_another_cgroup_is_forgotten_under_the_old_id() {
    let (dir, mut tree) = fake(&["apps/a p", "apps/a/inner p"]);
    let old = tree.id_of(Path::new("apps/a")).unwrap();
    fs::rename(dir.path().join("apps/a"), dir.path().join("elsewhere")).unwrap();
    fs::create_dir(dir.path().join("apps/a")).unwrap();
    assert!(tree.refresh(old, Path::new("apps/a")));
    assert!(tree.get(old).is_none());
    assert!(tree.id_of(Path::new("apps/a/inner")).is_none());
}

#[test]
fn names_with_spaces_newlines_and_bytes_that_are_not_text_are_kept_as_they_are() {
    let odd = [&b"a b"[..], b"line\nbreak", b"\xff\xfe"];
    let dir = tempfile::tempdir().unwrap();
    for name in odd {
        let path = dir.path().join(OsStr::from_bytes(name));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("cgroup.events"), "populated 1\n").unwrap();
        fs::write(path.join("cgroup.procs"), "7\n").unwrap();
    }
    let tree = Tree::scan(dir.path()).unwrap();
    assert_eq!(tree.workloads(None).len(), odd.len());
}

#[test]
fn only_what_the_kubelet_writes_is_a_pod_name() {
    let uid = "5a0b9c1e-1111-2222-3333-444455556666";
    assert_eq!(pod_uid(format!("pod{uid}").as_bytes()).as_deref(), Some(uid));
    let slice = format!("kubepods-pod{}.slice", uid.replace('-', "_"));
    assert_eq!(pod_uid(slice.as_bytes()).as_deref(), Some(uid));
    let hash = "0123456789abcdef0123456789abcdef";
    assert_eq!(pod_uid(format!("pod{hash}").as_bytes()).as_deref(), Some(hash));
    for not in ["pod", "podman", "podcast.service", "pod5a0b9c1e", "kubepods-burstable.slice"] {
        assert_eq!(pod_uid(not.as_bytes()), None, "{not}");
    }
}

#[test]
fn a_root_that_cannot_be_read_is_an_error() {
    assert!(Tree::scan(Path::new("/nonexistent/cgroup")).is_err());
}

/// A tree of `number` cgroups, made without a file.
fn synthetic(number: u64) -> Tree {
    let mut tree = Tree::default();
    for id in 1..=number {
        let path = PathBuf::from(format!("kubepods/burstable/pod{}/container{id}", id / 4));
        let node = Node { parent: 0, path, populated: true, has_processes: true, oom_group: false };
        tree.put(id, node);
    }
    tree
}

#[test]
fn what_is_below_a_forgotten_cgroup_goes_with_it_and_what_is_beside_it_stays() {
    let (_dir, mut tree) = fake(&["a/b p", "a/b/c p", "a/b-x p", "a/b.y/c p", "a/bb p", "a/c p"]);
    let id = |tree: &Tree, path: &str| tree.id_of(Path::new(path));
    let gone = id(&tree, "a/b").unwrap();
    assert!(tree.forget(gone) && !tree.forget(gone));
    assert_eq!((id(&tree, "a/b"), id(&tree, "a/b/c")), (None, None));
    for stays in ["a", "a/b-x", "a/b.y/c", "a/bb", "a/c"] {
        let id = id(&tree, stays).unwrap_or_else(|| panic!("{stays}"));
        assert_eq!(tree.get(id).unwrap().path, Path::new(stays));
    }
}

#[test]
fn a_cgroup_that_was_renamed_is_found_under_its_new_name_alone() {
    let (dir, mut tree) = fake(&["apps/a p"]);
    let id = tree.id_of(Path::new("apps/a")).unwrap();
    fs::rename(dir.path().join("apps/a"), dir.path().join("apps/b")).unwrap();
    assert!(tree.refresh(id, Path::new("apps/b")));
    assert_eq!(tree.id_of(Path::new("apps/b")), Some(id));
    assert_eq!(tree.id_of(Path::new("apps/a")), None);
    assert_eq!(tree.len(), 3);
}

/// What the kernel tells of one cgroup must not cost the more the more others there are: it tells of thousands at once.
#[test]
fn an_event_costs_about_as_much_among_many_cgroups_as_among_few() {
    // The best of many rounds: what else the machine does only ever adds.
    let cost = |number: u64| {
        let mut tree = synthetic(number);
        let mut best = std::time::Duration::MAX;
        for round in 0..50 {
            let ids = (0..8).map(|n| number - (round * 8 + n) % number);
            let gone: Vec<(u64, Node)> =
                ids.map(|id| (id, tree.get(id).unwrap().clone())).collect();
            let began = std::time::Instant::now();
            for (id, node) in &gone {
                assert_eq!(tree.id_of(&node.path), Some(*id));
                assert!(tree.forget(*id));
            }
            best = best.min(began.elapsed());
            gone.into_iter().for_each(|(id, node)| tree.put(id, node));
        }
        best
    };
    let (few, many) = (cost(500), cost(20_000));
    println!("8 events: {few:?} among 500 cgroups, {many:?} among 20,000");
    assert!(many < few * 10, "{few:?} among 500 cgroups, {many:?} among 20,000");
}

#[test]
fn a_container_is_known_by_its_name_under_either_driver() {
    let id = "0123456789abcdef".repeat(4);
    for name in [
        id.clone(),
        format!("kubepods.slice/cri-containerd-{id}.scope"),
        format!("kubepods/burstable/podu1/crio-{id}"),
        format!("system.slice/docker-{id}.scope"),
        format!("kubepods/podu1/kata_{id}"),
    ] {
        assert_eq!(container_id(Path::new(&name)), Some(id.as_str()), "{name}");
    }
    for name in [
        "system.slice/web.service".to_owned(),
        "podu1".to_owned(),
        id[1..].to_owned(),
        id.to_uppercase(),
        format!("{id}.service"),
        String::new(),
    ] {
        assert_eq!(container_id(Path::new(&name)), None, "{name}");
    }
}

/// Whoever owns a tree may nest as deep as the kernel lets them.
#[test]
fn what_is_nested_deeper_than_is_followed_counts_at_the_depth_where_following_ends() {
    let path = format!("user.slice/{}leak", "n/".repeat(70));
    let (dir, mut tree) = fake(&["apps/web p", &format!("{path} p")]);
    let deepest: PathBuf = Path::new(&path).iter().take(MAX_DEPTH).collect();
    assert_eq!(workload_paths(&tree), ["apps/web", deepest.to_str().unwrap()]);
    let below: PathBuf = Path::new(&path).iter().take(MAX_DEPTH + 1).collect();
    let id = fs::metadata(dir.path().join(&below)).unwrap().ino();
    assert!(!tree.refresh(id, &below), "an event does not make it a workload beside itself");
    assert_eq!(tree.workloads(None).len(), 2);
}

#[test]
fn names_that_make_a_path_too_long_to_open_hide_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut at =
        nix::fcntl::open(dir.path(), nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty())
            .unwrap();
    let name = "n".repeat(250);
    let below = |at: &std::os::fd::OwnedFd, name: &str, flags| {
        nix::fcntl::openat(at, name, flags, nix::sys::stat::Mode::S_IRWXU).unwrap()
    };
    for _ in 0..30 {
        nix::sys::stat::mkdirat(&at, name.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        at = below(&at, &name, nix::fcntl::OFlag::O_DIRECTORY);
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CREAT;
        nix::unistd::write(below(&at, "cgroup.events", flags), b"populated 1\n").unwrap();
    }
    let tree = Tree::scan(dir.path()).unwrap();
    assert_eq!(tree.workloads(None).len(), 1);
}
