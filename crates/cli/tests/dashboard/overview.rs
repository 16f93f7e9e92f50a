//! What happens shows up while one looks, and what is in force is there to be read.

use serde_json::json;

use crate::browser::with_browser;
use crate::stage::Stage;

#[test]
fn requests_show_up_while_one_looks() {
    let stage = Stage::start();
    with_browser(stage.admin, &[], |browser| {
        browser.until_shown("No records yet");
        browser.until("$('.shell').innerText.includes('Idempotency-Key')");
        browser.until("$('#pulse').innerText === 'Live'");
        for _ in 0..3 {
            assert_eq!(stage.proxy.post("/pay", "order-1").0, 200);
        }
        assert_eq!(stage.proxy.post("/pay/other", "order-1").0, 422);
        for (answer, count) in [("granted", "1"), ("replayed", "2"), ("mismatched", "1"), ("held", "0")] {
            browser.until(&format!("$('[data-answer={answer}]').innerText === '{count}'"));
        }
        browser.until("$('[data-figure=suppressed]').innerText === '3'");
        browser.until("$('[data-figure=p99]').innerText.endsWith(' ms')");
        browser.until("!shows('No records yet')");
        browser.until("all('.feed .event').some((event) => event.innerText === 'replayed')");
        stage.upstream.hold(true);
        let running = stage.proxy.begin("/pay", "order-2");
        browser.until("$('[data-figure=running]').innerText === '1'");
        browser.until("shows('lease ends in')");
        stage.upstream.hold(false);
        browser.until("$('[data-figure=running]').innerText === '0'");
        drop(running);
    });
}

#[test]
fn the_promise_and_the_configuration_in_force_can_be_read() {
    let stage = Stage::start();
    with_browser(stage.admin, &[], |browser| {
        browser.click("[data-page=promise]");
        browser.until_shown("at most one attempt at a time");
        browser.until_shown("survives crash of this process and power cut");
        browser.until("$('pre.toml').innerText.includes('[proxy]')");
        assert_eq!(browser.value("document.title"), "Promise · onlyonce");
        assert_eq!(browser.value("$('[aria-current=page]').innerText"), "Promise");
        let header =
            |name: &str| browser.value(&format!("fetch('/').then((page) => page.headers.get('{name}'))"));
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
    });
}

#[test]
fn a_latency_is_read_from_what_came_between_two_counts() {
    let stage = Stage::start();
    with_browser(stage.admin, &[], |browser| {
        let within = |before: &str, now: &str, part: &str| {
            browser.value(&format!(
                "import('/assets/live.js').then((live) => live.within({before}, {now}, {part}))"
            ))
        };
        let none = "[[1, 5], [10, 5], [null, 5]]";
        assert_eq!(within(none, none, "0.5"), json!(null), "nothing was asked");
        assert_eq!(
            within(none, "[[1, 15], [10, 15], [null, 15]]", "0.5"),
            json!(0.5),
            "half of the first bound"
        );
        assert_eq!(within(none, "[[1, 5], [10, 15], [null, 15]]", "1"), json!(10));
        assert_eq!(
            within(none, "[[1, 5], [10, 5], [null, 15]]", "0.99"),
            json!(10),
            "longer than the last bound"
        );
        assert_eq!(within("[]", none, "0.5"), json!(0.5), "since the start");
        browser.until("$('#pulse').innerText === 'Live'");
    });
}
