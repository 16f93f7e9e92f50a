//! Secrets in every place that a request and an answer have, and then in no file, no table, no log, no figure and no span.
//! And the same search without encryption, which finds them: a search that cannot find proves nothing.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};
use tempfile::TempDir;

use crate::binary::onlyonce;
use crate::needle::{Needle, files};
use crate::receiver::{FIGURES, Mood, Receiver, SPANS};
use crate::service::Service;
use crate::sidecar::{Sidecar, make_key, send};

/// What all of them begin with.
const STEM: Needle = Needle("canary-");
const KEY: Needle = Needle("canary-key+6b1d/0f");
const CREDENTIAL: Needle = Needle("canary-credential+93aa/7c");
const COOKIE: Needle = Needle("canary-cookie+5e70/d2");
const COLLECTORS: Needle = Needle("canary-collectors+77d3/a9");
const PATH: Needle = Needle("canary-path+3c58/6e");
const QUERY: Needle = Needle("canary-query+c4f8/19");
const ASKED_FIELD: Needle = Needle("canary-asked-field+20bd/e6");
const ASKED_BODY: Needle = Needle("canary-asked-body+f7a3/44");
const OTHER_BODY: Needle = Needle("canary-other-body+81ce/5b");
const SET_COOKIE: Needle = Needle("canary-set-cookie+0d96/ba");
const FIELD: Needle = Needle("canary-field+ae12/83");
const REDACTED_FIELD: Needle = Needle("canary-redacted-field+4478/f1");
const BODY: Needle = Needle("canary-body+b6e5/2a");
const REDACTED_BODY: Needle = Needle("canary-redacted-body+1f09/c7");

/// What must never be kept, encrypted or not.
const NEVER_KEPT: [Needle; 12] = [
    COLLECTORS,
    PATH,
    KEY,
    CREDENTIAL,
    COOKIE,
    QUERY,
    ASKED_FIELD,
    ASKED_BODY,
    OTHER_BODY,
    SET_COOKIE,
    REDACTED_FIELD,
    REDACTED_BODY,
];
/// What is kept to be replayed, and so must be encrypted.
const KEPT: [Needle; 2] = [FIELD, BODY];

/// Where things may be found: a name, and the bytes.
type Hay = Vec<(String, Vec<u8>)>;

