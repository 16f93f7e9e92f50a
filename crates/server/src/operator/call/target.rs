//! The paths of the records API, read and written in one place.

use std::fmt::Write as _;

use http::Method;
use onlyonce_core::RecordId;

use crate::refusal::Refusal;

/// What a path of the records API is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Records,
    Record(RecordId),
    Find,
    Resolve(RecordId),
    Release(RecordId),
    Erase(RecordId),
    ErasePrincipal,
    Purge,
    Stats,
    Audit,
}

impl Target {
    /// What `path` is for; `None` when it is none of ours.
    pub(crate) fn read(path: &str) -> Option<Result<Self, Refusal>> {
        let mut parts = path.strip_prefix("/api/")?.split('/');
        let of_record = |id: &str, make: fn(RecordId) -> Self| {
            id.parse().map(make).map_err(|_| Refusal::invalid("an id has 64 hexadecimal digits"))
        };
        Some(match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            ("records", None, ..) => Ok(Self::Records),
            ("records", Some(id), None, _) => of_record(id, Self::Record),
            ("records", Some(id), Some("resolve"), None) => of_record(id, Self::Resolve),
            ("records", Some(id), Some("release"), None) => of_record(id, Self::Release),
            ("records", Some(id), Some("erase"), None) => of_record(id, Self::Erase),
            ("find", None, ..) => Ok(Self::Find),
            ("erase", None, ..) => Ok(Self::ErasePrincipal),
            ("purge", None, ..) => Ok(Self::Purge),
            ("stats", None, ..) => Ok(Self::Stats),
            ("audit", None, ..) => Ok(Self::Audit),
            _ => return None,
        })
    }

    /// The one method that it is asked with.
    pub(crate) const fn method(self) -> Method {
        match self {
            Self::Records | Self::Record(_) | Self::Stats | Self::Audit => Method::GET,
            _ => Method::POST,
        }
    }

    pub(crate) fn path(self) -> String {
        match self {
            Self::Records => "/api/records".to_owned(),
            Self::Record(id) => format!("/api/records/{id}"),
            Self::Find => "/api/find".to_owned(),
            Self::Resolve(id) => format!("/api/records/{id}/resolve"),
            Self::Release(id) => format!("/api/records/{id}/release"),
            Self::Erase(id) => format!("/api/records/{id}/erase"),
            Self::ErasePrincipal => "/api/erase".to_owned(),
            Self::Purge => "/api/purge".to_owned(),
            Self::Stats => "/api/stats".to_owned(),
            Self::Audit => "/api/audit".to_owned(),
        }
    }
}

/// A query as it is written behind a path; nothing when it is empty.
pub(crate) fn query(pairs: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    text.push(char::from(byte));
                }
                _ => {
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_read_as_it_is_written() {
        let id = RecordId::from_bytes([7; 32]);
        let all = [
            Target::Records,
            Target::Record(id),
            Target::Find,
            Target::Resolve(id),
            Target::Release(id),
            Target::Erase(id),
            Target::ErasePrincipal,
            Target::Purge,
            Target::Stats,
            Target::Audit,
        ];
        for target in all {
            let read = Target::read(&target.path()).expect("a path of ours");
            assert_eq!(read.expect("a good id"), target);
        }
        for path in ["/api", "/api/", "/api/records/", "/api/find/x", "/records", "/api/nothing"] {
            assert!(!matches!(Target::read(path), Some(Ok(_))), "{path}");
        }
    }

    #[test]
    fn what_is_not_plain_is_escaped() {
        let pairs = [("older_than", "1h 30m".to_owned()), ("who", "a&b=é".to_owned())];
        assert_eq!(query(&pairs), "?older_than=1h%2030m&who=a%26b%3D%C3%A9");
        assert_eq!(query(&[]), "");
    }
}
