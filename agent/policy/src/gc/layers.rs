//! Which images to remove when the runtime tells of their layers: a layer goes when the last image that has it goes.
//!
//! ```text
//!  image a: base, a1        removing a frees a1; removing b frees nothing while a stays;
//!  image b: base, a1, b1    removing both frees base as well, unless an image that stays has it
//! ```
//! To find the cheapest set is a covering problem without a quick exact answer.
//! Three orders are tried, each taken until enough is freed and then thinned out until nothing in it is superfluous; the set with the least to pull again wins.
//! A set without anything superfluous frees less than what is wanted plus what any one of its images frees, so it is at most that far from the best one.
use crate::snapshot::{Image, Snapshot};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};
use core::cmp::Reverse;

/// Layers of all images, and how many images still have each.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    layers: Vec<Layer>,
    /// Of each image of the snapshot, in its order.
    images: Vec<Vec<usize>>,
    /// Images whose layers are not known; each counts as one layer of its own.
    unknown: u64,
}

#[derive(Clone, Copy, Debug)]
struct Layer {
    size: u64,
    holders: u32,
}

impl Shelf {
    /// All images of a snapshot on the shelf.
    pub(crate) fn new(snapshot: &Snapshot) -> Shelf {
        let mut shelf = Shelf {
            layers: Vec::new(),
            images: Vec::with_capacity(snapshot.images.len()),
            unknown: 0,
        };
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for image in &snapshot.images {
            let Some(known) = sizes(image, snapshot) else {
                shelf.unknown += 1;
                shelf.images.push(vec![shelf.layers.len()]);
                shelf.layers.push(Layer { size: image.size, holders: 1 });
                continue;
            };
            let mut own: Vec<usize> = Vec::with_capacity(known.len());
            for (id, size) in known {
                let place = *places.entry(id).or_insert_with(|| {
                    shelf.layers.push(Layer { size, holders: 0 });
                    shelf.layers.len() - 1
                });
                if !own.contains(&place) {
                    shelf.layers[place].holders += 1;
                    own.push(place);
                }
            }
            shelf.images.push(own);
        }
        shelf
    }

    /// Images whose layers are not known.
    pub(crate) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Takes an image away; returns the bytes that go with it.
    pub(crate) fn take(&mut self, image: usize) -> u128 {
        let mut freed = 0;
        for place in &self.images[image] {
            let layer = &mut self.layers[*place];
            layer.holders -= 1;
            if layer.holders == 0 {
                freed += u128::from(layer.size);
            }
        }
        freed
    }

    /// Puts an image that was taken away back; returns the bytes that stay with it.
    fn put_back(&mut self, image: usize) -> u128 {
        let mut kept = 0;
        for place in &self.images[image] {
            let layer = &mut self.layers[*place];
            if layer.holders == 0 {
                kept += u128::from(layer.size);
            }
            layer.holders += 1;
        }
        kept
    }

    /// Bytes that only this image has.
    fn unique(&self, image: usize) -> u128 {
        let own = self.images[image].iter().map(|place| self.layers[*place]);
        own.filter(|layer| layer.holders == 1).map(|layer| u128::from(layer.size)).sum()
    }

    /// Which of `candidates` (the longest unused first) to take away so that at least `wanted` bytes go, with as little to pull again as can be found; all that free anything when that is not enough.
    pub(crate) fn choose(&self, candidates: &[usize], wanted: u64) -> Vec<usize> {
        if wanted == 0 {
            return Vec::new();
        }
        let mut large_first = candidates.to_vec();
        large_first.sort_by_key(|image| Reverse(self.unique(*image)));
        let mut small_first = candidates.to_vec();
        small_first.sort_by_key(|image| self.unique(*image));
        let orders = [candidates, &large_first, &small_first];
        let sets = orders.map(|order| self.cover(order, wanted.into()));
        let cheapest = sets.into_iter().min_by_key(|set| set.freed);
        let chosen: BTreeSet<usize> = cheapest.into_iter().flat_map(|set| set.images).collect();
        candidates.iter().copied().filter(|image| chosen.contains(image)).collect()
    }

    /// Takes images in the given order until enough goes, then puts back what is superfluous, the last taken first.
    fn cover(&self, order: &[usize], wanted: u128) -> Set {
        let mut shelf = self.clone();
        let mut images = Vec::new();
        let mut freed = 0;
        for image in order {
            if freed >= wanted {
                break;
            }
            freed += shelf.take(*image);
            images.push(*image);
        }
        if freed < wanted {
            // Not enough however it is turned: everything that frees something goes, and the rest stays.
            images.retain(|image| {
                let frees = shelf.put_back(*image);
                if frees > 0 {
                    shelf.take(*image);
                }
                frees > 0
            });
            return Set { images, freed };
        }
        loop {
            let before = images.len();
            for place in (0..images.len()).rev() {
                let kept = shelf.put_back(images[place]);
                if freed - kept >= wanted {
                    freed -= kept;
                    images.remove(place);
                } else {
                    shelf.take(images[place]);
                }
            }
            if images.len() == before {
                return Set { images, freed };
            }
        }
    }
}

/// Images that go together.
struct Set {
    images: Vec<usize>,
    freed: u128,
}

/// The layers of an image with their sizes; `None` unless all of it is known.
fn sizes<'a>(image: &'a Image, snapshot: &Snapshot) -> Option<Vec<(&'a str, u64)>> {
    let layers = image.layers.as_ref()?.iter();
    layers.map(|id| Some((id.as_str(), *snapshot.layers.get(id)?))).collect()
}
