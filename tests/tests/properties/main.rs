//! What holds of every plan, whatever the node looks like.
//!
//! [`node`] makes snapshots up, adversarial figures included; [`config`] configurations; the properties are in [`plans`], [`layers`] and [`texts`].
mod cgroups;
mod config;
mod layers;
mod node;
mod plans;
mod texts;
