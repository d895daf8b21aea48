//! Which images to remove when the runtime tells of their layers: a layer goes when the last image that has it goes.
//!
//! ```text
//!  image a: base, a1        removing a frees a1; removing b frees nothing while a stays;
//!  image b: base, a1, b1    removing both frees base as well, unless an image that stays has it
//! ```
//! To find the cheapest set is a covering problem without a quick exact answer.
//! Three orders are tried, each taken until enough is freed and then thinned out until nothing in it is superfluous; the set with the least to pull again wins.
//! A set without anything superfluous frees less than what is wanted plus what any one of its images frees, so it is at most that far from the best one.
use crate::snapshot::Snapshot;
use alloc::{collections::BTreeSet, vec, vec::Vec};
use core::{cmp::Reverse, ops::Range};

/// Layers of all images, and how many images still have each.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    /// Sizes of layers, by their place.
    sizes: Vec<u64>,
    /// How many images still have each layer.
    holders: Vec<u32>,
    /// The layers of all images, one image after the other in the snapshot's order.
    held: Vec<u32>,
    /// Where in `held` those of each image end.
    ends: Vec<usize>,
    /// Images whose layers are not known; each counts as one layer of its own.
    unknown: u64,
}

impl Shelf {
    /// All images of a snapshot on the shelf.
    pub(crate) fn new(snapshot: &Snapshot) -> Shelf {
        let listed = snapshot.images.iter().map(|image| image.layers.as_ref().map_or(1, Vec::len));
        let mut shelf = Shelf {
            sizes: snapshot.layers.values().copied().collect(),
            holders: Vec::new(),
            held: Vec::with_capacity(listed.sum()),
            ends: Vec::with_capacity(snapshot.images.len()),
            unknown: 0,
        };
        let places = Places::new(snapshot.layers.keys().map(|name| &**name).collect());
        for image in &snapshot.images {
            let start = shelf.held.len();
            let is_known = image.layers.as_deref().is_some_and(|layers| {
                layers.iter().all(|layer| {
                    let place = places.find(layer);
                    // An image may name a layer twice.
                    let new = place.filter(|place| !shelf.held[start..].contains(place));
                    shelf.held.extend(new);
                    place.is_some()
                })
            });
            if !is_known {
                shelf.held.truncate(start);
                shelf.unknown += 1;
                shelf.held.push(number(shelf.sizes.len()));
                shelf.sizes.push(image.size);
            }
            shelf.ends.push(shelf.held.len());
        }
        shelf.holders = vec![0; shelf.sizes.len()];
        for place in &shelf.held {
            shelf.holders[*place as usize] += 1;
        }
        shelf
    }

    /// Where in `held` the layers of an image are.
    fn of(&self, image: usize) -> Range<usize> {
        let start = image.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[image]
    }

    /// Images whose layers are not known.
    pub(crate) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Takes an image away; returns the bytes that go with it.
    pub(crate) fn take(&mut self, image: usize) -> u128 {
        let mut freed = 0;
        for place in self.of(image) {
            let layer = self.held[place] as usize;
            self.holders[layer] -= 1;
            if self.holders[layer] == 0 {
                freed += u128::from(self.sizes[layer]);
            }
        }
        freed
    }

    /// Puts an image that was taken away back; returns the bytes that stay with it.
    fn put_back(&mut self, image: usize) -> u128 {
        let mut kept = 0;
        for place in self.of(image) {
            let layer = self.held[place] as usize;
            if self.holders[layer] == 0 {
                kept += u128::from(self.sizes[layer]);
            }
            self.holders[layer] += 1;
        }
        kept
    }

    /// Bytes that only this image has.
    fn unique(&self, image: usize) -> u128 {
        let layers = self.held[self.of(image)].iter().map(|layer| *layer as usize);
        layers.filter(|layer| self.holders[*layer] == 1).map(|l| u128::from(self.sizes[l])).sum()
    }

    /// Which of `candidates` (the longest unused first) to take away so that at least `wanted` bytes go, with as little to pull again as can be found; all that free anything when that is not enough.
    pub(crate) fn choose(&self, candidates: &[usize], wanted: u64) -> Vec<usize> {
        if wanted == 0 {
            return Vec::new();
        }
        let mut large_first = candidates.to_vec();
        large_first.sort_by_cached_key(|image| Reverse(self.unique(*image)));
        let mut small_first = candidates.to_vec();
        small_first.sort_by_cached_key(|image| self.unique(*image));
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
            // The last taken first; who stays is put together from behind.
            let mut stay = Vec::with_capacity(before);
            for image in images.into_iter().rev() {
                let kept = shelf.put_back(image);
                if freed - kept >= wanted {
                    freed -= kept;
                } else {
                    shelf.take(image);
                    stay.push(image);
                }
            }
            stay.reverse();
            images = stay;
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

/// Which of the sorted names is where.
///
/// A node has a hundred thousand layers of images, and texts that are alike at the beginning: to fetch and compare them is what takes the time.
/// The layers of an image are as a rule the very names that the snapshot has, so a name is looked for by where it is in memory first.
struct Places<'a> {
    names: Vec<&'a str>,
    /// By a hash of their addresses, places of names; at least half of them are [`FREE`].
    slots: Vec<u32>,
}

/// No name is here.
const FREE: u32 = u32::MAX;

impl<'a> Places<'a> {
    /// `names` are sorted, and none is there twice.
    fn new(names: Vec<&'a str>) -> Places<'a> {
        let mut places = Places { slots: vec![FREE; (names.len() * 2).next_power_of_two()], names };
        for place in 0..places.names.len() {
            let slot = places.slots_for(places.names[place]).find(|s| places.slots[*s] == FREE);
            slot.into_iter().for_each(|slot| places.slots[slot] = number(place));
        }
        places
    }

    /// Where a name is, whether it is the same in memory or only as text.
    fn find(&self, name: &str) -> Option<u32> {
        let places = self.slots_for(name).map(|slot| self.slots[slot]);
        let mut places = places.take_while(|place| *place != FREE);
        let same = places.find(|place| core::ptr::eq(self.names[*place as usize], name));
        same.or_else(|| self.names.binary_search(&name).ok().map(number))
    }

    /// Where the name at this address is looked for, one after the other.
    fn slots_for(&self, name: &str) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        // Allocations begin at multiples of sixteen.
        let spread = (name.as_ptr().addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = usize::try_from(spread >> 32).unwrap_or(0);
        (0..=mask).map(move |next| first.wrapping_add(next) & mask)
    }
}

/// A place as it is kept; memory does not hold as many layers as would not fit.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Places;
    use alloc::{format, sync::Arc, vec::Vec};

    fn names(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|number| format!("sha256:{number:064x}").into()).collect()
    }

    #[test]
    fn a_name_is_found_where_it_is_and_by_its_text() {
        for count in [0, 1, 2, 1000] {
            let known = names(count);
            let places = Places::new(known.iter().map(|name| &**name).collect());
            // The same in memory, and a copy.
            for asked in [known.clone(), names(count)] {
                let found: Option<Vec<u32>> = asked.iter().map(|name| places.find(name)).collect();
                assert_eq!(found, Some((0..u32::try_from(count).unwrap()).collect()));
            }
            assert_eq!(places.find("sha256:"), None);
        }
    }

    #[test]
    fn the_beginning_of_a_name_is_another_name() {
        let known = names(3);
        let places = Places::new(known.iter().map(|name| &**name).collect());
        assert_eq!(known.iter().map(|name| places.find(&name[..9])).collect::<Vec<_>>(), [None; 3]);
    }
}
