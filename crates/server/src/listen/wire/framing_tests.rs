//! Every way to cut and to spoil a request that this project knows of.

use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes_max: 512, fields_max: 8 };

fn judge(bytes: &[u8]) -> Verdict {
    Framing::new(LIMITS).inspect(bytes)
}

/// Shows the bytes piece by piece, as a reader would: what was not passed comes again.
fn judge_in_pieces(bytes: &[u8], size: usize) -> (Vec<u8>, Option<Refusal>) {
    let mut framing = Framing::new(LIMITS);
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        held.extend_from_slice(piece);
        let verdict = framing.inspect(&held);
        passed.extend(held.drain(..verdict.pass));
        if verdict.refusal.is_some() {
            return (passed, verdict.refusal);
        }
    }
    (passed, None)
}

const GOOD: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST /p?q=1 HTTP/1.1\r\nhost:a\r\nContent-Length:  5 \r\n\r\nhello",
    b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nx: 1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04anything",
];

#[test]
fn what_is_clear_passes_whole_however_it_is_cut() {
    for good in GOOD {
        let text = String::from_utf8_lossy(good);
        assert_eq!(judge(good), Verdict { pass: good.len(), refusal: None }, "{text}");
        for size in 1..good.len() {
            assert_eq!(judge_in_pieces(good, size), (good.to_vec(), None), "{text} in pieces of {size}");
        }
    }
}

#[test]
fn whatever_can_be_read_in_two_ways_is_refused_however_it_is_cut() {
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").into_bytes();
    let cases: Vec<(Vec<u8>, Refusal)> = vec![
        (post("Content-Length: 5\r\nTransfer-Encoding: chunked"), Refusal::Encoding),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 5"), Refusal::Encoding),
        (post("Content-Length: 5\r\nContent-Length: 5"), Refusal::Length),
        (post("Content-Length: 5\r\nContent-Length: 6"), Refusal::Length),
        (post("Content-Length: 5, 5"), Refusal::Length),
        (post("Content-Length: +5"), Refusal::Length),
        (post("Content-Length: 0x5"), Refusal::Length),
        (post("Content-Length:"), Refusal::Length),
        (post("Content-Length: 9999999999999999999"), Refusal::Length),
        (post("Transfer-Encoding: gzip, chunked"), Refusal::Encoding),
        (post("Transfer-Encoding: identity"), Refusal::Encoding),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), Refusal::Encoding),
        (post("Transfer-Encoding : chunked"), Refusal::Field),
        (post("Transfer-Encoding: \x0bchunked"), Refusal::Field),
        (post("X: a\r\n b"), Refusal::Field),
        (post("X: a\r\n\tb"), Refusal::Field),
        (post("X"), Refusal::Field),
        (post(": a"), Refusal::Field),
        (post("X: a\0b"), Refusal::Field),
        (post("X: a\nY: b"), Refusal::LineEnd),
        (post("X: a\rY: b"), Refusal::LineEnd),
        (post("Host: b"), Refusal::Host),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Refusal::Host),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), Refusal::Encoding),
        (b"GET / HTTP/1.1\nHost: a\n\n".to_vec(), Refusal::LineEnd),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Refusal::RequestLine),
        (b"GET / x HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Refusal::RequestLine),
        (b"GET /\r\n\r\n".to_vec(), Refusal::RequestLine),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_vec(), Refusal::RequestLine),
        (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Refusal::RequestLine),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Refusal::RequestLine),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Refusal::RequestLine),
        (post(&"a: b\r\n".repeat(8)), Refusal::TooLarge),
        (post(&format!("a: {}", "b".repeat(512))), Refusal::TooLarge),
        (vec![b'G'; 600], Refusal::TooLarge),
    ];
    for (bytes, refusal) in cases {
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(judge(&bytes), Verdict { pass: 0, refusal: Some(refusal) }, "{text}");
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(judge_in_pieces(&bytes, size), (vec![], Some(refusal)), "{text} in pieces of {size}");
        }
    }
}

#[test]
fn a_chunked_body_has_one_reading() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for bad in [
        "\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "-5\r\n",
        "0x5\r\n",
        "g\r\n",
        ";a\r\n",
        "5;a\nb\r\n",
        "5;a\rb\r\n",
        "1111111111111111\r\n",
        "0\r\n folded: x\r\n\r\n",
        "0\r\nx: a\nb\r\n\r\n",
        "0\n\n",
    ] {
        let verdict = judge(format!("{head}{bad}").as_bytes());
        assert_eq!(verdict.refusal, Some(Refusal::Chunk), "{bad:?}");
    }
    let long = format!("{head}1;{}\r\n", "x".repeat(600));
    assert_eq!(judge(long.as_bytes()).refusal, Some(Refusal::Chunk), "extensions are bounded");
    let long = format!("{head}0\r\nx: {}\r\n", "x".repeat(600));
    assert_eq!(judge(long.as_bytes()).refusal, Some(Refusal::Chunk), "trailers are bounded");
}

