//! The two services: with the layer, and behind signatures.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tempfile::TempDir;

use crate::program::Program;

fn start(binary: &str, settings: &[(&str, &str)]) -> (Program, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary);
    command.env("LISTEN", "127.0.0.1:0").env("FOLDER", folder.path().join("records"));
    (Program::start(command.envs(settings.iter().copied())), folder)
}

#[test]
fn the_axum_service_pays_once_for_each_caller_and_key() {
    let (service, _folder) = start(env!("CARGO_BIN_EXE_axum-layer"), &[]);
    let pay = |caller: &str, amount: &str| {
        let fields = [("Authorization", caller), ("Idempotency-Key", "order-7")];
        service.ask("POST /payments", &fields, amount)
    };
    let (status, first) = pay("Bearer ann", "100");
    assert_eq!(status, 201, "{first}");
    assert!(first.contains("idempotency-replayed: false"), "{first}");
    let (status, again) = pay("Bearer ann", "100");
    assert!(status == 201 && again.contains("idempotency-replayed: true"), "{again}");
    assert!(again.ends_with("payment 1 of 100\n"), "{again}");
    assert_eq!(pay("Bearer ann", "200").0, 422);
    assert_eq!(pay("Bearer bob", "100").0, 201);
    assert_eq!(service.ask("POST /payments", &[], "100").0, 400, "a key is required");
    assert_eq!(service.get("/payments"), "2");
}

const SECRET: &str = "a-secret-of-the-provider";

/// What a provider sends with this body.
fn signed(secret: &str, id: &str, body: &str) -> [(&'static str, String); 3] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{id}.1790000000.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", "1790000000".to_owned()),
        ("webhook-signature", signature),
    ]
}

#[test]
fn a_webhook_is_verified_then_received_once() {
    let (receiver, _folder) = start(env!("CARGO_BIN_EXE_webhook"), &[("WEBHOOK_SECRET", SECRET)]);
    let deliver = |secret: &str, id: &str, body: &str| {
        let fields = signed(secret, id, body);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        receiver.ask("POST /webhooks", &fields, body)
    };
    // Somebody who is not the provider, before the event comes: the id is not used up.
    assert_eq!(deliver("guessed", "msg_1", "{}").0, 401);
    for delivery in 0..3 {
        let (status, answer) = deliver(SECRET, "msg_1", "{\"paid\": 100}");
        assert_eq!(status, 200, "{answer}");
        assert!(answer.ends_with("event 1 of 13 bytes\n"), "{delivery}: {answer}");
    }
    assert_eq!(deliver(SECRET, "msg_1", "{\"paid\": 999}").0, 422, "another event under the same id");
    assert_eq!(deliver(SECRET, "msg_2", "{\"paid\": 100}").0, 200);
    // What was recorded is for the provider alone, too.
    assert_eq!(deliver("guessed", "msg_1", "{\"paid\": 100}").0, 401);
    assert_eq!(receiver.get("/paid"), "2");
}
