//! A certificate authority of a test's own, and what it signs, as files.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// Signs certificates, each in a file of its own until this goes.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        // A name that no other has: clients look for signers by name.
        params.distinguished_name.push(DnType::CommonName, folder.path().to_str().unwrap());
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { folder, issuer }
    }

    /// The file of its own certificate.
    pub(crate) fn file(&self) -> String {
        self.written("authority.pem", &self.issuer.pem())
    }

    /// A certificate for `name`, a host or an address: the file of it, and that of its key.
    pub(crate) fn signed(&self, name: &str) -> [String; 2] {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // Another subject than the authority's: else it would look as if it had signed itself.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [
            self.written(&format!("{name}.pem"), &certificate.pem()),
            self.written(&format!("{name}.key"), &key.serialize_pem()),
        ]
    }

    fn written(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}
