//! From a URL to the servers it names. Never shows a password.

use onlyonce_core::{StoreError, StoreErrorKind};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion};

use crate::options::Options;

/// What a URL names.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// `redis://` or `rediss://`: this server.
    One(ConnectionInfo),
    /// `redis-sentinel://`: whichever server the Sentinels call the master of this name.
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, like: ConnectionInfo },
    /// `redis-cluster://`: the masters of the cluster that these servers belong to.
    Cluster { seeds: Vec<ConnectionInfo> },
}

/// The port of a Sentinel when none is named.
const SENTINEL_PORT: u16 = 26379;

/// The forms that there are, for the message that refuses another one.
const FORMS: &str = "redis://HOST:PORT[/DB], rediss://…, redis-sentinel://HOST:PORT,…/NAME[/DB], \
                     redis-cluster://HOST:PORT,… (each with [USER:PASSWORD@], the last two with ?tls=true)";

impl Target {
    pub(crate) fn parse(url: &str, options: &Options) -> Result<Self, StoreError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if hosts.is_empty() {
            return Err(wrong("it names no host"));
        }
        let tls = match query {
            "" | "tls=false" => scheme == "rediss",
            "tls=true" => true,
            other => {
                // Its name only: a value could be a password.
                let name = other.split(['=', '&']).next().unwrap_or_default();
                return Err(wrong(&format!(
                    "its parameter `{name}` is not one; tls=true is the only one, the rest is set in the configuration"
                )));
            }
        };
        let at = |host: &str, port: u16, db: &str| server(credentials, host, port, db, tls, options);
        match scheme {
            "redis" | "rediss" if hosts.contains(',') => {
                Err(wrong("more than one host needs redis-sentinel:// or redis-cluster://"))
            }
            "redis" | "rediss" => Ok(Self::One(at(hosts, 6379, path)?)),
            "redis-sentinel" => {
                let (name, db) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(wrong("the name of the master is missing: redis-sentinel://HOSTS/NAME"));
                }
                let like = at("localhost", 6379, db)?;
                let sentinels: Result<_, _> =
                    hosts.split(',').map(|host| server("", host, SENTINEL_PORT, "", tls, options)).collect();
                Ok(Self::Sentinel { sentinels: sentinels?, name: name.to_owned(), like })
            }
            "redis-cluster" if !path.is_empty() => {
                Err(wrong("a cluster has one database: leave the path out"))
            }
            "redis-cluster" => {
                let seeds: Result<_, _> = hosts.split(',').map(|host| at(host, 6379, "")).collect();
                Ok(Self::Cluster { seeds: seeds? })
            }
            _ => Err(wrong("the scheme is not one of ours")),
        }
    }
}

/// The same server settings at another address.
pub(crate) fn moved_to(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    like.clone().set_addr(address)
}

fn server(
    credentials: &str,
    host: &str,
    default_port: u16,
    db: &str,
    tls: bool,
    options: &Options,
) -> Result<ConnectionInfo, StoreError> {
    let scheme = if tls { "rediss" } else { "redis" };
    let credentials = if credentials.is_empty() { String::new() } else { format!("{credentials}@") };
    // An address in brackets has colons of its own.
    let has_port = host.rsplit(']').next().unwrap_or_default().contains(':');
    let port = if has_port { String::new() } else { format!(":{default_port}") };
    let url = format!("{scheme}://{credentials}{host}{port}/{db}");
    // Our own text, and not the error's: it could show the URL.
    let info =
        url.into_connection_info().map_err(|_| wrong("a host, port, database or password is not one"))?;
    let settings = info.redis_settings().clone();
    let settings =
        settings.set_protocol(ProtocolVersion::RESP3).set_lib_name("onlyonce", env!("CARGO_PKG_VERSION"));
    let info = info.set_redis_settings(settings);
    if tls { with_certificates(info, options) } else { Ok(info) }
}

#[cfg(feature = "tls")]
fn with_certificates(info: ConnectionInfo, options: &Options) -> Result<ConnectionInfo, StoreError> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| {
            StoreError::new(StoreErrorKind::Misuse, "reading the TLS files of the Redis store")
                .because(format!("{}: {error}", path.display()))
        })
    };
    let root_cert = options.tls.authority.as_ref().map(read).transpose()?;
    let client_tls = match &options.tls.identity {
        Some((certificate, key)) => {
            Some(redis::ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        None => None,
    };
    let certificates = redis::TlsCertificates { client_tls, root_cert };
    let client = redis::Client::build_with_tls(info, certificates).map_err(|error| {
        StoreError::new(StoreErrorKind::Misuse, "reading the TLS files of the Redis store").because(error)
    })?;
    Ok(client.get_connection_info().clone())
}

#[cfg(not(feature = "tls"))]
fn with_certificates(_: ConnectionInfo, _: &Options) -> Result<ConnectionInfo, StoreError> {
    Err(wrong("TLS is not in this build: the feature `tls` of onlyonce-store-redis is off"))
}

fn wrong(problem: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Misuse, "reading the URL of the Redis store")
        .because(format!("{problem}; there are {FORMS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, StoreError> {
        Target::parse(url, &Options::default())
    }

    fn addresses(servers: &[ConnectionInfo]) -> Vec<String> {
        servers.iter().map(|server| server.addr().to_string()).collect()
    }

    #[test]
    fn every_form_is_read() {
        let Ok(Target::One(one)) = parse("redis://user:p%40ss@db.example:6380/3") else { panic!("one") };
        assert_eq!(one.addr().to_string(), "db.example:6380");
        assert_eq!((one.redis_settings().password(), one.redis_settings().db()), (Some("p@ss"), 3));
        let Ok(Target::One(one)) = parse("redis://[::1]") else { panic!("an address of six") };
        assert_eq!(one.addr().to_string(), "::1:6379");
        let Ok(Target::Sentinel { sentinels, name, like }) = parse("redis-sentinel://:pw@a,b:7/main/2")
        else {
            panic!("sentinels")
        };
        assert_eq!((addresses(&sentinels), name.as_str()), (vec!["a:26379".into(), "b:7".into()], "main"));
        assert_eq!((like.redis_settings().password(), like.redis_settings().db()), (Some("pw"), 2));
        assert_eq!(
            sentinels[0].redis_settings().password(),
            None,
            "the Sentinels are not shown the password"
        );
        let Ok(Target::Cluster { seeds }) = parse("redis-cluster://a:1,b:2") else { panic!("a cluster") };
        assert_eq!(addresses(&seeds), ["a:1", "b:2"]);
        assert_eq!(moved_to(&seeds[0], "c", 9).addr().to_string(), "c:9");
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for bad in [
            "localhost",
            "redis://",
            "redis://a,b",
            "redis-sentinel://a:1",
            "redis-cluster://a/1",
            "http://a",
            "redis://:secret@a/not-a-number",
            "redis://:secret@a?timeout=5",
        ] {
            let error = parse(bad).expect_err(bad);
            let text = format!("{error:?}");
            assert_eq!(error.kind(), StoreErrorKind::Misuse);
            assert!(!text.contains("secret") && text.contains("redis-cluster://"), "{text}");
        }
        let text = format!("{:?}", parse("redis://a?acknowledgement=hidden").expect_err("no such parameter"));
        assert!(text.contains("`acknowledgement`") && !text.contains("hidden"), "{text}");
    }
}
