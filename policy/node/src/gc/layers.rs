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
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

/// Layers of all images, and how many images still have each.
#[derive(Debug)]
pub(crate) struct Shelf {
    stock: Stock,
    /// How many images still have each layer.
    holders: Holders,
}

/// Which image has which layers: what does not change as images are taken away.
#[derive(Debug)]
struct Stock {
    /// Sizes of layers, by their place.
    sizes: Vec<u64>,
    /// The layers of all images, one image after the other in the snapshot's order.
    held: Vec<u32>,
    /// Where in `held` those of each image end.
    ends: Vec<usize>,
    /// Images whose layers are not known; each counts as one layer of its own.
    unknown: u64,
}

/// How many images still have each layer, by its place.
#[derive(Clone, Debug)]
struct Holders(Vec<u32>);

impl Shelf {
    /// All images of a snapshot on the shelf.
    pub(crate) fn new(snapshot: &Snapshot) -> Shelf {
        let listed = snapshot.images.iter().map(|image| image.layers.as_ref().map_or(1, Vec::len));
        let (names, sizes) = snapshot.layers.iter().map(|(name, size)| (&**name, *size)).unzip();
        let mut stock = Stock {
            sizes,
            held: Vec::with_capacity(listed.sum()),
            ends: Vec::with_capacity(snapshot.images.len()),
            unknown: 0,
        };
        let places = Places::new(names);
        for image in &snapshot.images {
            let start = stock.held.len();
            let is_known = image.layers.as_deref().is_some_and(|layers| {
                layers.iter().all(|layer| {
                    let place = places.find(layer);
                    // An image may name a layer twice.
                    let new = place.filter(|place| !stock.held[start..].contains(place));
                    stock.held.extend(new);
                    place.is_some()
                })
            });
            if !is_known {
                stock.held.truncate(start);
                stock.unknown += 1;
                stock.held.push(number(stock.sizes.len()));
                stock.sizes.push(image.size);
            }
            stock.ends.push(stock.held.len());
        }
        let mut holders = Holders(vec![0; stock.sizes.len()]);
        for place in &stock.held {
            holders.0[*place as usize] += 1;
        }
        Shelf { stock, holders }
    }

    /// Images whose layers are not known.
    pub(crate) fn unknown(&self) -> u64 {
        self.stock.unknown
    }

    /// Takes an image away; returns the bytes that go with it.
    pub(crate) fn take(&mut self, image: usize) -> u128 {
        self.holders.take(&self.stock, image)
    }

    /// Which of `candidates` (the longest unused first) to take away so that at least `wanted` bytes go; the answers are in their order.
    pub(crate) fn choose(&self, candidates: &[usize], wanted: u64) -> Vec<bool> {
        let mut goes = vec![false; self.stock.ends.len()];
        let chosen = if wanted == 0 { Vec::new() } else { self.cheapest(candidates, wanted) };
        for image in chosen {
            goes[image] = true;
        }
        candidates.iter().map(|image| goes[*image]).collect()
    }

    /// The set with the least to pull again of those that can be found; all that free anything when that is not enough.
    fn cheapest(&self, candidates: &[usize], wanted: u64) -> Vec<usize> {
        let oldest_first = match self.cover(candidates, wanted.into()) {
            Cover::Enough(set) => set,
            // In no order there is more.
            Cover::Everything(images) => return images,
        };
        let unique = |image: &usize| (self.holders.frees(&self.stock, *image, 1), *image);
        let mut sized: Vec<(u128, usize)> = candidates.iter().map(unique).collect();
        let mut sets = vec![oldest_first];
        let mut try_in = |sized: &[(u128, usize)]| {
            let order: Vec<usize> = sized.iter().map(|(_, image)| *image).collect();
            if let Cover::Enough(set) = self.cover(&order, wanted.into()) {
                sets.push(set);
            }
        };
        sized.sort_by_key(|(unique, _)| Reverse(*unique));
        try_in(&sized);
        sized.sort_by_key(|(unique, _)| *unique);
        try_in(&sized);
        sets.into_iter().min_by_key(|set| set.freed).map_or(Vec::new(), |set| set.images)
    }

    /// Takes images in the given order until enough goes, then puts back what is superfluous, the last taken first.
    ///
    /// What is needed once stays needed: an image that is put back keeps layers that are then no longer missing for another, but at most as many bytes as it leaves less to spare.
    fn cover(&self, order: &[usize], wanted: u128) -> Cover {
        let (stock, mut holders) = (&self.stock, self.holders.clone());
        let mut images = Vec::with_capacity(order.len());
        let mut freed = 0;
        for image in order {
            if freed >= wanted {
                break;
            }
            freed += holders.take(stock, *image);
            images.push(*image);
        }
        let is_enough = freed >= wanted;
        let mut to_spare = freed.saturating_sub(wanted);
        // In both cases nothing stays taken that frees nothing.
        let is_needed = |image: &usize| {
            let frees = holders.frees(stock, *image, 0);
            if frees > to_spare {
                return true;
            }
            holders.put_back(stock, *image);
            to_spare -= frees;
            freed -= frees;
            false
        };
        if !is_enough {
            // However it is turned: everything that frees something goes, and the rest stays.
            images.retain(is_needed);
            return Cover::Everything(images);
        }
        images.reverse();
        images.retain(is_needed);
        Cover::Enough(Set { images, freed })
    }
}

impl Stock {
    /// The places of an image's layers.
    fn of(&self, image: usize) -> &[u32] {
        let start = image.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.held[start..self.ends[image]]
    }
}

impl Holders {
    /// Bytes of an image's layers that so many images have.
    fn frees(&self, stock: &Stock, image: usize, having: u32) -> u128 {
        let layers = stock.of(image).iter().map(|layer| *layer as usize);
        let sizes = layers.filter(|layer| self.0[*layer] == having).map(|l| stock.sizes[l]);
        sizes.map(u128::from).sum()
    }

    /// Takes an image away; returns the bytes that go with it.
    fn take(&mut self, stock: &Stock, image: usize) -> u128 {
        let mut freed = 0;
        for layer in stock.of(image) {
            let layer = *layer as usize;
            self.0[layer] -= 1;
            if self.0[layer] == 0 {
                freed += u128::from(stock.sizes[layer]);
            }
        }
        freed
    }

    /// Puts an image that was taken away back.
    fn put_back(&mut self, stock: &Stock, image: usize) {
        for layer in stock.of(image) {
            self.0[*layer as usize] += 1;
        }
    }
}

/// What comes of taking images in an order.
enum Cover {
    /// Enough, by these.
    Enough(Set),
    /// Not enough, by all that free anything.
    Everything(Vec<usize>),
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
            let (Ok(slot) | Err(slot)) = places.slot(places.names[place]);
            places.slots[slot] = number(place);
        }
        places
    }

    /// Where a name is, whether it is the same in memory or only as text.
    fn find(&self, name: &str) -> Option<u32> {
        match self.slot(name) {
            Ok(slot) => Some(self.slots[slot]),
            Err(_) => self.names.binary_search(&name).ok().map(number),
        }
    }

    /// The slot of the name at this address, or the free one in which it would be.
    fn slot(&self, name: &str) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        // Allocations begin at multiples of sixteen.
        let spread = (name.as_ptr().addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = usize::try_from(spread >> 32).unwrap_or(0) & mask;
        loop {
            match self.slots[slot] {
                FREE => return Err(slot),
                place if core::ptr::eq(self.names[place as usize], name) => return Ok(slot),
                _ => slot = (slot + 1) & mask,
            }
        }
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
