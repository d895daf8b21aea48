//! Which API server, and as whom: a kubeconfig file with a context, or the service account of the pod.

use crate::call::Api;
use crate::failure::chain;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};

/// Where a service account's token is in a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// As what every request is known, in the API server's audit log and in its metrics.
const PRODUCT: &str = concat!("ebb/", env!("CARGO_PKG_VERSION"));

/// Why there is no client: what was read, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

/// A client by `kubeconfig`, else by `$KUBECONFIG`, else by `~/.kube/config`, else as the service account of this pod.
///
/// # Errors
/// A file cannot be read, lacks the context or cluster, or has keys that do not fit; or there is neither file nor service account.
pub async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Api, ConnectError> {
    let file = kubeconfig.map(Path::to_owned).or_else(usual_file);
    let mut config = match &file {
        Some(file) => of_file(file, context).await?,
        None if context.is_none() && Path::new(SERVICE_ACCOUNT).exists() => Config::incluster()
            .map_err(|e| ConnectError(format!("service account of this pod: {}", chain(&e))))?,
        None => {
            return Err(ConnectError(
                "no cluster to connect to: give --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account".into(),
            ));
        }
    };
    config.headers.push((USER_AGENT, HeaderValue::from_static(PRODUCT)));
    // Each call has a deadline and a retry of its own.
    config.default_retry = false;
    if config.accept_invalid_certs && config.root_cert.is_none() {
        // Nothing is verified: without this the system's certificates are asked for, which an image without any has not.
        config.root_cert = Some(Vec::new());
    }
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|e| {
        let from = file.map(|f| f.display().to_string() + ": ").unwrap_or_default();
        ConnectError(format!("{from}cannot make a client for {server}: {}", chain(&e)))
    })?;
    Ok(Api::new(client, server))
}

async fn of_file(file: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    let name = file.display();
    let parsed =
        Kubeconfig::read_from(file).map_err(|e| ConnectError(format!("{name}: {}", chain(&e))))?;
    let contexts: Vec<&str> = parsed.contexts.iter().map(|c| c.name.as_str()).collect();
    let wanted = context.or(parsed.current_context.as_deref()).unwrap_or_default();
    if !contexts.contains(&wanted) {
        let (key, hint) = if context.is_some() {
            ("--context", "")
        } else {
            ("current-context", "; set it or give --context NAME")
        };
        return Err(ConnectError(format!(
            "{name}: {key} {wanted:?} is not among its contexts: {}{hint}",
            contexts.join(", ")
        )));
    }
    let options =
        KubeConfigOptions { context: Some(wanted.to_owned()), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(parsed, &options)
        .await
        .map_err(|e| ConnectError(format!("{name}: {}", chain(&e))))
}

/// The first file of `$KUBECONFIG`, else the one in the home directory, where it is there.
fn usual_file() -> Option<PathBuf> {
    if let Some(value) = std::env::var_os("KUBECONFIG")
        && let Some(first) = std::env::split_paths(&value).find(|path| !path.as_os_str().is_empty())
    {
        return Some(first);
    }
    let file = PathBuf::from(std::env::var_os("HOME")?).join(".kube/config");
    file.exists().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(text: &str, context: Option<&str>) -> String {
        let file = std::env::temp_dir().join(format!("ebb-kubeconfig-{}", fastrand::u64(..)));
        std::fs::write(&file, text).unwrap();
        let error = of_file(&file, context).await.unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        error
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_told_with_those_that_are() {
        let text = "apiVersion: v1\nkind: Config\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: []\nusers: []\n";
        let error = refused(text, Some("b")).await;
        assert!(error.ends_with("--context \"b\" is not among its contexts: a"), "{error}");
        let error = refused(text, None).await;
        assert!(error.contains("current-context \"\""), "{error}");
        let error = refused(text, Some("a")).await;
        assert!(error.contains('c'), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named() {
        let error = of_file(Path::new("/nowhere/kubeconfig"), None).await.unwrap_err();
        assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
    }
}
