//! For any input: keys are read or refused, parts stay parts behind any boundary, answers come back as they were.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use onlyonce_core::{KeyForm, Secret};
use onlyonce_http::fingerprint::{FingerprintRules, look};
use onlyonce_http::rules::BodyMode;
use onlyonce_http::snapshot::Snapshot;
use onlyonce_http::{Rules, header, multipart};
use proptest::collection::vec;
use proptest::prelude::*;

const NAME: HeaderName = header::IDEMPOTENCY_KEY;

fn headers(lines: &[Vec<u8>]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(NAME, value);
        }
    }
    headers
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..300),
        "[ -~]{0,260}".prop_map(String::into_bytes),
        "\"[ -~]{0,260}\"(;[a-z]=[0-9])?".prop_map(String::into_bytes),
    ]
}

/// A body of these parts behind `boundary`, as a client would write it.
fn form(boundary: &str, parts: &[(String, Vec<u8>)]) -> Bytes {
    let mut body = Vec::new();
    for (name, text) in parts {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(text);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body.into()
}

fn parts() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    // Neither boundary below can occur in a part: they hold a letter that parts do not.
    let text = vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(0), 0x61..0x7au8], 0..40);
    vec(("[a-y]{1,8}", text), 1..5)
}

fn fingerprint(content_type: &str, body: &Bytes) -> [u8; 32] {
    let rules = Rules { body: Some(BodyMode::Multipart), ..Rules::default() };
    let request = Request::post("/").header("content-type", content_type).body(()).unwrap();
    let (head, ()) = request.into_parts();
    *look(&Secret::new([7; 32]), &FingerprintRules::new(&rules).unwrap(), &head, body).digest()
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let value = vec(prop_oneof![0x20..0x7fu8, 0x80..=0xffu8, Just(b'\t')], 0..30)
        .prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap());
    let name = "x-[a-z]{1,12}".prop_map(|name| name.parse::<HeaderName>().unwrap());
    let lines = vec((name, value), 0..12).prop_map(|lines| {
        lines.into_iter().fold(HeaderMap::new(), |mut map, line| {
            map.append(line.0, line.1);
            map
        })
    });
    (200..600u16, lines.clone(), lines, vec(any::<u8>(), 0..200), any::<bool>()).prop_map(
        |(status, headers, trailers, body, is_redacted)| Snapshot {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            trailers: Some(trailers).filter(|trailers| !trailers.is_empty()),
            body: body.into(),
            is_redacted,
        },
    )
}

proptest! {
    #[test]
    fn any_header_is_a_key_or_a_refusal(lines in vec(line(), 0..3)) {
        let headers = headers(&lines);
        let count = headers.get_all(NAME).iter().count();
        for form in [KeyForm::QuotedOrBare, KeyForm::Quoted, KeyForm::Bare] {
            match header::key(&headers, &NAME, form) {
                Ok(None) => prop_assert_eq!(count, 0, "a header that is there is never taken for none"),
                Ok(Some(key)) => {
                    prop_assert_eq!(count, 1);
                    prop_assert!((1..=255).contains(&key.as_str().len()));
                    // Written in its quoted form it is the same key.
                    let quoted = format!("\"{}\"", key.as_str().replace('\\', "\\\\").replace('"', "\\\""));
                    let again = self::headers(&[quoted.into_bytes()]);
                    prop_assert_eq!(header::key(&again, &NAME, KeyForm::Quoted).unwrap(), Some(key));
                }
                Err(error) => prop_assert!(!error.detail().is_empty()),
            }
        }
    }

    #[test]
    fn any_body_gives_a_key_or_a_refusal(body in vec(any::<u8>(), 0..200), json in "\\{\"a\":[0-9\"a-z\\[\\]]{0,10}\\}") {
        for body in [Bytes::from(body), Bytes::from(json)] {
            if let Err(error) = header::key_in_body(&body, "/a") {
                prop_assert!(!error.detail().is_empty());
            }
        }
    }

    #[test]
    fn the_same_parts_are_the_same_request_behind_any_boundary(parts in parts(), one in "z[a-z0-9]{0,30}", two in "Z[a-z0-9'+_-]{0,30}") {
        let (first, second) = (form(&one, &parts), form(&two, &parts));
        prop_assert_eq!(multipart::parts(&first, &one).unwrap().len(), parts.len());
        let kind = |boundary: &str| format!("multipart/form-data; boundary=\"{boundary}\"");
        prop_assert_eq!(fingerprint(&kind(&one), &first), fingerprint(&kind(&two), &second));
    }

    #[test]
    fn other_parts_are_another_request(parts in parts(), other in parts()) {
        let digest = |parts: &[_]| fingerprint("multipart/form-data; boundary=z", &form("z", parts));
        prop_assert_eq!(digest(&parts) == digest(&other), parts == other);
    }

    #[test]
    fn any_bytes_are_parts_or_nothing(body in vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'z'), any::<u8>()], 0..200)) {
        let _ = multipart::parts(&body, "z");
    }

    #[test]
    fn an_answer_comes_back_as_it_was(snapshot in snapshot()) {
        let bytes = Bytes::from(snapshot.encode(true));
        prop_assert_eq!(Snapshot::decode(&bytes).unwrap(), snapshot);
    }

    #[test]
    fn half_an_answer_and_a_changed_answer_are_errors(snapshot in snapshot(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let bytes = snapshot.encode(true);
        for len in 0..bytes.len() {
            prop_assert!(Snapshot::decode(&Bytes::copy_from_slice(&bytes[..len])).is_err(), "{} bytes", len);
        }
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(Snapshot::decode(&flipped.into()).is_err());
        let mut longer = bytes;
        longer.push(0);
        prop_assert!(Snapshot::decode(&longer.into()).is_err());
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        // With a right checksum, so that everything behind it is reached.
        let mut sealed = bytes.clone();
        sealed.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let _ = Snapshot::decode(&bytes.into());
        let _ = Snapshot::decode(&sealed.into());
    }
}
