//! The container images that guests are given: what the host builds and the tests ask for by name.
//!
//! Layers are shared by being equal; sizes are chosen so that a store of a few dozen MiB can be filled and emptied.

/// A layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// busybox, under the names that tests use.
    Programs,
    /// One file of so many KiB that no compression makes smaller; equal numbers are the same layer.
    Random {
        /// Makes the content.
        seed: u32,
        /// Size, KiB.
        kib: u32,
    },
    /// So many empty files: inodes and hardly any bytes.
    Files {
        /// How many.
        count: u32,
    },
}

/// An image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestImage {
    /// Full name with tag.
    pub name: &'static str,
    /// Layers, lowest first.
    pub layers: &'static [Layer],
}

/// What sandboxes are made of.
pub const PAUSE: &str = "registry.k8s.io/pause:3.9";
/// What containers run.
pub const APP: &str = "ebb.test/app:1";

/// What takes inodes.
pub const FILES: &str = "ebb.test/files:1";
/// How many.
pub const FILES_COUNT: u32 = 1500;

/// 2 MiB below all images that are there to be collected.
const BASE: Layer = Layer::Random { seed: 1, kib: 2048 };

const fn own(seed: u32, kib: u32) -> Layer {
    Layer::Random { seed, kib }
}

/// All of them.
pub const IMAGES: &[TestImage] = &[
    TestImage { name: PAUSE, layers: &[Layer::Programs] },
    TestImage { name: APP, layers: &[Layer::Programs, own(2, 64)] },
    TestImage { name: "ebb.test/gc-1:1", layers: &[BASE, own(11, 1024)] },
    TestImage { name: "ebb.test/gc-2:1", layers: &[BASE, own(12, 2048)] },
    TestImage { name: "ebb.test/gc-3:1", layers: &[BASE, own(13, 4096)] },
    TestImage { name: "ebb.test/gc-4:1", layers: &[BASE, own(14, 6144)] },
    // These two share most of what they have with each other.
    TestImage { name: "ebb.test/gc-5:1", layers: &[BASE, own(15, 5120), own(16, 512)] },
    TestImage { name: "ebb.test/gc-6:1", layers: &[BASE, own(15, 5120), own(17, 1024)] },
    TestImage { name: FILES, layers: &[Layer::Files { count: FILES_COUNT }] },
];
