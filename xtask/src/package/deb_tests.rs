//! What dpkg is given.
use super::super::{contents, release};
use super::*;
use std::collections::BTreeMap;
use std::io::Read as _;

/// Modes, times and bytes by name, of one of the two tars of a package.
fn unpacked(deb: &[u8], member: &str) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
    let mut ar = ar::Archive::new(deb);
    while let Some(entry) = ar.next_entry() {
        let entry = entry.unwrap();
        if entry.header().identifier() != member.as_bytes() {
            continue;
        }
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(entry));
        let files = tar.entries().unwrap().map(|file| {
            let mut file = file.unwrap();
            let name = String::from_utf8(file.path_bytes().into_owned()).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!((file.header().uid().unwrap(), file.header().gid().unwrap()), (0, 0));
            (name, (file.header().mode().unwrap(), file.header().mtime().unwrap(), bytes))
        });
        return files.collect();
    }
    panic!("the package has no {member}");
}

fn sample() -> Vec<u8> {
    pack(&release::sample(), &contents::sample()).unwrap()
}

fn text(deb: &[u8], name: &str) -> String {
    let (_, _, bytes) = unpacked(deb, "control.tar.gz").remove(name).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_same_contents_are_the_same_package() {
    assert!(sample() == sample());
    let later = Release { time: release::sample().time + 1, ..release::sample() };
    assert!(sample() != pack(&later, &contents::sample()).unwrap());
}

#[test]
fn dpkg_finds_its_members_in_order() {
    let deb = sample();
    let mut ar = ar::Archive::new(&deb[..]);
    let mut names = Vec::new();
    while let Some(entry) = ar.next_entry() {
        names.push(String::from_utf8(entry.unwrap().header().identifier().to_vec()).unwrap());
    }
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
}

#[test]
fn every_directory_comes_before_what_is_in_it_and_has_dots_name() {
    let files = unpacked(&sample(), "data.tar.gz");
    for name in files.keys() {
        assert!(name.starts_with("./"), "{name}");
        let above = name.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        assert!(name == "./" || files.contains_key(&format!("{above}/")), "{name}");
    }
    assert_eq!(files["./usr/bin/ebb"].0, 0o755);
    assert_eq!(files["./etc/ebb/ebb.yaml"].0, 0o644);
    assert_eq!(files["./usr/lib/systemd/system/ebb.service"].0, 0o644);
    let time = release::sample().time;
    assert!(files.values().all(|(_, modified, _)| *modified == time));
}

#[test]
fn the_configuration_is_dpkgs_to_keep() {
    let deb = sample();
    assert_eq!(text(&deb, "./conffiles"), "/etc/ebb/ebb.yaml\n");
    assert!(!text(&deb, "./md5sums").contains("etc/"));
}

#[test]
fn control_says_what_it_must_and_nothing_of_the_machine() {
    let deb = sample();
    let control = text(&deb, "./control");
    for line in ["Package: ebb", "Version: 0.1.0-1", "Architecture: amd64", "Section: admin"] {
        assert!(control.lines().any(|found| found == line), "{line}: {control}");
    }
    assert!(control.ends_with('\n') && !control.contains("\n\n"), "{control}");
    assert!(!control.contains("Depends"), "a static program needs nothing: {control}");
    let description = control.split_once("\nDescription: ").unwrap().1;
    let mut lines = description.lines();
    assert!(lines.next().unwrap().len() <= 80);
    assert!(lines.all(|line| line.starts_with(' ') && line.len() <= 80), "{description}");
}

#[test]
fn maintainer_scripts_can_be_run_and_end_at_the_first_mistake() {
    let files = unpacked(&sample(), "control.tar.gz");
    for script in ["./postinst", "./prerm", "./postrm"] {
        let (mode, _, bytes) = &files[script];
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(*mode, 0o755, "{script}");
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{script}");
    }
}

#[test]
fn sums_are_those_of_the_files() {
    let sums = text(&sample(), "./md5sums");
    // As md5sum(1) says of `program`.
    assert!(sums.contains("a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/ebb\n"), "{sums}");
}
