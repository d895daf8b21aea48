//! Which workloads the operator and the machine itself set apart: protected ones, preferred victims, priorities.
//!
//! Patterns are globs over the cgroup's path below the mount, without a leading slash; `*` stays within one name, `**` does not.
//! A name says something only when the administrator gave it ([`Custody`]): the rules of the machine itself never match below
//! what was handed to somebody else, and the operator's do when their first name is written out (`user.slice/**/db.service`).
//! On a host where processes are the workloads, the same patterns are matched against the command name.

use crate::config::Patterns;
use crate::sense::custody::Custody;
use ebb_policy::snapshot::{Preference, ProtectedReason};
use globset::{Glob, GlobMatcher, GlobSet, GlobSetBuilder};
use std::path::Path;

/// What no configuration can open to eviction: without these a machine cannot be reached, or loses its containers.
const ALWAYS_PROTECTED: [(&str, ProtectedReason); 9] = [
    ("init.scope", ProtectedReason::Init),
    ("system.slice/systemd-*.service", ProtectedReason::Init),
    ("system.slice/dbus*.service", ProtectedReason::Init),
    ("system.slice/{ssh,sshd}*.service", ProtectedReason::Configured),
    (
        "**/{kubelet,kubelite,k3s,k3s-agent,rke2-server,rke2-agent}.service",
        ProtectedReason::Kubelet,
    ),
    ("**/{containerd,docker,crio,cri-docker,podman}.service", ProtectedReason::Runtime),
    ("**/{crio-conmon,libpod-conmon}-*.scope", ProtectedReason::Runtime),
    ("runtime.slice/**", ProtectedReason::Runtime),
    ("**/ebb.service", ProtectedReason::Agent),
];

/// A pattern, and whether it says itself where in the tree it looks.
#[derive(Clone, Debug)]
struct Pattern {
    glob: GlobMatcher,
    is_anchored: bool,
}

/// The patterns, compiled.
#[derive(Clone, Debug)]
pub struct Rules {
    workloads: Option<GlobSet>,
    always: Vec<(GlobMatcher, ProtectedReason)>,
    protected: Vec<Pattern>,
    prefer: GlobSet,
    avoid: Vec<Pattern>,
    priorities: Vec<(Pattern, i32)>,
}

impl Rules {
    /// Compiles the operator's patterns and adds what is always protected.
    ///
    /// # Errors
    /// Names the first pattern that is not a glob, and what is wrong with it.
    pub fn new(patterns: &Patterns) -> Result<Self, globset::Error> {
        let always = ALWAYS_PROTECTED.iter().map(|(glob, why)| Ok((matcher(glob)?, *why)));
        Ok(Self {
            workloads: (!patterns.workloads.is_empty())
                .then(|| set(&patterns.workloads))
                .transpose()?,
            always: always.collect::<Result<_, globset::Error>>()?,
            protected: patterns
                .protected
                .iter()
                .map(|glob| Pattern::new(glob))
                .collect::<Result<_, _>>()?,
            prefer: set(&patterns.prefer)?,
            avoid: patterns
                .avoid
                .iter()
                .map(|glob| Pattern::new(glob))
                .collect::<Result<_, _>>()?,
            priorities: patterns
                .priorities
                .iter()
                .map(|(glob, priority)| Ok((Pattern::new(glob)?, *priority)))
                .collect::<Result<_, globset::Error>>()?,
        })
    }

    /// The operator's own list of workloads, if there is one.
    #[must_use]
    pub fn chosen(&self) -> Option<&GlobSet> {
        self.workloads.as_ref()
    }

    /// Why the cgroup at `path` must not be killed, if so; `custody` is that of this path.
    #[must_use]
    pub fn protected(&self, path: &Path, custody: &Custody) -> Option<ProtectedReason> {
        let mut always = self.always.iter().filter(|_| is_a_units_place(path, custody));
        let always = always.find(|(glob, _)| glob.is_match(path)).map(|(_, why)| *why);
        let own = || self.protected.iter().any(|own| own.is_match(path, custody));
        always.or_else(|| own().then_some(ProtectedReason::Configured))
    }

    /// Whether it goes before or after its equals; `prefer` wins over `avoid`.
    #[must_use]
    pub fn preference(&self, path: &Path, custody: &Custody) -> Preference {
        // Whoever names itself so that it goes first harms nobody else.
        if self.prefer.is_match(path) {
            Preference::Prefer
        } else if self.avoid.iter().any(|avoid| avoid.is_match(path, custody)) {
            Preference::Avoid
        } else {
            Preference::Neutral
        }
    }

    /// The priority of the first pattern that matches.
    #[must_use]
    pub fn priority(&self, path: &Path, custody: &Custody) -> Option<i32> {
        let mut all = self.priorities.iter();
        all.find(|(pattern, _)| pattern.is_match(path, custody)).map(|(_, p)| *p)
    }

    /// What the operator says of a process by its command name, which it may choose itself: protection, preference, priority.
    #[must_use]
    pub fn of_command(&self, name: &str) -> (Option<ProtectedReason>, Preference, Option<i32>) {
        let name = Path::new(name);
        let matches = |pattern: &Pattern| pattern.glob.is_match(name);
        let protected = self.protected.iter().any(matches).then_some(ProtectedReason::Configured);
        let preference = if self.prefer.is_match(name) {
            Preference::Prefer
        } else if self.avoid.iter().any(matches) {
            Preference::Avoid
        } else {
            Preference::Neutral
        };
        let priority = self.priorities.iter().find(|(pattern, _)| matches(pattern));
        (protected, preference, priority.map(|(_, priority)| *priority))
    }
}

