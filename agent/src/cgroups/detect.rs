//! What the live tree itself tells: whether there is a Kubernetes here at all, and who made its cgroups.

use super::beneath::Beneath;
use crate::config::Cgroups;
use anyhow::{Result, anyhow};
use ebb_policy::cgroups::{Driver, Options, PodTree};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// There is a cgroup of all pods.
    pub is_kubernetes: bool,
    /// What is to be said about it.
    pub notes: Vec<String>,
}

/// Looks for the cgroup of all pods. A configuration that does not name the driver gets that of the tree, where only one of the two has made one.
///
/// # Errors
/// When the configuration is wrong for the driver that was found.
pub fn of_tree(cgroups: &mut Cgroups, tree: &Beneath) -> Result<Found> {
    let options = &cgroups.options;
    let path = |driver: Driver| {
        let pods = PodTree::below(&options.root, driver);
        pods.map(|pods| pods.kubepods().path(driver)).unwrap_or_default()
    };
    let (cgroupfs, systemd) = (path(Driver::Cgroupfs), path(Driver::Systemd));
    let (by_cgroupfs, by_systemd) = (tree.is_there(&cgroupfs), tree.is_there(&systemd));
    let mut found = Found { is_kubernetes: by_cgroupfs || by_systemd, notes: Vec::new() };
    if !found.is_kubernetes {
        found.notes.push(format!(
            "no Kubernetes here: there is neither {cgroupfs} nor {systemd} below the cgroup mount"
        ));
    }
    if cgroups.raw.cgroup_driver.is_none() && by_systemd && !by_cgroupfs {
        let raw = ebb_policy::cgroups::RawCgroups {
            cgroup_driver: Some("systemd".to_owned()),
            ..cgroups.raw.clone()
        };
        cgroups.options = Options::new(&raw).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            anyhow!("{systemd} is there, so the driver is systemd: {}", lines.join("\n"))
        })?;
        found
            .notes
            .push(format!("cgroupDriver is not configured: systemd, because {systemd} is there"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn look(made: &[&str], config: &str) -> (Cgroups, Found) {
        let dir = tempfile::tempdir().unwrap();
        made.iter().for_each(|path| std::fs::create_dir_all(dir.path().join(path)).unwrap());
        let mut cgroups = Config::parse(config).unwrap().cgroups;
        let found = of_tree(&mut cgroups, &Beneath::new(dir.path())).unwrap();
        (cgroups, found)
    }

    #[test]
    fn the_driver_is_that_of_the_tree_unless_it_is_configured_or_unclear() {
        for (made, config, driver) in [
            (&["kubepods.slice"] as &[&str], "", Driver::Systemd),
            (&["kubepods"], "", Driver::Cgroupfs),
            (&["kubepods", "kubepods.slice"], "", Driver::Cgroupfs),
            (&["kubepods.slice"], "cgroupDriver: cgroupfs", Driver::Cgroupfs),
            (&["a.slice/a-kubepods.slice"], "cgroupRoot: /a", Driver::Systemd),
        ] {
            let (cgroups, found) = look(made, config);
            assert_eq!(cgroups.options.driver, driver, "{made:?} {config}");
            assert!(found.is_kubernetes);
        }
        let (_, found) = look(&["system.slice"], "");
        assert!(!found.is_kubernetes && found.notes[0].contains("no Kubernetes here"), "{found:?}");
    }
}
