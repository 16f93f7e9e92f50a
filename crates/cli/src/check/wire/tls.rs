//! TLS to an endpoint under https: the machine's own certificates, or one file the user trusts. Never "any".

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::failure::Failure;

/// Whose certificates are believed.
#[derive(Clone)]
pub(crate) struct Trust(TlsConnector);

impl Trust {
    /// The certificates in `file`, or those of the machine.
    pub(crate) fn new(file: Option<&Path>) -> Result<Self, Failure> {
        let mut roots = RootCertStore::empty();
        match file {
            Some(file) => add_file(&mut roots, file)?,
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        // Named outright: a binary with two providers must not have to guess.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::System(Box::new(error)))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(super) async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.0.connect(name, stream).await
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

fn add_file(roots: &mut RootCertStore, file: &Path) -> Result<(), Failure> {
    let name = file.display();
    let pem = crate::input::read_file(file)?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| Failure::Refused(format!("{name} is not PEM").into()))?;
        roots.add(certificate).map_err(|error| Failure::Refused(format!("{name}: {error}").into()))?;
    }
    if roots.is_empty() {
        return Err(Failure::Refused(format!("{name} holds no certificate").into()));
    }
    Ok(())
}
