//! A whole cluster, listed once: what commands that only look need.

use crate::call::Api;
use crate::failure::Failure;
use crate::list::page;
use crate::time;
use crate::wire::{Content, seen};
use ebb_policy_cluster::{Object, Resource, Scope, State};

/// What is served and all that is there.
#[derive(Debug, Default)]
pub struct Listed {
    /// Each kind that is served, with how it was listed.
    pub resources: Vec<(Resource, Scope, State)>,
    /// All objects of those that could be listed.
    pub objects: Vec<Object>,
}

/// Lists every kind that a collector would watch. A kind that cannot be listed is broken, and says why.
///
/// # Errors
/// What is served cannot be found out.
pub async fn list_all(api: &Api) -> Result<Listed, Failure> {
    let found = api.discover().await?;
    let mut listed = Listed::default();
    for (resource, of) in found.resources {
        let mut state = State::Unwatched;
        if of.is_watched {
            state = State::Synced;
            let mut next = String::new();
            loop {
                match page(api, &of, Content::Metadata, &next).await {
                    Ok(page) => {
                        let items = page.items.into_iter().flatten();
                        listed.objects.extend(items.map(|item| seen(item, &of.kind, false).object));
                        next = page.metadata.next;
                    }
                    Err(failure) => {
                        state = State::Broken { since: time::now(), why: failure.to_string() };
                        next.clear();
                    }
                }
                if next.is_empty() {
                    break;
                }
            }
        }
        listed.resources.push((resource, of.scope, state));
    }
    Ok(listed)
}
