//! The pod whose requests come nearest to what is missing, found again after each that is taken.
//!
//! ```text
//!  candidates ─► the same requests: one shape, its pods in order
//!  shapes ─► a tree, halved along the widest resource; each node knows the most that any pod below gives of each resource, and of all together
//!  take ─► down the tree, the nearer half first; a half whose best conceivable pod is no nearer than the best found is left out
//! ```
//! Comparing every pod in each step takes n steps of n.
//! The tree takes about log n a step where pods come in few sizes or differ in one or two resources, and more where they differ in three that have nothing to do with each other (measured: n to the power of 1.4 in all).
//! Who is taken is the same: a node is never left out unless all below it are further away, rounding included.
use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Ordering;

/// How many resources can be missing.
const RESOURCES: usize = 4;

/// An amount of each resource, in one order.
pub(super) type Amounts = [i128; RESOURCES];

/// What a pod gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Given {
    /// Of each resource.
    pub(super) amounts: Amounts,
    /// Memory, then CPU: of two that come equally near the smaller one goes.
    pub(super) size: (i128, i128),
}

/// Whether nothing is missing.
pub(super) fn is_nothing(missing: Amounts) -> bool {
    missing.iter().all(|amount| *amount <= 0)
}

/// What is still missing after `given`, never below zero.
pub(super) fn less(missing: Amounts, given: Amounts) -> Amounts {
    let mut left = missing;
    for (left, given) in left.iter_mut().zip(given) {
        *left = left.saturating_sub(given).max(0);
    }
    left
}

/// How far something that gives `given` stays behind what is missing: the squares of the missing shares, summed.
fn distance(given: Amounts, missing: Amounts) -> f64 {
    let mut sum = 0.0;
    for (given, missing) in given.into_iter().zip(missing).filter(|(_, missing)| *missing > 0) {
        let left = missing.saturating_sub(given).max(0);
        let share = left as f64 / missing as f64;
        sum += share * share;
    }
    sum
}

/// A number that is not above the distance of anything that gives no more than `most.amounts` of each resource, and no more than `most.score` of all together by `weights`.
///
/// The corner of the box alone promises too much: hardly a pod gives the most of everything. The plane cuts it off.
/// That is the least of a sum of squares under one linear bound; by duality every multiplier gives a number that is not above it, and the best one the number itself.
fn least_distance(most: &Best, weights: [f64; RESOURCES], missing: Amounts) -> f64 {
    let mut sides = [Side::default(); RESOURCES];
    let mut count = 0;
    for resource in (0..RESOURCES).filter(|resource| missing[*resource] > 0) {
        let whole = missing[resource] as f64;
        sides[count] = Side {
            slope: weights[resource] * whole,
            most: (most.amounts[resource].max(0) as f64 / whole).min(1.0),
        };
        count += 1;
    }
    let sides = &sides[..count];
    let mut multiplier = 0.0;
    // Each round settles at least one side for good.
    for _ in 0..=RESOURCES {
        let (mut over, mut change) = (-most.score, 0.0);
        for side in sides {
            let share = side.share(multiplier);
            over += side.slope * share;
            if share > 0.0 && share < side.most {
                change += side.slope * side.slope / 2.0;
            }
        }
        if over <= 0.0 {
            break;
        }
        if change == 0.0 {
            // All at their most: on to where the first of them begins to give way.
            let gives_way = |side: &Side| 2.0 * (1.0 - side.most) / side.slope;
            let next = sides.iter().map(gives_way).filter(|at| *at > multiplier);
            multiplier = next.fold(f64::INFINITY, f64::min);
            if !multiplier.is_finite() {
                return 0.0;
            }
            multiplier += multiplier * 1e-9;
            continue;
        }
        multiplier += over / change;
    }
    let mut sum = -multiplier * most.score;
    for side in sides {
        let share = side.share(multiplier);
        sum += (1.0 - share) * (1.0 - share) + multiplier * side.slope * share;
    }
    sum - ROUNDING
}

/// More than rounding can be off in a sum of four squares between 0 and 1.
const ROUNDING: f64 = 1e-12;

