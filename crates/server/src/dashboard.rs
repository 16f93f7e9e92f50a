//! The dashboard: a page and its parts, carried by the binary, served at the admin address.
//!
//! It is only what a browser shows. All it knows it asks of the admin API, as everybody does and with the same token,
//! so that these files say nothing and need none. The admin side's headers let the page load nothing from anywhere else,
//! run nothing that is written into it, and be shown inside no other page.

use std::sync::LazyLock;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use onlyonce_http::Body;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// One file of the page.
pub(crate) struct Asset {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($path:literal: $content_type:ident = $file:literal),* $(,)?) => {
        &[$(Asset {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("dashboard/", $file)),
        }),*]
    };
}

const ASSETS: &[Asset] = assets! {
    "/": HTML = "index.html",
    "/assets/app.js": SCRIPT = "app.js",
    "/assets/api.js": SCRIPT = "api.js",
    "/assets/audit.js": SCRIPT = "audit.js",
    "/assets/chart.js": SCRIPT = "chart.js",
    "/assets/dialog.js": SCRIPT = "dialog.js",
    "/assets/dom.js": SCRIPT = "dom.js",
    "/assets/find.js": SCRIPT = "find.js",
    "/assets/format.js": SCRIPT = "format.js",
    "/assets/live.js": SCRIPT = "live.js",
    "/assets/overview.js": SCRIPT = "overview.js",
    "/assets/promise.js": SCRIPT = "promise.js",
    "/assets/record.js": SCRIPT = "record.js",
    "/assets/records.js": SCRIPT = "records.js",
    "/assets/resolve.js": SCRIPT = "resolve.js",
    "/assets/states.js": SCRIPT = "states.js",
    "/assets/table.js": SCRIPT = "table.js",
    "/assets/theme.js": SCRIPT = "theme.js",
    "/assets/style.css": STYLE = "style.css",
    "/assets/icon.svg": PICTURE = "icon.svg",
};

/// One for each asset, in their order: another binary has other files under the same names.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    ASSETS.iter().map(|asset| format!("\"{}\"", blake3::hash(asset.bytes).to_hex())).collect()
});

/// The file at `path`.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

impl Asset {
    /// The file, or that the caller has it already.
    pub(crate) fn answer(&self, asked_with: &HeaderMap) -> Response<Body> {
        let at = ASSETS.iter().position(|asset| asset.path == self.path);
        let tag = at.and_then(|at| TAGS.get(at));
        let is_known = asked_with
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|tags| tags.split(','))
            .any(|known| Some(known.trim().trim_start_matches("W/")) == tag.map(String::as_str));
        let mut response = Response::new(if is_known { Body::empty() } else { Body::from(self.bytes) });
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
            headers.insert(ETAG, tag);
        }
        // Kept, but asked about each time: a page of one binary with the scripts of another is neither.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("same-origin"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn text(asset: &Asset) -> &'static str {
        std::str::from_utf8(asset.bytes).expect("every file is text")
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard");
        let there: BTreeSet<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let served: BTreeSet<_> = ASSETS
            .iter()
            .map(|asset| asset.path.trim_start_matches("/assets/").replace('/', "index.html"))
            .collect();
        assert_eq!(there, served);
    }

    #[test]
    fn a_file_comes_with_its_type_and_is_not_sent_twice() {
        for known in ASSETS {
            let served = asset(known.path).unwrap();
            let response = served.answer(&HeaderMap::new());
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()[CONTENT_TYPE], known.content_type);
            let tag = response.headers()[ETAG].clone();
            let again = HeaderMap::from_iter([(IF_NONE_MATCH, tag)]);
            assert_eq!(served.answer(&again).status(), 304);
            let other = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("\"x\", W/\"y\""))]);
            assert_eq!(served.answer(&other).status(), 200);
        }
        for path in ["/assets/", "/assets/../admin.rs", "/assets/app.js/", "/index.html", ""] {
            assert!(asset(path).is_none(), "{path}");
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup() {
        for asset in ASSETS.iter().filter(|asset| asset.content_type != PICTURE) {
            let text = text(asset);
            for banned in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=\""]
            {
                assert!(!text.contains(banned), "{}: {banned}", asset.path);
            }
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "").replace("http://${host}/", "");
            assert!(!elsewhere.contains("://"), "{} names an address", asset.path);
        }
    }
}