/// A service whose answers hold secrets.
fn service() -> Service {
    let fields = format!(
        "Content-Type: application/json\r\nSet-Cookie: session={}\r\nX-Field: {}\r\nX-Token: {}\r\n",
        SET_COOKIE.0, FIELD.0, REDACTED_FIELD.0
    );
    let body = format!(r#"{{"id":"{}","card":{{"number":"{}"}}}}"#, BODY.0, REDACTED_BODY.0);
    Service::start(&fields, &body)
}

/// Where records are kept.
struct Place {
    /// What is said of it in `[store]`.
    settings: String,
    /// Whether what was recorded has arrived there.
    has_it: Box<dyn Fn() -> bool>,
    /// All there is.
    stored: Box<dyn Fn() -> Hay>,
}

/// Runs a sidecar over `place` through everything that it can be asked. Gives what it wrote and showed.
fn run(place: &Place, folder: &Path, keys: Option<&Path>) -> Hay {
    let (service, collector) = (service(), Receiver::start(Mood::Takes));
    let encryption = keys.map(|keys| format!("encryption_key_file = {:?}", keys.display().to_string()));
    let config = folder.join("onlyonce.toml");
    let text = format!(
        "[proxy]\nupstream = {:?}\n[store]\n{}\n{}\n\
         [traces]\notlp = {:?}\nheaders = \"api-key={}\"\n[metrics]\notlp = {:?}\n[defaults]\nredact = [\"/card/number\"]\nredact_headers = [\"X-Token\"]\n",
        service.url(),
        place.settings,
        encryption.unwrap_or_default(),
        collector.url(),
        COLLECTORS.0,
        collector.url(),
    );
    fs::write(&config, text).unwrap();
    let sidecar = Sidecar::start(&config, folder);
    let post = |key: &str, body: Needle| {
        let head = format!(
            "POST /pay/{}?token={} HTTP/1.1\r\nAuthorization: Bearer {}\r\nCookie: session={}\r\nX-Asked: {}\r\n\
             Idempotency-Key: {key}\r\n",
            PATH.0, QUERY.0, CREDENTIAL.0, COOKIE.0, ASKED_FIELD.0
        );
        send(sidecar.address, &head, body.0)
    };
    let (status, first) = post(KEY.0, ASKED_BODY);
    assert_eq!(status, 200, "{first}");
    for secret in KEPT.into_iter().chain([SET_COOKIE, REDACTED_FIELD, REDACTED_BODY]) {
        assert!(first.contains(secret.0), "the first caller gets everything: {first}");
    }
    let (status, again) = post(KEY.0, ASKED_BODY);
    assert!(status == 200 && again.contains("[redacted]"), "{again}");
    assert!(KEPT.iter().all(|secret| again.contains(secret.0)), "a replay has what was kept: {again}");
    while !(place.has_it)() {
        // Whoever reads it tells a tier again.
        assert_eq!(post(KEY.0, ASKED_BODY).0, 200);
    }
    assert_eq!(service.effects(), 1);
    assert_eq!(post(KEY.0, OTHER_BODY).0, 422, "another request under the same key");
    assert_eq!(post(&format!("\"{}", KEY.0), OTHER_BODY).0, 400, "a key that is none");
    let shown = ["/metrics", "/health/guarantee", "/health/ready"]
        .map(|path| (path.to_owned(), sidecar.get(path).into_bytes()));
    let (_, guarantee) = &shown[1];
    let says_so = String::from_utf8_lossy(guarantee).contains("encrypted with the key `k1`");
    assert_eq!(says_so, keys.is_some());
    let (output, log) = sidecar.end();
    assert_eq!(output.contains("encrypted with the key `k1`"), keys.is_some(), "{output}");
    assert!(log.contains("\"level\":\"DEBUG\""), "nothing at debug level was logged: {log}");
    let traced = spans(&collector);
    let written = [("output".to_owned(), output.into_bytes()), ("log".to_owned(), log.into_bytes())];
    shown.into_iter().chain(written).chain(traced).collect()
}

/// What the collector was sent, as it was sent. There is something of every answer.
fn spans(collector: &Receiver) -> Hay {
    let said = format!("{:?}", collector.spans());
    for answer in ["ran", "replayed", "key-reused", "key-invalid"] {
        assert!(said.contains(&format!("\"{answer}\"")), "no span says {answer}: {said}");
    }
    for path in [SPANS, FIGURES] {
        assert!(collector.heads(path)[0].contains(COLLECTORS.0), "the collector's own secret is for it");
    }
    let sent = collector.bodies().into_iter().map(|body| ("a message to the collector".to_owned(), body));
    sent.chain([("spans".to_owned(), said.into_bytes())]).collect()
}

/// Where and in which form each of `needles` is.
fn found(needles: &[Needle], hay: &Hay) -> Vec<String> {
    let mut found = Vec::new();
    for (name, bytes) in hay {
        // Most files are large and hold nothing of this kind.
        if STEM.found_in(bytes).is_none() {
            continue;
        }
        for needle in needles {
            found.extend(needle.found_in(bytes).map(|form| format!("{} {form} in {name}", needle.0)));
        }
    }
    found
}

/// Runs it with encryption and finds nothing; runs it without and finds what is kept, in the store and nowhere else.
fn nothing_leaks(open: impl Fn() -> Place) {
    let all: Vec<_> = NEVER_KEPT.into_iter().chain(KEPT).collect();
    let folder = TempDir::new().unwrap();
    let keys = make_key(folder.path(), "k1");
    let place = open();
    let shown = run(&place, folder.path(), Some(&keys));
    let stored = (place.stored)();
    assert!(stored.iter().any(|(_, bytes)| !bytes.is_empty()), "nothing was looked at");
    assert_eq!(found(&all, &stored), Vec::<String>::new(), "in the store");
    assert_eq!(found(&all, &shown), Vec::<String>::new(), "beside the store");

    let folder = TempDir::new().unwrap();
    let place = open();
    let shown = run(&place, folder.path(), None);
    let stored = (place.stored)();
    for secret in KEPT {
        assert!(!found(&[secret], &stored).is_empty(), "{} cannot be found where it is", secret.0);
    }
    assert_eq!(found(&NEVER_KEPT, &stored), Vec::<String>::new(), "in the store, without encryption");
    assert_eq!(found(&all, &shown), Vec::<String>::new(), "beside the store, without encryption");
}

/// A place that has everything once it is answered.
fn place(url: &str, stored: impl Fn() -> Hay + 'static) -> Place {
    Place { settings: format!("url = {url:?}"), has_it: Box::new(|| true), stored: Box::new(stored) }
}

#[test]
fn nothing_leaks_into_a_folder() {
    nothing_leaks(|| {
        let folder = TempDir::new().unwrap();
        place(&format!("file:{}", folder.path().display()), move || files(folder.path()))
    });
}

/// Files in which nothing is compressed: what is there can be found.
fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::default().with("rdbcompression", "no")).unwrap()
}

