//! An API server in this process: pods, budgets, Events and one Node over HTTP/1.1, with watches. Every request is written down, and a rule says what goes wrong with it.
//!
//! What a real API server answers is held by `cluster-tests`; here is what it cannot be made to do on demand.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Result, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server for as long as the test's process lives.
#[derive(Debug, Clone)]
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<(Mutex<Objects>, Condvar)>,
}

/// One request, as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The body; null where there is none.
    pub body: Value,
    /// The bearer token, if any, in lower case.
    pub token: Option<String>,
    /// When.
    pub at: Instant,
}

/// What goes wrong with a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is taken, and neither done nor answered.
    Hung,
    /// It is done, and not answered.
    Unanswered,
    /// It is done after a while.
    Late(Duration),
    /// It is not done, and answered with a code, with `Retry-After` if any.
    Refused(u16, Option<u64>),
    /// A disruption budget does not allow it, with `Retry-After` if any.
    Spared(Option<u64>),
    /// A watch says in its stream that its version is too old.
    TooOld,
    /// A watch ends in the middle of the line of its first event.
    Cut,
    /// A watch is silent, whatever happens.
    HalfOpen,
}

type Rule = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

#[derive(Default)]
struct Objects {
    by_path: BTreeMap<String, Value>,
    /// Every change, as a watch tells it, with the path of the object: its version is how many there were by then.
    changes: Vec<(String, Value)>,
    requests: Vec<Request>,
    is_silent: bool,
    /// A pod that is deleted with a grace stays, as long as it has not Failed.
    is_graceful: bool,
    /// How often all watches were ended.
    ended: usize,
    rule: Option<Rule>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("by_path", &self.by_path).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// A server with this Node and nothing else.
    ///
    /// # Errors
    /// No port can be listened on.
    pub fn start(node: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = Self { address: listener.local_addr()?, shared: Arc::default() };
        let object =
            json!({ "metadata": { "name": node, "uid": "uid-node" }, "spec": {}, "status": {} });
        server.put(&format!("/api/v1/nodes/{node}"), object);
        let of = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let of = of.clone();
                // A connection that breaks is the client's to notice.
                std::thread::spawn(move || drop(of.serve(&stream)));
            }
        });
        Ok(server)
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let result = change(&mut self.objects());
        self.shared.1.notify_all();
        result
    }

    /// A kubeconfig that leads here.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'http://{}'}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n",
            self.address
        )
    }

    /// Adds an object or puts another in its place.
    pub fn put(&self, path: &str, object: Value) {
        self.change(|objects| objects.put(path, object));
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        self.change(|objects| objects.remove(path));
    }

    /// The object at this path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects().by_path.get(path).cloned()
    }

    /// The objects below this path, by name.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<Value> {
        let objects = self.objects();
        let below = objects.by_path.iter().filter(|(at, _)| at.starts_with(path));
        below.map(|(_, object)| object.clone()).collect()
    }

    /// Adds a pod.
    pub fn add_pod(&self, namespace: &str, name: &str, uid: &str) {
        self.put(&pod(namespace, name), pod_object(namespace, name, uid));
    }

    /// The UID of the pod of this name, where there is one.
    #[must_use]
    pub fn uid_of(&self, namespace: &str, name: &str) -> Option<String> {
        Some(self.get(&pod(namespace, name))?.pointer("/metadata/uid")?.as_str()?.to_owned())
    }

    /// From now on a pod that is deleted with a grace stays until somebody says that nothing of it runs, as on a node whose kubelet does not come round.
    pub fn set_graceful(&self) {
        self.change(|objects| objects.is_graceful = true);
    }

    /// From now on requests are taken and not answered, or are answered again.
    pub fn set_silent(&self, is_silent: bool) {
        self.change(|objects| objects.is_silent = is_silent);
    }

    /// From now on this goes wrong with requests, and what went wrong by an earlier rule does not any more.
    pub fn on_request(&self, rule: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        self.objects().rule = Some(Box::new(rule));
    }

    /// Ends all watches, in order.
    pub fn end_watches(&self) {
        self.change(|objects| objects.ended += 1);
    }

    /// All requests so far, in their order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.objects().requests.clone()
    }

    /// Those of them that would change something.
    #[must_use]
    pub fn writes(&self) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.method != "GET").collect()
    }

    fn serve(&self, stream: &TcpStream) -> Result<()> {
        let mut reader = BufReader::new(stream);
        let mut out = stream;
        while let Some(request) = read(&mut reader)? {
            let mut objects = self.objects();
            objects.requests.push(request.clone());
            let fault = objects.rule.as_mut().and_then(|rule| rule(&request));
            if matches!(fault, Some(Fault::Hung)) {
                drop(objects);
                return reader.read_line(&mut String::new()).map(drop);
            }
            if let Some(Fault::Late(by)) = fault {
                drop(objects);
                std::thread::sleep(by);
                objects = self.objects();
            }
            while objects.is_silent {
                objects = self.wait(objects);
            }
            let refused = match fault {
                Some(Fault::Refused(code, after)) => {
                    Some((code, after, status(code, &refusal(code, &request), None)))
                }
                Some(Fault::Spared(after)) => Some((429, after, spared())),
                _ => None,
            };
            if refused.is_none() && request.path.contains("watch=1") {
                return self.watch(objects, out, &request, fault.as_ref());
            }
            let (code, after, answer) = refused.unwrap_or_else(|| {
                let (code, answer) = objects.answer(&request);
                (code, None, answer)
            });
            drop(objects);
            self.shared.1.notify_all();
            if matches!(fault, Some(Fault::Unanswered)) {
                return reader.read_line(&mut String::new()).map(drop);
            }
            let after = after.map(|after| format!("Retry-After: {after}\r\n")).unwrap_or_default();
            let text = answer.to_string();
            // The clock of this server is years off.
            write!(
                out,
                "HTTP/1.1 {code} Answer\r\nDate: Thu, 01 Jan 2015 00:00:00 GMT\r\n{after}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )?;
        }
        Ok(())
    }

    fn wait<'a>(&self, objects: MutexGuard<'a, Objects>) -> MutexGuard<'a, Objects> {
        self.shared.1.wait(objects).unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(
        &self,
        mut objects: MutexGuard<'_, Objects>,
        mut out: &TcpStream,
        request: &Request,
        fault: Option<&Fault>,
    ) -> Result<()> {
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let mut send =
            |text: &str| out.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
        if matches!(fault, Some(Fault::TooOld)) {
            let line = json!({ "type": "ERROR", "object": status(410, "too old", None) });
            send(&format!("{line}\n"))?;
            return send("");
        }
        let from = request.path.split("resourceVersion=").nth(1).unwrap_or_default();
        let mut from = from.split('&').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let ended = objects.ended;
        loop {
            let is_quiet = objects.is_silent || matches!(fault, Some(Fault::HalfOpen));
            if objects.ended > ended {
                return send("");
            }
            let new = if is_quiet { &[] } else { objects.changes.get(from..).unwrap_or_default() };
            for (path, change) in new {
                from += 1;
                if !is_asked_for(path, &request.path) {
                    continue;
                }
                let line = format!("{change}\n");
                if matches!(fault, Some(Fault::Cut)) {
                    return send(line.get(..line.len() / 2).unwrap_or_default());
                }
                send(&line)?;
            }
            objects = self.wait(objects);
        }
    }
}

