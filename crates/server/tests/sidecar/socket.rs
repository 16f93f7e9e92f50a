//! An upstream on a unix socket.

use onlyonce_server::config::Sources;
use tokio::net::UnixListener;

use crate::application::Application;
use crate::client::Wire;
use crate::stage::{Stage, flags, post};

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_may_be_a_unix_socket_and_its_absence_releases_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.sock");
    let flags = flags(&format!("unix:{}", path.display()));
    let stage = Stage::start(Application::start().await, Sources { flags, ..Sources::default() }).await;
    let absent = stage.send(post("/pay", "k", "1")).await;
    assert!(absent.status == 502 && absent.body.contains("Nothing was sent"), "{absent:?}");
    let listener = UnixListener::bind(&path).unwrap();
    let serving = tokio::spawn(async move {
        let mut wire = Wire::over(listener.accept().await.unwrap().0);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n1") {
            head.extend(wire.bytes(1).await);
        }
        wire.write("HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
        String::from_utf8(head).unwrap().to_ascii_lowercase()
    });
    for replayed in ["false", "true"] {
        let answer = stage.send(post("/pay", "k", "1")).await;
        assert_eq!((answer.status, answer.body.as_str()), (201, "ok"), "{answer:?}");
        assert_eq!(answer.header("idempotency-replayed"), Some(replayed));
    }
    let head = serving.await.unwrap();
    assert!(head.starts_with("post /pay http/1.1\r\n") && head.contains("\r\nhost: shop.test\r\n"), "{head}");
}