/// One missing resource, by the share of what is missing.
#[derive(Clone, Copy, Default)]
struct Side {
    /// What the whole of it weighs in the score.
    slope: f64,
    /// The most that is given of it, 0 to 1.
    most: f64,
}

impl Side {
    /// The share that is best at this multiplier.
    fn share(&self, multiplier: f64) -> f64 {
        (1.0 - multiplier * self.slope / 2.0).clamp(0.0, self.most)
    }
}

/// Decides between equals: the smaller pod, then the earlier one.
type Tie = ((i128, i128), usize);

/// How good a choice is; the least is the best.
#[derive(Clone, Copy)]
struct Rank {
    distance: f64,
    tie: Tie,
}

impl Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        self.distance.total_cmp(&other.distance).then_with(|| self.tie.cmp(&other.tie))
    }
}

/// Candidates, of whom the nearest can be taken one by one.
pub(super) struct Nearest {
    /// The candidates of each shape, the first one last.
    shapes: Vec<(Given, Vec<usize>)>,
    nodes: Vec<Node>,
    root: Option<usize>,
    /// What each resource weighs in a score: one over what was missing of it when the tree was last weighed.
    weights: [f64; RESOURCES],
    /// How often a node was looked at or weighed, in all.
    looks: u64,
    /// How often since the tree was last weighed.
    since: u64,
}

/// A part of the tree: all below it, as far as they have not been taken.
struct Node {
    /// The best that anybody below could be; `None` when all are taken.
    best: Option<Best>,
    below: Below,
    parent: Option<usize>,
}

/// The best of anybody below in each respect.
#[derive(Clone, Copy)]
struct Best {
    /// The most of each resource.
    amounts: Amounts,
    /// The most of all resources together, weighed.
    score: f64,
    tie: Tie,
}

#[derive(Clone, Copy)]
enum Below {
    /// One shape.
    Shape(usize),
    /// Two halves.
    Halves(usize, usize),
}

impl Nearest {
    /// Takes the candidates in; each is known by its place in this order, and of equals the earlier one goes first. `missing` is what will be asked for first.
    pub(super) fn new(candidates: impl Iterator<Item = Given>, missing: Amounts) -> Nearest {
        let mut by_shape: BTreeMap<Given, Vec<usize>> = BTreeMap::new();
        for (place, given) in candidates.enumerate() {
            by_shape.entry(given).or_default().push(place);
        }
        let mut shapes: Vec<(Given, Vec<usize>)> = by_shape.into_iter().collect();
        for (_, places) in &mut shapes {
            places.reverse();
        }
        let mut nearest = Nearest {
            nodes: Vec::with_capacity(shapes.len() * 2),
            shapes,
            root: None,
            weights: [0.0; RESOURCES],
            looks: 0,
            since: 0,
        };
        let mut all: Vec<usize> = (0..nearest.shapes.len()).collect();
        if !all.is_empty() {
            nearest.root = Some(nearest.grow(&mut all));
        }
        nearest.weigh(missing);
        nearest
    }

    /// Weighs every node anew by what is missing now. Nodes stand behind those below them.
    fn weigh(&mut self, missing: Amounts) {
        self.looks += self.nodes.len() as u64;
        self.since = 0;
        self.weights = missing.map(|amount| if amount > 0 { 1.0 / amount as f64 } else { 0.0 });
        for node in 0..self.nodes.len() {
            self.nodes[node].best = self.best_of(self.nodes[node].below);
        }
    }

    fn score(&self, amounts: Amounts) -> f64 {
        amounts.iter().zip(self.weights).map(|(amount, weight)| *amount as f64 * weight).sum()
    }

    /// Makes the node above `shapes`, which are never none. The tree is as deep as halving makes it.
    fn grow(&mut self, shapes: &mut [usize]) -> usize {
        let below = match shapes {
            [shape] => Below::Shape(*shape),
            _ => {
                let by = self.widest(shapes);
                let middle = shapes.len() / 2;
                let amount = |shape: &usize| self.shapes[*shape].0.amounts[by];
                shapes.select_nth_unstable_by_key(middle, amount);
                let (low, high) = shapes.split_at_mut(middle);
                Below::Halves(self.grow(low), self.grow(high))
            }
        };
        let node = self.nodes.len();
        self.nodes.push(Node { best: None, below, parent: None });
        if let Below::Halves(low, high) = below {
            self.nodes[low].parent = Some(node);
            self.nodes[high].parent = Some(node);
        }
        self.nodes[node].best = self.best_of(below);
        node
    }

