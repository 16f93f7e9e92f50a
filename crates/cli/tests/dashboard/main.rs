//! The dashboard in a real browser, against the real binary: Debian's chromium, driven through its `WebDriver`. Never
//! skipped: without `chromium` and `chromedriver` these fail (`cargo xtask test` installs them).
//!
//! Every test ends with a look at what the browser noted: no error on its console, nothing refused by the page's own
//! policy, and not one request to anywhere but the admin address.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../proxy/binary.rs"]
#[expect(dead_code, reason = "written for the tests of the proxy, which need more of it")]
mod binary;
mod browser;
mod driver;
#[path = "../serve/running.rs"]
#[allow(dead_code, reason = "written for the tests of the claims API, which need more of it")]
mod running;
mod stage;
#[path = "../proxy/upstream.rs"]
#[expect(dead_code, reason = "written for the tests of the proxy, which need more of it")]
mod upstream;

mod hostile;
mod keyboard;
mod looks;
mod namespaces;
mod overview;
mod pictures;
mod resolve;
mod trouble;
