//! What tests ask of a running agent, by variables of the environment that begin with `EBB_TEST_`.

/// What a test asks for by this name. In builds for development alone: any other reads nothing.
pub(crate) fn asks(name: &str) -> Option<String> {
    if cfg!(debug_assertions) { std::env::var(name).ok() } else { None }
}
