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
use alloc::{collections::BTreeSet, string::String, vec, vec::Vec};
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
        let places = Places::new(snapshot.layers.keys().map(String::as_str).collect());
        let mut found = Vec::new();
        for image in &snapshot.images {
            let start = shelf.held.len();
            if image.layers.as_deref().is_some_and(|layers| places.find_all(layers, &mut found)) {
                for place in &found {
                    // An image may name a layer twice.
                    if !shelf.held[start..].contains(place) {
                        shelf.held.push(*place);
                    }
                }
            } else {
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
/// Names of layers are digests: long, and alike at the beginning. They are spread by a hash over as many drawers, so that a drawer holds one or two.
/// Of each the rest of its hash is at hand, so that only the name that is looked for has to be fetched from memory: that is what takes the time.
/// A full drawer is searched by halves, so that names that were made to share one take no longer than in a sorted list.
struct Places<'a> {
    names: Vec<&'a str>,
    /// Names drawer by drawer, sorted within each.
    filed: Vec<Filed>,
    /// Where each drawer begins; one more at the end.
    starts: Vec<u32>,
}

/// A name in its drawer.
#[derive(Clone, Copy, Default)]
struct Filed {
    /// The half of its hash that does not say which drawer.
    mark: u32,
    place: u32,
}

/// Drawers with more names than this are searched by halves.
const FULL: usize = 8;

impl<'a> Places<'a> {
    /// `names` are sorted, and none is there twice.
    fn new(names: Vec<&'a str>) -> Places<'a> {
        let drawers = names.len().next_power_of_two();
        let hashes: Vec<u64> = names.iter().map(|name| hash(name)).collect();
        let mut starts = vec![0; drawers + 1];
        for hash in &hashes {
            starts[drawer(*hash, drawers) + 1] += 1;
        }
        for place in 1..starts.len() {
            starts[place] += starts[place - 1];
        }
        let mut next = starts.clone();
        let mut filed = vec![Filed::default(); names.len()];
        for (place, hash) in hashes.into_iter().enumerate() {
            let next = &mut next[drawer(hash, drawers)];
            filed[*next as usize] = Filed { mark: mark(hash), place: number(place) };
            *next += 1;
        }
        Places { names, filed, starts }
    }

    /// Where all of `names` are, in `found`; false when one of them is not there.
    ///
    /// First where each must be by its hash, then whether it is: so the names are fetched beside one another and not one after the other.
    fn find_all(&self, names: &[String], found: &mut Vec<u32>) -> bool {
        found.clear();
        for name in names {
            let Some(place) = self.guess(name) else { return false };
            found.push(place);
        }
        names.iter().zip(found).all(|(name, place)| {
            self.names[*place as usize] == name.as_str()
                || self.search(name).map(|really| *place = really).is_some()
        })
    }

    /// Where a name must be if it is there at all; another of the same hash may be there.
    fn guess(&self, name: &str) -> Option<u32> {
        let hash = hash(name);
        let filed = self.drawer(hash);
        if filed.len() > FULL {
            return self.search(name);
        }
        filed.iter().find(|filed| filed.mark == mark(hash)).map(|filed| filed.place)
    }

    /// Where a name is.
    fn search(&self, name: &str) -> Option<u32> {
        let filed = self.drawer(hash(name));
        let found = filed.binary_search_by(|filed| self.names[filed.place as usize].cmp(name));
        found.ok().map(|found| filed[found].place)
    }

    fn drawer(&self, hash: u64) -> &[Filed] {
        let drawer = drawer(hash, self.starts.len() - 1);
        &self.filed[self.starts[drawer] as usize..self.starts[drawer + 1] as usize]
    }
}

fn hash(name: &str) -> u64 {
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)))
}

/// Both halves of the product: every bit of a word counts in every bit of the hash, also those of the last one, in which digests differ.
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

/// The drawer of a hash, of a power of two of them.
fn drawer(hash: u64, drawers: usize) -> usize {
    usize::try_from(hash >> 32).unwrap_or(0) & (drawers - 1)
}

/// What tells names in a drawer apart.
fn mark(hash: u64) -> u32 {
    hash as u32
}

/// A place as it is kept; memory does not hold as many layers as would not fit.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{FULL, Places, hash, mix};
    use alloc::{collections::BTreeSet, format, string::String, vec::Vec};

    /// Names of one hash: the second word undoes what the first one changes.
    fn of_one_hash(count: usize) -> Vec<String> {
        let of_first = |number: u64| {
            let first = 0x2020_2020_2020_2020 + ((number >> 6) << 16 | (number & 0x3f) << 1);
            let second = mix(0, first) ^ 0x2020_2020_2020_2020;
            let name = String::from_utf8([first.to_le_bytes(), second.to_le_bytes()].concat());
            name.ok().filter(|name| name.is_ascii())
        };
        (0..1 << 16).filter_map(of_first).take(count).collect()
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        for count in [2, FULL, 3 * FULL] {
            let mut names = of_one_hash(count);
            assert_eq!(names.iter().map(|name| hash(name)).collect::<BTreeSet<_>>().len(), 1);
            names.extend((0..100).map(|number| format!("sha256:{number:064x}")));
            names.sort();
            assert_eq!(names.len(), count + 100);
            let places = Places::new(names.iter().map(String::as_str).collect());
            let mut found = Vec::new();
            assert!(places.find_all(&names, &mut found));
            assert!(found.into_iter().eq(0..100 + u32::try_from(count).unwrap()));
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_not_found() {
        let names = of_one_hash(2);
        let places = Places::new(names[..1].iter().map(String::as_str).collect());
        assert!(!places.find_all(&names, &mut Vec::new()));
    }

    #[test]
    fn digests_that_differ_at_the_end_are_in_drawers_of_their_own() {
        let names: Vec<String> = (0..4096).map(|number| format!("sha256:{number:064x}")).collect();
        let places = Places::new(names.iter().map(String::as_str).collect());
        let fullest = places.starts.windows(2).map(|drawer| drawer[1] - drawer[0]).max().unwrap();
        assert!(fullest as usize <= FULL, "{fullest}");
    }
}
