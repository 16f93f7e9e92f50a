//! Who a client certificate names, for `principal = "mtls"`.

use onlyonce_http::Identity;
use rustls_pki_types::CertificateDer;

use crate::listen::Connection;

/// The identity that the client's certificate shows: its names, which a renewal keeps, and never its serial number or
/// its key, which a renewal changes between two tries.
pub(super) fn identity(connection: &Connection) -> Option<Identity> {
    let der = CertificateDer::from(connection.certificate()?);
    let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
    let mut names: Vec<String> = certificate.valid_uri_names().map(|name| format!("uri:{name}\n")).collect();
    names.extend(certificate.valid_dns_names().map(|name| format!("dns:{name}\n")));
    names.sort();
    let mut bytes = names.concat().into_bytes();
    if bytes.is_empty() {
        bytes = [b"subject:".as_slice(), certificate.subject()].concat();
    }
    Some(Identity::new(bytes))
}