/// Where a pod is.
#[must_use]
pub fn pod(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// A pod's object.
#[must_use]
pub fn pod_object(namespace: &str, name: &str, uid: &str) -> Value {
    json!({
        "metadata": { "namespace": namespace, "name": name, "uid": uid },
        "spec": { "containers": [{ "name": "main" }] }, "status": {},
    })
}

fn read(reader: &mut BufReader<&TcpStream>) -> Result<Option<Request>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let (mut length, mut token) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap_or_default();
        } else if let Some(text) = line.strip_prefix("authorization: bearer ") {
            token = Some(text.to_owned());
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split_whitespace().map(str::to_owned);
    Ok(Some(Request {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        token,
        at: Instant::now(),
    }))
}

/// What kube-apiserver says when it refuses a request.
fn refusal(code: u16, request: &Request) -> String {
    match code {
        401 => "Unauthorized".to_owned(),
        403 => {
            let (resource, verb) = right(request);
            format!(
                "{resource} is forbidden: User \"ebb\" cannot {verb} resource \"{resource}\" at the cluster scope"
            )
        }
        _ => "refused by a rule".to_owned(),
    }
}

/// The right that a request takes: the resource, with its subresource, and the verb.
fn right(request: &Request) -> (String, &'static str) {
    let path = request.path.split('?').next().unwrap_or_default();
    let mut words = path.split('/').skip_while(|word| !word.starts_with('v')).skip(1).peekable();
    if words.next_if_eq(&"namespaces").is_some() {
        words.next();
    }
    let resource = words.next().unwrap_or_default();
    let name = words.next();
    let resource =
        words.next().map_or_else(|| resource.to_owned(), |below| format!("{resource}/{below}"));
    let verb = match request.method.as_str() {
        "GET" if request.path.contains("watch=1") => "watch",
        "GET" if name.is_none() => "list",
        "GET" => "get",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "create",
    };
    (resource, verb)
}

