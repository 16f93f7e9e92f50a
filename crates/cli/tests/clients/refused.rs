//! The Rust store client: TLS, tokens and HTTP/2, and what its failures say about the command that was sent.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use onlyonce_client::{ClaimsClient, ClaimsClientBuilder};
use onlyonce_core::{Owner, RecordId, Secret, Store as _, StoreErrorKind};
use onlyonce_testkit::{fixture, run};

use crate::service::Service;

const TOKENS: &str = r#"
[[token]]
secret = "a-token-for-engines"
scopes = ["store"]
[[token]]
secret = "a-token-for-claims"
scopes = ["claim", "read"]
"#;

fn patient(url: String) -> ClaimsClientBuilder {
    ClaimsClient::builder(url).within(Duration::from_mins(1))
}

#[test]
fn it_speaks_tls_shows_its_token_and_is_refused_without() {
    let folder = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) =
        (file("certificate", &own.cert.pem()), file("key", &own.signing_key.serialize_pem()));
    let tokens = file("tokens", TOKENS);
    let service = Service::start_with(&[
        "--store",
        "memory:",
        "--tokens",
        &tokens,
        "--tls-certificate",
        &certificate,
        "--tls-key",
        &key,
    ]);
    let client = || {
        let url = format!("https://127.0.0.1:{}", service.port());
        patient(url).authorities_pem(own.cert.pem())
    };
    run(async {
        let store = client().token("a-token-for-engines").connect().await.unwrap();
        let first = store.secret(&Secret::new([1; 32])).await.unwrap();
        let again = store.secret(&Secret::new([2; 32])).await.unwrap();
        assert_eq!(first.expose(), again.expose(), "it is the same store");
        for refused in [client(), client().token("a-token-for-claims"), client().token("another-token")] {
            let error = refused.connect().await.unwrap_err();
            assert_eq!((error.kind(), error.outcome_unknown()), (StoreErrorKind::Misuse, false), "{error:?}");
        }
        // The certificate is nobody's who is trusted by this machine: no connection, so nothing was done.
        let strangers = patient(format!("https://127.0.0.1:{}", service.port())).token("a-token-for-engines");
        let error = strangers.connect().await.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
    });
}

#[test]
fn it_speaks_http2_on_clear_text() {
    let service = Service::start("memory:");
    run(async {
        let store = patient(service.url()).http2().connect().await.unwrap();
        assert_eq!(store.lookup(&fixture::any_id()).await.unwrap(), None);
    });
}

#[test]
fn its_failures_say_whether_the_command_may_have_been_applied() {
    let mut service = Service::start("memory:");
    run(async {
        let store = patient(service.url()).connect().await.unwrap();
        let claim = claim();
        service.kill();
        // Nobody listens: nothing was sent. A connection that was kept and broke may have carried it.
        let mut error = store.claim(&claim).await.unwrap_err();
        while error.outcome_unknown() {
            error = store.claim(&claim).await.unwrap_err();
        }
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}");
        assert!(error.is_retryable());
        service.start_again();
        store.claim(&claim).await.unwrap();
    });
    // Somebody listens and never answers: nobody knows.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    run(async {
        let url = format!("http://{}", deaf.local_addr().unwrap());
        let client = ClaimsClient::builder(url).within(Duration::from_millis(50));
        let error = client.connect().await.unwrap_err();
        assert_eq!((error.kind(), error.outcome_unknown()), (StoreErrorKind::TimedOut, true), "{error:?}");
    });
}

fn claim() -> onlyonce_core::transition::Claim {
    let terms = std::sync::Arc::new(onlyonce_core::Terms::default());
    let (id, owner): (RecordId, Owner) = (fixture::any_id(), Owner::random().unwrap());
    onlyonce_core::transition::Claim { id, owner, fingerprint: fixture::fingerprint(b"body"), terms }
}
