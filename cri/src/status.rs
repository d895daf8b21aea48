//! What a runtime says of itself beyond its name.

use crate::call::request;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::wire::runtime as v1;
use serde::Deserialize;

/// containerd's configuration of its CRI plugin, as it prints it. Nothing in it is promised.
#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default, rename = "sandboxImage")]
    sandbox_image: Option<String>,
}

impl Runtime {
    /// The image of which sandboxes are made, by name, from runtimes that have it in their configuration (containerd 1.x). Those that
    /// do not tell pin it: see [`crate::Image::pinned`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn sandbox_image(&self) -> Result<Option<String>, Error> {
        let call = self.read("Status", "");
        let ask = v1::StatusRequest { verbose: true };
        let status =
            self.ask(call, |mut c| async move { c.status(request(ask, call.limit)).await });
        Ok(sandbox_image(status.await?.info.get("config").map_or("", String::as_str)))
    }
}

fn sandbox_image(config: &str) -> Option<String> {
    let config: Config = serde_json::from_str(config).unwrap_or_default();
    config.sandbox_image.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_image_is_found_in_the_configuration_and_absent_where_it_is_not() {
        let text = r#"{"containerd":{"snapshotter":"overlayfs"},"sandboxImage":"r/pause:3.6"}"#;
        assert_eq!(sandbox_image(text).as_deref(), Some("r/pause:3.6"));
        for other in ["", "{}", "no", r#"{"sandboxImage":""}"#] {
            assert_eq!(sandbox_image(other), None, "{other}");
        }
    }
}
