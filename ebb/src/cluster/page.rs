//! `ebb graph --output html`: an object among its owners and dependents as a page, with what holds it and what a delete would do.

use super::explain::{owner_words, state};
use super::picture::{outcome, picture};
use super::read::Cluster;
use super::svg::{Outcome, Picture};
use super::{hold, name, resource};
use crate::Failure;
use crate::page::{self, Parts, left_out, name as shown, said};
use anyhow::Context as _;
use ebb_kube::{Time, timestamp};
use ebb_policy_cluster::{Cascade, Explanation, Uid};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeSet;

/// Objects that a picture can show so that anybody finds anything in it, and the bytes that a page has room for.
const DRAWN: usize = 200;
const ROOM: usize = 300 * 1024;

/// What is asked: an object, what is around it, and what a delete by a policy would do.
struct Asked<'a> {
    cluster: &'a Cluster,
    uid: &'a Uid,
    around: &'a BTreeSet<Uid>,
    cascade: Option<(&'static str, &'a Cascade)>,
    found: Explanation,
    /// `None` where there is too much to show.
    drawn: Option<Picture>,
}

/// The page. The same cluster is the same page.
pub(super) fn page(
    cluster: &Cluster,
    uid: &Uid,
    around: &BTreeSet<Uid>,
    cascade: Option<(&'static str, &Cascade)>,
) -> Result<String, Failure> {
    let found = cluster.graph.explain(uid).context("the object is gone")?;
    let drawn = (around.len() <= DRAWN)
        .then(|| picture(cluster, around, cascade.map(|(_, cascade)| cascade)))
        .filter(|drawn| drawn.body.len() <= ROOM);
    let asked = Asked { cluster, uid, around, cascade, found, drawn };
    Ok(page::page(|rows| asked.parts(rows)))
}

impl Asked<'_> {
    fn parts(&self, rows: usize) -> Parts {
        let Self { cluster, uid, cascade, .. } = self;
        let mut contents = vec![("holds", "What holds it"), ("graph", "Owners and dependents")];
        if cascade.is_some() {
            contents.push(("cascade", "What a delete would do"));
        }
        contents.push(("objects", "Objects"));
        Parts {
            title: format!("{}, owners and dependents", said(&name(cluster, uid))),
            mark: None,
            head: self.head(),
            contents,
            sections: html! {
                (self.holds(rows))
                (self.graph())
                @if let Some((policy, cascade)) = cascade { (self.cascade(policy, cascade, rows)) }
                (self.objects(rows))
            },
            foot: html! { "Read from " (said(&cluster.source)) "; page made by ebb " (env!("CARGO_PKG_VERSION")) "." },
        }
    }

    fn name(&self, uid: &Uid) -> Markup {
        shown(&name(self.cluster, uid))
    }

    fn head(&self) -> Markup {
        let since = self.found.deleting_since.map(moment);
        html! {
            p.quiet { "ebb graph of " (said(&self.cluster.source)) }
            h1 { (self.name(self.uid)) }
            p.verdict { (first_large(&state(&self.found))) "." }
            dl.tiles {
                div { dt { "Terminating since" } dd { (since.as_deref().unwrap_or("not terminating")) } }
                div { dt { "Objects here" } dd { (self.around.len()) } }
                @if let Some((_, cascade)) = self.cascade {
                    div { dt { "A delete removes" } dd { (cascade.deleted.len()) } }
                    div { dt { "Held up" } dd { (cascade.held.len()) } }
                }
            }
        }
    }

    fn holds(&self, rows: usize) -> Markup {
        let Explanation { owners, holds, .. } = &self.found;
        html! {
            section #holds {
                h2 { "What holds it" }
                @if holds.is_empty() {
                    p { "Nothing that is known here." }
                } @else {
                    ul.members { @for of in holds.iter().take(rows) { li { (said(&hold(self.cluster, of))) } } }
                    (left_out(holds.len(), rows, "of them"))
                }
                @if !owners.is_empty() {
                    h3 { "Owners that it names" }
                    ul.members { @for owner in owners.iter().take(rows) {
                        @let (called, known) = owner_words(self.cluster, owner);
                        li { (shown(&called)) ": " (said(&known)) }
                    } }
                    (left_out(owners.len(), rows, "owners"))
                }
            }
        }
    }

    fn graph(&self) -> Markup {
        html! {
            section #graph {
                h2 { "Owners and dependents" }
                @match &self.drawn {
                    Some(drawn) => {
                        @let (width, height) = (format!("{:.0}", drawn.size.0), format!("{:.0}", drawn.size.1));
                        figure {
                            div.scroll {
                                svg.graph role="img" width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) aria-labelledby="picture" {
                                    title id="picture" { "Owners above their dependents" }
                                    (PreEscaped(&drawn.body))
                                }
                            }
                            figcaption {
                                "Owners are above their dependents. A dashed arrow is a reference that does not block its owner's deletion in the foreground."
                                @if self.cascade.is_some() { " What is held up would have to be deleted and cannot be, yet." }
                            }
                        }
                    }
                    None => p { (self.around.len()) " objects and their references are more than a picture can show; " code { "-o dot" } " gives them to Graphviz." }
                }
            }
        }
    }

    fn cascade(&self, policy: &str, cascade: &Cascade, rows: usize) -> Markup {
        let Cascade { held, loses_references, counts, .. } = cascade;
        html! {
            section #cascade {
                h2 { "What a delete would do" }
                p { "With " code { "--cascade=" (policy) } ", from what is known here:" }
                ul.members {
                    @if counts.is_empty() { li { "nothing goes" } }
                    @for (kind, many) in counts.iter().take(rows) { li { (many) " " (shown(&resource(kind))) " deleted" } }
                }
                (left_out(counts.len(), rows, "kinds"))
                @if !held.is_empty() {
                    h3 { "Held up" }
                    div.scroll { table {
                        thead { tr { th scope="col" { "Object" } th scope="col" { "By what" } } }
                        tbody { @for one in held.iter().take(rows) { tr {
                            th scope="row" { (self.name(&one.uid)) }
                            td {
                                @for by in one.holds.iter().take(rows) { div { (said(&hold(self.cluster, by))) } }
                                (left_out(one.holds.len(), rows, "of them"))
                            }
                        } } }
                    } }
                    (left_out(held.len(), rows, "objects"))
                }
                @if !loses_references.is_empty() {
                    h3 { "Stay and lose a reference" }
                    ul.members { @for uid in loses_references.iter().take(rows) { li { (self.name(uid)) } } }
                    (left_out(loses_references.len(), rows, "objects"))
                }
            }
        }
    }

    fn objects(&self, rows: usize) -> Markup {
        let cascade = self.cascade.map(|(_, cascade)| cascade);
        let with_outcome = |uid| (uid, outcome(uid, cascade));
        let mut all: Vec<(&Uid, Outcome)> = self.around.iter().map(with_outcome).collect();
        // What somebody looks for is what does not go.
        all.sort_by_cached_key(|(uid, outcome)| {
            (*uid != self.uid, *outcome != Outcome::Held, name(self.cluster, uid))
        });
        html! {
            section #objects {
                h2 { "Objects" }
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "Object" }
                        th scope="col" { "UID" }
                        th scope="col" { "Terminating since" }
                        @if cascade.is_some() { th scope="col" { "By the delete" } }
                    } }
                    tbody { @for (uid, outcome) in all.iter().take(rows) { tr.chosen[*uid == self.uid] {
                        th scope="row" { (self.name(uid)) }
                        td { (shown(&uid.to_string())) }
                        td { (self.terminating(uid)) }
                        @if cascade.is_some() { td { (outcome.words().unwrap_or("stays")) } }
                    } } }
                } }
                (left_out(all.len(), rows, "objects"))
            }
        }
    }

    /// Since when an object is being deleted; a dash where it is not.
    fn terminating(&self, uid: &Uid) -> String {
        match self.cluster.graph.object(uid) {
            Some(object) => object.deleting_since.map_or("–".to_owned(), moment),
            None => "unknown".to_owned(),
        }
    }
}

