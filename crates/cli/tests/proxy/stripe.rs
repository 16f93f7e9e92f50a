//! Stripe's own Python client, unmodified, with its automatic retries on, through `--profile stripe`. Never skipped: without
//! `python3` and `pip` it fails.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::binary::Proxy;
use crate::tools::python;
use crate::upstream::Upstream;

/// Runs the client's scenario against `address`: what it saw, as JSON.
fn client(address: SocketAddr, scenario: &str) -> serde_json::Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proxy/stripe_client.py");
    let mut client = Command::new("python3");
    client
        .env("PYTHONPATH", python("stripe-16.1.0", &["stripe==16.1.0"]))
        .arg(script)
        .arg(format!("http://{address}"))
        .arg(scenario);
    let output = client.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"))
}

fn through_a_sidecar(upstream: &Upstream) -> Proxy {
    Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:", "--profile", "stripe"])
}

#[test]
fn first_replay_and_mismatch_are_what_the_client_expects() {
    let upstream = Upstream::start();
    let proxy = through_a_sidecar(&upstream);
    let saw = client(proxy.address, "basics");
    assert_eq!(saw["first"], "cus_1");
    assert_eq!(saw["again"], "cus_1");
    assert_eq!(saw["again_replayed"], "true");
    assert_eq!(saw["mismatch"], "IdempotencyError");
    assert_eq!(saw["other_key"], "cus_2");
    assert_eq!(upstream.effects(), 2);
}

#[test]
fn an_answer_lost_on_its_way_to_the_client_is_retried_and_replayed() {
    let upstream = Upstream::start();
    let proxy = through_a_sidecar(&upstream);
    let (losing, connections) = relay_that_loses_one_answer(proxy.address);
    let saw = client(losing, "create");
    assert_eq!(saw["id"], "cus_1");
    assert_eq!(upstream.effects(), 1);
    assert_eq!(connections.load(Ordering::SeqCst), 2, "one answer was lost, one retry got it");
}

#[test]
fn an_answer_lost_behind_the_sidecar_is_an_error_and_no_second_effect() {
    let upstream = Upstream::start();
    let proxy = through_a_sidecar(&upstream);
    let saw = client(proxy.address, "drop");
    assert_eq!(saw["error"], "APIError", "{saw}");
    assert_eq!(upstream.effects(), 1, "however often the client retried: {saw}");
}

#[test]
fn a_client_that_retries_while_the_first_runs_gets_its_answer() {
    let upstream = Upstream::start();
    upstream.hold(true);
    let proxy = through_a_sidecar(&upstream);
    let relay = Relay::start(proxy.address);
    let address = relay.address;
    let one = thread::spawn(move || client(address, "same"));
    upstream.wait_for_effects(1);
    // The second is told 409 and retries by itself. It hears so when the first is done: its patience is not tested.
    let two = thread::spawn(move || client(address, "same"));
    assert_eq!(relay.status.recv().unwrap(), "HTTP/1.1 409");
    upstream.hold(false);
    assert_eq!(one.join().unwrap()["id"], "cus_1");
    relay.go_on.send(()).unwrap();
    assert_eq!(two.join().unwrap()["id"], "cus_1");
    assert_eq!(upstream.effects(), 1);
}

/// Passes connections on to a sidecar. On the second one it tells how the answer begins, and keeps it back until it may go
/// on.
struct Relay {
    address: SocketAddr,
    status: Receiver<String>,
    go_on: Sender<()>,
}

impl Relay {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((told, status), (go_on, may_go_on)) = (channel(), channel());
        thread::spawn(move || {
            let mut second = Some((told, may_go_on));
            for (number, stream) in listener.incoming().enumerate() {
                let (mut client, mut server) = (stream.unwrap(), TcpStream::connect(target).unwrap());
                let (mut from_client, mut to_server) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
                let kept_back = if number == 1 { second.take() } else { None };
                thread::spawn(move || {
                    if let Some((told, may_go_on)) = kept_back {
                        let mut status = [0; "HTTP/1.1 409".len()];
                        server.read_exact(&mut status).unwrap();
                        told.send(String::from_utf8_lossy(&status).into_owned()).unwrap();
                        may_go_on.recv().unwrap();
                        client.write_all(&status).unwrap();
                    }
                    let _ = std::io::copy(&mut server, &mut client);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, status, go_on }
    }
}

/// Passes connections on to `target`, but closes the first one when its answer comes.
fn relay_that_loses_one_answer(target: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let (mut client, mut server) = (stream.unwrap(), TcpStream::connect(target).unwrap());
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
            thread::spawn(move || {
                if number == 0 {
                    let mut lost = [0; 1];
                    let _ = server.read_exact(&mut lost);
                } else {
                    let _ = std::io::copy(&mut server, &mut client);
                    let _ = client.flush();
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    (address, connections)
}
