//! Narrow screens, and light and dark.

use crate::browser::with_browser;
use crate::stage::Stage;

const PAGES: [&str; 6] = ["#/", "#/records", "#/records?state=unknown", "#/find", "#/audit", "#/promise"];

#[test]
fn nothing_is_wider_than_a_narrow_screen() {
    let stage = Stage::start();
    stage.make_unknown("k");
    assert_eq!(stage.proxy.post("/hostile", "k2").0, 200);
    with_browser(stage.admin, &[], |browser| {
        browser.screen(320, 640);
        let fits = "document.documentElement.scrollWidth <= 320 || (() => { throw new Error(JSON.stringify(\
                    all('body *').filter((one) => one.getBoundingClientRect().right > 321).map((one) => one.outerHTML.slice(0, 120)))); })()";
        for page in PAGES {
            browser.visit(page);
            browser.until("$('#pulse').innerText === 'Live' && $('main h1')");
            if page.starts_with("#/records") {
                browser.until("all('tbody tr').length > 0");
            }
            assert!(browser.value(fits) == true, "{page}");
        }
        browser.go("#/records?state=unknown");
        browser.click("tbody a.id");
        browser.until("$('.timeline')");
        assert!(browser.value(fits) == true, "the page of a record");
        browser.click("button[aria-label^='Executed']");
        browser.until("$('dialog[open]')");
        assert!(browser.value(fits) == true, "a dialog");
        let inside = "(() => { const box = $('dialog').getBoundingClientRect(); return box.left >= 0 && box.right <= 320; })()";
        assert!(browser.value(inside) == true);
    });
}

#[test]
fn it_is_light_or_dark_as_the_system_asks_and_as_one_chooses() {
    let stage = Stage::start();
    with_browser(stage.admin, &[], |browser| {
        let ground = || browser.value("getComputedStyle(document.documentElement).backgroundColor");
        let readable = "(() => { const rgb = (text) => text.match(/[0-9.]+/g).slice(0, 3).map((part) => { \
             const share = part / 255; return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4; }); \
             const light = (text) => { const [r, g, b] = rgb(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }; \
             const under = (one) => { for (let at = one; at; at = at.parentElement) { const of = getComputedStyle(at).backgroundColor; \
             if (!of.endsWith(', 0)') && of !== 'transparent') return of; } return getComputedStyle(document.documentElement).backgroundColor; }; \
             return all('h1, h2, p, a, button, .note, .label, .value, dt, dd, .pulse, .badge, code').filter((one) => one.innerText && one.getClientRects().length) \
             .map((one) => { const [a, b] = [light(getComputedStyle(one).color), light(under(one))]; \
             return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 90)]; }).filter(([ratio]) => ratio < 4.5); })()";
        let mut grounds = Vec::new();
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.until(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
            browser.until("$('#pulse').innerText === 'Live'");
            grounds.push(ground());
            assert_eq!(browser.value(readable), serde_json::json!([]), "contrast of at least 4.5, {scheme}");
        }
        assert_ne!(grounds[0], grounds[1]);
        // The system says dark: one chooses light, and that is remembered.
        browser.click("#theme");
        assert_eq!(ground(), grounds[0]);
        browser.visit("");
        assert_eq!(ground(), grounds[0]);
        browser.until("$('main h1')");
        browser.press("t");
        browser.until("document.documentElement.dataset.theme === 'dark'");
        assert_eq!(ground(), grounds[1]);
    });
}
