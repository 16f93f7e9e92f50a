//! Where to listen: a TCP address, or `unix:PATH`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream};

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ListenAddress {
    /// An IP address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: needs a path, as in unix:/run/onlyonce.sock".to_owned()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!("`{text}` is neither an address such as 127.0.0.1:8080 or [::1]:8080 nor unix:PATH")
        })
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// How many connections may wait to be accepted; the kernel lets no more wait than `net.core.somaxconn`. With the usual 128, a
/// burst of clients that come back after a restart does not fit, and who finds no place tries again a second later.
const WAITING_MAX: u32 = 4096;

/// A bound socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket's file, which goes when we do.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good as removed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An accepted connection, still in clear.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listener {
    pub(crate) fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => {
                let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                // The connections of a process that has just ended do not keep the next one from the address.
                socket.set_reuseaddr(true)?;
                ask_now_and_then(&socket)?;
                socket.bind(*address)?;
                Ok(Self::Tcp(socket.listen(WAITING_MAX)?))
            }
            ListenAddress::Unix(path) => {
                remove_dead_socket(path)?;
                let socket = UnixSocket::new_stream()?;
                socket.bind(path)?;
                let file = SocketFile(path.clone());
                Ok(Self::Unix(socket.listen(WAITING_MAX)?, file))
            }
        }
    }

    /// Where it listens, with the port that was taken.
    pub(crate) fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            Self::Unix(_, file) => Ok(ListenAddress::Unix(file.0.clone())),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are written whole: waiting for more to send would only delay them.
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream, peer))
            }
            Self::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

/// Has the kernel ask the silent clients of a listening socket whether they are still there. What has switched protocols may
/// be silent for hours, and has a place meanwhile; a client that vanished without a word would have it for ever.
fn ask_now_and_then(socket: &TcpSocket) -> io::Result<()> {
    let asking = TcpKeepalive::new()
        .with_time(Duration::from_mins(1))
        .with_interval(Duration::from_secs(20))
        .with_retries(3);
    // Connections inherit it.
    SockRef::from(socket).set_tcp_keepalive(&asking)
}

/// Removes a socket that a killed process left behind. One that answers is somebody's.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;

    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            _ => Err(io::ErrorKind::AddrInUse.into()),
        },
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for good in ["127.0.0.1:0", "[::1]:8080", "0.0.0.0:80", "unix:/run/a.sock", "unix:a.sock"] {
            assert_eq!(good.parse::<ListenAddress>().unwrap().to_string(), good);
        }
        for bad in ["", "8080", ":8080", "localhost:8080", "127.0.0.1", "unix:", "http://127.0.0.1:80"] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_silent_client_is_asked_whether_it_is_still_there() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let ListenAddress::Tcp(address) = listener.address().unwrap() else { unreachable!("TCP") };
        let _client = TcpStream::connect(address).await.unwrap();
        let Accepted::Tcp(stream, _) = listener.accept().await.unwrap() else { unreachable!("TCP") };
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_mins(1));
    }

    #[tokio::test]
    async fn a_burst_of_clients_may_wait_to_be_accepted() {
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = most.trim().parse().unwrap_or(300).min(300);
        let folder = tempfile::tempdir().unwrap();
        let unix = ListenAddress::Unix(folder.path().join("burst.sock"));
        for address in [unix, "127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()] {
            // Nobody accepts.
            let listener = Listener::bind(&address).unwrap();
            let (mut tcp, mut unix) = (Vec::new(), Vec::new());
            for number in 0..burst {
                // Who finds no place is never let in here.
                let waits = Duration::from_secs(10);
                match listener.address().unwrap() {
                    ListenAddress::Tcp(address) => {
                        let connected = timeout(waits, TcpStream::connect(address)).await;
                        tcp.push(connected.unwrap_or_else(|_| panic!("no place for {number}")).unwrap());
                    }
                    ListenAddress::Unix(path) => unix.push(UnixStream::connect(path).await.unwrap()),
                }
            }
        }
    }
}
