//! `[admin]`: where health, metrics and the records API are, who may ask, and where commands are audited.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::file::TlsSection;
use super::settings::{DoorSettings, TlsFiles, door, tls};
use super::{Config, ConfigError};
use crate::listen::ListenAddress;

/// The shortest token that is taken: what can be guessed protects nothing.
const TOKEN_BYTES_MIN: usize = 16;
/// Operators, probes and Prometheus: few, and none of them may crowd the others out of file descriptors.
const CONNECTIONS_MAX: usize = 100;

/// `[admin]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminSection {
    /// Where health and metrics are. Default: nowhere.
    pub listen: Option<ListenAddress>,
    /// What those who ask must show, as `Authorization: Bearer`. Needed off loopback.
    pub token: Option<String>,
    /// The file that operators' commands are written to before they run. Default: beside a `file:` store; with any other
    /// store, commands are refused until it is named.
    pub audit: Option<PathBuf>,
    /// The certificate and its chain (PEM). With it, the admin side speaks TLS only.
    pub tls_certificate: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// Those who ask must show a certificate that one of these signed. The token is asked for all the same.
    pub tls_client_ca: Option<PathBuf>,
}

/// The admin side, when there is one.
#[derive(Clone)]
pub(crate) struct AdminSettings {
    pub(crate) door: DoorSettings,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) token: Option<String>,
    pub(crate) audit: Option<PathBuf>,
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "hidden");
        f.debug_struct("AdminSettings")
            .field("door", &self.door)
            .field("tls", &self.tls)
            .field("token", &token)
            .field("audit", &self.audit)
            .finish()
    }
}

impl Config {
    pub(super) fn admin_settings(&self) -> Result<Option<AdminSettings>, ConfigError> {
        let AdminSection { listen, token, audit, tls_certificate, tls_key, tls_client_ca } =
            &self.merged.admin;
        let Some(listen) = listen.clone() else {
            let set = [
                ("admin.token", token.is_some()),
                ("admin.audit", audit.is_some()),
                ("admin.tls_certificate", tls_certificate.is_some()),
                ("admin.tls_key", tls_key.is_some()),
                ("admin.tls_client_ca", tls_client_ca.is_some()),
            ];
            return match set.iter().find(|(_, is_set)| *is_set) {
                None => Ok(None),
                Some((field, _)) => Err(ConfigError::field(*field, "is set, but admin.listen is not")),
            };
        };
        let files = TlsSection {
            certificate: tls_certificate.clone(),
            key: tls_key.clone(),
            client_ca: tls_client_ca.clone(),
        };
        match token {
            None if !listen.is_local() => {
                let problem = format!("{listen} can be reached from other machines: set admin.token too");
                Err(ConfigError::field("admin.listen", problem))
            }
            Some(token) if token.len() < TOKEN_BYTES_MIN => {
                Err(ConfigError::field("admin.token", format!("is shorter than {TOKEN_BYTES_MIN} bytes")))
            }
            Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(ConfigError::field("admin.token", "has bytes that no Authorization field can carry"))
            }
            token => {
                let door = door(&self.merged.proxy, listen, CONNECTIONS_MAX)?;
                let tls = tls("admin.tls_", &files)?;
                Ok(Some(AdminSettings { door, tls, token: token.clone(), audit: self.audit_file() }))
            }
        }
    }

    /// The file that operators' commands are audited in: the one that is named, or one beside a store that is a folder.
    pub(crate) fn audit_file(&self) -> Option<PathBuf> {
        let beside = || {
            let folder = self.merged.store.url.as_deref()?.strip_prefix("file:")?;
            Some(format!("{}.audit.jsonl", folder.trim_end_matches('/')).into())
        };
        self.merged.admin.audit.clone().or_else(beside)
    }
}
