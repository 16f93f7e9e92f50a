//! TLS on both sides, by rustls on ring: certificates from files, ALPN for HTTP/2 and HTTP/1.1, no 0-RTT.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsFiles;

/// A certificate, a key or a list of them cannot be used.
#[derive(Debug)]
pub struct TlsError {
    path: Option<PathBuf>,
    problem: String,
}

impl TlsError {
    fn file(path: &Path, problem: impl fmt::Display) -> Self {
        Self { path: Some(path.to_owned()), problem: problem.to_string() }
    }

    fn other(problem: impl fmt::Display) -> Self {
        Self { path: None, problem: problem.to_string() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "TLS: {}: {}", path.display(), self.problem),
            None => write!(f, "TLS: {}", self.problem),
        }
    }
}

impl std::error::Error for TlsError {}

/// Which HTTP versions are offered, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Both,
    Http1,
    Http2,
}

impl Offer {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::Http2 => vec![b"h2".to_vec()],
        }
    }
}

/// Whom a server is trusted by, and who we say we are: files in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The server's certificate must be signed by one of these. Without it: by what the machine trusts.
    pub ca: Option<PathBuf>,
    /// What we show a server that asks: the certificate with its chain, and its private key.
    pub shown: Option<(PathBuf, PathBuf)>,
}

impl Trust {
    /// By `ca`, or by what the machine trusts; nothing is shown.
    pub(crate) fn in_ca(ca: Option<&Path>) -> Self {
        Self { ca: ca.map(Path::to_owned), shown: None }
    }
}

/// What a listener shows, where it has files to show. With `client_ca`, clients must show a certificate that it signed.
pub(crate) fn server(files: Option<&TlsFiles>) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let Some(TlsFiles { certificate, key, client_ca }) = files else { return Ok(None) };
    let (chain, private) = identity(certificate, key)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::other)?;
    let builder = match client_ca.as_deref() {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::file(ca, error))?)
        }
    };
    let mut config =
        builder.with_single_cert(chain, private).map_err(|error| TlsError::file(certificate, error))?;
    config.alpn_protocols = Offer::Both.protocols();
    // What comes as early data can be sent again by anybody: that is what this program is against.
    config.max_early_data_size = 0;
    Ok(Some(Arc::new(config)))
}

/// How a server elsewhere is spoken to.
pub(crate) fn client(trust: &Trust, offer: Offer) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match trust.ca.as_deref() {
        Some(ca) => roots(ca)?,
        None => {
            let mut store = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(TlsError::other(
                    "this machine trusts no certificates: name a file of those that the server's is signed by",
                ));
            }
            store
        }
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::other)?
        .with_root_certificates(roots);
    let mut config = match &trust.shown {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, private) = identity(certificate, key)?;
            let built = builder.with_client_auth_cert(chain, private);
            built.map_err(|error| TlsError::file(certificate, error))?
        }
    };
    config.alpn_protocols = offer.protocols();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

/// Named for each configuration: a process-wide default would be somebody else's to set.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate with its chain, and its private key.
fn identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::file(key, error))?;
    Ok((chain, private))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| TlsError::file(path, error))?;
    }
    Ok(store)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| TlsError::file(path, error))?;
    let list: Result<Vec<_>, _> = read.collect();
    let list = list.map_err(|error| TlsError::file(path, error))?;
    if list.is_empty() {
        return Err(TlsError::file(path, "there is no certificate in it"));
    }
    Ok(list)
}
