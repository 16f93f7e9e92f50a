//! `[admin]`: where health and metrics are, and who may ask.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::settings::{DoorSettings, door};
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
}

/// The admin side, when there is one.
#[derive(Clone)]
pub(crate) struct AdminSettings {
    pub(crate) door: DoorSettings,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "hidden");
        f.debug_struct("AdminSettings").field("door", &self.door).field("token", &token).finish()
    }
}

impl Config {
    pub(super) fn admin_settings(&self) -> Result<Option<AdminSettings>, ConfigError> {
        let AdminSection { listen, token } = &self.merged.admin;
        let Some(listen) = listen.clone() else {
            return match token {
                None => Ok(None),
                Some(_) => Err(ConfigError::field("admin.token", "is set, but admin.listen is not")),
            };
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
                Ok(Some(AdminSettings { door, token: token.clone() }))
            }
        }
    }
}
