//! TLS to a real server: the certificate is checked, and ours is shown where it is asked for.

use std::fs;
use std::path::{Path, PathBuf};

use onlyonce_store_redis::{Options, TlsFiles};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{Port, RedisOptions, RedisServer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::stage::{Home, complete_one, patient};

/// An authority and what it signed, as files.
struct Papers {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let papers = Self { folder: tempfile::tempdir().expect("a folder"), issuer };
        fs::write(papers.authority(), papers.issuer.pem()).expect("a file");
        papers
    }

    fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A certificate for `name` and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        fs::write(file("pem"), certificate.pem()).expect("a file");
        fs::write(file("key"), key.serialize_pem()).expect("a file");
        (file("pem"), file("key"))
    }
}

/// A server with a certificate for `name`, and its port for TLS.
fn serve(papers: &Papers, name: &str, asks_for_ours: bool) -> (RedisServer, Port) {
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let (certificate, key) = papers.sign(name);
    let port = Port::free().expect("a port");
    let options = RedisOptions::default()
        .with("tls-port", &port.get().to_string())
        .with("tls-cert-file", &text(&certificate))
        .with("tls-key-file", &text(&key))
        .with("tls-ca-cert-file", &text(&papers.authority()))
        .with("tls-auth-clients", if asks_for_ours { "yes" } else { "no" });
    (RedisServer::start(options).expect("a server"), port)
}

fn trusting(papers: &Papers, identity: Option<(PathBuf, PathBuf)>) -> Options {
    Options { tls: TlsFiles { authority: Some(papers.authority()), identity }, ..patient() }
}

#[test]
fn records_travel_over_tls_to_whom_we_trust_only() {
    run(async {
        let papers = Papers::new();
        let (_server, port) = serve(&papers, "127.0.0.1", false);
        let (home, url) = (Home::new(), format!("rediss://127.0.0.1:{}", port.get()));
        let store = home.connect(&url, trusting(&papers, None)).await.expect("the store opens");
        complete_one(&*store).await;
        home.connect(&url, patient()).await.expect_err("nobody we know signed it");
        home.connect(&url, trusting(&Papers::new(), None)).await.expect_err("another authority did");
        let (_server, port) = serve(&papers, "elsewhere.example", false);
        let url = format!("rediss://127.0.0.1:{}", port.get());
        home.connect(&url, trusting(&papers, None)).await.expect_err("it is another's certificate");
    });
}

#[test]
fn our_certificate_is_shown_where_it_is_asked_for() {
    run(async {
        let papers = Papers::new();
        let (_server, port) = serve(&papers, "127.0.0.1", true);
        let (home, url) = (Home::new(), format!("rediss://127.0.0.1:{}", port.get()));
        home.connect(&url, trusting(&papers, None)).await.expect_err("we showed none");
        let identity = Some(papers.sign("onlyonce.example"));
        let store = home.connect(&url, trusting(&papers, identity)).await.expect("the store opens");
        complete_one(&*store).await;
        let missing = TlsFiles { authority: Some(papers.folder.path().join("missing.pem")), identity: None };
        let error =
            home.connect(&url, Options { tls: missing, ..patient() }).await.expect_err("no such file");
        assert!(format!("{error:?}").contains("missing.pem"), "{error:?}");
    });
}
