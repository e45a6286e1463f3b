//! A headless browser, driven over a pipe by Chrome's DevTools protocol: messages are JSON, each
//! ended by a zero byte. So the test needs neither a driver's binary nor a crate for sockets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Programs that speak the protocol.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// What makes a browser quiet: nothing of it uses a network.
const OPTIONS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// The time after which a browser that hangs is ended: every answer fails then.
const LIMIT: Duration = Duration::from_secs(150);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    asked: u64,
    /// Messages that are no answers: what the console and the log say.
    events: Vec<Value>,
    /// Dropped with the browser, which ends the watch over it.
    _watch: Sender<()>,
    _folder: TempDir,
}

/// Returns the browser of this machine, if it has one.
pub(crate) fn browser() -> Option<&'static str> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    NAMES.into_iter().find(runs)
}

impl Browser {
    /// Starts a browser with an empty page.
    pub(crate) fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let user = format!("--user-data-dir={}", folder.path().display());
        // The protocol is on descriptors 3 and 4; the shell makes them of the two that are piped.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1", name])
            .args(OPTIONS)
            .args([&user, "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (watch, end) = mpsc::channel::<()>();
        let process = child.id();
        thread::spawn(move || {
            if end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                // It is our own child, and has not been waited for.
                _ = Command::new("kill").arg(process.to_string()).status();
            }
        });
        let from = BufReader::new(from);
        let mut browser =
            Self { child, to, from, session: None, asked: 0, events: Vec::new(), _watch: watch, _folder: folder };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach)["sessionId"].as_str().map(str::to_owned);
        browser.session = session;
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Asks the browser, and returns what it answers.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser runs");
        loop {
            let mut answer = self.next();
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn next(&mut self) -> Value {
        let mut text = Vec::new();
        self.from.read_until(0, &mut text).expect("the browser runs");
        assert_eq!(text.pop(), Some(0), "the browser ended, or said nothing for {LIMIT:?}");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Opens a file of this machine; `fragment` is what follows the `#`.
    pub(crate) fn open(&mut self, file: &Path, fragment: &str) {
        self.call("Page.navigate", &json!({ "url": "about:blank" }));
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        self.call("Page.navigate", &json!({ "url": format!("file://{}#{fragment}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next();
            self.events.push(event);
        }
        // The blank page has a load event too.
        while self.evaluate("location.protocol + document.readyState") != "file:complete" {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", &parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let mut down = json!({ "type": "keyDown", "key": key });
        if key.len() == 1 {
            down["text"] = json!(key);
        }
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        down["windowsVirtualKeyCode"] = json!(code);
        if key == "Enter" {
            down["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", &down);
        self.call("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
        // What the key did is in the page after the next frame.
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))");
    }

    /// Shows the page as a window of this width and colour scheme does.
    pub(crate) fn show(&mut self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// Returns a picture of what is in sight, as base 64 of a PNG.
    pub(crate) fn picture(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        picture["data"].as_str().expect("a picture").to_owned()
    }

    /// Returns what the console and the log have complained of since the last call, and the dialogs
    /// that were opened.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        let is_complaint = |event: &Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => true,
            "Runtime.consoleAPICalled" => event["params"]["type"] == "error" || event["params"]["type"] == "warning",
            "Log.entryAdded" => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        let events = std::mem::take(&mut self.events);
        events.iter().filter(|event| is_complaint(event)).map(ToString::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
