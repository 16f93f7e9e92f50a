//! When something is wrong the page says what, what to do, and goes on by itself once it is right.

use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::browser::with_browser;
use crate::stage::Stage;

const TOKEN: &str = "an-operator-knows-this";

#[test]
fn without_the_token_one_sees_a_form_and_the_token_stays_in_the_tab() {
    let stage = Stage::start_with(None, &[("ONLYONCE_ADMIN_TOKEN", TOKEN)]);
    stage.make_unknown("k");
    with_browser(stage.admin, &["401"], |browser| {
        browser.until_shown("A token is needed");
        assert_eq!(browser.value("all('tbody tr, .tile').length"), 0, "nothing else is shown");
        browser.write("[name=token]", "not-the-right-one");
        browser.click("form button[type=submit]");
        browser.until_shown("That token is not the right one.");
        browser.write("[name=token]", TOKEN);
        browser.click("form button[type=submit]");
        browser.until("$('[data-figure=unknown]')?.innerText === '1'");
        let kept = "JSON.stringify([localStorage, document.cookie, location.href])";
        assert!(!browser.value(kept).as_str().unwrap().contains(TOKEN));
        browser.visit("#/records?state=unknown");
        browser.until("all('tbody tr').length === 1");
        // Another tab does not have it.
        browser.value("sessionStorage.clear()");
        browser.visit("");
        browser.until_shown("A token is needed");
    });
}

#[test]
fn a_store_that_is_away_is_named_and_the_page_recovers_by_itself() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let stage = Stage::start_with(Some(server.url()), &[("ONLYONCE_STORE_ANSWER_WITHIN", "2s")]);
    stage.make_unknown("k");
    with_browser(stage.admin, &["503", "ERR_", "504"], |browser| {
        browser.until("$('[data-figure=unknown]').innerText === '1'");
        server.kill();
        browser.until("$('#pulse').innerText === 'Store away'");
        browser.until("$('.banner').innerText.includes('The store does not answer')");
        browser.until_shown("Requests with a key are refused with 503 meanwhile");
        browser.go("#/records");
        browser.until("$('main').innerText.includes('The store does not answer')");
        server.restart().unwrap();
        browser.until("$('#pulse').innerText === 'Live' && !$('.banner[data-tone=bad]')");
        browser.until("all('tbody tr').length === 1");
        stage.proxy.signal("-KILL");
        browser.until("$('#pulse').innerText === 'No answer'");
        browser.until_shown("The process does not answer.");
    });
}