    /// The resource in which shapes differ most, measured by the largest of each.
    fn widest(&self, shapes: &[usize]) -> usize {
        let spread = |by: &usize| {
            let amounts = || shapes.iter().map(|shape| self.shapes[*shape].0.amounts[*by]);
            let (least, most) = (amounts().min().unwrap_or(0), amounts().max().unwrap_or(0));
            most.saturating_sub(least) as f64 / most.max(1) as f64
        };
        (0..RESOURCES).max_by(|a, b| spread(a).total_cmp(&spread(b))).unwrap_or(0)
    }

    fn best_of(&self, below: Below) -> Option<Best> {
        match below {
            Below::Shape(shape) => {
                let (given, places) = &self.shapes[shape];
                let tie = (given.size, *places.last()?);
                Some(Best { amounts: given.amounts, score: self.score(given.amounts), tie })
            }
            Below::Halves(low, high) => match (self.nodes[low].best, self.nodes[high].best) {
                (Some(low), Some(high)) => {
                    let mut amounts = low.amounts;
                    for (amount, other) in amounts.iter_mut().zip(high.amounts) {
                        *amount = (*amount).max(other);
                    }
                    Some(Best {
                        amounts,
                        score: low.score.max(high.score),
                        tie: low.tie.min(high.tie),
                    })
                }
                (low, high) => low.or(high),
            },
        }
    }

    /// Takes the nearest candidate away and returns its place; `None` when all are taken.
    pub(super) fn take(&mut self, missing: Amounts) -> Option<usize> {
        // What is missing shrinks by more of one thing than of another, and old weights leave too little out; this way weighing is at most half of the work.
        if self.since > self.nodes.len() as u64 {
            self.weigh(missing);
        }
        let root = self.root?;
        let rank = self.rank(root, missing)?;
        let mut found = None;
        self.search(root, rank, missing, &mut found);
        let (_, leaf) = found?;
        let Below::Shape(shape) = self.nodes[leaf].below else { return None };
        let place = self.shapes[shape].1.pop();
        let mut above = Some(leaf);
        while let Some(node) = above {
            self.nodes[node].best = self.best_of(self.nodes[node].below);
            above = self.nodes[node].parent;
        }
        place
    }

    /// The best that anybody below `node` could rank; exactly that of a single shape.
    fn rank(&mut self, node: usize, missing: Amounts) -> Option<Rank> {
        self.looks += 1;
        self.since += 1;
        let best = self.nodes[node].best?;
        let mut distance = distance(best.amounts, missing);
        if let Below::Halves(..) = self.nodes[node].below {
            distance = distance.max(least_distance(&best, self.weights, missing));
        }
        Some(Rank { distance, tie: best.tie })
    }

