//! An unknown outcome, resolved either way: only after the consequence was named, and with a reason.

use crate::browser::{Browser, ESCAPE, with_browser};
use crate::stage::Stage;

const EXECUTED: &str = "Every later retry gets this answer, and the work never runs again.";
const NOT_EXECUTED: &str =
    "The key is freed and the next retry runs the work. If it had happened after all, it happens twice.";

fn until_unknown(browser: &Browser, count: usize) {
    browser.until(&format!("all('section[aria-label=Unknown] tbody tr').length === {count}"));
}

#[test]
fn an_unknown_outcome_is_resolved_either_way_after_its_consequence_was_named() {
    let stage = Stage::start();
    stage.make_unknown("paid-after-all");
    stage.make_unknown("never-paid");
    with_browser(stage.admin, &[], |browser| {
        until_unknown(browser, 2);
        browser.until("$('[data-figure=unknown]').innerText === '2'");

        // The record is found by its key, so that it is certain which one is resolved.
        let executed = find(browser, "paid-after-all");
        browser.click("button[aria-label^='Executed']");
        browser.until(&format!("$('dialog').innerText.includes({EXECUTED:?})"));
        browser.press(ESCAPE);
        browser.until("!$('dialog')");
        assert_eq!(browser.value("document.activeElement.innerText"), "Executed…", "where one was");
        assert_eq!(stage.proxy.post("/drop", "paid-after-all").0, 409, "nothing was changed");
        browser.click("button[aria-label^='Executed']");
        browser.write("dialog [name=status]", "201");
        browser.write("dialog textarea", "{\"by\": \"hand\"}");
        browser.click("dialog button[type=submit]");
        assert!(browser.value("$('dialog [name=why]').matches(':invalid')") == true, "a reason is asked for");
        browser.write("dialog [name=why]", "the bank shows it");
        browser.write("dialog [name=who]", "mara");
        browser.click("dialog button[type=submit]");
        browser.until("!$('dialog') && $('.facts .badge').innerText === 'completed'");
        let (status, answer) = stage.proxy.post("/drop", "paid-after-all");
        assert!(status == 201 && answer.contains("{\"by\": \"hand\"}"), "{answer}");
        assert_eq!(stage.upstream.effects(), 2, "the work never runs again");

        let freed = find(browser, "never-paid");
        assert_ne!(executed, freed);
        browser.click("button[aria-label^='Not executed']");
        browser.until(&format!("$('dialog').innerText.includes({NOT_EXECUTED:?})"));
        browser.write("dialog [name=why]", "the bank does not know it");
        // The attempt began less than `run_max` ago.
        browser.until_shown("The attempt may still be running");
        browser.click("dialog [name=force]");
        browser.click("dialog button[type=submit]");
        browser.until("!$('dialog') && $('.facts .badge').innerText === 'released'");
        assert_eq!(stage.proxy.post("/drop", "never-paid").0, 502);
        assert_eq!(stage.upstream.effects(), 3, "the next retry runs the work");

        browser.click("[data-page=audit]");
        for text in ["mara", "the bank shows it", "the bank does not know it"] {
            browser.until_shown(text);
        }
    });
}

/// Finds a record by its key, opens it, and gives its id.
fn find(browser: &Browser, key: &str) -> String {
    browser.click("[data-page=find]");
    browser.write("[name=key]", key);
    browser.write("[name=principal]", "Bearer sesame");
    browser.click("form button[type=submit]");
    browser.until("$('.facts .whole')");
    browser.value("$('.facts .whole').innerText").as_str().unwrap().to_owned()
}

#[test]
fn a_key_is_found_for_its_caller_only_and_appears_in_no_address() {
    let stage = Stage::start();
    assert_eq!(stage.proxy.post("/pay", "order-7").0, 200);
    with_browser(stage.admin, &[], |browser| {
        browser.click("[data-page=find]");
        browser.write("[name=key]", "order-7");
        browser.click("form button[type=submit]");
        browser.until_shown("No record under this key");
        browser.write("[name=principal]", "Bearer sesame");
        browser.click("form button[type=submit]");
        browser.until("$('.facts .badge')?.innerText === 'completed'");
        browser.until("all('.timeline li').length >= 2");
        let address = browser.value("location.href");
        assert!(!address.as_str().unwrap().contains("order-7"), "{address}");
        let asked = browser.value("performance.getEntriesByType('resource').map((one) => one.name).join()");
        assert!(!asked.as_str().unwrap().contains("order-7"), "{asked}");
    });
}

#[test]
fn a_verdict_that_comes_too_late_changes_nothing_and_says_so() {
    let stage = Stage::start();
    stage.make_unknown("twice-looked-at");
    with_browser(stage.admin, &["409"], |browser| {
        find(browser, "twice-looked-at");
        browser.click("button[aria-label^='Not executed']");
        browser.write("dialog [name=why]", "first");
        browser.click("dialog [name=force]");
        // Somebody else resolves it while the dialog is open.
        browser.until(
            "(window.other ??= (async () => { const id = location.hash.split('/')[2]; \
             const told = await (await fetch('/api/records/' + id)).json(); \
             const body = JSON.stringify({ fence: told.fence, verdict: 'executed', why: 'other', \
             outcome: { status: 200, content_type: 'text/plain', body: 'ok' } }); \
             const headers = { 'Content-Type': 'application/json' }; \
             window.was = (await fetch('/api/records/' + id + '/resolve', { method: 'POST', headers, body })).status; })(), \
             window.was === 200)",
        );
        browser.click("dialog button[type=submit]");
        browser.until("$('dialog .trouble').innerText.startsWith('Nothing was changed')");
        browser.press(ESCAPE);
        browser.until("!$('dialog') && $('.facts .badge').innerText === 'completed'");
    });
}
