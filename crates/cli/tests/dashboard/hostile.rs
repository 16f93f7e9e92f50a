//! What strangers wrote into answers is shown as it is, and does nothing.

use crate::browser::with_browser;
use crate::stage::Stage;

#[test]
fn a_record_full_of_markup_is_text() {
    let stage = Stage::start();
    assert_eq!(stage.proxy.post("/hostile", "<b>k</b>").0, 200);
    // It refuses to look for what no id can begin with.
    with_browser(stage.admin, &["400"], |browser| {
        browser.go("#/records");
        browser.click("tbody a.id");
        browser.until("$('section[aria-label=Answer] button')");
        assert_eq!(browser.value("all('[data-body], .headers').length"), 0, "they are shown when asked for");
        browser.click("section[aria-label=Answer] button");
        browser.until("$('.headers')?.innerText.includes('<img src=x onerror=')");
        browser.until("$('pre.body')?.innerText.includes('<script>window.hacked')");
        assert_eq!(browser.value("all('main script, main img, main iframe, main b').length"), 0);
        assert_eq!(browser.value("typeof window.hacked"), "undefined");
        browser.go("#/audit");
        browser.until("all('tbody tr').length > 0");
        // Nor does what is written into the address.
        browser.go("#/records/<img src=x onerror=window.hacked=1>");
        browser.until_shown("Record <img");
        browser.go("#/records?prefix=\"><script>window.hacked=1</script>");
        browser.until("$('[name=prefix]')?.value.includes('<script>')");
        assert_eq!(browser.value("typeof window.hacked"), "undefined");
    });
}