    fn search(
        &mut self,
        node: usize,
        rank: Rank,
        missing: Amounts,
        found: &mut Option<(Rank, usize)>,
    ) {
        if found.is_some_and(|(best, _)| best.cmp(&rank).is_lt()) {
            return;
        }
        match self.nodes[node].below {
            Below::Shape(_) => *found = Some((rank, node)),
            Below::Halves(low, high) => {
                let mut halves = [low, high].map(|half| Some((half, self.rank(half, missing)?)));
                if let [Some((_, low)), Some((_, high))] = &halves
                    && high.cmp(low).is_lt()
                {
                    halves.reverse();
                }
                for (half, rank) in halves.into_iter().flatten() {
                    self.search(half, rank, missing, found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Amounts, Given, Nearest, Rank, distance, is_nothing, less};
    use alloc::{string::String, vec::Vec};

    /// A fixed sequence that looks random.
    struct Scattered(u64);

    impl Scattered {
        fn below(&mut self, bound: i128) -> i128 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            i128::from(self.0 >> 33) % bound
        }
    }

    fn given(cpu: i128, storage: i128, memory: i128) -> Given {
        Given { amounts: [cpu, storage, memory, 1], size: (memory, cpu) }
    }

    type Shape = fn(&mut Scattered) -> Given;

    /// What pods ask for, and how much the looks may grow from 1,000 pods to 8,000: eight times the steps, each of log 8,000 / log 1,000 = 1.3 times the looks, are 10.4. Comparing everybody is 64.
    const SHAPES: [(&str, Shape, u64); 6] = [
        ("alike", |_| given(100, 0, 1 << 20), 12),
        (
            "a few sizes",
            |random| given(100 << random.below(4), 0, (64 << 20) << random.below(4)),
            12,
        ),
        ("any memory", |random| given(100, 0, random.below(1 << 32)), 12),
        ("any CPU and memory", |random| given(random.below(4_000), 0, random.below(1 << 32)), 16),
        (
            "one thing for the other",
            |random| {
                let cpu = random.below(1_000_000);
                given(cpu, 0, 1_000_000 - cpu)
            },
            12,
        ),
        (
            "any of everything",
            |random| given(random.below(4_000), random.below(1 << 30), random.below(1 << 32)),
            24,
        ),
    ];

    fn pods(shape: Shape, count: usize) -> Vec<Given> {
        let mut random = Scattered(7);
        (0..count).map(|_| shape(&mut random)).collect()
    }

    /// Nine tenths of what all of them give.
    fn most_of(pods: &[Given]) -> Amounts {
        let mut sum = [0; 4];
        for pod in pods {
            for (sum, amount) in sum.iter_mut().zip(pod.amounts) {
                *sum += amount;
            }
        }
        sum.map(|amount| amount * 9 / 10)
    }

    /// Takes until nothing is missing; returns who, and how often a node was looked at.
    fn by_tree(pods: &[Given], mut missing: Amounts) -> (Vec<usize>, u64) {
        let mut nearest = Nearest::new(pods.iter().copied(), missing);
        let mut taken = Vec::new();
        while !is_nothing(missing) {
            let Some(place) = nearest.take(missing) else { break };
            missing = less(missing, pods[place].amounts);
            taken.push(place);
        }
        (taken, nearest.looks)
    }

    /// The rule as it is written: every pod that is left is compared in each step.
    fn by_comparing_all(pods: &[Given], mut missing: Amounts) -> Vec<usize> {
        let mut left: Vec<usize> = (0..pods.len()).collect();
        let mut taken = Vec::new();
        while !is_nothing(missing) {
            let rank = |place: usize| Rank {
                distance: distance(pods[place].amounts, missing),
                tie: (pods[place].size, place),
            };
            let best = left.iter().enumerate().min_by(|a, b| rank(*a.1).cmp(&rank(*b.1)));
            let Some((index, place)) = best.map(|(index, place)| (index, *place)) else { break };
            left.swap_remove(index);
            missing = less(missing, pods[place].amounts);
            taken.push(place);
        }
        taken
    }

    #[test]
    fn the_tree_takes_whom_comparing_everybody_takes() {
        for (name, shape, _) in SHAPES {
            let mut random = Scattered(11);
            for count in [0, 1, 2, 3, 17, 150] {
                let pods = pods(shape, count);
                let all = most_of(&pods);
                let some = all.map(|amount| amount / (1 + random.below(5)));
                for missing in [
                    all,
                    some,
                    [all[0], 0, 0, 0],
                    [0, 0, some[2], 0],
                    [0, 0, 0, 3],
                    // More than there is of one thing: all of them go.
                    [all[0] * 2, 1, 0, 0],
                ] {
                    let expected = by_comparing_all(&pods, missing);
                    let what = (name, count, missing);
                    assert_eq!(by_tree(&pods, missing).0, expected, "{what:?}");
                }
            }
        }
    }

    #[test]
    fn eight_times_the_pods_take_little_more_than_eight_times_the_looks() {
        let mut told = String::new();
        for (name, shape, most) in SHAPES {
            let looks = |count| {
                let pods = pods(shape, count);
                by_tree(&pods, most_of(&pods)).1
            };
            let (few, many) = (looks(1_000), looks(8_000));
            told += &alloc::format!("{name}: {few} looks for 1,000 pods, {many} for 8,000\n");
            assert!(many < few * most, "{told}");
        }
    }
}
