//! Source packages: the upstream archive that a suite's signed index of sources names, hash-checked, in the cache.
//!
//! ```text
//! suite ──private apt, deb-src──► signed Sources index ──► version, name and SHA-256 ──► NAME.orig.tar.* in the cache
//! ```
//! Only the upstream archive is taken. Debian's own changes to it, which are patches in another archive, are not.
use super::{Index, Suite, has_sha256};
use crate::{alone, sh};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The source packages of one Debian suite, seen through a private apt configuration of its own: the indexes of
/// packages and of sources are large, and hardly anybody needs both.
#[derive(Debug)]
pub(crate) struct SourceSuite(Suite);

/// What the index says about the upstream archive of one version of a source package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) version: String,
    file: String,
    pub(crate) sha256: String,
}

impl SourceSuite {
    /// As [`Suite::open`].
    pub(crate) fn open(name: &str) -> Result<Self> {
        Suite::open_index(name, Index::Sources).map(Self)
    }

    /// The upstream archive of a source package; `None` when the suite has no such source package.
    ///
    /// # Errors
    /// When apt cannot be asked, or the index names no upstream archive or no SHA-256 for it.
    pub(crate) fn upstream(&self, package: &str) -> Result<Option<Upstream>> {
        let mut ask = self.0.apt("apt-cache");
        let out = ask.args(["showsrc", "--only-source", package]).output();
        let out = out.with_context(|| format!("cannot ask apt about the source of {package}"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let Some(stanza) = text.split("\n\n").find(|stanza| !stanza.trim().is_empty()) else {
            return Ok(None);
        };
        let found = Upstream::parse(stanza);
        found.map(Some).with_context(|| {
            format!("the index of sources of {} names no archive of {package}", self.0.name)
        })
    }

    /// Fetch the archive into the cache.
    pub(crate) fn fetch(&self, package: &str, upstream: &Upstream) -> Result<PathBuf> {
        let store = sh::cache()?.join("debs");
        fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        let file = store.join(&upstream.file);
        if file.exists() && has_sha256(&file, &upstream.sha256) {
            return Ok(file);
        }
        self.download(package, upstream, &file)?;
        Ok(file)
    }

    fn download(&self, package: &str, upstream: &Upstream, to: &Path) -> Result<()> {
        let partial = alone::partial(to)?;
        fs::create_dir_all(&partial)
            .with_context(|| format!("cannot create {}", partial.display()))?;
        println!("debs: source of {package} {} from {}", upstream.version, self.0.name);
        let mut command = self.0.apt("apt-get");
        command.current_dir(&partial).args(["-qq", "--download-only", "--tar-only", "source"]);
        if sh::run(command.arg(format!("{package}={}", upstream.version))).is_err() {
            // The usual cause: the archive has moved on since the index was fetched.
            self.0.update()?;
            bail!("cannot download from {}; its index was renewed, so try again", self.0.name);
        }
        let delivered = partial.join(&upstream.file);
        ensure!(
            has_sha256(&delivered, &upstream.sha256),
            "{} does not have the hash its index gives",
            delivered.display()
        );
        fs::rename(&delivered, to).with_context(|| format!("cannot store {}", upstream.file))?;
        fs::remove_dir_all(&partial).context("cannot remove the download directory")
    }
}

impl Upstream {
    /// From a stanza of a Sources index.
    fn parse(stanza: &str) -> Option<Self> {
        let version = stanza.lines().find_map(|line| line.strip_prefix("Version: "))?;
        // The list's lines are indented: "Checksums-Sha256:", then " SUM SIZE NAME" for each file.
        let sums = stanza.lines().skip_while(|line| *line != "Checksums-Sha256:").skip(1);
        let mut sums = sums.take_while(|line| line.starts_with(' '));
        let (sha256, file) = sums.find_map(|line| {
            let mut words = line.split_whitespace();
            let (sum, file) = (words.next()?, words.nth(1)?);
            let is_upstream = file.contains(".orig.tar.") && !file.ends_with(".asc");
            // A name is all that may become a file of the cache.
            (is_upstream && !file.contains('/')).then_some((sum, file))
        })?;
        let is_sum = sha256.len() == 64 && sha256.chars().all(|c| c.is_ascii_hexdigit());
        is_sum.then(|| Self {
            version: version.trim().to_owned(),
            file: file.to_owned(),
            sha256: sha256.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From bookworm's index of sources, sums shortened by repetition.
    fn stanza(sum: &str) -> String {
        format!(
            "Package: kubernetes\nBinary: kubernetes-client\nVersion: 1.20.5+really1.20.2-1.1\n\
             Files:\n 0ff1 1973 a.dsc\n 20b9 34 kubernetes_1.20.5+really1.20.2.orig.tar.gz\n\
             Checksums-Sha256:\n 19fa 1973 a.dsc\n {sum} 34 kubernetes_1.20.5+really1.20.2.orig.tar.gz\n\
             Homepage: http://kubernetes.io/\n"
        )
    }

    #[test]
    fn the_upstream_archive_is_known_by_its_sha256_and_not_by_an_older_sum() {
        let sum = "b8".repeat(32);
        let upstream = Upstream::parse(&stanza(&sum)).unwrap();
        assert_eq!(upstream.sha256, sum);
        assert_eq!(upstream.version, "1.20.5+really1.20.2-1.1");
        assert_eq!(upstream.file, "kubernetes_1.20.5+really1.20.2.orig.tar.gz");
    }

    #[test]
    fn an_index_without_a_whole_sha256_names_no_archive() {
        assert_eq!(Upstream::parse(&stanza("b8")), None);
        let sum = "b8".repeat(32);
        assert_eq!(Upstream::parse(&stanza(&sum).replace("Sha256", "Sha1")), None);
        assert_eq!(Upstream::parse(&stanza(&sum).replace("kubernetes_", "../kubernetes_")), None);
    }
}
