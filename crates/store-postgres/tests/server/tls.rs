//! Over TLS a server's certificate is verified, with its name.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use onlyonce_store_postgres::{OpenErrorKind, PostgresStore};
use onlyonce_testkit::servers::PostgresServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::stage::{block_on, claim_of, client, granted, open, options, server};

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// Gives the server a certificate for `name` and starts it again.
fn certify(server: &PostgresServer, authority: &CertifiedIssuer<'static, KeyPair>, name: &str) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let folder = server.folder();
    let owner = fs::metadata(folder).expect("a folder");
    for (file, text) in [("server.crt", certificate.pem()), ("server.key", key.serialize_pem())] {
        let path = folder.join("cluster").join(file);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
        chown(&path, Some(owner.uid()), Some(owner.gid())).expect("an owner");
    }
    fs::write(folder.join("cluster/postgresql.auto.conf"), "ssl = on\n").expect("a setting");
    server.restart().expect("the server starts again");
}

#[test]
fn a_certificate_is_verified_with_its_name() {
    let server = server(&[]);
    let (trusted, other) = (authority("trusted"), authority("other"));
    let file = |name: &str, authority: &CertifiedIssuer<'static, KeyPair>| {
        let path = server.folder().join(name);
        fs::write(&path, authority.pem()).expect("a file");
        path.display().to_string()
    };
    let (trusted_file, other_file) = (file("trusted.pem", &trusted), file("other.pem", &other));
    let url = |roots: &str| {
        let port = server.port();
        format!("postgres://onlyonce@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={roots}")
    };
    certify(&server, &trusted, "localhost");
    block_on(async {
        let store = open(&url(&trusted_file)).await;
        granted(&store, &claim_of(1)).await;
        let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
            WHERE application_name = 'onlyonce'";
        let row = client(&server).await.query_one(encrypted, &[]).await.expect("an answer");
        assert!(row.get::<_, bool>(0), "a connection is in the clear");

        let stranger = PostgresStore::open(options(&url(&other_file))).await.expect_err("another authority");
        assert_eq!(stranger.kind(), OpenErrorKind::Unavailable);
        let missing = PostgresStore::open(options(&url("/no/such/file"))).await.expect_err("no file");
        assert_eq!(missing.kind(), OpenErrorKind::Settings);
    });
    certify(&server, &trusted, "elsewhere.example");
    block_on(async {
        let renamed = PostgresStore::open(options(&url(&trusted_file))).await.expect_err("another name");
        assert_eq!(renamed.kind(), OpenErrorKind::Unavailable);
    });
}
