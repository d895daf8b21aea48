//! Memory of a user's tree that is charged to none of its workloads: who has it, and when nobody is chosen because that is not known.
use super::*;

/// A user's tree in which 500 MiB are charged to no workload, and the process that has them is in one of two.
struct Moving {
    fake: Fake,
    state: NodeState,
}

impl Moving {
    const TREE: &str = "user.slice/user-1000.slice/user@1000.service";
    const PID: i32 = 4_194_306;

    fn new() -> Self {
        let fake = Fake::new();
        fake.add("apps/innocent", 30 << 20);
        let tree = Self::TREE;
        Self::holds(&fake, 500);
        for name in ["a.scope", "b.scope"] {
            Self::add(&fake, name);
        }
        let dir = fake.roots().cgroup.join(tree);
        fs::write(dir.join("memory.stat"), format!("anon {}\n", 500_u64 << 20)).unwrap();
        fs::write(dir.join("cgroup.procs"), "").unwrap();
        Self::put(&fake, "a.scope", true);
        let state = fake.state(&Patterns::default());
        Self { fake, state }
    }

    /// The same with neither of the two any more, which nobody has told of: the tree is read again.
    fn without_scopes() -> Self {
        let mut moving = Self::new();
        for name in ["a.scope", "b.scope"] {
            fs::remove_dir_all(moving.fake.roots().cgroup.join(Self::TREE).join(name)).unwrap();
        }
        moving.state.forget_tree();
        moving
    }

    /// Says that the process has so many MiB.
    fn holds(fake: &Fake, mib: u64) {
        let proc = fake.roots().proc.join(Self::PID.to_string());
        fs::create_dir_all(&proc).unwrap();
        let status = format!("Name:\tleak\nRssAnon:\t {} kB\n", mib << 10);
        fs::write(proc.join("status"), status).unwrap();
    }

    fn add(fake: &Fake, name: &str) {
        let path = format!("{}/{name}", Self::TREE);
        fake.add(&path, 1 << 20);
        fs::write(fake.roots().cgroup.join(path).join("memory.stat"), "anon 1048576\n").unwrap();
        Self::put(fake, name, false);
    }

    fn put(fake: &Fake, name: &str, is_in_it: bool) {
        let dir = fake.roots().cgroup.join(Self::TREE).join(name);
        let (procs, populated) =
            if is_in_it { (Self::PID.to_string(), 1) } else { (String::new(), 0) };
        fs::write(dir.join("cgroup.procs"), procs).unwrap();
        fs::write(dir.join("cgroup.events"), format!("populated {populated}\n")).unwrap();
    }

    /// Whether nobody is to be chosen by what was read last.
    fn is_outdated(&self) -> bool {
        self.state.is_outdated(self.state.sampled().unwrap())
    }

    /// Moves the process, and reads so long after it was asked.
    fn to(&mut self, from: &str, to: &str, later: Duration) {
        Self::put(&self.fake, from, false);
        Self::put(&self.fake, to, true);
        let now = self.state.sampled().unwrap().plus(later);
        self.state.sample(now, Depth::Memory).unwrap();
    }
}

#[test]
fn memory_follows_who_moves_however_soon_after_it_was_asked() {
    let mut moving = Moving::new();
    assert_eq!(mib_of(&moving.state, "a.scope"), Some(500));
    let to = moving.fake.roots().cgroup.join(Moving::TREE).join("b.scope");
    let id = crate::sense::cgroup::id_at(&to).unwrap();
    let path = format!("/{}/b.scope", Moving::TREE);
    Moving::put(&moving.fake, "b.scope", true);
    moving.state.observe_kernel(&event(CgroupChange::Created, id, Some(&path)));
    moving.to("a.scope", "b.scope", Duration::ZERO);
    assert_eq!(mib_of(&moving.state, "b.scope"), Some(500));
    assert_eq!(mib_of(&moving.state, "a.scope"), None, "nothing runs in it");
    assert_eq!(mib_of(&moving.state, "innocent"), Some(30));
}

#[test]
fn memory_is_looked_for_in_a_cgroup_that_nobody_has_told_of_yet() {
    let mut moving = Moving::new();
    moving.state.tree_events_are_live(true);
    Moving::add(&moving.fake, "new.scope");
    moving.to("a.scope", "new.scope", Duration::from_secs(1));
    assert_eq!(mib_of(&moving.state, "new.scope"), Some(500));
}

#[test]
fn memory_follows_who_moves_to_where_nobody_counts_it() {
    let moving = Moving::new();
    let dir = moving.fake.roots().cgroup.join(Moving::TREE).join("a.scope");
    for file in ["memory.current", "memory.stat"] {
        fs::remove_file(dir.join(file)).unwrap();
    }
    let state = moving.fake.state(&Patterns::default());
    assert_eq!(mib_of(&state, "a.scope"), Some(500));
    assert_eq!(mib_of(&state, "b.scope"), None, "nothing runs in it");
}

