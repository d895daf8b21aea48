//! Pods from manifests: files or directories of Kubernetes Pods, as YAML or JSON, one or many in each.
//!
//! A file may hold one Pod, a List or PodList (as `kubectl get pods -o json` prints), a bare array, several YAML documents, or several JSON objects after one another.
//! Only what ebb decides by is read. What the API server would have filled in is filled in.
//!
//! Two readers share one parser.
//! [`Manifests::read`] is strict: cgroups are written by what it returns, and half of a node's pods would be a wrong tree.
//! [`Manifests::read_each`] is tolerant: a file that is wrong costs its own pods, which are then ranked by what the runtime tells of them.

mod fields;
mod pod;
mod resize;
#[cfg(test)]
mod tests;

pub use fields::BadField;
pub(crate) use fields::{amounts, quantity};
pub(crate) use pod::{pod as pod_of, priority, priority_class};

use crate::yaml;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ebb_model::Pod;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file of more bytes than this is no manifest: `kubectl get pods -o json` of a full node prints one or two MiB.
const LARGEST: u64 = 16 << 20;
/// What the tolerant reader takes for manifests among a directory's files.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Pods that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    /// Pods that run or will run here.
    pub pods: Vec<Pod>,
    /// UIDs of those whose resources the kubelet is changing.
    pub resizing: BTreeSet<String>,
    /// Pods that are over but still there, by UID.
    pub ended: BTreeMap<String, Pod>,
    /// Static pods whose manifests do not say the UID under which the kubelet runs them, all else known.
    pub unnamed: Vec<Pod>,
    /// What was left out, and why.
    pub notes: Vec<String>,
    /// Files that [`Manifests::read_each`] could not take, each with what is wrong and what would be right.
    pub problems: Vec<String>,
    /// A file could not be read, is wrong or says nothing: it may be about any pod, so none is missing for certain.
    pub is_incomplete: bool,
}

