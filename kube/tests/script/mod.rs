//! An API server in this process that answers by a script.
#![allow(dead_code, reason = "each test file uses its part")]

use ebb_kube::Api;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers in their order, and what was asked.
pub(crate) struct Server {
    kubeconfig: std::path::PathBuf,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// One that gives these answers in their order.
    pub(crate) async fn start(answers: Vec<String>) -> Self {
        let mut answers: VecDeque<String> = answers.into();
        Self::answering(move |_| answers.pop_front()).await
    }

    /// One whose answers follow from the path; where there is none, the request stays open.
    pub(crate) async fn answering(
        answer: impl FnMut(&str) -> Option<String> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (heard, answer) = (Arc::clone(&asked), Arc::new(Mutex::new(answer)));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (heard, answer) = (Arc::clone(&heard), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        request.push(stream.read_u8().await.unwrap());
                    }
                    let text = String::from_utf8(request).unwrap();
                    let path = text.split(' ').nth(1).unwrap();
                    heard.lock().unwrap().push(path.to_owned());
                    let answer = answer.lock().unwrap()(path);
                    let answer = answer.unwrap_or_default();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if !answer.contains("connection: close") {
                        std::future::pending().await
                    }
                });
            }
        });
        let kubeconfig = std::env::temp_dir().join(format!("ebb-script-{}", fastrand::u64(..)));
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{url}'}}}}], users: [], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Self { kubeconfig, asked }
    }

    pub(crate) async fn api(&self) -> Api {
        let api = ebb_kube::connect(Some(&self.kubeconfig), None).await.unwrap();
        std::fs::remove_file(&self.kubeconfig).unwrap();
        api
    }
}

pub(crate) fn answer(code: &str, body: &str) -> String {
    format!("HTTP/1.1 {code}\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n{body}")
}

/// The beginning of an answer that never ends.
pub(crate) fn open(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{body}")
}