#[test]
fn what_nobody_of_a_tree_is_found_to_hold_may_be_anybodys_in_it_and_nobody_elses() {
    let mut moving = Moving::new();
    Moving::holds(&moving.fake, 20);
    moving.to("b.scope", "a.scope", Duration::from_secs(2));
    assert_eq!(mib_of(&moving.state, "a.scope"), Some(500));
    assert_eq!(mib_of(&moving.state, "innocent"), Some(30));
}

/// A memfd, or memory mapped to be shared: it is charged to who touched it first, and goes with the last who has it.
#[test]
fn shared_memory_counts_for_whoever_maps_it_and_files_of_tmpfs_for_nobody() {
    for (maps, counts) in [(500, 501), (0, 1)] {
        let mut moving = Moving::new();
        let tree = moving.fake.roots().cgroup.join(Moving::TREE);
        let stat = format!("anon {}\nshmem {}\n", 1 << 20, 500 << 20);
        fs::write(tree.join("memory.stat"), stat).unwrap();
        let proc = moving.fake.roots().proc.join(Moving::PID.to_string());
        let status = format!("Name:\tleak\nRssAnon:\t 1024 kB\nRssShmem:\t {} kB\n", maps << 10);
        fs::write(proc.join("status"), status).unwrap();
        moving.to("b.scope", "a.scope", Duration::from_secs(2));
        assert_eq!(mib_of(&moving.state, "a.scope"), Some(counts));
        assert_eq!(mib_of(&moving.state, "innocent"), Some(30));
        assert!(!moving.is_outdated());
    }
}

/// Of those behind the largest only the usage is read. What else is charged to them must not count as held by nobody, and their page cache must not hide who holds what he has left elsewhere.
#[test]
fn nobody_among_very_many_counts_twice_or_hides_there() {
    let fake = Fake::new();
    fake.add("apps/innocent", 30 << 20);
    let write = |at: PathBuf, text: String| fs::write(at, text).unwrap();
    let large = READ_IN_FULL;
    let many = large + 64;
    let hidden = 300;
    let usage_of = |n: usize| if n < large { 9 } else { 8 };
    let own_of = |n: usize| if n < large { 9 } else { 4 };
    for n in 0..many {
        let path = format!("{}/{n:03}.scope", Moving::TREE);
        fake.add(&path, usage_of(n) << 20);
        let dir = fake.roots().cgroup.join(path);
        write(dir.join("memory.stat"), format!("anon {}\n", own_of(n) << 20));
        write(dir.join("cgroup.procs"), format!("{}\n", 4_194_400 + n));
        let proc = fake.roots().proc.join(format!("{}", 4_194_400 + n));
        fs::create_dir_all(&proc).unwrap();
        let holds = own_of(n) + if n == many - 1 { hidden } else { 0 };
        write(proc.join("status"), format!("Name:\tone\nRssAnon:\t {} kB\n", holds << 10));
    }
    let tree = fake.roots().cgroup.join(Moving::TREE);
    let own: u64 = (0..many).map(own_of).sum();
    write(tree.join("memory.stat"), format!("anon {}\n", (own + hidden) << 20));
    write(tree.join("cgroup.procs"), String::new());
    let mut state = fake.state(&Patterns::default());
    for again in 0..2 {
        for n in 0..many {
            let uses = usage_of(n) + if n == many - 1 { hidden } else { 0 };
            assert_eq!(mib_of(&state, &format!("/{n:03}.scope")), Some(uses), "{n}, {again}");
        }
        state.sample(Boot::now().plus(Duration::from_secs(2)), Depth::Memory).unwrap();
    }
}

/// While its memory is taken back, `RssAnon` is no longer shown of it.
#[test]
fn who_is_exiting_has_what_is_missing_and_not_whoever_runs_beside_it() {
    let mut moving = Moving::new();
    let beside = moving.fake.roots().cgroup.join(Moving::TREE).join("b.scope");
    fs::write(beside.join("cgroup.procs"), "4194307\n").unwrap();
    fs::write(beside.join("cgroup.events"), "populated 1\n").unwrap();
    let proc = moving.fake.roots().proc.join("4194307");
    fs::create_dir_all(&proc).unwrap();
    fs::write(proc.join("status"), "Name:\tidle\nRssAnon:\t 1024 kB\n").unwrap();
    let leak = moving.fake.roots().proc.join(Moving::PID.to_string());
    fs::write(leak.join("status"), "Name:\tleak\nState:\tZ (zombie)\n").unwrap();
    let later = moving.state.sampled().unwrap().plus(Duration::from_secs(2));
    moving.state.sample(later, Depth::Memory).unwrap();
    assert_eq!(mib_of(&moving.state, "a.scope"), Some(499));
    assert_eq!(mib_of(&moving.state, "b.scope"), Some(1));
}