/// A time as the API server has it, in whole seconds; it may wrap between the day and the time.
fn moment(at: Time) -> String {
    let text = timestamp(at).replacen('T', " ", 1);
    text.split_once('.').map_or_else(|| text.clone(), |(whole, _)| format!("{whole}Z"))
}

/// A sentence begins with a capital.
fn first_large(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::{all, check, text};
    use ebb_policy_cluster::Policy;
    use std::path::Path;

    const SECTIONS: [&str; 4] = ["holds", "graph", "cascade", "objects"];

    fn page_of(cluster: &Cluster, wanted: &str, policy: Policy) -> String {
        let uid = cluster.objects().find(|object| object.name == wanted).unwrap().uid;
        let around = cluster.graph.uids().cloned().collect();
        let cascade = cluster.graph.cascade(&uid, policy).unwrap();
        page(cluster, &uid, &around, Some(("foreground", &cascade))).ok().unwrap()
    }

    /// A saved cluster with one owner of many.
    fn owner_of(many: usize, called: &str) -> Cluster {
        let mut items = vec![serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": called, "namespace": called, "uid": "owner", "finalizers": [called] },
        })];
        items.extend((0..many).map(|n| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": format!("{n}{called}"), "namespace": called, "uid": format!("s{n}"), "finalizers": [called],
                    "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": called, "uid": "owner", "blockOwnerDeletion": true }] },
            })
        }));
        let file = tempfile::NamedTempFile::new().unwrap();
        let list = serde_json::json!({ "kind": "List", "apiVersion": "v1", "items": items });
        std::fs::write(file.path(), list.to_string()).unwrap();
        Cluster::read(file.path()).unwrap()
    }

    #[test]
    fn a_page_says_what_holds_the_object_and_what_a_delete_would_do() {
        let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cluster/shop.json");
        let shop = Cluster::read(&shop).unwrap();
        let page = page_of(&shop, "api", Policy::Foreground);
        let html = check(&page, &SECTIONS);
        assert_eq!(
            page,
            page_of(&shop, "api", Policy::Foreground),
            "the same cluster, the same page"
        );
        assert_eq!(text(&html, "h1"), "Deployment.apps shop/api");
        assert!(
            text(&html, ".verdict").starts_with("Terminating; "),
            "{}",
            text(&html, ".verdict")
        );
        let holds = text(&html, "#holds li");
        assert!(holds.contains("blocking dependent ConfigMap shop/api-settings; released when"));
        let boxes = text(&html, "#graph svg text.kind");
        assert!(boxes.contains("ConfigMap, held up"), "{boxes}");
        assert!(text(&html, "#cascade tr").contains("finalizer example.com/backup"));
        assert_eq!(text(&html, "#objects tr.chosen th"), "Deployment.apps shop/api");
    }

    #[test]
    fn whatever_an_object_is_called_stays_text() {
        for called in [
            "</title></svg><script>alert(1)</script>",
            "\"><img src=x onerror=alert(1)>",
            "a\u{202e}b\u{1b}[31m",
        ] {
            let cluster = owner_of(3, called);
            check(&page_of(&cluster, called, Policy::Foreground), &SECTIONS);
        }
    }

    #[test]
    fn a_page_is_small_however_many_objects_there_are() {
        let called = "\u{202e}<".repeat(100);
        let few = owner_of(DRAWN - 1, &called);
        let html = check(&page_of(&few, &called, Policy::Foreground), &SECTIONS);
        assert_eq!(all(&html, "#graph svg rect.box").len(), DRAWN);
        let cluster = owner_of(5000, &called);
        let html = check(&page_of(&cluster, &called, Policy::Foreground), &SECTIONS);
        assert!(all(&html, "#graph svg").is_empty());
        assert!(text(&html, "#graph").contains("5001 objects and their references are more than"));
        assert!(text(&html, "#objects").contains("more objects, which are left out here"));
    }
}
