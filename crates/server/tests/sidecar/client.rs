//! A client that says exactly what a test wants said, byte by byte, and reads what comes back.

use std::time::Duration;

use onlyonce_server::ListenAddress;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// Longer than anything that works takes on a loaded machine; what hangs fails.
const PATIENCE: Duration = Duration::from_mins(1);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
}

/// One response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header, if it is there once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.head.lines().filter_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        let first = found.next();
        assert_eq!(found.next(), None, "{name} is there twice: {}", self.head);
        first
    }
}

impl Wire {
    pub(crate) async fn connect(address: &ListenAddress) -> Self {
        match address {
            ListenAddress::Tcp(address) => Self::over(TcpStream::connect(address).await.unwrap()),
            ListenAddress::Unix(path) => Self::over(UnixStream::connect(path).await.unwrap()),
        }
    }

    pub(crate) fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self { stream: Box::new(stream), read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        // The other side may have closed already: what it said before counts.
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// Says that no more comes; answers still do.
    pub(crate) async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next response; `None` when the connection ends without one.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        tokio::time::timeout(PATIENCE, self.read_answer()).await.expect("an answer, or an end")
    }

    /// Everything until the other side closes.
    pub(crate) async fn rest(&mut self) -> String {
        let reading = async {
            // A reset ends it just as well.
            let _ = self.stream.read_to_end(&mut self.read).await;
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the other side closes");
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// So many raw bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.more().await, "ended after {:?}", String::from_utf8_lossy(&self.read));
        }
        self.read.drain(..count).collect()
    }

    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        matches!(read.expect("bytes, or an end"), Ok(1..))
    }

    async fn read_answer(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                return None;
            }
        };
        let head = String::from_utf8(self.bytes(end).await).unwrap();
        let mut answer = Answer { status: head[9..12].parse().unwrap(), head, body: String::new() };
        let body = if answer.header("transfer-encoding") == Some("chunked") {
            self.chunks().await?
        } else {
            let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
            while self.read.len() < length {
                if !self.more().await {
                    return None;
                }
            }
            self.bytes(length).await
        };
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Some(answer)
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = self.read.windows(2).position(|window| window == b"\r\n") {
                    break self.bytes(at + 2).await;
                }
                if !self.more().await {
                    return None;
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
            while self.read.len() < size + 2 {
                if !self.more().await {
                    return None;
                }
            }
            let mut chunk = self.bytes(size + 2).await;
            chunk.truncate(size);
            if size == 0 {
                return Some(body);
            }
            body.extend(chunk);
        }
    }
}
