//! What is wrong with a YAML text, in the words of whoever wrote it.

/// What is wrong with a YAML text, without advice on how to use the library that reads it.
#[must_use]
pub fn problem(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    match text.split_once(", set DuplicateKeyPolicy") {
        Some((problem, rest)) => {
            let place = rest.split_once(" at line").map(|(_, place)| format!(" at line{place}"));
            format!("{problem}{}", place.unwrap_or_default())
        }
        None => text,
    }
}
