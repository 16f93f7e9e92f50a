//! Bytes that no client of good will sends, in heads and anywhere: the answer is never a 500, a request that is all there
//! is never left without an answer, and the next client notices nothing.

use onlyonce_testkit::Soak;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngCore as _};

use crate::stage::{Stage, post};

/// Connections in one round.
const CONNECTIONS: usize = 200;
/// Rounds in CI. `ONLYONCE_SOAK_SECONDS` goes on for longer.
const ROUNDS: u64 = 20;

/// What one connection is sent, and whether every parser agrees on where the request ends.
struct Noise {
    bytes: Vec<u8>,
    is_whole: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_noise_never_gets_a_500_and_whole_requests_always_get_an_answer() {
    let stage = Stage::new().await;
    let mut soak = Soak::new("noise on the wire", ROUNDS);
    let (mut answered, mut passed, mut sent) = (0, 0, 0);
    while let Some((seed, mut random)) = soak.next_round() {
        for number in 0..CONNECTIONS {
            let noise = if random.random_bool(0.6) { odd_head(&mut random) } else { mutant(&mut random) };
            let status = ask(&stage, &noise).await;
            let case = || format!("seed {seed}, {number}: {}", noise.bytes.escape_ascii());
            assert!(status.is_some() || !noise.is_whole, "no answer to {}", case());
            // 5xx for what it refuses itself and rightly: a version or a loop. Everything else is a bug.
            assert!(!status.is_some_and(|status| status >= 500 && status != 505), "{status:?} to {}", case());
            answered += usize::from(status.is_some());
            passed += usize::from(status == Some(200));
            sent += 1;
        }
        let good = stage.send(post("/pay", &format!("good-{seed}"), "1")).await;
        assert_eq!(good.status, 200, "seed {seed}: {good:?}");
    }
    assert!(
        passed * 20 > sent && answered * 2 > sent,
        "the noise is only noise: {passed}, {answered}, {sent}"
    );
    soak.report(sent as u64, &format!("connections, {answered} answered, {passed} of them passed on"));
}

/// Sends the bytes and no more: the status of the first answer, if there is one before the end.
async fn ask(stage: &Stage, noise: &Noise) -> Option<u16> {
    let mut wire = stage.connect().await;
    wire.write(&noise.bytes).await;
    if !noise.is_whole {
        // More never comes. A whole request says by itself that it is the last.
        wire.end().await;
    }
    let text = wire.rest().await;
    // HTTP/2 begins with settings, whose first byte is zero.
    if text.is_empty() || text.starts_with('\0') {
        return None;
    }
    // What a mutation made a request of HTTP/1.0 is answered as one.
    let rest = text.strip_prefix("HTTP/1.1 ").or_else(|| text.strip_prefix("HTTP/1.0 "));
    let status = rest.and_then(|rest| rest.get(..3)?.parse().ok());
    assert!(status.is_some(), "{} was answered {text:?}", noise.bytes.escape_ascii());
    status
}

/// A request with odd bytes in its words and a body that is exactly as long as it says.
fn odd_head(random: &mut SmallRng) -> Noise {
    let mut bytes = Vec::new();
    let body = some(random, 0..40);
    let methods: [&[u8]; 7] = [b"POST", b"POST", b"PATCH", b"GET", b"DELETE", b"OPTIONS", b"M-SEARCH"];
    bytes.extend(*methods.choose(random).unwrap());
    bytes.extend(b" /");
    bytes.extend(odd(random, 0..20));
    bytes.extend(b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    for _ in 0..random.random_range(0..4) {
        let names: [&[u8]; 10] = [
            b"Idempotency-Key",
            b"Idempotency-Key",
            b"Idempotency-Key",
            b"Authorization",
            b"Cookie",
            b"Content-Type",
            b"Prefer",
            b"Via",
            b"Forwarded",
            b"Onlyonce-Fence",
        ];
        if random.random_bool(0.9) {
            bytes.extend(*names.choose(random).unwrap());
        } else {
            bytes.extend(odd(random, 0..12));
        }
        bytes.extend(b": ");
        bytes.extend(odd(random, 0..300));
        bytes.extend(b"\r\n");
    }
    bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes());
    bytes.extend(&body);
    Noise { bytes, is_whole: true }
}

/// A good request to which something was done: bytes changed, taken away, put in, doubled or cut off.
fn mutant(random: &mut SmallRng) -> Noise {
    let good = [
        post("/pay", "k", "100"),
        "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n"
            .to_owned(),
        "GET /a?b=c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0".to_owned(),
    ];
    let mut bytes = good.choose(random).unwrap().clone().into_bytes();
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] = random.random(),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.random()),
            3 => {
                let end = random.random_range(at..bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => bytes.truncate(at.max(1)),
        }
        if bytes.is_empty() {
            bytes.push(random.random());
        }
    }
    Noise { bytes, is_whole: false }
}

fn some(random: &mut SmallRng, count: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; random.random_range(count)];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Mostly text; any byte now and then, but no end of a line: that would be another head.
fn odd(random: &mut SmallRng, count: std::ops::Range<usize>) -> Vec<u8> {
    let oddity = *[0.0, 0.0, 0.02, 0.3].choose(random).unwrap();
    let mut byte = || {
        if random.random_bool(oddity) {
            match random.random() {
                b'\r' | b'\n' => 0x7f,
                byte => byte,
            }
        } else {
            *b"abcXYZ019-_.~\"/=".choose(random).unwrap()
        }
    };
    let bytes: Vec<u8> = std::iter::repeat_with(&mut byte).take(count.end).collect();
    let length = random.random_range(count);
    bytes[..length].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_body_is_malformed_is_told_so_and_the_upstream_is_not_blamed() {
    let stage = Stage::new().await;
    let request = "POST /pay HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n_\r\n\r\n";
    let mut wire = stage.connect().await;
    wire.write(request).await;
    // The body may be found wrong while it is on its way, or before: it is the client's fault in either case.
    let answer = wire.answer().await;
    assert!(answer.as_ref().is_none_or(|answer| answer.status == 400), "{answer:?}");
}
