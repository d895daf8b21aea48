//! The protocol `ebb.v1`. Made by `cargo xtask proto` from `api/proto`; what each thing means is said there.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::all,
    reason = "generated code is judged by what it is generated from"
)]

include!("generated/ebb.v1.rs");

/// The protocol as a description of itself: an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/ebb.v1.bin");