#[test]
fn a_request_after_a_good_one_is_judged_too() {
    let good = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";
    let bad = "GET / HTTP/1.1\nHost: a\r\n\r\n";
    let verdict = judge(format!("{good}{bad}").as_bytes());
    assert_eq!(verdict, Verdict { pass: good.len(), refusal: Some(Refusal::LineEnd) });
}

#[test]
fn only_the_first_bytes_can_make_it_http_2() {
    let text = format!("GET / HTTP/1.0\r\n\r\n{}", String::from_utf8_lossy(PREFACE));
    assert_eq!(judge(text.as_bytes()).refusal, Some(Refusal::RequestLine));
}

proptest::proptest! {
    #[test]
    fn any_bytes_get_the_same_verdict_however_they_are_cut(
        bytes in proptest::collection::vec(proptest::sample::select(b"GET /H:a\r\n\r\n01TP.5c\0 \t".to_vec()), 0..200),
        size in 1usize..50,
    ) {
        let whole = judge(&bytes);
        let (passed, refusal) = judge_in_pieces(&bytes, size);
        proptest::prop_assert_eq!(&bytes[..whole.pass], &passed[..]);
        proptest::prop_assert_eq!(whole.refusal, refusal);
    }
}

/// The length of the request that `bytes` begin with, as hyper's own parser reads it.
fn length_by_httparse(bytes: &[u8]) -> usize {
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else {
        panic!("no head: {:?}", String::from_utf8_lossy(bytes));
    };
    let value = |name: &str| {
        let mut found = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        let first = found.next().map(|field| std::str::from_utf8(field.value).unwrap().trim().to_owned());
        assert!(found.next().is_none(), "{name} twice: {:?}", String::from_utf8_lossy(bytes));
        first
    };
    match (value("content-length"), value("transfer-encoding")) {
        (None, None) => head,
        (Some(length), None) => head + length.parse::<usize>().unwrap(),
        (None, Some(_)) => {
            let mut at = head;
            loop {
                let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(&bytes[at..])
                else {
                    panic!("no chunk at {at}: {:?}", String::from_utf8_lossy(bytes));
                };
                at += line;
                if size == 0 {
                    // Only empty trailers are made here.
                    return at + 2;
                }
                at += usize::try_from(size).unwrap() + 2;
            }
        }
        (Some(_), Some(_)) => panic!("both passed: {:?}", String::from_utf8_lossy(bytes)),
    }
}

const FRAGMENTS: [&str; 26] = [
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST /p HTTP/1.1\r\nHost: a\r\n",
    "PUT / HTTP/1.0\r\n",
    "Host: b\r\n",
    "\r\n",
    "\n",
    "\r",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "content-length:\t10 \r\n",
    "Content-Length: 3\r\n\r\nabc",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n\r\n",
    "TRANSFER-ENCODING:CHUNKED\r\n\r\n",
    "Transfer-Encoding: x\r\n",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "a;x=y\r\n0123456789\r\n",
    "X: y\r\n",
    "X : y\r\n",
    " folded\r\n",
    "X: \u{e9}\r\n",
    "abc",
    ":",
    " ",
    "\0",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4096))]
    #[test]
    fn whatever_passes_is_read_by_hypers_parser_as_the_same_requests(
        picks in proptest::collection::vec(0..FRAGMENTS.len(), 1..14),
    ) {
        let bytes: Vec<u8> = picks.iter().flat_map(|pick| FRAGMENTS[*pick].bytes()).collect();
        let mut framing = Framing::new(LIMITS);
        let (mut start, mut passed) = (0, 0);
        for end in 1..=bytes.len() {
            let verdict = framing.inspect(&bytes[passed..end]);
            passed += verdict.pass;
            if verdict.refusal.is_some() {
                break;
            }
            // Nothing is held, and the next byte begins a request: one has just ended.
            if passed == end && framing.is_between() {
                proptest::prop_assert_eq!(length_by_httparse(&bytes[start..end]), end - start);
                start = end;
            }
        }
    }
}
