//! A graph as a picture: owners above their dependents, in layers, as SVG.
//!
//! ```text
//! references ─► layers (longest way from the top; a cycle's last reference goes up) ─► order (median of the neighbours) ─► boxes and curves
//! ```
//! The same graph is the same picture. What the objects are and what becomes of them is the caller's; colours are by class, those of a page or [`COLOURS`].

use std::fmt::Write as _;

/// How wide a character is, in the font and size below.
const CHARACTER: f64 = 7.25;
const BOX: f64 = 44.0;
const PADDING: f64 = 12.0;
/// Between boxes of a layer, and between layers.
const GAP: (f64, f64) = (24.0, 56.0);
const MARGIN: f64 = 20.0;

/// How a picture by itself looks. A page has its own rules for the same classes.
const COLOURS: &str = "\
.paper{fill:#ffffff}.box{fill:#f8fafc;stroke:#64748b;stroke-width:1.5}.deleted .box{fill:#fecaca;stroke:#b91c1c}\
.held .box{fill:#fef3c7;stroke:#b45309;stroke-dasharray:5 3}text{fill:#0f172a}text.kind{fill:#475569}\
.way{fill:none;stroke:#475569;stroke-width:1.2}.loose{stroke-dasharray:4 3}.head{fill:#475569}";
/// How often layers are put in order by their neighbours.
const SWEEPS: usize = 8;

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing, or nobody asked.
    Stays,
    /// A delete would remove it.
    Deleted,
    /// A delete would have to remove it, and something holds it up.
    Held,
}

/// A box with its two lines.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

/// From an owner to a dependent, by their places among the boxes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrow {
    pub(super) owner: usize,
    pub(super) dependent: usize,
    pub(super) blocks: bool,
}

/// A picture without what is around it.
#[derive(Debug)]
pub(super) struct Picture {
    /// Across and down.
    pub(super) size: (f64, f64),
    /// The elements in it.
    pub(super) body: String,
}

impl Picture {
    /// The picture as a file of its own.
    pub(super) fn alone(&self) -> String {
        let (width, height) = self.size;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"12\">\n\
             <style>{COLOURS}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// The picture of a graph.
pub(super) fn draw(shapes: &[Shape], arrows: &[Arrow]) -> Picture {
    let layers = ordered(layers(shapes.len(), arrows), arrows);
    let widths: Vec<f64> = shapes.iter().map(Shape::width).collect();
    let across = |layer: &[usize]| -> f64 {
        layer.iter().map(|&at| widths[at] + GAP.0).sum::<f64>() - GAP.0
    };
    let widest = layers.iter().map(|layer| across(layer)).fold(0.0, f64::max);
    let mut places = vec![(0.0, 0.0); shapes.len()];
    let mut top = MARGIN;
    for layer in &layers {
        let mut left = MARGIN + (widest - across(layer)) / 2.0;
        for &at in layer {
            places[at] = (left, top);
            left += widths[at] + GAP.0;
        }
        top += BOX + GAP.1;
    }
    let mut body = "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path class=\"head\" d=\"M0 0 8 4 0 8z\"/></marker></defs>\n".to_owned();
    for arrow in arrows {
        body += &curve(arrow, &places, &widths);
    }
    for (shape, &place) in shapes.iter().zip(&places) {
        body += &shape.draw(place);
    }
    Picture { size: (widest + 2.0 * MARGIN, top - GAP.1 + MARGIN), body }
}

impl Shape {
    fn width(&self) -> f64 {
        let longest = self.first_line().chars().count().max(self.name.chars().count());
        // A name has at most 253 characters.
        f64::from(u32::try_from(longest).unwrap_or(u32::MAX)) * CHARACTER + 2.0 * PADDING
    }

    fn draw(&self, (left, top): (f64, f64)) -> String {
        let (width, middle) = (self.width(), left + self.width() / 2.0);
        let (class, first) = (self.outcome.class(), self.first_line());
        let (kind, name) = (escaped(&first), escaped(&self.name));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<g{class}><title>{kind}: {name}</title><rect class=\"box\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BOX}\" rx=\"6\"/>\
             <text class=\"kind\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{kind}</text>\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text></g>",
            top + 18.0,
            top + 35.0,
        );
        text
    }

    /// Its kind, and what becomes of it: colour alone says nothing to some people, nor on paper.
    fn first_line(&self) -> String {
        match self.outcome.words() {
            Some(words) => format!("{}, {words}", self.kind),
            None => self.kind.clone(),
        }
    }
}

impl Outcome {
    /// In words; nothing of what stays.
    pub(super) fn words(self) -> Option<&'static str> {
        match self {
            Self::Stays => None,
            Self::Deleted => Some("would be deleted"),
            Self::Held => Some("held up"),
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Stays => "",
            Self::Deleted => " class=\"deleted\"",
            Self::Held => " class=\"held\"",
        }
    }
}

