//! The recipes that need the binary, run: a payments API behind the sidecar, a Python and a Node service, a cron job. Never
//! skipped: without `python3`, `npm` and `pip` these fail.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../proxy/binary.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod binary;
#[path = "../tools/node.rs"]
mod node;
#[path = "../clients/service.rs"]
#[allow(dead_code, reason = "the clients' own tests use the rest")]
mod service;
#[path = "../tools/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tools;

mod pages;

use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Output};
use std::thread;

use binary::{PATIENCE, Proxy, answer, onlyonce};
use service::{Program, Service, repository};

/// Posts `body`: the status, and the whole answer.
fn post(address: &str, path: &str, fields: &str, body: &str) -> (u16, String) {
    ask(address, &format!("POST {path}"), fields, body)
}

fn ask(address: &str, request: &str, fields: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: shop.test\r\n{fields}Connection: close\r\n");
    let length = body.len();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    answer(stream)
}

/// A service of a recipe, on a port of its own, and its address.
fn start(command: &mut Command) -> (Program, String) {
    let mut program = Program::start(command.env("LISTEN", "127.0.0.1:0"));
    let address = program.wait_for("listening on ");
    (program, address)
}

fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", repository("clients"));
    command.arg(repository(script));
    command
}

#[test]
fn a_payments_api_behind_the_sidecar_pays_once() {
    let folder = tempfile::tempdir().unwrap();
    let (_payments, upstream) = start(&mut python("examples/recipes/payments-sidecar/payments.py"));
    let file = repository("examples/recipes/payments-sidecar/onlyonce.toml");
    let checked = onlyonce(&["config", "check"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let store = format!("file:{}", folder.path().join("records").display());
    let (file, upstream_url) = (file.display().to_string(), format!("http://{upstream}"));
    let args = ["--config", &file, "--upstream", &upstream_url, "--store", &store, "--admin", "127.0.0.1:0"];
    let proxy = Proxy::start(&args);
    let sidecar = proxy.address.to_string();
    let fields = "Authorization: Bearer me\r\nIdempotency-Key: order-7\r\n";
    let (status, first) = post(&sidecar, "/v1/payments", fields, r#"{"amount": 100, "sent_at": "9:00"}"#);
    assert_eq!(status, 201, "{first}");
    let (status, again) = post(&sidecar, "/v1/payments", fields, r#"{"sent_at":"9:01","amount":100}"#);
    assert!(status == 201 && again.contains("idempotency-replayed: true"), "{again}");
    assert_eq!(post(&sidecar, "/v1/payments", fields, r#"{"amount": 200}"#).0, 422);
    let (status, told) = post(&sidecar, "/v1/payments", "Authorization: Bearer me\r\n", r#"{"amount": 100}"#);
    assert!(status == 400 && told.contains("key-missing"), "{told}");
    assert!(ask(&upstream, "GET /", "", "").1.ends_with(r#"{"payments": 1}"#));
}

/// The same questions to a service in any language.
fn charges_once(address: &str) {
    let charge = |body: &str| post(address, "/charges", "", body);
    let (status, first) = charge(r#"{"order": "order-7", "amount": 100}"#);
    assert_eq!(status, 201, "{first}");
    let (status, again) = charge(r#"{"order": "order-7", "amount": 100}"#);
    assert!(status == 201 && again.contains("ch_1"), "{again}");
    assert_eq!(charge(r#"{"order": "order-7", "amount": 200}"#).0, 422);
    assert_eq!(charge(r#"{"order": "order-8", "amount": 0}"#).0, 400);
    let (status, corrected) = charge(r#"{"order": "order-8", "amount": 50}"#);
    assert!(status == 201 && corrected.contains("ch_2"), "{corrected}");
    let (_, counted) = ask(address, "GET /charges", "", "");
    assert!(counted.replace(' ', "").contains(r#"{"charges":2}"#), "{counted}");
}

#[test]
fn a_python_service_charges_once() {
    let claims = Service::start("memory:");
    let (_service, address) =
        start(python("examples/recipes/python-service/service.py").env("CLAIMS", claims.url()));
    charges_once(&address);
}

#[test]
fn a_node_service_charges_once() {
    let claims = Service::start("memory:");
    let mut node = Command::new(node::node());
    node.arg("--disable-warning=ExperimentalWarning")
        .arg(repository("examples/recipes/node-service/service.ts"));
    let (_service, address) = start(node.env("CLAIMS", claims.url()));
    charges_once(&address);
}

#[test]
fn a_cron_job_on_many_machines_runs_once_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Service::start("memory:");
    let report = folder.path().join("report.txt");
    let nightly = |day: &str| -> Output {
        let mut job = python("examples/recipes/cron-job/nightly.py");
        job.arg(day).env("CLAIMS", claims.url()).env("REPORT", &report).output().unwrap()
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let machines: Vec<_> = (0..4).map(|_| scope.spawn(|| nightly("2026-11-15"))).collect();
        machines.into_iter().map(|machine| machine.join().unwrap()).collect()
    });
    for output in &ended {
        let code = output.status.code();
        assert!(code == Some(0) || code == Some(75), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let here = ended.iter().filter(|output| output.stdout.starts_with(b"done here")).count();
    assert_eq!(here, 1, "one of them ran it");
    assert!(nightly("2026-11-15").stdout.starts_with(b"done elsewhere"));
    assert!(nightly("2026-11-16").stdout.starts_with(b"done here"));
    let lines = std::fs::read_to_string(&report).unwrap();
    assert_eq!(lines, "2026-11-15: 3 payments\n2026-11-16: 3 payments\n");
    // One that died half way is not run again.
    let refused = python("examples/recipes/cron-job/nightly.py")
        .arg("2026-11-17")
        .env("CLAIMS", claims.url())
        .env("REPORT", folder.path())
        .output()
        .unwrap();
    assert!(!refused.status.success(), "a folder cannot be written to");
    assert_eq!(nightly("2026-11-17").status.code(), Some(3));
}
