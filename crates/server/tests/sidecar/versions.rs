//! HTTP/1.1 and HTTP/2, clear and encrypted, on both sides; client certificates as principals.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_server::ListenAddress;
use onlyonce_server::config::{Sources, UpstreamHttp};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::application::Application;
use crate::client::Wire;
use crate::stage::{Stage, flags, post};

/// A certificate for `name` that signs itself, and its key: files in `folder`.
pub(crate) fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed([name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn server_config(certificate: &Path, key: &Path, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_file(key).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

async fn tls(
    stage: &Stage,
    ca: &Path,
    protocols: &[&str],
    identity: Option<Identity>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key).unwrap(),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// One request over HTTP/2: status, whether it was replayed, body.
async fn over_h2(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    key: &str,
    body: &'static str,
) -> (StatusCode, Option<String>, Bytes) {
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    let serving = tokio::spawn(connection);
    let request = Request::post("http://shop.test/pay")
        .header("idempotency-key", key)
        .body(Full::new(Bytes::from_static(body.as_bytes())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let status = response.status();
    let replayed =
        response.headers().get("idempotency-replayed").map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    drop(sender);
    serving.abort();
    (status, replayed, body)
}

async fn clear(stage: &Stage) -> TcpStream {
    let ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_in_clear_on_both_sides() {
    let stage = Stage::with(|flags| flags.proxy.upstream_http = Some(UpstreamHttp::Http2)).await;
    for replayed in ["false", "true"] {
        let (status, mark, body) = over_h2(clear(&stage).await, "k", "1").await;
        assert_eq!((status, mark.as_deref(), &body[..]), (StatusCode::OK, Some(replayed), b"1:1".as_slice()));
    }
    let seen = stage.application.last();
    assert_eq!(seen.version, Version::HTTP_2);
    assert_eq!(seen.headers["x-forwarded-host"], "shop.test");
    // Another Host than the authority would be malformed.
    assert!(
        seen.headers.get("host").is_none_or(|host| host == stage.application.address.to_string().as_str())
    );
    // The same key by HTTP/1.1 is the same operation.
    let answer = stage.send(post("/pay", "k", "1")).await;
    assert_eq!(answer.header("idempotency-replayed"), Some("true"), "{answer:?}");
    assert_eq!(stage.application.effects(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_in_front_of_http_1_keeps_the_host() {
    let stage = Stage::new().await;
    let (status, ..) = over_h2(clear(&stage).await, "k", "1").await;
    assert_eq!(status, StatusCode::OK);
    let seen = stage.application.last();
    assert_eq!((seen.version, seen.headers["host"].as_bytes()), (Version::HTTP_11, b"shop.test".as_slice()));
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_on_both_sides_in_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path(), "localhost");
    for (protocols, version) in
        [(["h2", "http/1.1"].as_slice(), Version::HTTP_2), (&["http/1.1"], Version::HTTP_11)]
    {
        let application = Application::start_with(Some(server_config(&certificate, &key, protocols))).await;
        let mut flags = flags(&format!("https://localhost:{}", application.address.port()));
        flags.tls.certificate = Some(certificate.clone());
        flags.tls.key = Some(key.clone());
        flags.proxy.upstream_ca = Some(certificate.clone());
        let stage = Stage::start(application, Sources { flags, ..Sources::default() }).await;
        let stream = tls(&stage, &certificate, &["h2", "http/1.1"], None).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()), "HTTP/2 is preferred");
        assert_eq!(over_h2(stream, "k", "1").await.1.as_deref(), Some("false"));
        let stream = tls(&stage, &certificate, &["http/1.1"], None).await.unwrap();
        let mut wire = Wire::over(stream);
        wire.write(post("/pay", "k", "1")).await;
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, Some("true")));
        let seen = stage.application.last();
        assert_eq!((seen.version, &seen.headers["x-forwarded-proto"]), (version, &"https".parse().unwrap()));
        assert_eq!(stage.application.effects(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_with_a_certificate_nobody_trusts_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (theirs, key) = certificate(folder.path(), "localhost");
    let (other, _) = certificate(folder.path(), "other");
    let application = Application::start_with(Some(server_config(&theirs, &key, &["http/1.1"]))).await;
    let mut flags = flags(&format!("https://localhost:{}", application.address.port()));
    flags.proxy.upstream_ca = Some(other);
    let stage = Stage::start(application, Sources { flags, ..Sources::default() }).await;
    for _ in 0..2 {
        let answer = stage.send(post("/pay", "k", "1")).await;
        assert_eq!(answer.status, 502, "released each time: {answer:?}");
    }
    assert_eq!(stage.application.effects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_the_principal_and_a_renewed_one_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path(), "localhost");
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let ca_file = folder.path().join("clients.pem");
    fs::write(&ca_file, ca.pem()).unwrap();
    let client = |name: &str| {
        let mut params = CertificateParams::new([]).unwrap();
        params.subject_alt_names =
            vec![SanType::URI(format!("spiffe://shop.test/{name}").try_into().unwrap())];
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.signed_by(&key, &ca).unwrap().der().clone()];
        Some(Identity { chain, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() })
    };
    let stage = Stage::with(|flags| {
        flags.tls.certificate = Some(certificate.clone());
        flags.tls.key = Some(key);
        flags.tls.client_ca = Some(ca_file);
        flags.defaults.principal = Some("mtls".parse().unwrap());
    })
    .await;
    for (name, replayed) in [("alice", "false"), ("bob", "false"), ("alice", "true"), ("bob", "true")] {
        let mut wire = Wire::over(tls(&stage, &certificate, &["http/1.1"], client(name)).await.unwrap());
        wire.write(post("/pay", "k", "1")).await;
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, Some(replayed)), "{name}");
    }
    // Without one there is no connection; TLS 1.3 says so after the client's side is done.
    if let Ok(stream) = tls(&stage, &certificate, &["http/1.1"], None).await {
        let mut wire = Wire::over(stream);
        wire.write(post("/pay", "k", "1")).await;
        assert_eq!(wire.answer().await, None);
    }
    assert_eq!(stage.application.effects(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_handshake_that_never_comes_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path(), "localhost");
    let stage = Stage::with(|flags| {
        flags.tls.certificate = Some(certificate);
        flags.tls.key = Some(key);
        flags.proxy.first_byte_within = Some("200ms".parse().unwrap());
    })
    .await;
    assert_eq!(stage.connect().await.rest().await, "");
    let mut wire = stage.connect().await;
    wire.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(!wire.rest().await.contains("200"), "no clear text on an encrypted port");
}
