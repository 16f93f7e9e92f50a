//! `onlyonce serve --admin`: several namespaces behind one page, each with records of its own, and an erasure in one.

use serde_json::json;

use crate::browser::{Browser, with_browser};
use crate::running::{Service, two_tenants};
use crate::stage::Stage;

const OWNER: &str = "00112233445566778899aabbccddeeff";

/// Erases the record that is looked at, with a reason.
fn erase(browser: &Browser) {
    browser.click("section[aria-label=Privacy] button");
    browser.until("$('dialog')");
    browser.write("dialog [name=why]", "a request to be forgotten");
    browser.click("dialog button[type=submit]");
    browser.until("!$('dialog') && $('.facts').innerText.includes('erased')");
}

#[test]
fn a_record_is_erased_and_its_key_stays_used() {
    let stage = Stage::start();
    assert_eq!(stage.proxy.post("/pay", "personal").0, 200);
    with_browser(stage.admin, &[], |browser| {
        browser.click("[data-page=records]");
        browser.until("all('tbody tr').length === 1");
        browser.click("tbody a.id");
        browser.until("$('section[aria-label=Answer]')?.innerText.includes('200')");
        erase(browser);
        browser.until("!$('section[aria-label=Privacy] button')");
        let (status, text) = stage.proxy.post("/pay", "personal");
        assert!(status == 200 && text.contains("answer-not-kept"), "{text}");
        assert_eq!(stage.upstream.effects(), 1, "nothing runs again");
        browser.click("[data-page=audit]");
        browser.until_shown("a request to be forgotten");
    });
}

#[test]
fn each_namespace_of_a_claims_api_shows_its_own_records() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = two_tenants(folder.path()).display().to_string();
    let store = format!("file:{}", folder.path().join("records").display());
    let mut service = Service::start(&["--store", &store, "--tokens", &tokens, "--admin", "127.0.0.1:0"]);
    let admin = service.wait_for_line("admin on ").parse().unwrap();
    let complete = |service: &Service, key: &str| {
        let (_, granted) = service.post("/v1/claims", &json!({ "key": key, "owner": OWNER }));
        let id = granted["id"].as_str().unwrap().to_owned();
        let done = json!({ "owner": OWNER, "fence": granted["fence"], "outcome": { "json": { "paid": 7 } } });
        assert_eq!(service.post(&format!("/v1/claims/{id}/complete"), &done).0, 200);
        id
    };
    service.token = Some("alice-alice-alice");
    let of_alice = complete(&service, "k");
    service.token = Some("bob-bob-bob-bob-bob");
    let of_bob = complete(&service, "k");
    with_browser(admin, &[], |browser| {
        browser.until("[...$('#place').options].map((one) => one.value).join() === 'bob,default'");
        browser.click("[data-page=records]");
        let only = |id: &str| format!("all('tbody a.id').map((one) => one.title).join() === {id:?}");
        browser.until(&only(&of_bob));
        browser.value("$('#place').value = 'default', $('#place').dispatchEvent(new Event('change'))");
        browser.until(&only(&of_alice));
        browser.value("$('#place').value = 'bob', $('#place').dispatchEvent(new Event('change'))");
        browser.until(&only(&of_bob));
        browser.click("tbody a.id");
        browser.until("$('.facts .badge')?.innerText === 'completed'");
        erase(browser);
    });
    let (_, erased) = service.post("/v1/claims", &json!({ "key": "k", "owner": OWNER.replace('0', "1") }));
    assert!(
        erased["answer"] == "replay" && erased.get("outcome").is_none_or(|outcome| outcome["json"].is_null()),
        "{erased}"
    );
    service.token = Some("alice-alice-alice");
    let (_, kept) = service.post("/v1/claims", &json!({ "key": "k", "owner": OWNER.replace('0', "1") }));
    assert_eq!(kept["outcome"], json!({ "json": { "paid": 7 } }), "another namespace's is untouched");
}