/// Which boxes are in which layer: each as far down as its longest way from the top says.
fn layers(count: usize, arrows: &[Arrow]) -> Vec<Vec<usize>> {
    let down = acyclic(count, arrows);
    let mut depth = vec![0; count];
    // A way has fewer arrows than there are boxes.
    for _ in 0..count {
        let mut is_settled = true;
        for &(owner, dependent) in &down {
            if depth[dependent] <= depth[owner] {
                depth[dependent] = depth[owner] + 1;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    let mut layers = vec![Vec::new(); depth.iter().max().map_or(0, |deepest| deepest + 1)];
    (0..count).for_each(|at| layers[depth[at]].push(at));
    layers
}

/// The arrows without those that close a cycle, and without those from a box to itself.
fn acyclic(count: usize, arrows: &[Arrow]) -> Vec<(usize, usize)> {
    let mut down: Vec<(usize, usize)> = Vec::new();
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); count];
    for arrow in arrows {
        let mut seen = vec![false; count];
        let mut due = vec![arrow.dependent];
        while let Some(at) = due.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                due.extend(&below[at]);
            }
        }
        if !seen[arrow.owner] {
            below[arrow.owner].push(arrow.dependent);
            down.push((arrow.owner, arrow.dependent));
        }
    }
    down
}

