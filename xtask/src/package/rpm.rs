//! A package for systems with rpm: the same files, with the scriptlets that systemd's own macros expand to.
//!
//! There a preset of the system decides whether a service is enabled, so installing this starts nothing by itself.
use super::contents::{CONFIGURATION, Contents, DOCUMENTS};
use super::release::{DESCRIPTION, Release, SUMMARY};
use anyhow::{Context, Result};
use rpm::{BuildConfig, CompressionType, FileOptions, PackageBuilder};

/// `%systemd_post`, `%systemd_preun` and `%systemd_postun_with_restart` of systemd 253 and later.
const AFTER_INSTALL: &str = "\
if [ $1 -eq 1 ] && [ -x /usr/lib/systemd/systemd-update-helper ]; then
    /usr/lib/systemd/systemd-update-helper install-system-units ebb.service || :
fi";
const BEFORE_REMOVAL: &str = "\
if [ $1 -eq 0 ] && [ -x /usr/lib/systemd/systemd-update-helper ]; then
    /usr/lib/systemd/systemd-update-helper remove-system-units ebb.service || :
fi";
const AFTER_REMOVAL: &str = "\
if [ $1 -ge 1 ] && [ -x /usr/lib/systemd/systemd-update-helper ]; then
    /usr/lib/systemd/systemd-update-helper mark-restart-system-units ebb.service || :
fi";

/// Name of the file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("ebb-{}.{}.rpm", release.full(), release.arch.machine())
}

/// The whole package; nothing of the machine is in it.
pub(crate) fn pack(release: &Release, contents: &Contents) -> Result<Vec<u8>> {
    let time = u32::try_from(release.time).context("rpm has no such time")?;
    let config = BuildConfig::default().source_date(time).compression(CompressionType::Gzip);
    let machine = release.arch.machine();
    let mut package = PackageBuilder::new("ebb", release.version, "Apache-2.0", machine, SUMMARY);
    package
        .using_config(config)
        .release(release.revision.to_string())
        .packager(&*release.maintainer)
        .description(DESCRIPTION.join("\n\n"))
        .build_host("localhost")
        .cookie(format!("{}-{}", release.full(), release.time))
        .post_install_script(AFTER_INSTALL)
        .pre_uninstall_script(BEFORE_REMOVAL)
        .post_uninstall_script(AFTER_REMOVAL);
    for directory in ["/etc/ebb", "/usr/share/doc/ebb", "/usr/share/ebb", "/usr/share/ebb/presets"]
    {
        package.with_dir_entry(FileOptions::dir(directory).permissions(0o755))?;
    }
    for (path, file) in contents.files() {
        let options = FileOptions::new(format!("/{path}")).permissions(u16::try_from(file.mode)?);
        let options = if path == CONFIGURATION {
            options.config().noreplace()
        } else if path.starts_with(DOCUMENTS) || path.starts_with("usr/share/man/") {
            options.doc()
        } else {
            options
        };
        package.with_file_contents(file.bytes.clone(), options)?;
    }
    let mut bytes = Vec::new();
    package.build()?.write(&mut bytes).context("cannot write the package")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{contents, release};
    use super::*;

    #[test]
    fn the_same_contents_are_the_same_package() {
        let pack = || pack(&release::sample(), &contents::sample()).unwrap();
        assert!(pack() == pack());
    }

    #[test]
    fn a_configuration_that_was_changed_stays() {
        let bytes = pack(&release::sample(), &contents::sample()).unwrap();
        let package = rpm::Package::parse(&mut &bytes[..]).unwrap();
        let files = package.metadata.get_file_entries().unwrap();
        let at = |path: &str| {
            files.iter().find(|file| file.path() == std::path::Path::new(path)).unwrap()
        };
        let kept = rpm::FileFlags::CONFIG | rpm::FileFlags::NOREPLACE;
        assert!(at("/etc/ebb/ebb.yaml").flags().contains(kept));
        assert_eq!(at("/usr/bin/ebb").mode().permissions(), 0o755);
        assert!(!at("/usr/bin/ebb").flags().contains(rpm::FileFlags::CONFIG));
    }
}
