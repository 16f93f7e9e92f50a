//! The admin side of the binary: health as orchestrators ask for it, figures as Prometheus reads them.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::binary::{PATIENCE, Proxy, answer};
use crate::upstream::Upstream;

const TOKEN: &str = "an-operator-knows-this";

/// Asks the admin side: the status, and the whole answer.
fn ask(admin: SocketAddr, request: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: admin.test\r\n{fields}Connection: close\r\n\r\n").unwrap();
    answer(stream)
}

pub(crate) fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    ask(admin, &format!("GET {path}"), &format!("Authorization: Bearer {TOKEN}\r\n"))
}

/// The number behind `series`.
pub(crate) fn figure(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn start(upstream: &Upstream, args: &[&str]) -> (Proxy, SocketAddr) {
    start_with(upstream, args, &[])
}

/// The same with settings from the environment.
pub(crate) fn start_with(
    upstream: &Upstream,
    args: &[&str],
    environment: &[(&str, &str)],
) -> (Proxy, SocketAddr) {
    let url = upstream.url();
    let all = [&["--upstream", &url, "--admin", "127.0.0.1:0"], args].concat();
    let environment = [environment, &[("ONLYONCE_ADMIN_TOKEN", TOKEN)]].concat();
    let mut proxy = Proxy::start_with(&all, &environment);
    let admin = proxy.wait_for_line("admin on ").parse().unwrap();
    (proxy, admin)
}

#[test]
fn what_happened_is_counted_and_no_figure_names_a_key() {
    let upstream = Upstream::start();
    let (proxy, admin) = start(&upstream, &["--store", "memory:"]);
    for _ in 0..3 {
        assert_eq!(proxy.post("/pay", "a-key-of-mine").0, 200);
    }
    let (status, text) = get(admin, "/metrics");
    assert!(status == 200 && text.contains("text/plain; version=0.0.4"), "{text}");
    for (series, expected) in [
        ("onlyonce_claims_total{answer=\"granted\"}", 1.0),
        ("onlyonce_claims_total{answer=\"replayed\"}", 2.0),
        ("onlyonce_endings_total{ending=\"completed\"}", 1.0),
        ("onlyonce_requests_total{route=\"*\",answer=\"replayed\"}", 2.0),
        ("onlyonce_duplicate_age_ratio_count", 2.0),
        ("onlyonce_records{state=\"completed\"}", 1.0),
        ("onlyonce_store_seconds_count{operation=\"complete\",result=\"ok\"}", 1.0),
        ("onlyonce_waiters", 0.0),
    ] {
        assert_eq!(figure(&text, series), Some(expected), "{series} in\n{text}");
    }
    assert!(!text.contains("a-key-of-mine") && !text.contains("sesame"), "{text}");
}

#[test]
fn only_who_shows_the_token_learns_more_than_that_it_runs() {
    let upstream = Upstream::start();
    let (proxy, admin) = start(&upstream, &["--store", "memory:"]);
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(ask(admin, &format!("GET {path}"), "").0, 200, "{path}");
    }
    for path in ["/metrics", "/health/guarantee"] {
        let wrong =
            ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic an-operator-knows-this\r\n"];
        for fields in wrong {
            let (status, text) = ask(admin, &format!("GET {path}"), fields);
            assert!(status == 401 && text.to_lowercase().contains("www-authenticate: bearer"), "{text}");
        }
        assert_eq!(get(admin, path).0, 200, "{path}");
    }
    let (_, guarantee) = get(admin, "/health/guarantee");
    assert!(guarantee.contains("\"store\":\"memory:\"") && guarantee.contains("at most once"), "{guarantee}");
    assert_eq!(get(admin, "/nothing/here").0, 404);
    assert_eq!(ask(admin, "POST /metrics", "Content-Length: 0\r\n").0, 405);
    // What callers can reach says nothing of it: the request goes where all others go.
    let _ = proxy.post("/metrics", "k");
    assert_eq!(upstream.targets(), ["/metrics"]);
}

#[test]
fn it_is_not_ready_while_its_store_is_away_and_while_it_ends() {
    let upstream = Upstream::start();
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let (proxy, admin) = start(&upstream, &["--store", &server.url()]);
    assert_eq!(get(admin, "/health/ready").0, 200);
    upstream.hold(true);
    let waiting = proxy.begin("/pay", "k");
    upstream.wait_for_effects(1);
    proxy.signal("-TERM");
    loop {
        let (status, text) = get(admin, "/health/ready");
        if status == 503 {
            assert!(text.contains("stopping"), "{text}");
            break;
        }
    }
    assert_eq!(get(admin, "/health/live").0, 200);
    upstream.hold(false);
    assert_eq!(answer(waiting).0, 200);
    assert!(proxy.ended().0.success());

    let (_proxy, admin) = start(&upstream, &["--store", &server.url()]);
    drop(server);
    let (status, text) = get(admin, "/health/ready");
    assert!(status == 503 && text.contains("store"), "{text}");
    assert_eq!(get(admin, "/health/live").0, 200);
    // What cannot be counted does not keep what can be from being read.
    assert_eq!(get(admin, "/metrics").0, 200);
}
