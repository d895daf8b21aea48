//! What is wrong with a YAML text, in the words of whoever wrote it.

/// What the library says, and what is meant.
const IN_PLAIN_WORDS: [(&str, &str); 3] = [
    ("multiple YAML documents", "there are several documents, and one belongs here"),
    ("recursive references", "an alias stands for a value that contains it"),
    ("budget breached", "it is too large, aliases counted with what they stand for"),
];

/// What is wrong with a YAML text, without advice on how to use the library that reads it.
#[must_use]
pub fn problem(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    for (theirs, plain) in IN_PLAIN_WORDS {
        if text.contains(theirs) {
            let place = text.rfind(" at line ").map_or("", |at| &text[at..]);
            return format!("{plain}{place}");
        }
    }
    match text.split_once(", set DuplicateKeyPolicy") {
        Some((problem, rest)) => {
            let place = rest.split_once(" at line").map(|(_, place)| format!(" at line{place}"));
            format!("{problem}{}", place.unwrap_or_default())
        }
        None => text,
    }
}
