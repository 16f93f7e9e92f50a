//! Everything with the keyboard alone: from the list of shortcuts to a resolved record.

use crate::browser::{Browser, ENTER, ESCAPE, TAB, with_browser};
use crate::stage::Stage;

/// Presses Tab until the element that has the focus matches, and shows that it has it.
fn tab_to(browser: &Browser, css: &str) {
    for _ in 0..40 {
        browser.press(TAB);
        if browser.value(&format!("document.activeElement.matches({css:?})")) == true {
            let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
            assert_ne!(outline, "none", "one sees where one is");
            return;
        }
    }
    panic!("{css} cannot be reached: {}", browser.text());
}

#[test]
fn a_record_is_resolved_without_a_mouse() {
    let stage = Stage::start();
    stage.make_unknown("k");
    with_browser(stage.admin, &[], |browser| {
        browser.until("all('section[aria-label=Unknown] tbody tr').length === 1");
        browser.press(TAB);
        assert_eq!(browser.value("document.activeElement.innerText"), "Skip to the content");
        browser.press(ENTER);
        assert_eq!(browser.value("document.activeElement.id"), "main");

        browser.press("?");
        browser.until("$('dialog[open]')?.innerText.includes('Find by key')");
        for _ in 0..6 {
            browser.press(TAB);
            assert!(browser.value("$('dialog').contains(document.activeElement)") == true, "it stays inside");
        }
        browser.press("u");
        assert_eq!(browser.value("location.hash"), "", "no shortcut goes past a dialog");
        browser.press(ESCAPE);
        browser.until("!$('dialog')");

        browser.press("u");
        browser.until("location.hash === '#/records?state=unknown' && all('tbody tr').length === 1");
        browser.press("j");
        assert!(browser.value("document.activeElement.matches('tbody a.id')") == true);
        tab_to(browser, "button[aria-label^='Not executed']");
        browser.press(ENTER);
        browser.until("$('dialog[open]') && document.activeElement.name === 'why'");
        browser.press("u? it never left us");
        // Round the end of the dialog, and in again at its beginning.
        tab_to(browser, "[name=force]");
        browser.press(" ");
        tab_to(browser, "dialog button[type=submit]");
        browser.press(ENTER);
        browser.until("!$('dialog') && shows('Nothing is unknown')");

        browser.press("/");
        browser.until("document.activeElement.name === 'key'");
        browser.press("k");
        tab_to(browser, "[name=principal]");
        browser.press("Bearer sesame");
        browser.press(ENTER);
        browser.until("$('.facts .badge')?.innerText === 'released'");
        browser.press("o");
        browser.until("document.title === 'Overview · onlyonce'");
    });
}
