//! Start, reload and end of a sidecar.

use std::fs;
use std::path::Path;
use std::time::Duration;

use onlyonce_core::StateKind;
use onlyonce_core::store::Listing;
use onlyonce_http::rules::Span;
use onlyonce_server::Sidecar;
use onlyonce_server::config::Sources;

use crate::application::Application;
use crate::stage::{Stage, flags, post};

async fn states(stage: &Stage) -> Vec<StateKind> {
    let page = stage.engine.store().list(&Listing::default()).await.unwrap();
    page.records.iter().map(|(_, record)| record.kind()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_finishes_when_the_sidecar_stops() {
    let mut stage = Stage::new().await;
    let mut wire = stage.connect().await;
    wire.write(post("/slow", "k", "1")).await;
    stage.application.arrived(1).await;
    let mut idle = stage.connect().await;
    idle.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    idle.answer().await.unwrap();
    stage.begin_stop();
    assert_eq!(idle.rest().await, "", "idle connections are closed at once");
    let onlyonce_server::ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
    stage.application.gate.add_permits(1);
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "1:1"));
    assert_eq!(states(&stage).await, [StateKind::Completed]);
    stage.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_finish_is_abandoned_and_the_caller_is_told() {
    let mut stage = Stage::with(|flags| flags.proxy.drain_within = Some("200ms".parse().unwrap())).await;
    let mut wire = stage.connect().await;
    wire.write(post("/slow", "k", "1")).await;
    stage.application.arrived(1).await;
    stage.begin_stop();
    let answer = wire.answer().await.unwrap();
    assert!(answer.status >= 500, "{answer:?}");
    let engine = stage.engine.clone();
    stage.stopped().await;
    let page = engine.store().list(&Listing::default()).await.unwrap();
    assert_eq!(page.records[0].1.kind(), StateKind::Unknown, "never released: it may have had its effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_caller_has_gone_is_waited_for_too() {
    let mut stage = Stage::new().await;
    let mut wire = stage.connect().await;
    wire.write(post("/slow", "k", "1")).await;
    stage.application.arrived(1).await;
    drop(wire);
    stage.begin_stop();
    stage.application.gate.add_permits(1);
    let engine = stage.engine.clone();
    let application = stage.stopped().await;
    assert_eq!(application.effects(), 1);
    let page = engine.store().list(&Listing::default()).await.unwrap();
    assert_eq!(page.records[0].1.kind(), StateKind::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_is_served_and_its_file_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onlyonce.sock");
    // One that a killed process left behind does not stand in the way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address = format!("unix:{}", path.display());
    let stage = Stage::with(|flags| flags.proxy.listen = Some(address.parse().unwrap())).await;
    assert_eq!(stage.address.to_string(), address);
    assert_eq!(stage.send(post("/pay", "k", "1")).await.status, 200);
    assert!(!stage.application.last().headers.contains_key("x-forwarded-for"), "there is no address to tell");
    let mut taken = flags("http://127.0.0.1:1");
    taken.proxy.listen = Some(address.parse().unwrap());
    let error = Sidecar::start(Sources { flags: taken, ..Sources::default() }).await.err().unwrap();
    assert!(error.to_string().contains("cannot be listened on"), "one that answers is somebody's: {error}");
    stage.stopped().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_store_remembers_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let application = Application::start().await;
    for replayed in ["false", "true"] {
        let mut flags = flags(&application.url());
        flags.store.url = Some(format!("file:{}", folder.path().join("records").display()));
        flags.store.answer_within = Some(Span::from_secs(30));
        let stage = Stage::start(application.clone(), Sources { flags, ..Sources::default() }).await;
        let answer = stage.send(post("/pay", "k", "1")).await;
        assert_eq!((answer.body.as_str(), answer.header("idempotency-replayed")), ("1:1", Some(replayed)));
        stage.stopped().await;
    }
    assert_eq!(application.effects(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_said_at_the_start() {
    let refused = async |change: &dyn Fn(&mut onlyonce_server::config::File)| {
        let mut flags = flags("http://127.0.0.1:1");
        change(&mut flags);
        Sidecar::start(Sources { flags, ..Sources::default() }).await.err().expect("a refusal").to_string()
    };
    for (url, expected) in [
        ("redis://127.0.0.1:1", "cannot be opened"),
        ("postgres://u:hush@127.0.0.1:1/d", "cannot be opened"),
        ("postgres://u:hush@h/d?schema=A", "`schema`"),
        ("memory:x", "nothing after the colon"),
        ("file:", "needs a folder"),
        ("disk:a", "names no store"),
        ("nothing", "names no store"),
    ] {
        let told = refused(&|flags| flags.store.url = Some(url.into())).await;
        assert!(told.contains(expected) && !told.contains("hush"), "{url}: {told}");
    }
    let told = refused(&|flags| flags.defaults.principal = Some("mtls".parse().unwrap())).await;
    assert!(told.contains("client_ca"), "{told}");
    let told = refused(&|flags| flags.defaults.principal = Some("application".parse().unwrap())).await;
    assert!(told.contains("sidecar"), "{told}");
    let told = refused(&|flags| flags.defaults.methods = Some(vec!["GET".into()])).await;
    assert!(told.contains("GET"), "{told}");
    let told = refused(&|flags| flags.store.sync = Some(onlyonce_server::config::SyncMode::Outcome)).await;
    assert!(told.contains("rerun"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_promise_names_what_is_not_protected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    fs::write(
        &file,
        "[[route]]\npath = \"/open\"\non_store_failure = \"open\"\n[[route]]\npath = \"/try\"\nshadow = true\nunknown = \"rerun\"",
    )
    .unwrap();
    let sources = Sources { file: Some(file), flags: flags("http://127.0.0.1:1"), ..Sources::default() };
    let sidecar = Sidecar::start(sources).await.unwrap();
    let promise = sidecar.promise().to_string();
    for part in [
        "memory:",
        "survives no",
        "RUNS UNPROTECTED",
        "/open",
        "NOTHING IS ENFORCED",
        "/try",
        "hold",
        "rerun",
    ] {
        assert!(promise.contains(part), "{part} is not in:\n{promise}");
    }
    let json = serde_json::to_value(&*sidecar.promise()).unwrap();
    assert_eq!(json["fail_open"], serde_json::json!(["/open"]));
}

/// Asks until `wanted` is the answer's status: a change of a file has no other sign.
async fn until_status(stage: &Stage, request: &str, wanted: u16) {
    let asking = async {
        while stage.send(request).await.status != wanted {
            // tidy: sleep because the watched folder tells the sidecar, and nobody else
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), asking).await.expect("the status that is wanted");
}

fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_changes_the_rules_and_a_broken_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    fs::write(&file, "[defaults]\nrequired = false\n").unwrap();
    let application = Application::start().await;
    let sources =
        Sources { file: Some(file.clone()), flags: flags(&application.url()), ..Sources::default() };
    let stage = Stage::start(application, sources).await;
    let unkeyed = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(stage.send(unkeyed).await.status, 200);
    // A request under way keeps its rules and is not dropped.
    let mut wire = stage.connect().await;
    wire.write(post("/slow", "k", "1")).await;
    stage.application.arrived(1).await;
    replace(&file, "[defaults]\nrequired = true\n");
    until_status(&stage, unkeyed, 400).await;
    replace(&file, "[defaults]\nrequierd = false\n");
    replace(&file, "[defaults]\nrequired = false\n[[route]]\npath = \"/b\"\nmethods = [\"GET\"]\n");
    // Refused, both of them: had one come through, this would pass now.
    replace(&file, "[defaults]\nrequired = true\n[[route]]\npath = \"/b\"\nrequired = false\n");
    until_status(&stage, &unkeyed.replace("/a", "/b"), 200).await;
    assert_eq!(stage.send(unkeyed).await.status, 400);
    stage.application.gate.add_permits(1);
    assert_eq!(wire.answer().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_between_start_and_run_is_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    fs::write(&file, "[defaults]\nrequired = false\n").unwrap();
    let application = Application::start().await;
    let sources =
        Sources { file: Some(file.clone()), flags: flags(&application.url()), ..Sources::default() };
    let sidecar = Sidecar::start(sources).await.unwrap();
    replace(&file, "[defaults]\nrequired = true\n");
    let stage = Stage::run(application, sidecar);
    until_status(&stage, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_records_are_swept() {
    let stage = Stage::with(|flags| {
        flags.defaults.retention = Some("50ms".parse().unwrap());
        flags.sweep.every = Some(Span(Duration::from_millis(20)));
    })
    .await;
    assert_eq!(stage.send(post("/pay", "k", "1")).await.status, 200);
    while stage.engine.count().await.unwrap().records() > 0 {
        // tidy: sleep because the sweeper is woken by time alone
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
