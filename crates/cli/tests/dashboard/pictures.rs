//! The pictures of the documentation: made where `ONLYONCE_SCREENSHOTS` names a folder, and thrown away elsewhere.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::browser::with_browser;
use crate::stage::Stage;

/// How much of the chart is drawn before the first picture: all of it in pictures that are kept.
const SAMPLES: usize = 3;
const SAMPLES_KEPT: usize = 115;

#[test]
fn pictures_for_the_documentation() {
    let (thrown_away, kept) = (tempfile::tempdir().unwrap(), std::env::var_os("ONLYONCE_SCREENSHOTS"));
    let samples = if kept.is_some() { SAMPLES_KEPT } else { SAMPLES };
    let folder = kept.map_or_else(|| thrown_away.path().to_owned(), PathBuf::from);
    let stage = Stage::start();
    for key in ["order-17", "order-21", "order-40"] {
        stage.make_unknown(key);
    }
    let is_enough = AtomicBool::new(false);
    with_browser(stage.admin, &[], |browser| {
        thread::scope(|scope| {
            scope.spawn(|| traffic(&stage, &is_enough));
            browser.prefer("light");
            browser.screen(1280, 1000);
            let drawn = format!(
                "($('path.kind-granted').getAttribute('d') ?? '').split(' L').length > {}",
                samples * 2
            );
            // A page that fails to draw must not leave the traffic behind.
            let ended = Ended(&is_enough);
            browser.until(&format!("{drawn} && all('section[aria-label=Unknown] tbody tr').length === 3"));
            browser.picture(&folder.join("dashboard-light.png"));
            browser.prefer("dark");
            browser.picture(&folder.join("dashboard-dark.png"));
            browser.prefer("light");
            browser.screen(390, 844);
            browser.picture(&folder.join("dashboard-narrow.png"));
            drop(ended);
        });
        browser.screen(1280, 800);
        assert_eq!(stage.proxy.post("/drop", "order-17").0, 409);
        browser.go("#/find");
        browser.write("[name=key]", "order-17");
        browser.write("[name=principal]", "Bearer sesame");
        browser.click("form button[type=submit]");
        browser.until("$('.timeline') && shows('Did it happen?')");
        browser.picture(&folder.join("dashboard-record.png"));
        browser.click("button[aria-label^='Not executed']");
        browser.write("dialog [name=why]", "INC-1182: the bank has no such transfer");
        browser.picture(&folder.join("dashboard-resolve.png"));
    });
    for name in ["light", "dark", "narrow", "record", "resolve"] {
        let file = folder.join(format!("dashboard-{name}.png"));
        let bytes = file.metadata().unwrap().len();
        assert!((1_000..200_000).contains(&bytes), "{}: {bytes} bytes", file.display());
    }
}

/// Sets it when it goes.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Callers who pay, and ask again now and then.
fn traffic(stage: &Stage, is_enough: &AtomicBool) {
    for order in 0_u32.. {
        if is_enough.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("order-{}", 1000 + order);
        stage.proxy.post("/pay", &key);
        if (order / 60) % 3 == 1 || order % 4 == 0 {
            stage.proxy.post("/pay", &key);
        }
        // tidy: sleep because callers who never pause draw a chart that says nothing
        thread::sleep(Duration::from_millis(u64::from(8 + (order / 50) % 7 * 4)));
        if order % 40 == 0 {
            stage.proxy.post("/pay/other", &key);
            stage.proxy.post("/drop", "order-21");
        }
    }
}