/// The log of all commands, and what they led to.
fn files_of(server: &RedisServer) -> Hay {
    assert_eq!(server.ask(&["SAVE"]).unwrap().trim(), "OK");
    files(server.folder())
}

#[test]
fn nothing_leaks_into_redis() {
    nothing_leaks(|| {
        let server = redis();
        place(&server.url(), move || files_of(&server))
    });
}

fn postgres() -> PostgresServer {
    let server = PostgresServer::start(&[]).unwrap();
    let migrated = onlyonce(&["store", "migrate", "--store", &server.url()]).output().unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    server
}

#[test]
fn nothing_leaks_into_postgres() {
    nothing_leaks(|| {
        let server = postgres();
        place(&server.url(), move || {
            let mut hay = tables(&server.url());
            // Tables, indexes and the log of all changes, as they are on the disk.
            hay.extend(files(server.folder()));
            hay
        })
    });
}

#[test]
fn nothing_leaks_into_a_tier_that_others_share() {
    nothing_leaks(|| {
        let (server, tier) = (postgres(), Rc::new(redis()));
        let urls = format!("url = {:?}\ncache = {:?}\nrecent_bytes_max = 0", server.url(), tier.url());
        let seen = Rc::clone(&tier);
        let has_it = move || !seen.ask(&["KEYS", "onlyonce:tier:*"]).unwrap().trim().is_empty();
        let stored = move || {
            let _lives_as_long = &server;
            files_of(&tier)
        };
        Place { settings: urls, has_it: Box::new(has_it), stored: Box::new(stored) }
    });
}

/// Every row of every table, as text.
fn tables(url: &str) -> Hay {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        client.batch_execute("CHECKPOINT").await.unwrap();
        let named = "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables \
                     WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
        let mut hay = Vec::new();
        for name in rows(&client, named).await {
            let text = rows(&client, &format!("SELECT t::text FROM {name} t")).await.join("\n");
            hay.push((name, text.into_bytes()));
        }
        driver.abort();
        assert!(hay.iter().any(|(_, rows)| !rows.is_empty()), "no rows in {} tables", hay.len());
        hay
    })
}

async fn rows(client: &tokio_postgres::Client, query: &str) -> Vec<String> {
    let messages = client.simple_query(query).await.unwrap();
    let row = |message: &tokio_postgres::SimpleQueryMessage| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}