impl Manifests {
    /// Whether no pod at all is named: an unmounted directory looks the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.unnamed.is_empty() && self.ended.is_empty()
    }

    /// Reads a file, or every file of a directory that is not hidden; pods that are bound to another node than `node` are left out.
    ///
    /// # Errors
    /// What cannot be read, or a field that makes a pod impossible; the error names file, pod and field.
    pub fn read(path: &Path, node: Option<&str>) -> Result<Manifests> {
        let mut manifests = Manifests::default();
        for file in files(path)? {
            manifests.add_file(&file, node).with_context(|| file.display().to_string())?;
        }
        Ok(manifests)
    }

    /// Reads every `.yaml`, `.yml` and `.json` file of a directory that is not hidden, each for itself; what is wrong with one is told in `problems`.
    ///
    /// # Errors
    /// When the directory itself cannot be read.
    pub fn read_each(dir: &Path) -> io::Result<Manifests> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let is_hidden =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if !is_hidden && ENDINGS.contains(&ending) {
                paths.push(path);
            }
        }
        paths.sort();
        let mut all = Manifests::default();
        for path in paths {
            let mut own = Manifests::default();
            match own.add_file(&path, None) {
                Ok(()) if own.is_empty() => {
                    let found = own.notes.first().map_or("it is empty", String::as_str);
                    let path = path.display();
                    // One that is just being written is empty for a moment.
                    all.is_incomplete |= own.notes.is_empty();
                    all.problems.push(format!("{path}: only \"Pod\" is read here: {found}"));
                }
                Ok(()) => all.take_in(own, &path),
                // Removed since the directory was listed.
                Err(_) if path.symlink_metadata().is_err() => {}
                Err(problem) => {
                    all.is_incomplete = true;
                    all.problems.push(format!("{}: {problem:#}", path.display()));
                }
            }
        }
        Ok(all)
    }

    /// Every pod that is described, over or not, by name; one without a UID is known by its name alone.
    #[must_use]
    pub fn all(&self) -> Vec<&Pod> {
        let mut all: Vec<&Pod> =
            self.pods.iter().chain(&self.unnamed).chain(self.ended.values()).collect();
        all.sort_by_key(|pod| (&pod.namespace, &pod.name, &pod.uid));
        all
    }

    /// Adds what one file of a directory says; a pod that an earlier file describes stays as it is.
    fn take_in(&mut self, own: Manifests, path: &Path) {
        let Manifests { pods, resizing, ended, unnamed, notes, problems, is_incomplete } = own;
        for (list, more) in [(&mut self.pods, pods), (&mut self.unnamed, unnamed)] {
            for pod in more {
                let is_same = |known: &Pod| {
                    (&known.namespace, &known.name, &known.uid)
                        == (&pod.namespace, &pod.name, &pod.uid)
                };
                if list.iter().any(is_same) {
                    self.problems.push(format!(
                        "{}: there is already a manifest of {}; this one is not used",
                        path.display(),
                        pod.full_name()
                    ));
                } else {
                    list.push(pod);
                }
            }
        }
        self.resizing.extend(resizing);
        self.ended.extend(ended);
        self.notes.extend(notes.into_iter().map(|note| format!("{}: {note}", path.display())));
        self.problems.extend(problems);
        self.is_incomplete |= is_incomplete;
    }

    /// Adds the pods of one file.
    fn add_file(&mut self, path: &Path, node: Option<&str>) -> Result<()> {
        let meta = fs::metadata(path).context("cannot be read")?;
        ensure!(meta.is_file(), "it is no regular file; a manifest is one");
        let size = meta.len();
        ensure!(size <= LARGEST, "{size} bytes are too many for a manifest; at most {LARGEST}");
        self.add(&fs::read_to_string(path).context("cannot be read")?, node)
    }

    /// Adds the pods of one text.
    ///
    /// # Errors
    /// As [`Manifests::read`].
    pub fn add(&mut self, text: &str, node: Option<&str>) -> Result<()> {
        documents(text)?.iter().try_for_each(|document| self.add_document(document, node))
    }

    fn add_document(&mut self, document: &Value, node: Option<&str>) -> Result<()> {
        if let Value::Array(items) = document {
            return items.iter().try_for_each(|item| self.add_document(item, node));
        }
        match document.get("kind").and_then(Value::as_str) {
            _ if document.is_null() => Ok(()),
            Some("List" | "PodList") => match document.get("items") {
                None | Some(Value::Null) => Ok(()),
                Some(Value::Array(items)) => items.iter().enumerate().try_for_each(|(n, item)| {
                    // The items of a PodList say no kind of their own.
                    self.add_item(item, node).with_context(|| format!("items[{n}]"))
                }),
                Some(_) => bail!("items: a list belongs here"),
            },
            Some("Pod") => self.add_pod(document, node),
            Some(other) => {
                let name = text_at(document, &["metadata", "name"]).unwrap_or_default();
                self.notes.push(format!("{other} {name}: not a Pod, left out"));
                Ok(())
            }
            None => bail!("kind: it is not said what this is; write `kind: Pod`"),
        }
    }

    fn add_item(&mut self, item: &Value, node: Option<&str>) -> Result<()> {
        match item.get("kind") {
            None | Some(Value::Null) if item.get("spec").is_some() => self.add_pod(item, node),
            _ => self.add_document(item, node),
        }
    }

    fn add_pod(&mut self, document: &Value, node: Option<&str>) -> Result<()> {
        let pod = pod::pod(document)?;
        let full = pod.full_name();
        let bound = text_at(document, &["spec", "nodeName"]).filter(|bound| !bound.is_empty());
        if let (Some(node), Some(bound)) = (node, bound)
            && node != bound
        {
            self.notes.push(format!("{full}: bound to node {bound}, left out"));
            return Ok(());
        }
        let phase = text_at(document, &["status", "phase"]).unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            self.notes.push(format!("{full}: it has ended ({phase}), left out"));
            self.ended.insert(pod.uid.clone(), pod);
            return Ok(());
        }
        if pod.uid.is_empty() {
            self.notes.push(format!("{full}: metadata.uid: there is none, so the name of its cgroup is known only from the container runtime (--cri); without that the pod is left out. The kubelet computes a static pod's UID from its own form of the pod, which a manifest does not give"));
            self.unnamed.push(pod);
            return Ok(());
        }
        if resize::is_going_on(document) {
            self.resizing.insert(pod.uid.clone());
        }
        self.pods.push(pod);
        Ok(())
    }
}

/// The files to read, in order.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let meta = fs::metadata(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    if !meta.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        fs::read_dir(path).with_context(|| format!("{}: cannot be listed", path.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("{}: cannot be listed", path.display()))?;
        // A mounted ConfigMap is made of links; what they lead to counts.
        let is_file = fs::metadata(entry.path()).is_ok_and(|meta| meta.is_file());
        if is_file && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Every document of a text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    let json: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    match json {
        Ok(documents) => Ok(documents),
        Err(not_json) => yaml(text).map_err(|not_yaml| {
            let is_json = text.trim_start().starts_with(['{', '[']);
            if is_json {
                anyhow!("not JSON that can be read: {not_json}")
            } else {
                anyhow!("not YAML that can be read: {}", yaml::problem(&not_yaml))
            }
        }),
    }
}

/// Every YAML document; a name such as `n` or `on` is a name, not a truth value.
fn yaml(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

fn text_at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_str()
}
