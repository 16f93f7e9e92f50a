//! Clients of the claims API that must show a certificate: without one there is no answer, and with one the token still
//! says who they are.

use std::process::Command;

use serde_json::{Value, json};

use crate::authority::Authority;
use crate::running::{Service, two_tenants};

/// Claims `key` through curl: its exit code, the status and the answer.
fn claim(service: &Service, owner: char, options: &[&str]) -> (Option<i32>, String, Value) {
    let body = json!({ "key": "k", "owner": owner.to_string().repeat(32) }).to_string();
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "120",
            "--write-out",
            "\n%{http_version} %{http_code}",
        ])
        .args(["--header", "content-type: application/json", "--data", &body])
        .args(options)
        .arg(format!("https://{}/v1/claims", service.address))
        .output()
        .expect("curl is installed");
    let told = String::from_utf8(output.stdout).unwrap();
    let (answer, status) = told.rsplit_once('\n').unwrap();
    (output.status.code(), status.to_owned(), serde_json::from_str(answer).unwrap_or_default())
}

#[test]
fn who_shows_no_certificate_of_ours_claims_nothing_and_the_token_says_who_claims() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let [certificate, key] = servers.signed("127.0.0.1");
    let ([worker, its_key], [mallory, his_key]) = (clients.signed("worker"), strangers.signed("mallory"));
    let (ca, client_ca) = (servers.file(), clients.file());
    let tokens = two_tenants(folder.path()).display().to_string();
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key, "--tls-client-ca", &client_ca];
    let service = Service::start(&[&["--store", "memory:", "--tokens", &tokens], &tls[..]].concat());

    let by_alice = ["--cacert", &ca, "--header", "authorization: Bearer alice-alice-alice"];
    let by_bob = ["--cacert", &ca, "--header", "authorization: Bearer bob-bob-bob-bob-bob"];
    let shown = ["--cert", &worker, "--key", &its_key];
    for strange in [&[][..], &["--cert", &mallory, "--key", &his_key]] {
        let (code, _, answer) = claim(&service, '1', &[&by_alice[..], strange].concat());
        assert!(code != Some(0) && answer.is_null(), "{strange:?}: {answer}");
    }
    // Refused before the body is read, whether it has come by then or not.
    let mut cut_short = 0;
    for _ in 0..30 {
        let (code, status, answer) = claim(&service, '2', &[&["--cacert", &ca], &shown[..]].concat());
        assert_eq!(status, "2 401", "a certificate is no token: {code:?} {answer}");
        // curl stops sending when it is refused. If that is before the body, it has said a length that it does not send:
        // the stream is reset, as RFC 9113 §8.1.1 wants it, and curl fails, but it knows the status.
        if code == Some(92) {
            cut_short += 1;
            continue;
        }
        assert_eq!((code, &answer["status"]), (Some(0), &json!(401)), "{answer}");
    }
    assert!(cut_short < 10, "{cut_short} of 30 knew no more than the status");
    // Nothing was claimed by those who were refused: this is the first attempt.
    let (code, status, granted) = claim(&service, '3', &[&by_alice[..], &shown].concat());
    assert_eq!(
        (code, status.as_str(), &granted["answer"]),
        (Some(0), "2 200", &json!("granted")),
        "{granted}"
    );
    assert_eq!(granted["attempt"], 1, "{granted}");
    let (_, _, busy) = claim(&service, '4', &[&by_alice[..], &shown].concat());
    assert_eq!(busy["answer"], "busy", "{busy}");
    // The same certificate with another token is another tenant.
    let (_, _, granted) = claim(&service, '5', &[&by_bob[..], &shown].concat());
    assert_eq!(granted["answer"], "granted", "{granted}");
}