impl Pattern {
    fn new(glob: &str) -> Result<Self, globset::Error> {
        let first = glob.trim_start_matches('/').split('/').next().unwrap_or_default();
        let is_anchored = !first.contains(['*', '?', '[']);
        Ok(Self { glob: matcher(glob)?, is_anchored })
    }

    fn is_match(&self, path: &Path, custody: &Custody) -> bool {
        (self.is_anchored || custody.is_named()) && self.glob.is_match(path)
    }
}

/// Whether a unit of the system can be at `path`: named by the administrator, with nothing but slices above it.
fn is_a_units_place(path: &Path, custody: &Custody) -> bool {
    let mut above = path.parent().into_iter().flat_map(Path::iter);
    custody.is_named() && above.all(|name| name.as_encoded_bytes().ends_with(b".slice"))
}

fn matcher(glob: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(compile(glob)?.compile_matcher())
}

fn set(globs: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(compile(glob)?);
    }
    set.build()
}

fn compile(glob: &str) -> Result<Glob, globset::Error> {
    globset::GlobBuilder::new(glob.trim_start_matches('/')).literal_separator(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(patterns: Patterns) -> Rules {
        Rules::new(&patterns).unwrap()
    }

    /// Whose word a path is, on a node where it is there.
    fn custody(path: &str) -> Custody {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(path)).unwrap();
        Custody::of(root.path(), Path::new(path))
    }

    fn protected(rules: &Rules, path: &str) -> Option<ProtectedReason> {
        rules.protected(Path::new(path), &custody(path))
    }

    #[test]
    fn what_keeps_a_machine_reachable_is_protected_without_being_told() {
        let rules = rules(Patterns::default());
        for path in [
            "init.scope",
            "system.slice/systemd-journald.service",
            "system.slice/sshd.service",
            "system.slice/ssh@0-10.service",
            "system.slice/containerd.service",
            "podruntime.slice/kubelet.service",
            "machine.slice/libpod-conmon-abc.scope",
            "system.slice/ebb.service",
        ] {
            assert!(protected(&rules, path).is_some(), "{path}");
        }
        for path in ["system.slice/nginx.service", "apps/a", "kubepods/pod1/c"] {
            assert_eq!(protected(&rules, path), None, "{path}");
        }
    }

    #[test]
    fn a_users_own_unit_with_a_daemons_name_is_a_workload_like_any_other() {
        let rules = rules(Patterns::default());
        let users = "user.slice/user-1000.slice/user@1000.service";
        for name in ["kubelet.service", "libpod-conmon-abc.scope", "init.scope", "ebb.service"] {
            assert_eq!(protected(&rules, &format!("{users}/{name}")), None, "{name}");
            assert_eq!(protected(&rules, &format!("{users}/app.slice/{name}")), None, "{name}");
            assert_eq!(protected(&rules, &format!("apps/{name}")), None, "no unit lives there");
        }
    }

    #[test]
    fn the_operators_patterns_reach_into_what_a_user_names_only_when_they_say_where() {
        let vague = Patterns {
            protected: vec!["**/db.service".into()],
            avoid: vec!["**/web.service".into()],
            priorities: vec![("**/db.service".into(), 9)],
            ..Patterns::default()
        };
        let exact =
            Patterns { protected: vec!["user.slice/**/db.service".into()], ..vague.clone() };
        let users = "user.slice/user-7.slice/user@7.service/db.service";
        assert_eq!(protected(&rules(vague.clone()), users), None);
        assert!(protected(&rules(vague.clone()), "system.slice/db.service").is_some());
        assert!(protected(&rules(exact), users).is_some());
        let rules = rules(vague);
        assert_eq!(rules.priority(Path::new(users), &custody(users)), None);
        let web = "user.slice/user-7.slice/user@7.service/web.service";
        assert_eq!(rules.preference(Path::new(web), &custody(web)), Preference::Neutral);
    }

    #[test]
    fn a_star_stays_within_one_name_and_a_leading_slash_is_forgiven() {
        let rules = rules(Patterns {
            protected: vec!["/apps/*".into()],
            prefer: vec!["batch/**".into()],
            ..Patterns::default()
        });
        assert!(protected(&rules, "apps/a").is_some());
        assert!(protected(&rules, "apps/a/b").is_none());
        let path = "batch/a/b";
        assert_eq!(rules.preference(Path::new(path), &custody(path)), Preference::Prefer);
    }

    #[test]
    fn the_first_priority_that_matches_counts() {
        let priorities = vec![("apps/db".to_owned(), 100), ("apps/*".to_owned(), 5)];
        let rules = rules(Patterns { priorities, ..Patterns::default() });
        let priority = |path: &str| rules.priority(Path::new(path), &custody(path));
        assert_eq!(priority("apps/db"), Some(100));
        assert_eq!(priority("apps/web"), Some(5));
        assert_eq!(priority("other"), None);
    }

    #[test]
    fn a_pattern_that_is_no_glob_is_refused() {
        let patterns = Patterns { avoid: vec!["apps/[a".into()], ..Patterns::default() };
        assert!(Rules::new(&patterns).is_err());
    }
}
