//! What holds of every plan, whatever the node looks like.
//!
//! [`node`] makes snapshots up, adversarial figures included; [`config`] configurations; the properties are in [`plans`], [`layers`] and [`texts`].
//! [`model`] decides random sequences a second time.
mod cgroups;
mod config;
mod layers;
mod model;
mod node;
mod plans;
mod texts;
