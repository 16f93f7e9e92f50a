//! The same application on a bare socket: as little as can answer HTTP/1.
//!
//! The upstream shares a processor with whoever puts the load on. Where it takes half of that, that processor has no time left
//! before the one with the proxy has none, and a faster proxy looks no faster.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::application::{ANSWER, accept};
use crate::Result;

/// What goes before the body: as many bytes, and the same fields, as hyper would send.
const HEAD: &str = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\
                    date: Wed, 18 Nov 2026 06:00:00 GMT\r\n\r\n";

/// How much is read at once.
const READ_BYTES: usize = 4096;

/// How many fields a request may have.
const FIELDS_MAX: usize = 32;

/// Serves whoever comes.
pub async fn serve(listener: TcpListener) -> Result<()> {
    accept(listener, |stream, runs| async move {
        // A client that goes away is no error of ours, and one that speaks no HTTP/1 is left.
        let _ = converse(stream, &runs).await;
    })
    .await
}

/// Answers all requests of a connection.
async fn converse(mut stream: TcpStream, runs: &AtomicU64) -> io::Result<()> {
    let mut answer = HEAD.as_bytes().to_vec();
    answer.extend_from_slice(ANSWER.as_bytes());
    let mut bytes = BytesMut::new();
    loop {
        bytes.reserve(READ_BYTES);
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        while let Some((asked, length)) = whole(&bytes)? {
            bytes.advance(length);
            match asked {
                Asked::ToRun => {
                    runs.fetch_add(1, Ordering::Relaxed);
                    stream.write_all(&answer).await?;
                }
                Asked::ForRuns => {
                    let runs = runs.load(Ordering::Relaxed).to_string();
                    let length = runs.len();
                    let head =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                    stream.write_all((head + &runs).as_bytes()).await?;
                    return stream.shutdown().await;
                }
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    ToRun,
    /// How often it ran.
    ForRuns,
}

/// The first request in `bytes`, and how long it is. `None` until all of it is there.
fn whole(bytes: &[u8]) -> io::Result<Option<(Asked, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let malformed = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let head = match request.parse(bytes).map_err(|error| malformed(&error.to_string()))? {
        httparse::Status::Complete(head) => head,
        httparse::Status::Partial => return Ok(None),
    };
    let asked = if request.method == Some("GET") { Asked::ForRuns } else { Asked::ToRun };
    let named = |name: &str| request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    if named("transfer-encoding").is_some() {
        return Err(malformed("no proxy here has a reason to send chunks"));
    }
    let length = match named("content-length") {
        Some(field) => std::str::from_utf8(field.value).ok().and_then(|digits| digits.parse::<usize>().ok()),
        None => Some(0),
    };
    let length = length.and_then(|body| head.checked_add(body)).ok_or_else(|| malformed("no length"))?;
    Ok((bytes.len() >= length).then_some((asked, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_tells_the_length_of_the_answer() {
        assert!(HEAD.contains(&format!("content-length: {}\r\n", ANSWER.len())), "{}", ANSWER.len());
    }

    #[test]
    fn a_request_is_whole_at_its_last_byte_and_not_before() {
        let request = b"POST /payments HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 0..request.len() {
            assert_eq!(whole(&request[..cut]).unwrap(), None, "{cut} bytes");
        }
        assert_eq!(whole(request).unwrap(), Some((Asked::ToRun, request.len())));
        let two = [&request[..], b"GET /runs HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(whole(&two).unwrap(), Some((Asked::ToRun, request.len())));
        assert_eq!(whole(&two[request.len()..]).unwrap(), Some((Asked::ForRuns, two.len() - request.len())));
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for bad in ["\0\r\n\r\n", chunked, "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"] {
            assert!(whole(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
