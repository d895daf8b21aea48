//! Pages as a browser's parser sees them: complete, self-contained, and nothing in them but text.

use super::*;
use scraper::{Html, Selector};
use std::collections::BTreeSet;

/// Every element that a page is made of.
const ELEMENTS: [&str; 50] = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "nav",
    "main",
    "footer",
    "section",
    "article",
    "div",
    "p",
    "span",
    "a",
    "h1",
    "h2",
    "h3",
    "h4",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "strong",
    "code",
    "pre",
    "bdi",
    "br",
    "figure",
    "figcaption",
    "svg",
    "desc",
    "defs",
    "marker",
    "g",
    "rect",
    "line",
    "path",
    "circle",
    "text",
];

pub(crate) fn all<'a>(html: &'a Html, selector: &str) -> Vec<scraper::ElementRef<'a>> {
    html.select(&Selector::parse(selector).unwrap()).collect()
}

pub(crate) fn text(html: &Html, selector: &str) -> String {
    all(html, selector).iter().flat_map(|element| element.text()).collect()
}

/// What every page must be, whatever it is made of; it has these sections.
pub(crate) fn check(page: &str, sections: &[&str]) -> Html {
    let html = Html::parse_document(page);
    assert!(html.errors.is_empty(), "{:?}", html.errors.iter().take(3).collect::<Vec<_>>());
    for element in all(&html, "*") {
        let name = element.value().name();
        assert!(ELEMENTS.contains(&name), "<{name}>");
        for (attribute, value) in element.value().attrs() {
            let is_own = attribute != "href" || value.starts_with('#');
            assert!(is_own, "{attribute}={value}");
            let loads = ["src", "srcset", "xlink:href", "action", "data", "style"];
            assert!(!loads.contains(&attribute) && !attribute.starts_with("on"), "{attribute}");
        }
    }
    let style: String = all(&html, "style").iter().flat_map(|style| style.text()).collect();
    for word in ["url(", "@import", "@font-face", "expression("] {
        assert!(!style.contains(word), "{word}");
    }
    let policy = &all(&html, "meta[http-equiv=Content-Security-Policy]")[0];
    assert_eq!(policy.attr("content"), Some(POLICY));
    for id in sections {
        assert_eq!(all(&html, &format!("section#{id} > h2")).len(), 1, "{id}");
    }
    assert_eq!(all(&html, "h1").len(), 1);
    assert!(all(&html, "th:not([scope])").is_empty());
    for picture in all(&html, "svg[role=img]") {
        let title = Selector::parse("title").unwrap();
        assert!(picture.select(&title).next().is_some(), "{}", picture.html());
    }
    let mut ids = BTreeSet::new();
    for element in all(&html, "[id]") {
        assert!(ids.insert(element.attr("id").unwrap()), "{} twice", element.html());
    }
    for link in all(&html, "a[href]") {
        assert!(ids.contains(&link.attr("href").unwrap()[1..]), "{}", link.html());
    }
    let speaks = |c: char| c != '\n' && c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!page.contains(speaks));
    assert!(page.len() <= LARGEST, "{} bytes", page.len());
    html
}
