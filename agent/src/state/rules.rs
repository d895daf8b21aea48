//! Which workloads the operator and the machine itself set apart: protected ones, preferred victims, priorities.
//!
//! Patterns are globs over the cgroup's path below the mount, without a leading slash; `*` stays within one name, `**` does not.
//! On a host where processes are the workloads, the same patterns are matched against the command name.

use ebb_policy::snapshot::{Preference, ProtectedReason};
use globset::{Glob, GlobMatcher, GlobSet, GlobSetBuilder};
use std::path::Path;

/// What no configuration can open to eviction: without these a machine cannot be reached, or loses its containers.
const ALWAYS_PROTECTED: [(&str, ProtectedReason); 10] = [
    ("init.scope", ProtectedReason::Init),
    ("**/init.scope", ProtectedReason::Init),
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

/// A list of patterns as the operator wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Cgroups that are workloads; empty for the rules of [`crate::sense::tree::Tree::workloads`].
    pub workloads: Vec<String>,
    /// Never ended.
    pub protected: Vec<String>,
    /// Ended first among equals.
    pub prefer: Vec<String>,
    /// Ended last among equals.
    pub avoid: Vec<String>,
    /// Priority by pattern; the first that matches counts.
    pub priorities: Vec<(String, i32)>,
}

/// The patterns, compiled.
#[derive(Clone, Debug)]
pub struct Rules {
    workloads: Option<GlobSet>,
    protected: Vec<(GlobMatcher, ProtectedReason)>,
    prefer: GlobSet,
    avoid: GlobSet,
    priorities: Vec<(GlobMatcher, i32)>,
}

impl Rules {
    /// Compiles the operator's patterns and adds what is always protected.
    ///
    /// # Errors
    /// Names the first pattern that is not a glob, and what is wrong with it.
    pub fn new(patterns: &Patterns) -> Result<Self, globset::Error> {
        let always = ALWAYS_PROTECTED.iter().map(|(glob, why)| Ok((matcher(glob)?, *why)));
        let own = patterns.protected.iter();
        let own = own.map(|glob| Ok((matcher(glob)?, ProtectedReason::Configured)));
        Ok(Self {
            workloads: (!patterns.workloads.is_empty())
                .then(|| set(&patterns.workloads))
                .transpose()?,
            protected: always.chain(own).collect::<Result<_, globset::Error>>()?,
            prefer: set(&patterns.prefer)?,
            avoid: set(&patterns.avoid)?,
            priorities: patterns
                .priorities
                .iter()
                .map(|(glob, priority)| Ok((matcher(glob)?, *priority)))
                .collect::<Result<_, globset::Error>>()?,
        })
    }

    /// The operator's own list of workloads, if there is one.
    #[must_use]
    pub fn chosen(&self) -> Option<&GlobSet> {
        self.workloads.as_ref()
    }

    /// Why the workload at `path` must not be ended, if so.
    #[must_use]
    pub fn protected(&self, path: &Path) -> Option<ProtectedReason> {
        self.protected.iter().find(|(glob, _)| glob.is_match(path)).map(|(_, why)| *why)
    }

    /// Whether it goes before or after its equals; `prefer` wins over `avoid`.
    #[must_use]
    pub fn preference(&self, path: &Path) -> Preference {
        if self.prefer.is_match(path) {
            Preference::Prefer
        } else if self.avoid.is_match(path) {
            Preference::Avoid
        } else {
            Preference::Neutral
        }
    }

    /// The priority of the first pattern that matches.
    #[must_use]
    pub fn priority(&self, path: &Path) -> Option<i32> {
        self.priorities.iter().find(|(glob, _)| glob.is_match(path)).map(|(_, p)| *p)
    }
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

    #[test]
    fn what_keeps_a_machine_reachable_is_protected_without_being_told() {
        let rules = rules(Patterns::default());
        for path in [
            "init.scope",
            "user.slice/user-0.slice/user@0.service/init.scope",
            "system.slice/systemd-journald.service",
            "system.slice/sshd.service",
            "system.slice/ssh@0-10.service",
            "system.slice/containerd.service",
            "podruntime.slice/kubelet.service",
            "machine.slice/libpod-conmon-abc.scope",
            "system.slice/ebb.service",
        ] {
            assert!(rules.protected(Path::new(path)).is_some(), "{path}");
        }
        for path in ["system.slice/nginx.service", "apps/a", "kubepods/pod1/c"] {
            assert_eq!(rules.protected(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_star_stays_within_one_name_and_a_leading_slash_is_forgiven() {
        let rules = rules(Patterns {
            protected: vec!["/apps/*".into()],
            prefer: vec!["batch/**".into()],
            ..Patterns::default()
        });
        assert!(rules.protected(Path::new("apps/a")).is_some());
        assert!(rules.protected(Path::new("apps/a/b")).is_none());
        assert_eq!(rules.preference(Path::new("batch/a/b")), Preference::Prefer);
    }

    #[test]
    fn the_first_priority_that_matches_counts() {
        let priorities = vec![("apps/db".to_owned(), 100), ("apps/*".to_owned(), 5)];
        let rules = rules(Patterns { priorities, ..Patterns::default() });
        assert_eq!(rules.priority(Path::new("apps/db")), Some(100));
        assert_eq!(rules.priority(Path::new("apps/web")), Some(5));
        assert_eq!(rules.priority(Path::new("other")), None);
    }

    #[test]
    fn a_pattern_that_is_no_glob_is_refused() {
        let patterns = Patterns { avoid: vec!["apps/[a".into()], ..Patterns::default() };
        assert!(Rules::new(&patterns).is_err());
    }
}
