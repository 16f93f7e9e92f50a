//! Where the requests go: a URL, taken apart, and whether it is this machine.

use std::net::SocketAddr;
use std::str::FromStr;

use http::Uri;

/// An endpoint: how to reach it, and what to ask it for.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) tls: bool,
    /// The name to look up and to check the certificate for: no brackets, no port.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What the `Host` field says.
    pub(crate) authority: String,
    /// The path and the query.
    pub(crate) path: String,
    url: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(format!("{other}: is not http: or https:")),
            None => return Err("a URL starts with http:// or https://".to_owned()),
        };
        let authority = uri.authority().ok_or("the URL names no host")?;
        if authority.as_str().contains('@') {
            return Err("a URL with a user name in it: use --header 'Authorization: …'".to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err("the URL names no host".to_owned());
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { tls, host, port, authority: authority.to_string(), path, url: text.to_owned() })
    }
}

impl Target {
    /// The URL as the user gave it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The same path with one more query parameter: another URI of the same endpoint.
    pub(crate) fn other_path(&self) -> String {
        let joint = if self.path.contains('?') { '&' } else { '?' };
        format!("{}{joint}onlyonce-check=other", self.path)
    }

    /// The addresses behind the name.
    pub(crate) async fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target: Target = "https://[::1]:8443/v1/payments?x=1".parse().unwrap();
        assert!(target.tls);
        assert_eq!((target.host.as_str(), target.port), ("::1", 8443));
        assert_eq!(target.authority, "[::1]:8443");
        assert_eq!(target.other_path(), "/v1/payments?x=1&onlyonce-check=other");
        let target: Target = "http://example.test".parse().unwrap();
        assert_eq!((target.port, target.path.as_str()), (80, "/"));
        assert_eq!(target.other_path(), "/?onlyonce-check=other");
    }

    #[test]
    fn what_is_not_a_url_of_ours_is_refused() {
        for bad in ["", "localhost:80", "/x", "ftp://a/", "http://", "http://u:p@h/", "http://a b/"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
