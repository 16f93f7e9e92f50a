//! A browser that shows one dashboard, and what a person would do with it: look, click, type, press keys.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::driver::Driver;

pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";

/// What scripts of tests may use: the first element, and whether the page shows a text.
const WORDS: &str = "const $ = (css) => document.querySelector(css); \
                     const all = (css) => [...document.querySelectorAll(css)]; \
                     const shows = (text) => document.body.innerText.includes(text);";

/// How often an element may be gone again once it was found.
const STALE_MAX: usize = 50;

/// The key under which `WebDriver` names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

#[derive(Debug)]
pub(crate) struct Browser {
    driver: Driver,
    origin: String,
}

/// Opens the dashboard at `admin`, does `test`, and looks at what the browser noted meanwhile. What it notes of
/// answers with the statuses `expected` is no fault: the test asked for them.
pub(crate) fn with_browser(admin: SocketAddr, expected: &[&str], test: impl FnOnce(&Browser)) {
    let browser = Browser { driver: Driver::start(), origin: format!("http://{admin}") };
    browser.visit("");
    test(&browser);
    browser.assert_nothing_noted(expected);
}

impl Browser {
    /// Loads the page `#…` anew.
    pub(crate) fn visit(&self, page: &str) {
        self.driver.tell("url", &json!({ "url": format!("{}/{page}", self.origin) }));
        // The same page under another `#` is not loaded by that.
        self.driver.tell("refresh", &json!({}));
    }

    /// Goes to another page as a link would.
    pub(crate) fn go(&self, page: &str) {
        self.value(&format!("void (location.hash = {})", json!(page)));
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.try_value(expression).unwrap_or_else(|refusal| panic!("{expression}: {refusal}"))
    }

    /// The same, where there may be none.
    fn try_value(&self, expression: &str) -> Result<Value, String> {
        let script = format!("{WORDS} return {expression};");
        self.driver.try_tell("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true, and gives what it is then. What it reads of an element that is not there yet
    /// is waited for as well.
    pub(crate) fn until(&self, expression: &str) -> Value {
        let script = format!(
            "{WORDS} const done = arguments[arguments.length - 1]; \
             const read = () => {{ try {{ return ({expression}); }} \
             catch (error) {{ if (!(error instanceof TypeError)) throw error; }} }}; \
             const look = () => {{ const seen = read(); if (seen) done(seen); else setTimeout(look, 40); }}; look();"
        );
        self.driver.try_tell("execute/async", &json!({ "script": script, "args": [] })).unwrap_or_else(
            |refusal| {
                let now = self.try_value(expression);
                panic!(
                    "waited for {expression}: {refusal}\nnow: {now:?}\n{}\n{:?}",
                    self.text(),
                    self.noted("browser")
                )
            },
        )
    }

    /// Waits until the page shows a text.
    pub(crate) fn until_shown(&self, text: &str) {
        self.until(&format!("shows({})", json!(text)));
    }

    /// All that can be read on the page.
    pub(crate) fn text(&self) -> String {
        self.value("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the first element that a selector finds, once it is there.
    pub(crate) fn click(&self, css: &str) {
        self.command(css, "click", &json!({}));
    }

    /// Replaces what is in a field.
    pub(crate) fn write(&self, css: &str, text: &str) {
        self.command(css, "clear", &json!({}));
        self.command(css, "value", &json!({ "text": text }));
    }

    /// Does something to the first element that a selector finds. A live page may have put another one in its place
    /// between the finding and the doing: then that one is meant.
    fn command(&self, css: &str, command: &str, body: &Value) {
        for _ in 0..STALE_MAX {
            self.until(&format!("$({})", json!(css)));
            let by = json!({ "using": "css selector", "value": css });
            let done = self.driver.try_tell("element", &by).and_then(|found| {
                let element = found[ELEMENT].as_str().unwrap_or_default().to_owned();
                self.driver.try_tell(&format!("element/{element}/{command}"), body)
            });
            match done {
                Ok(_) => return,
                Err(refusal) if refusal.contains("stale element") || refusal.contains("no such element") => {}
                Err(refusal) => panic!("{command} {css}: {refusal}\n{}", self.text()),
            }
        }
        panic!("{command} {css}: it is never the same twice");
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub(crate) fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        });
        let strokes: Vec<Value> = strokes.collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.driver.tell("actions", &json!({ "actions": [keyboard] }));
    }

    /// A screen of this size, as a telephone has it if it is narrow.
    pub(crate) fn screen(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700 });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the system asks for: `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    fn devtools(&self, command: &str, parameters: &Value) {
        self.driver.tell("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }

    /// A picture of the screen, as PNG.
    pub(crate) fn picture(&self, file: &Path) {
        let told = self.driver.read("screenshot");
        let bytes = base64::engine::general_purpose::STANDARD.decode(told.as_str().unwrap()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"), "it is a picture");
        fs::write(file, bytes).unwrap();
    }

    /// What the browser wrote into one of its logs since it was last asked.
    fn noted(&self, log: &str) -> Vec<Value> {
        self.driver.tell("se/log", &json!({ "type": log })).as_array().cloned().unwrap_or_default()
    }

    fn assert_nothing_noted(&self, expected: &[&str]) {
        for note in self.noted("browser") {
            let message = note["message"].as_str().unwrap_or_default();
            let is_expected =
                note["source"] == "network" && expected.iter().any(|part| message.contains(part));
            let is_bad =
                note["level"] == "SEVERE" || note["level"] == "WARNING" || note["source"] == "security";
            assert!(is_expected || !is_bad, "the console says {note}");
        }
        let mut requests = 0;
        for note in self.noted("performance") {
            let message: Value = serde_json::from_str(note["message"].as_str().unwrap_or_default()).unwrap();
            if message["message"]["method"] == "Network.requestWillBeSent" {
                let url = message["message"]["params"]["request"]["url"].as_str().unwrap().to_owned();
                let is_ours = url.strip_prefix(&self.origin).is_some_and(|rest| rest.starts_with('/'));
                // The page that it shows before ours comes from the browser itself.
                let is_the_browsers =
                    ["data:", "chrome://", "chrome-untrusted://"].iter().any(|own| url.starts_with(own));
                assert!(is_ours || is_the_browsers, "a request left for {url}");
                requests += usize::from(is_ours);
            }
        }
        assert!(requests > 10, "only {requests} requests were seen: nothing was looked at");
    }
}
