//! A headless Chromium, told what to do through its DevTools protocol: messages that end with a zero byte, on two pipes.

use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Names under which a Chromium may be there.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const PACKAGE: &str = "chromium";

/// How long anything may take, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is looked at on a page that is there.
const LOOK: &str = include_str!("look.js");

/// How a page is looked at.
pub(super) struct View {
    pub(super) name: &'static str,
    /// `screen` or `print`.
    pub(super) media: &'static str,
    /// What the person prefers: `light` or `dark`.
    pub(super) scheme: &'static str,
    /// Of the window, in pixels.
    pub(super) width: u32,
    /// What the person has set as the size of letters, pixels.
    pub(super) letters: u32,
}

/// What was seen.
pub(super) struct Seen {
    /// Texts whose contrast was computed.
    pub(super) texts: u64,
    /// What is wrong.
    pub(super) findings: Vec<String>,
}

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// What has come since the page was last opened, but answers.
    events: Vec<Value>,
}

/// The browser's program; installed where there is none and this is root.
pub(super) fn program() -> Result<PathBuf> {
    if let Some(found) = PROGRAMS.iter().find_map(|name| sh::find_program(name)) {
        return Ok(found);
    }
    crate::bpf::install_missing("pages", &[PACKAGE])?;
    sh::find_program(PACKAGE).context("the package has no program of its name")
}

impl Browser {
    /// Starts it, with a profile that nobody has used.
    pub(super) fn start(program: &Path, profile: &Path) -> Result<Self> {
        // It reads from descriptor 3 and writes to 4.
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null");
        command.arg(program).args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-pipe",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        let log = profile.with_extension("log");
        let said = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let to = child.stdin.take().context("the browser has no standard input")?;
        let out = child.stdout.take().context("the browser has no standard output")?;
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self { child, to, from, last: 0, session: None, events: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        browser.call("Page.setLifecycleEventsEnabled", &json!({ "enabled": true }))?;
        Ok(browser)
    }

    /// Opens a page as the view says, and looks at it.
    pub(super) fn look(&mut self, page: &Path, view: &View) -> Result<Seen> {
        let features = json!([{ "name": "prefers-color-scheme", "value": view.scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "media": view.media, "features": features }),
        )?;
        let size =
            json!({ "width": view.width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size)?;
        let letters = json!({ "fontSizes": { "standard": view.letters, "fixed": view.letters } });
        self.call("Page.setFontSizes", &letters)?;
        // What the page before still has to say comes before that of an empty one.
        self.open("about:blank")?;
        self.events.clear();
        let request = self.open(&address(page)?)?;
        let looked = json!({ "expression": LOOK, "returnByValue": true });
        let looked = self.call("Runtime.evaluate", &looked)?;
        ensure!(looked["exceptionDetails"].is_null(), "look.js failed: {looked}");
        let value = &looked["result"]["value"];
        let texts = value["texts"].as_u64().context("look.js counted no texts")?;
        ensure!(texts > 20, "there are only {texts} texts on it");
        let found = value["findings"].as_array().context("look.js found nothing to say")?;
        let found = found.iter().filter_map(Value::as_str).map(str::to_owned);
        Ok(Seen {
            texts,
            findings: self.events.iter().filter_map(|e| noise(e, &request)).chain(found).collect(),
        })
    }

    /// Opens an address, waits until it is there, and gives the id of the request for it.
    fn open(&mut self, address: &str) -> Result<Value> {
        let mut opened = self.call("Page.navigate", &json!({ "url": address }))?;
        if let Some(error) = opened["errorText"].as_str() {
            bail!("{address} does not open: {error}");
        }
        let request = opened["loaderId"].take();
        // That of the page before may still come.
        let is_loaded = |message: &Value| is_loaded(message, &request);
        if !self.events.iter().any(is_loaded) {
            let loaded = self.wait("the page is there", is_loaded)?;
            self.events.push(loaded);
        }
        Ok(request)
    }

    /// Has something done, and gives what came of it.
    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.to, "{message}\0")
            .and_then(|()| self.to.flush())
            .context("the browser is gone")?;
        let mut answer = self.wait(method, |message| message["id"] == id)?;
        ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        Ok(answer["result"].take())
    }

    /// Waits for a message, and keeps what comes before it.
    fn wait(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left) {
                Ok(message) if is_it(&message) => return Ok(message),
                Ok(message) => self.events.push(message),
                Err(RecvTimeoutError::Timeout) => bail!("waited in vain until {what}"),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the browser ended before {what}; see target/pages/profile.log")
                }
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its other processes itself; one that does not answer is killed.
        self.session = None;
        if self.call("Browser.close", &json!({})).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Whether what was requested as `own` is there, with all that it needs.
fn is_loaded(message: &Value, own: &Value) -> bool {
    let params = &message["params"];
    message["method"] == "Page.lifecycleEvent"
        && params["name"] == "load"
        && params["loaderId"] == *own
}

/// The address of a file. What else has to be written with per cent the browser writes so itself.
fn address(file: &Path) -> Result<String> {
    let path = file.to_str().with_context(|| format!("{} is not UTF-8", file.display()))?;
    let mut address = String::from("file://");
    for character in path.chars() {
        match character {
            '%' => address.push_str("%25"),
            '#' => address.push_str("%23"),
            '?' => address.push_str("%3F"),
            other => address.push(other),
        }
    }
    Ok(address)
}

/// What a page has said to the console, or asked for beside itself, which was request `own`.
fn noise(message: &Value, own: &Value) -> Option<String> {
    let params = &message["params"];
    match message["method"].as_str()? {
        "Runtime.consoleAPICalled" => Some(format!("console: {}", params["args"])),
        "Runtime.exceptionThrown" => Some(format!("exception: {}", params["exceptionDetails"])),
        "Log.entryAdded" => Some(format!("log: {}", params["entry"]["text"])),
        "Network.requestWillBeSent" if params["requestId"] != *own => {
            Some(format!("asks for {}", params["request"]["url"].as_str()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_asks_for_anything_or_says_anything_is_noticed() {
        let own = json!("7");
        let asks = |id: &str| {
            let params = json!({ "requestId": id, "request": { "url": "http://b/c.js" } });
            noise(&json!({ "method": "Network.requestWillBeSent", "params": params }), &own)
        };
        assert_eq!(asks("7"), None);
        assert_eq!(asks("8").as_deref(), Some("asks for http://b/c.js"));
        let log =
            json!({ "method": "Log.entryAdded", "params": { "entry": { "text": "refused" } } });
        assert_eq!(noise(&log, &own).as_deref(), Some("log: \"refused\""));
        assert_eq!(noise(&json!({ "id": 1, "result": {} }), &own), None);
    }

    #[test]
    fn a_page_is_there_when_it_says_so_itself() {
        let of = |name: &str, loader: &str| {
            let params = json!({ "name": name, "loaderId": loader });
            json!({ "method": "Page.lifecycleEvent", "params": params })
        };
        let is = |message: &Value| is_loaded(message, &json!("7"));
        assert!(is(&of("load", "7")));
        assert!(!is(&of("load", "6")) && !is(&of("init", "7")));
    }

    #[test]
    fn a_path_with_anything_in_it_is_an_address() {
        let path = Path::new("/a b/100%/#1?.html");
        assert_eq!(address(path).unwrap(), "file:///a b/100%25/%231%3F.html");
    }
}
