//! Answers that earlier versions wrote are read for ever: `golden/v1` holds some, byte for byte.
//!
//! A file is never changed. A new version of the format gets a new folder, and this test reads both.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use onlyonce_core::Outcome;
use onlyonce_http::TraceContext;
use onlyonce_http::snapshot::{self, Snapshot};

fn lines(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn all() -> [(&'static str, &'static [u8], Snapshot); 3] {
    let created = Snapshot {
        status: StatusCode::CREATED,
        headers: lines(&[("content-type", b"application/json"), ("location", b"/payments/7")]),
        trailers: None,
        body: Bytes::from_static(b"{\"id\":7}"),
        is_redacted: false,
    };
    let empty = Snapshot {
        status: StatusCode::NO_CONTENT,
        headers: lines(&[]),
        trailers: None,
        body: Bytes::new(),
        is_redacted: false,
    };
    let grpc = Snapshot {
        status: StatusCode::OK,
        headers: lines(&[("content-type", b"application/grpc"), ("x-twice", b"1"), ("x-twice", b"caf\xe9")]),
        trailers: Some(lines(&[("grpc-status", b"0"), ("grpc-message", b"")])),
        body: Bytes::from_static(b"\0\0\0\0\x03abc"),
        is_redacted: false,
    };
    [
        ("created", include_bytes!("golden/v1/created.bin"), created),
        ("empty", include_bytes!("golden/v1/empty.bin"), empty),
        ("grpc", include_bytes!("golden/v1/grpc.bin"), grpc),
    ]
}

#[test]
fn golden_answers_are_read_and_written_as_they_are() {
    for (name, bytes, snapshot) in all() {
        assert_eq!(Snapshot::decode(&Bytes::from_static(bytes)).unwrap(), snapshot, "{name}");
        assert_eq!(snapshot.encode(false), bytes, "{name}: the format has changed; give it a new version");
    }
}

#[test]
fn answers_of_later_versions_are_refused() {
    for (name, bytes, _) in all() {
        let mut later = bytes[..bytes.len() - 4].to_vec();
        later[0] = 2;
        later.extend_from_slice(&crc32c::crc32c(&later).to_le_bytes());
        assert!(Snapshot::decode(&later.into()).is_err(), "{name}");
    }
}

#[test]
fn heads_of_every_version_are_read() {
    let traced = [&[2, 0, 201][..], &[0xab; 16], &[0xcd; 8], &[1]].concat();
    let trace = TraceContext::new([0xab; 16], [0xcd; 8], true);
    for (head, expected) in [(vec![1, 0, 201], None), (traced.clone(), trace), (traced[..27].to_vec(), None)]
    {
        let outcome = |version| Outcome::kept(version, Vec::new()).with_head(head.clone()).unwrap();
        assert_eq!(snapshot::status_in(&head), Some(StatusCode::CREATED));
        assert_eq!(snapshot::trace_of(&outcome(snapshot::CONTENT_VERSION)), expected);
        assert_eq!(snapshot::trace_of(&outcome(1)), None, "the head of another door");
    }
    assert_eq!(snapshot::status_in(&[3, 0, 201]), None);
}
