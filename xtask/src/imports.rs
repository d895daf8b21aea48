//! What the modules of a crate name: one another in no circle, and files, sockets and system calls only where the node is read or changed.
//!
//! Looked at are the modules that lie in one folder: `a` names `b` when a file of `a`, or below it, does.
//! What a module and its own children name of one another is not looked at, nor what only tests name.

use crate::sh;
use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree};

/// Crates whose modules form no circle.
const CRATES: [&str; 11] = [
    "agent/src",
    "api/src",
    "controller/src",
    "cri/src",
    "ebb/src",
    "journal/src",
    "kube/src",
    "ebpf/wire/src",
    "model/src",
    "policy/cluster/src",
    "policy/node/src",
];

/// Where the node is neither read nor changed: what is known is kept there, and what to do next is found out.
const ONLY_VALUES: [&str; 3] = ["pods", "run", "state"];
/// What reads or changes the node.
const HANDS: [&str; 7] =
    ["libc", "nix", "std::fs", "std::net", "std::process", "tokio::fs", "tokio::net"];
/// The timer that wakes the loop is nobody's file.
const EXCEPT: [&str; 1] = ["run::alarm"];

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// No module names, over whatever others, one that names it.
pub(crate) fn check() -> Result<()> {
    let mut circles = Vec::new();
    for root in CRATES {
        let names = names(&sh::root().join(root)).context(root)?;
        circles.extend(self::circles(&names).into_iter().map(|circle| format!("{root}: {circle}")));
    }
    ensure!(circles.is_empty(), "modules that name one another:\n  {}", circles.join("\n  "));
    Ok(())
}

/// Invariant 3 of ARCHITECTURE.md: only `sense` reads the node and only `act` changes it; the loop and what it knows do neither.
pub(crate) fn hands() -> Result<()> {
    let mut wrong = Vec::new();
    for (module, named) in outside(&sh::root().join("agent/src"))? {
        let path = module.join("::");
        if !module.first().is_some_and(|first| ONLY_VALUES.contains(&first.as_str()))
            || EXCEPT.contains(&path.as_str())
        {
            continue;
        }
        let hand = |name: &&String| {
            let begins = |hand: &str| {
                name.strip_prefix(hand)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            };
            HANDS.iter().any(|hand| begins(hand))
        };
        wrong.extend(named.iter().filter(hand).map(|name| format!("{path} names {name}")));
    }
    ensure!(wrong.is_empty(), "the node is read or changed there:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// For each module the modules that its file names.
fn names(root: &Path) -> Result<BTreeMap<Module, BTreeSet<Module>>> {
    Ok(found(root)?.into_iter().map(|(module, named)| (module, named.modules)).collect())
}

/// For each module what its file names of other crates.
fn outside(root: &Path) -> Result<BTreeMap<Module, BTreeSet<String>>> {
    Ok(found(root)?.into_iter().map(|(module, named)| (module, named.outside)).collect())
}

/// For each module the modules that its file names, and what it names of other crates.
fn found(root: &Path) -> Result<BTreeMap<Module, Named>> {
    let mut files = BTreeMap::new();
    read(root, &Vec::new(), &mut files)?;
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    Ok(files
        .into_iter()
        .map(|(module, file)| {
            let mut found = Found::new(&module, &modules);
            found.visit_file(&file);
            let named = Named { modules: found.named, outside: found.outside };
            (module, named)
        })
        .collect())
}

/// Every file below `dir`, by its module.
fn read(dir: &Path, at: &Module, files: &mut BTreeMap<Module, File>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let mut module = at.clone();
        if !["lib", "main", "mod"].contains(&name) {
            module.push(name.to_owned());
        }
        if path.is_dir() {
            read(&path, &module, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") && name != "tests" {
            let text = fs::read_to_string(&path)?;
            let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
            files.insert(module, file);
        }
    }
    Ok(())
}

/// What one file names.
struct Named {
    /// Modules of its crate.
    modules: BTreeSet<Module>,
    /// Paths that lead out of the crate, or to what was imported.
    outside: BTreeSet<String>,
}

/// Collects what one file names.
struct Found<'a> {
    module: &'a Module,
    modules: &'a BTreeSet<Module>,
    named: BTreeSet<Module>,
    /// Paths that lead out of the crate, or to what was imported.
    outside: BTreeSet<String>,
}

impl<'a> Found<'a> {
    fn new(module: &'a Module, modules: &'a BTreeSet<Module>) -> Self {
        Self { module, modules, named: BTreeSet::new(), outside: BTreeSet::new() }
    }

    /// Takes in a path as written; one that begins with neither `crate`, `self` nor `super` leads out of the crate or to what was imported.
    fn take(&mut self, path: &[String]) {
        let mut at = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => {
                self.outside.insert(path.join("::"));
                return;
            }
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => _ = at.pop(),
                name => at.push(name.to_owned()),
            }
        }
        // The last parts may be items of a module.
        while !self.modules.contains(&at) && at.pop().is_some() {}
        self.named.insert(at);
    }

    fn take_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_tree(tree, before));
            }
            UseTree::Name(name) => self.take_end(&name.ident.to_string(), before),
            UseTree::Rename(name) => self.take_end(&name.ident.to_string(), before),
            UseTree::Glob(_) => self.take(before),
        }
    }

    fn take_end(&mut self, name: &str, before: &mut Vec<String>) {
        before.push(name.to_owned());
        self.take(before);
        before.pop();
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(module) => &module.attrs,
            Item::Use(import) => &import.attrs,
            Item::Fn(function) => &function.attrs,
            Item::Impl(block) => &block.attrs,
            _ => &Vec::new(),
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.take_tree(&import.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.take(&parts);
        visit::visit_path(self, path);
    }
}

