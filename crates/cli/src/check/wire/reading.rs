//! Reads one HTTP/1.1 answer: head, then the body by its framing. Strict, bounded, and without any repair.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{Reply, Silence};
use crate::check::answer::Answer;

/// The most that is read of one answer, head and body.
pub(super) const ANSWER_BYTES_MAX: usize = 8 << 20;
const HEADERS_MAX: usize = 128;
const STEP_BYTES: usize = 16 << 10;

/// How the end of a body is known.
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// The head of an answer, and how many bytes it takes.
struct Head {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

/// Reads until the answer is whole. All bytes that came stay in `received`.
pub(super) async fn answer(stream: &mut (impl AsyncRead + Unpin), received: &mut Vec<u8>) -> Reply {
    let mut start = 0;
    loop {
        let head = loop {
            if let Some(head) = parse_head(&received[start..])? {
                break head;
            }
            more(stream, received).await?;
        };
        start += head.bytes;
        // 1xx are announcements; the answer is still to come.
        if head.status >= 200 {
            let body = body(stream, received, start, &head).await?;
            return Ok(Answer { status: head.status, headers: head.headers, body });
        }
    }
}

async fn body(
    stream: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
    start: usize,
    head: &Head,
) -> Result<Vec<u8>, Silence> {
    match framing(head)? {
        Framing::Length(length) => {
            let end = start.checked_add(length).filter(|end| *end <= ANSWER_BYTES_MAX);
            let end = end.ok_or(Silence::TooLarge)?;
            while received.len() < end {
                more(stream, received).await?;
            }
            Ok(received[start..end].to_vec())
        }
        Framing::Chunked => loop {
            if let Some(body) = parse_chunks(&received[start..])? {
                return Ok(body);
            }
            more(stream, received).await?;
        },
        Framing::UntilClose => loop {
            match more(stream, received).await {
                Ok(()) => {}
                Err(Silence::Closed) => return Ok(received[start..].to_vec()),
                Err(other) => return Err(other),
            }
        },
    }
}

/// Reads some more bytes, or says why there are none.
async fn more(stream: &mut (impl AsyncRead + Unpin), received: &mut Vec<u8>) -> Result<(), Silence> {
    if received.len() >= ANSWER_BYTES_MAX {
        return Err(Silence::TooLarge);
    }
    received.reserve(STEP_BYTES);
    match stream.read_buf(received).await {
        Ok(0) | Err(_) => Err(Silence::Closed),
        Ok(_) => Ok(()),
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Silence> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(length)) => {
            let headers = response.headers.iter();
            Ok(Some(Head {
                status: response.code.unwrap_or_default(),
                headers: headers
                    .map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec()))
                    .collect(),
                bytes: length,
            }))
        }
        Err(_) => Err(Silence::Malformed("its head")),
    }
}

fn framing(head: &Head) -> Result<Framing, Silence> {
    if matches!(head.status, 204 | 304) {
        return Ok(Framing::Length(0));
    }
    let all = |name| head.headers.iter().filter(move |(field, _)| field == name).map(|(_, value)| value);
    let mut coded = all("transfer-encoding");
    if let Some(value) = coded.next() {
        let chunked = value.eq_ignore_ascii_case(b"chunked") && coded.next().is_none();
        let alone = all("content-length").next().is_none();
        return if chunked && alone { Ok(Framing::Chunked) } else { Err(Silence::Malformed("its framing")) };
    }
    let mut lengths = all("content-length");
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(Framing::UntilClose),
        (Some(value), None) if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            Ok(Framing::Length(length.ok_or(Silence::TooLarge)?))
        }
        _ => Err(Silence::Malformed("its length")),
    }
}

/// The body, once the last chunk and the trailers are there.
fn parse_chunks(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, Silence> {
    let mut body = Vec::new();
    loop {
        let (skip, length) = match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete(found)) => found,
            Err(_) => return Err(Silence::Malformed("a chunk")),
        };
        bytes = &bytes[skip..];
        if length == 0 {
            // The trailers end with an empty line, which may be all there is of them.
            let is_over = bytes.starts_with(b"\r\n") || bytes.windows(4).any(|end| end == b"\r\n\r\n");
            return Ok(is_over.then_some(body));
        }
        let length = usize::try_from(length).map_err(|_| Silence::TooLarge)?;
        let Some(end) = length.checked_add(2).filter(|end| *end <= ANSWER_BYTES_MAX) else {
            return Err(Silence::TooLarge);
        };
        let Some(chunk) = bytes.get(..end) else { return Ok(None) };
        let (chunk, rest) = chunk.split_at(length);
        if rest != b"\r\n" {
            return Err(Silence::Malformed("a chunk"));
        }
        body.extend_from_slice(chunk);
        bytes = &bytes[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` as an answer after which the connection closes.
    fn read(bytes: &str) -> Reply {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(answer(&mut bytes.as_bytes(), &mut Vec::new()))
    }

    fn body_of(bytes: &str) -> String {
        String::from_utf8(read(bytes).unwrap().body).unwrap()
    }

    #[test]
    fn every_framing_is_read() {
        assert_eq!(body_of("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"), "abc");
        assert_eq!(body_of("HTTP/1.1 200 OK\r\n\r\nabcd"), "abcd");
        assert_eq!(body_of("HTTP/1.1 204 No Content\r\n\r\nxx"), "");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(body_of(&format!("{chunked}3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n")), "abcd");
        assert_eq!(body_of(&format!("{chunked}1\r\na\r\n0\r\nA: b\r\n\r\n")), "a");
        let continued = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(read(continued).unwrap().status, 201);
    }

    #[test]
    fn what_is_cut_short_or_wrong_is_no_answer() {
        for (bytes, silence) in [
            ("", Silence::Closed),
            ("HTTP/1.1 200 OK\r\nContent-Le", Silence::Closed),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Silence::Closed),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", Silence::Closed),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
                Silence::Malformed("a chunk"),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", Silence::TooLarge),
            ("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", Silence::Malformed("its length")),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
                Silence::Malformed("its length"),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Silence::Malformed("its framing"),
            ),
            ("SSH-2.0-OpenSSH\r\n", Silence::Malformed("its head")),
        ] {
            assert_eq!(read(bytes), Err(silence), "{bytes:?}");
        }
    }
}
