//! Collecting what nobody needs any more: dead containers with their sandboxes and logs, and unused images.
pub(crate) mod containers;
pub(crate) mod death;
pub(crate) mod images;
mod layers;
pub(crate) mod pods;