/// `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
}

/// The circles among modules of one folder, each named once.
fn circles(names: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    // By folder, which of its modules names which.
    let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, named) in names {
        for to in named {
            let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let folder = folders.entry(from[..shared].to_vec()).or_default();
                folder.entry(a.clone()).or_default().insert(b.clone());
            }
        }
    }
    let mut circles = Vec::new();
    for (folder, edges) in folders {
        let mut told = BTreeSet::new();
        for start in edges.keys() {
            if told.contains(start) {
                continue;
            }
            let circle: BTreeSet<&String> = reached(start, &edges)
                .into_iter()
                .filter(|other| reached(other, &edges).contains(start))
                .collect();
            if !circle.is_empty() {
                let names: Vec<&str> = circle.iter().map(|name| name.as_str()).collect();
                circles.push(format!("{}: {}", folder.join("::"), names.join(", ")));
                told.extend(circle.into_iter().cloned());
            }
        }
    }
    circles
}

/// What `start` names, over whatever others.
fn reached<'e>(start: &str, edges: &'e BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'e String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = edges.get(start).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(edges.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    fn found(edges: &[(&str, &str)]) -> Vec<String> {
        let mut names: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, to) in edges {
            names.entry(module(from)).or_default().insert(module(to));
        }
        circles(&names)
    }

    #[test]
    fn a_circle_is_found_over_others_and_below_a_folder() {
        assert_eq!(found(&[("a", "b"), ("b", "c")]), Vec::<String>::new());
        assert_eq!(found(&[("a", "b"), ("b", "c"), ("c", "a")]), [": a, b, c"]);
        assert_eq!(found(&[("x::a", "x::b"), ("x::b::deep", "x::a")]), ["x: a, b"]);
        assert_eq!(found(&[("x", "x::a"), ("x::a", "x")]), Vec::<String>::new(), "its own child");
    }

    #[test]
    fn every_form_of_an_import_counts_and_those_of_tests_do_not() {
        let text = "use crate::a::{b::Item, c};\nuse super::d as e;\nfn f() { crate::g::call(); }\n#[cfg(test)]\nmod tests { use crate::h; }";
        let module_of_file = module("x::y");
        let modules = ["a", "a::b", "a::c", "x::d", "g", "h", "x::y"].map(module).into();
        let mut found = Found::new(&module_of_file, &modules);
        found.visit_file(&syn::parse_file(text).unwrap());
        let named: Vec<String> = found.named.iter().map(|named| named.join("::")).collect();
        assert_eq!(named, ["a::b", "a::c", "g", "x::d"]);
        let text = "use std::{fs, io};\nfn f() { nix::unistd::getpid(); }";
        let mut found = Found::new(&module_of_file, &modules);
        found.visit_file(&syn::parse_file(text).unwrap());
        assert!(
            ["std::fs", "nix::unistd::getpid"].iter().all(|path| found.outside.contains(*path))
        );
    }
}