/// It is found in another cgroup of the tree only by reading: until then an innocent is the largest that is known.
#[test]
fn once_somebody_has_left_a_tree_that_was_handed_over_nobody_is_chosen_before_workloads_are_read() {
    let id_of = |moving: &Moving, path: &str| {
        crate::sense::cgroup::id_at(&moving.fake.roots().cgroup.join(path)).unwrap()
    };
    let leak = format!("{}/a.scope", Moving::TREE);
    for change in [CgroupChange::Populated(false), CgroupChange::Removed] {
        let mut moving = Moving::new();
        moving.state.observe_kernel(&event(change, id_of(&moving, &leak), None));
        assert!(moving.is_outdated(), "{change:?}");
        moving.to("a.scope", "b.scope", Duration::from_secs(2));
        assert!(!moving.is_outdated());
        assert_eq!(mib_of(&moving.state, "b.scope"), Some(500));
        let innocent = id_of(&moving, "apps/innocent");
        moving.state.observe_kernel(&event(change, innocent, None));
        assert!(!moving.is_outdated(), "its tree was handed to nobody");
    }
    let mut moving = Moving::new();
    let target =
        Target::Cgroup { id: id_of(&moving, &leak), path: moving.fake.roots().cgroup.join(&leak) };
    moving.state.forget_removed(&target);
    assert!(moving.is_outdated(), "nobody was found where it was to be killed");
}

#[test]
fn who_was_alone_in_a_tree_and_has_moved_where_nobody_has_told_of_is_looked_for_before_anybody_is_chosen()
 {
    let mut moving = Moving::new();
    moving.state.tree_events_are_live(true);
    let then = moving.state.sampled().unwrap();
    let from_to = |moving: &mut Moving, from: &[&str], to: &str| {
        for name in from {
            let dir = moving.fake.roots().cgroup.join(Moving::TREE).join(name);
            let id = crate::sense::cgroup::id_at(&dir).unwrap();
            fs::remove_dir_all(&dir).unwrap();
            moving.state.observe_kernel(&event(CgroupChange::Removed, id, None));
        }
        Moving::add(&moving.fake, to);
        Moving::put(&moving.fake, to, true);
    };
    from_to(&mut moving, &["a.scope", "b.scope"], "new.scope");
    moving.state.sample(then, Depth::Memory).unwrap();
    assert_eq!(mib_of(&moving.state, "new.scope"), Some(500));
    assert!(!moving.is_outdated());
    from_to(&mut moving, &["new.scope"], "newer.scope");
    moving.state.sample(then, Depth::Memory).unwrap();
    assert_eq!(mib_of(&moving.state, "newer.scope"), None);
    assert!(moving.is_outdated(), "it was looked for a moment ago, and is again later");
    moving.state.sample(then.plus(Duration::from_secs(1)), Depth::Memory).unwrap();
    assert_eq!(mib_of(&moving.state, "newer.scope"), Some(500));
    assert!(!moving.is_outdated());
}

/// Its memory is charged to it then.
#[test]
fn a_tree_that_has_become_a_workload_holds_nobody_up() {
    let mut moving = Moving::without_scopes();
    let root = moving.fake.roots().cgroup.join(Moving::TREE);
    fs::write(root.join("memory.current"), (500_u64 << 20).to_string()).unwrap();
    fs::write(root.join("cgroup.procs"), Moving::PID.to_string()).unwrap();
    fs::write(root.join("cgroup.events"), "populated 1\n").unwrap();
    let later = moving.state.sampled().unwrap().plus(Duration::from_secs(2));
    moving.state.sample(later, Depth::Memory).unwrap();
    assert_eq!(mib_of(&moving.state, "user@1000.service"), Some(500));
    assert!(!moving.is_outdated());
}

#[test]
fn whoever_is_never_found_holds_up_the_choice_of_others_for_a_moment_and_not_again_at_once() {
    let mut moving = Moving::without_scopes();
    let begun = moving.state.sampled().unwrap().plus(Duration::from_secs(2));
    let read = |moving: &mut Moving, after| {
        let at = begun.plus(Duration::from_millis(after));
        moving.state.sample(at, Depth::Memory).unwrap();
        at
    };
    // Readings by which nobody is to be chosen use up nothing of it.
    for after in [0, 5_000] {
        let at = read(&mut moving, after);
        assert!(moving.state.is_outdated(at), "{after}");
    }
    let mut is_held = |after: u64| {
        let at = read(&mut moving, 6_000 + after);
        moving.state.holds_choice(at)
    };
    let held = [0, 20, 249, 250, 300, 5_000, 9_999, 10_000].map(&mut is_held);
    assert_eq!(held, [true, true, true, false, false, false, false, true]);
}

#[test]
fn of_a_tree_of_which_some_cgroups_are_listed_nobody_is_charged_with_what_the_others_hold() {
    let moving = Moving::new();
    Moving::holds(&moving.fake, 20);
    let listed = format!("{}/a.scope", Moving::TREE);
    let patterns = Patterns { workloads: vec![listed], ..Patterns::default() };
    assert_eq!(mib_of(&moving.fake.state(&patterns), "a.scope"), Some(20));
}