/// Puts each layer in the order of its neighbours' places, downwards and upwards in turn: fewer lines cross.
fn ordered(mut layers: Vec<Vec<usize>>, arrows: &[Arrow]) -> Vec<Vec<usize>> {
    let count = layers.iter().map(Vec::len).sum();
    let mut neighbours = vec![Vec::new(); count];
    for arrow in arrows {
        neighbours[arrow.owner].push(arrow.dependent);
        neighbours[arrow.dependent].push(arrow.owner);
    }
    let mut place = vec![0.0; count];
    let mut layer_of = vec![0; count];
    for (depth, layer) in layers.iter().enumerate() {
        place_all(layer, &mut place);
        layer.iter().for_each(|&at| layer_of[at] = depth);
    }
    let depths: Vec<usize> = (0..layers.len()).collect();
    for sweep in 0..SWEEPS {
        let is_down = sweep % 2 == 0;
        let turns: Vec<usize> =
            if is_down { depths.clone() } else { depths.iter().rev().copied().collect() };
        for depth in turns {
            let key = |at: usize| {
                let beside = |&&other: &&usize| {
                    if is_down { layer_of[other] < depth } else { layer_of[other] > depth }
                };
                let mut places: Vec<f64> =
                    neighbours[at].iter().filter(beside).map(|&other| place[other]).collect();
                places.sort_by(f64::total_cmp);
                places.get(places.len() / 2).copied().unwrap_or(place[at])
            };
            let mut keyed: Vec<(f64, usize)> =
                layers[depth].iter().map(|&at| (key(at), at)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[depth] = keyed.into_iter().map(|(_, at)| at).collect();
            place_all(&layers[depth], &mut place);
        }
    }
    layers
}

/// Places between 0 and 1, so that layers of different lengths compare.
fn place_all(layer: &[usize], place: &mut [f64]) {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    for (at, &which) in layer.iter().enumerate() {
        place[which] = (number(at) + 0.5) / number(layer.len());
    }
}

/// From the lower edge of an owner to the upper one of its dependent; upwards, around both.
fn curve(arrow: &Arrow, places: &[(f64, f64)], widths: &[f64]) -> String {
    let ((from_x, from_y), (to_x, to_y)) = (places[arrow.owner], places[arrow.dependent]);
    let class = if arrow.blocks { "way" } else { "way loose" };
    let path = if to_y > from_y {
        let (x1, y1) = (from_x + widths[arrow.owner] / 2.0, from_y + BOX);
        let (x2, y2) = (to_x + widths[arrow.dependent] / 2.0, to_y);
        let middle = f64::midpoint(y1, y2);
        format!("M{x1:.1} {y1:.1}C{x1:.1} {middle:.1} {x2:.1} {middle:.1} {x2:.1} {y2:.1}")
    } else {
        let (x1, y1) = (from_x + widths[arrow.owner], from_y + BOX / 2.0);
        let (x2, y2) = (to_x + widths[arrow.dependent], to_y + BOX / 2.0);
        let (y1, y2) =
            if arrow.owner == arrow.dependent { (y1 + 10.0, y2 - 10.0) } else { (y1, y2) };
        let right = x1.max(x2) + GAP.0;
        format!("M{x1:.1} {y1:.1}C{right:.1} {y1:.1} {right:.1} {y2:.1} {x2:.1} {y2:.1}")
    };
    format!("<path class=\"{class}\" d=\"{path}\" marker-end=\"url(#head)\"/>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(pairs: &[(usize, usize)]) -> Vec<Arrow> {
        let arrow = |&(owner, dependent)| Arrow { owner, dependent, blocks: true };
        pairs.iter().map(arrow).collect()
    }

    #[test]
    fn dependents_are_below_all_their_owners_and_a_cycle_is_drawn_all_the_same() {
        assert_eq!(
            layers(4, &arrows(&[(0, 1), (1, 2), (0, 2), (3, 2)])),
            [vec![0, 3], vec![1], vec![2]]
        );
        assert_eq!(layers(3, &arrows(&[(0, 1), (1, 0), (2, 2)])), [vec![0, 2], vec![1]]);
        assert!(layers(0, &[]).is_empty());
    }

    #[test]
    fn what_would_cross_is_put_in_order() {
        let crossed = arrows(&[(0, 3), (1, 2)]);
        let in_order = ordered(vec![vec![0, 1], vec![2, 3]], &crossed);
        let place = |at| in_order.iter().flatten().position(|&other| other == at);
        assert_eq!(place(0) < place(1), place(3) < place(2));
    }

    #[test]
    fn names_are_escaped_and_boxes_do_not_overlap() {
        let shape =
            |name: &str| Shape { kind: "Pod".into(), name: name.into(), outcome: Outcome::Deleted };
        let shapes = [shape("a"), shape("<b>&\""), shape("a-name-that-is-longer-than-the-others")];
        let text = draw(&shapes, &arrows(&[(0, 1), (0, 2)])).alone();
        assert_eq!(
            text.matches("Pod, would be deleted").count(),
            6,
            "to be seen without a colour: {text}"
        );
        assert!(text.contains("&lt;b&gt;&amp;&quot;") && !text.contains("<b>"), "{text}");
        let number = |text: &str, key: &str| -> f64 {
            let rest = text.split_once(&format!(" {key}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let boxes: Vec<(f64, f64)> = text
            .split("<g ")
            .skip(1)
            .map(|group| group.split_once("<rect").unwrap().1)
            .map(|rect| (number(rect, "x"), number(rect, "width")))
            .collect();
        let (one, other) = (boxes[1], boxes[2]);
        assert!(one.0 + one.1 < other.0 || other.0 + other.1 < one.0, "{boxes:?}");
    }
}
