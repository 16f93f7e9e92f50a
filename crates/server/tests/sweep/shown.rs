//! How sweeping goes, as the admin side of whole processes shows it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use onlyonce_core::{Clock as _, SystemClock};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{Claims, Sidecar};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{LOOK_EVERY, take_in, until};

/// The body of the answer to a GET.
async fn get(admin: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn flags() -> File {
    let mut flags = File::default();
    flags.store.url = Some("memory:".to_owned());
    flags.admin.listen = Some("127.0.0.1:0".parse().unwrap());
    flags.sweep.every = Some(onlyonce_http::rules::Span(LOOK_EVERY));
    flags
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_tells_how_fast_the_last_pass_was_however_late_it_is_asked() {
    let mut flags = flags();
    flags.proxy.upstream = Some("http://127.0.0.1:9".to_owned());
    flags.proxy.listen = Some("127.0.0.1:0".parse().unwrap());
    let sidecar = Sidecar::start(Sources { flags, ..Sources::default() }).await.unwrap();
    let admin = sidecar.admin_address().unwrap().to_string();
    let (engine, sweeping) = (sidecar.engine().clone(), sidecar.sweeping());
    let running = tokio::spawn(sidecar.run_until(std::future::pending()));
    until(async || {
        // Those that have expired before they arrive are not taken in: then others are.
        take_in(&**engine.store(), 0..500, SystemClock::new().now(), Duration::from_millis(300), false).await;
        (sweeping.now().removed_total > 0).then_some(())
    })
    .await;
    until(async || (engine.count().await.unwrap().records() == 0).then_some(())).await;
    for _ in 0..2 {
        let overview: Value = serde_json::from_str(&get(&admin, "/api/overview").await).unwrap();
        let (shown, state) = (&overview["sweep"], sweeping.now());
        let rate = shown["rows_per_second"].as_f64().unwrap();
        // What was written and read again may differ in its last digit.
        assert!(rate > 0.0 && (rate / state.rows_per_second - 1.0).abs() < 1e-9, "{shown} {state:?}");
        assert_eq!(shown["removed_total"].as_u64(), Some(state.removed_total), "{shown}");
        assert_eq!(shown["elected"], true, "{shown}");
        assert!(shown["last_success_at"].is_string(), "{shown}");
    }
    running.abort();
}

const TOKENS: &str = r#"
[[token]]
secret = "alice-alice-alice-alice"
namespace = "alice"
scopes = ["claim"]

[[token]]
secret = "bob-bob-bob-bob-bob"
namespace = "bob"
scopes = ["claim"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_namespace_has_figures_of_its_own_and_the_house_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    fs::write(&path, TOKENS).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let mut flags = flags();
    flags.serve.listen = Some("127.0.0.1:0".parse().unwrap());
    flags.serve.tokens_file = Some(path);
    let claims = Claims::start(&Sources { flags, ..Sources::default() }).await.unwrap();
    let admin = claims.admin_address().unwrap().to_string();
    let running = tokio::spawn(claims.run_until(std::future::pending()));
    let text = until(async || {
        let text = get(&admin, "/metrics").await;
        let is_elected =
            |name: &str| text.contains(&format!("onlyonce_sweep_elected{{namespace=\"{name}\"}} 1"));
        (is_elected("alice") && is_elected("bob")).then_some(text)
    })
    .await;
    for name in ["alice", "bob"] {
        let line = format!("onlyonce_records{{state=\"in-flight\",namespace=\"{name}\"}} 0");
        assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("onlyonce_claims_total{"), "the election is nobody's claim:\n{text}");
    running.abort();
}