fn status(code: u16, message: &str, name: Option<&str>) -> Value {
    json!({ "kind": "Status", "code": code, "message": message, "details": { "name": name } })
}

fn spared() -> Value {
    let mut status =
        status(429, "Cannot evict pod as it would violate the pod's disruption budget.", None);
    status["details"]["causes"] = json!([{ "reason": "DisruptionBudget", "message": "by a rule" }]);
    status
}

/// Whether a list or watch is about the object at this path.
fn is_asked_for(path: &str, asked: &str) -> bool {
    let (of, query) = asked.split_once('?').unwrap_or((asked, ""));
    let kind = of.rsplit('/').next().unwrap_or_default();
    let name = query.split("metadata.name%3D").nth(1).and_then(|rest| rest.split('&').next());
    path.contains(&format!("/{kind}/"))
        && name.is_none_or(|name| path.rsplit('/').next() == Some(name))
}

impl Objects {
    fn put(&mut self, path: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = (self.changes.len() + 1).to_string().into();
        let known = self.by_path.insert(path.to_owned(), object.clone());
        let of = if known.is_some() { "MODIFIED" } else { "ADDED" };
        self.changes.push((path.to_owned(), json!({ "type": of, "object": object })));
    }

    fn remove(&mut self, path: &str) {
        if let Some(mut object) = self.by_path.remove(path) {
            object["metadata"]["resourceVersion"] = (self.changes.len() + 1).to_string().into();
            self.changes.push((path.to_owned(), json!({ "type": "DELETED", "object": object })));
        }
    }

    fn answer(&mut self, request: &Request) -> (u16, Value) {
        let path = request.path.split('?').next().unwrap_or_default();
        let kind = path.rsplit('/').next().unwrap_or_default();
        let body = &request.body;
        if request.method == "POST" && kind == "events" {
            let name = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let path = format!("{path}/{name}");
            if self.by_path.contains_key(&path) {
                return (409, status(409, "already exists", Some(name)));
            }
            self.put(&path, body.clone());
            return (201, body.clone());
        }
        if request.method == "GET" && ["pods", "nodes", "poddisruptionbudgets"].contains(&kind) {
            let asked = self.by_path.iter().filter(|(at, _)| is_asked_for(at, &request.path));
            let items: Vec<&Value> = asked.map(|(_, object)| object).collect();
            let version = self.changes.len().to_string();
            return (200, json!({ "metadata": { "resourceVersion": version }, "items": items }));
        }
        let path = path.trim_end_matches("/status").trim_end_matches("/eviction");
        let Some(mut object) = self.by_path.get(path).cloned() else {
            return (404, status(404, "not found", path.rsplit('/').next()));
        };
        let uids = ["/preconditions/uid", "/deleteOptions/preconditions/uid", "/metadata/uid"];
        let is_other = |paths: &[&str], known: &str| {
            let wanted = paths.iter().find_map(|path| body.pointer(path));
            wanted.is_some_and(|wanted| object.pointer(known) != Some(wanted))
        };
        if is_other(&uids, "/metadata/uid") {
            let code = if request.method == "PATCH" { 422 } else { 409 };
            return (code, status(code, "metadata.uid: the UID in the precondition differs", None));
        }
        let version = "/metadata/resourceVersion";
        if is_other(&[version], version) {
            return (409, status(409, "the object has been modified", None));
        }
        match request.method.as_str() {
            "DELETE" if self.is_graceful && may_stay(&object, body) => {
                object["metadata"]["deletionTimestamp"] = "2015-01-01T00:00:00Z".into();
                self.put(path, object.clone());
            }
            "DELETE" => self.remove(path),
            "PATCH" => {
                merge(&mut object, body);
                self.put(path, object.clone());
            }
            "POST" => {
                object["metadata"]["deletionTimestamp"] = "2015-01-01T00:00:00Z".into();
                self.put(path, object.clone());
            }
            _ => {}
        }
        (200, object)
    }
}

/// Whether the deletion of a pod takes its time.
fn may_stay(pod: &Value, options: &Value) -> bool {
    let has_grace = options["gracePeriodSeconds"].as_u64().is_some_and(|grace| grace > 0);
    has_grace && pod.pointer("/status/phase").and_then(Value::as_str) != Some("Failed")
}

/// A merge patch, with conditions by their type.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(patch))
            if patch.iter().any(|v| v["type"].is_string()) =>
        {
            into.retain(|old| patch.iter().all(|new| new["type"] != old["type"]));
            into.extend(patch.iter().cloned());
        }
        (into, patch) => *into = patch.clone(),
    }
}
