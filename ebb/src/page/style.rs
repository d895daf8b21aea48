//! How a page looks: the colours of both schemes, and rules that name colours only by what they are for.
//!
//! Every text colour is readable on every ground, and every colour of a picture is told from it: a test computes the contrast of each pair.

use std::fmt::Write as _;

/// What a colour is for: which pairs of colours must be told apart follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Text.
    Text,
    /// What text and pictures stand on.
    Ground,
    /// Bars, lines and marks that say something.
    Picture,
    /// Lines between rows, which say nothing.
    Hairline,
}

/// A colour in both schemes.
struct Colour {
    name: &'static str,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the tests hold the contrast of pairs against it")
    )]
    purpose: Use,
    light: &'static str,
    dark: &'static str,
}

const fn colour(
    name: &'static str,
    purpose: Use,
    light: &'static str,
    dark: &'static str,
) -> Colour {
    Colour { name, purpose, light, dark }
}

const PALETTE: [Colour; 13] = [
    colour("ink", Use::Text, "#1a1f26", "#e7ebf0"),
    colour("quiet", Use::Text, "#525b66", "#a9b4c0"),
    colour("bad", Use::Text, "#a3211b", "#ff9f97"),
    colour("good", Use::Text, "#17623a", "#83d6a1"),
    colour("link", Use::Text, "#0b5394", "#8ab8f5"),
    colour("paper", Use::Ground, "#ffffff", "#12161b"),
    colour("panel", Use::Ground, "#f3f5f7", "#1b2128"),
    colour("chosen", Use::Ground, "#fcefed", "#33201f"),
    colour("bar", Use::Picture, "#2f6db5", "#6ba6ea"),
    colour("short", Use::Picture, "#c4392f", "#f0776d"),
    colour("calm", Use::Picture, "#2c8455", "#56b47e"),
    colour("stem", Use::Picture, "#737d89", "#8793a0"),
    colour("hair", Use::Hairline, "#d8dde3", "#323a44"),
];

/// The rules. Colours are only ever named by `var(--…)`.
const RULES: &str = include_str!("page.css");

/// The whole stylesheet. What is printed is always light: paper is.
pub(super) fn sheet() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for Colour { name, light: on_light, dark: on_dark, purpose: _ } in &PALETTE {
        // Writing to a string cannot fail.
        let _ = write!(light, "--{name}:{on_light};");
        let _ = write!(dark, "--{name}:{on_dark};");
    }
    format!(
        ":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{RULES}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(hex: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    /// As WCAG 2 defines it.
    fn contrast(one: &str, other: &str) -> f64 {
        let (a, b) = (luminance(one), luminance(other));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn of(purpose: Use) -> impl Iterator<Item = &'static Colour> {
        PALETTE.iter().filter(move |colour| colour.purpose == purpose)
    }

    #[test]
    fn every_colour_can_be_read_or_seen_on_every_ground_in_both_schemes() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        // Text by WCAG AA; pictures by its rule for graphical objects.
        for (purpose, least) in [(Use::Text, 4.5), (Use::Picture, 3.0)] {
            for (front, ground) in
                of(purpose).flat_map(|front| of(Use::Ground).map(move |ground| (front, ground)))
            {
                for (scheme, one, other) in
                    [("light", front.light, ground.light), ("dark", front.dark, ground.dark)]
                {
                    let found = contrast(one, other);
                    assert!(
                        found >= least,
                        "{} on {} ({scheme}): {found:.2} < {least}",
                        front.name,
                        ground.name
                    );
                }
            }
        }
    }

    #[test]
    fn the_rules_name_no_colour_but_those_and_each_for_what_it_is() {
        let mut pairs = 0;
        for rule in RULES.split('}') {
            let Some((selector, body)) = rule.rsplit_once('{') else { continue };
            for declaration in body.split(';') {
                let Some((property, value)) = declaration.split_once(':') else { continue };
                let (property, value) = (property.trim(), value.trim());
                let allowed: &[Use] = match property {
                    "color" => &[Use::Text],
                    "background" => &[Use::Ground],
                    // A picture's text is filled too; it is told by its selector.
                    "fill" if selector.contains("text") => &[Use::Text],
                    // A box with text in it is ground, and its rim says what it is.
                    "fill" if selector.ends_with(".box") => &[Use::Ground],
                    "fill" => &[Use::Picture],
                    // Text in pictures has a rim of the ground.
                    "stroke" if selector.contains("text") => &[Use::Ground],
                    "stroke" => &[Use::Picture],
                    _ if property.starts_with("border") || property == "outline" => {
                        &[Use::Hairline, Use::Picture]
                    }
                    _ => {
                        assert!(!value.contains("var(--"), "{selector}: {property}: {value}");
                        &[]
                    }
                };
                assert!(!value.contains('#') && !value.contains("rgb"), "{selector}: {value}");
                for name in value.split("var(--").skip(1) {
                    let name = name.split(')').next().unwrap();
                    let colour = PALETTE.iter().find(|colour| colour.name == name);
                    let purpose = colour.expect(name).purpose;
                    assert!(allowed.contains(&purpose), "{selector}: {property}: --{name}");
                    pairs += 1;
                }
            }
        }
        assert!(pairs > 20, "{pairs} were looked at");
    }
}
