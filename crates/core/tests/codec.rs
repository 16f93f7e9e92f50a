//! The bytes of records: golden files of every version, damage of every kind, random records.
//!
//! `ONLYONCE_WRITE_GOLDEN=1` creates the golden files that are missing. No run ever changes one that is there.

#[path = "golden/chance.rs"]
mod chance;
#[path = "golden/records.rs"]
mod records;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use bytes::Bytes;
use onlyonce_core::fingerprint::RULES_BYTES_MAX;
use onlyonce_core::outcome::HEAD_BYTES_MAX;
use onlyonce_core::record::codec::{CodecError, RECORD_VERSION, decode, encode};
use onlyonce_core::record::{Fence, Record, STEPS_BYTES_MAX, STEPS_MAX, Step, StepName};
use onlyonce_core::{Fingerprint, RecordId, Rules};
use proptest::prelude::*;

use self::records::{id, other_id};

/// What a typical completed record may cost beyond its digest, body and head.
const OVERHEAD_BYTES_MAX: usize = 64;
const DIGEST_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden"].iter().collect()
}

/// Reads the golden file `name`. Creates it with `bytes` if it is missing and that was asked for.
fn golden(name: &str, bytes: &[u8]) -> Bytes {
    let path = folder().join(format!("{name}.bin"));
    if std::env::var_os("ONLYONCE_WRITE_GOLDEN").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().expect("a golden file is in a folder")).expect("creating a folder");
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => file.write_all(bytes).expect("writing a golden file"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "creating {}", path.display()),
        }
    }
    assert!(path.exists(), "{} is missing; a new one is made with ONLYONCE_WRITE_GOLDEN=1", path.display());
    fs::read(&path).expect("reading a golden file").into()
}

/// Every golden file of version 1 as it is on the disk, by name.
fn goldens() -> Vec<(&'static str, Bytes)> {
    let read =
        |(name, record): (&'static str, _)| (name, golden(&format!("v1/{name}"), &encode(&id(), &record)));
    records::all().into_iter().map(read).collect()
}

/// The bytes of the golden file `wanted` of version 1.
fn golden_of(wanted: &str) -> Vec<u8> {
    let found = goldens().into_iter().find(|(name, _)| *name == wanted);
    found.expect("a golden file of that name").1.to_vec()
}

/// `body` with the checksum that belongs to it under `id`.
fn signed(id: &RecordId, body: &[u8]) -> Bytes {
    let checksum = crc32c(&[id.as_bytes(), body].concat());
    [body, &checksum.to_le_bytes()].concat().into()
}

/// `golden` without its checksum.
fn body_of(golden: &[u8]) -> &[u8] {
    &golden[..golden.len() - CHECKSUM_BYTES]
}

/// CRC-32C bit by bit: slow, and independent of the one that is tested.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn the_checksum_of_these_tests_is_the_castagnoli_one() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn every_golden_file_decodes_to_its_record_and_its_record_encodes_to_it() {
    for (name, record) in records::all() {
        let encoded = encode(&id(), &record);
        let golden = golden(&format!("v1/{name}"), &encoded);
        assert_eq!(decode(&id(), &golden), Ok(record), "{name}");
        assert_eq!(encoded, golden, "{name}");
        assert_eq!(signed(&id(), body_of(&golden)), golden, "{name}");
    }
}

#[test]
fn every_golden_file_on_the_disk_is_read_by_a_test() {
    let mut expected: Vec<_> = goldens().into_iter().map(|(name, _)| format!("{name}.bin")).collect();
    let files = fs::read_dir(folder().join("v1")).expect("the folder of golden files");
    let name = |file: std::io::Result<fs::DirEntry>| file.expect("a file").file_name();
    let mut found: Vec<_> = files.map(|file| name(file).into_string().expect("a plain name")).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_record_of_a_newer_version_is_refused_by_its_version() {
    let mut body = body_of(&golden_of("in_flight")).to_vec();
    body[0] = 2;
    let newer = golden("future/v2", &signed(&id(), &body));
    assert_eq!(newer, signed(&id(), &body));
    assert_eq!(decode(&id(), &newer), Err(CodecError::Version(2)));
    // The version is judged first: a newer one may keep its checksum elsewhere, or be shorter than ours.
    for version in (0..=u8::MAX).filter(|version| *version != RECORD_VERSION) {
        let refused = Err(CodecError::Version(version));
        assert_eq!(decode(&id(), &Bytes::from(vec![version])), refused);
        assert_eq!(decode(&id(), &Bytes::from([&[version], &newer[1..]].concat())), refused);
    }
}

#[test]
fn damaged_golden_files_are_damage_and_never_absence() {
    let good = golden_of("completed_head");
    let mut flipped = good.clone();
    flipped[40] ^= 0b0000_1000;
    let record = decode(&id(), &good.clone().into()).expect("a golden file");
    let damaged = [
        ("truncated", good[..good.len() - 1].to_vec()),
        ("bit_flipped", flipped),
        ("trailing_byte", [&good[..], &[0]].concat()),
        ("other_id", encode(&other_id(), &record)),
        ("empty", Vec::new()),
        ("only_version", vec![RECORD_VERSION]),
    ];
    for (name, bytes) in damaged {
        let golden = golden(&format!("damaged/{name}"), &bytes);
        assert_eq!(golden, bytes, "{name}");
        let answer = decode(&id(), &golden);
        assert!(matches!(answer, Err(CodecError::Damaged(_))), "{name}: {answer:?}");
    }
}

#[test]
fn every_flipped_bit_of_every_golden_file_is_an_error() {
    for (name, good) in goldens() {
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                0 => CodecError::Version(bytes[0]),
                _ => CodecError::Damaged("checksum"),
            };
            assert_eq!(decode(&id(), &bytes.into()), Err(expected), "{name}, bit {bit}");
        }
    }
}

#[test]
fn every_flipped_bit_of_the_id_is_an_error() {
    let good = Bytes::from(golden_of("in_flight"));
    for bit in 0..256 {
        let mut bytes = *id().as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let answer = decode(&RecordId::from_bytes(bytes), &good);
        assert_eq!(answer, Err(CodecError::Damaged("checksum")), "bit {bit}");
    }
}

#[test]
fn every_truncation_of_every_golden_file_is_an_error() {
    for (name, good) in goldens() {
        for len in 0..good.len() {
            let answer = decode(&id(), &good.slice(..len));
            assert!(matches!(answer, Err(CodecError::Damaged(_))), "{name}, {len} bytes: {answer:?}");
        }
    }
}

#[test]
fn every_truncated_body_is_an_error_behind_a_right_checksum_too() {
    for (name, good) in goldens() {
        let body = body_of(&good);
        for len in 1..body.len() {
            let answer = decode(&id(), &signed(&id(), &body[..len]));
            assert!(matches!(answer, Err(CodecError::Damaged(_))), "{name}, {len} bytes: {answer:?}");
        }
    }
}

/// The shortest beginning of a record: everything before the fingerprint.
fn start(flags: u8) -> Vec<u8> {
    let owner = [0xaa; 16];
    let fence_to_unknown_retention = [1, 1, 0, 0, 0, 1, 1];
    [&[RECORD_VERSION, flags][..], &owner, &fence_to_unknown_retention].concat()
}

/// [`start`] with its last seven numbers replaced by `numbers`, IN FLIGHT with a lease that ends at once.
fn numbers(numbers: &[&[u8]]) -> Vec<u8> {
    [&start(0x00)[..18], &numbers.concat(), &[0]].concat()
}

#[test]
fn damage_behind_a_right_checksum_is_named() {
    let in_flight = |rest: &[u8]| [&start(0x00)[..], rest].concat();
    let ruled = |rest: &[u8]| [&start(0x10)[..], rest].concat();
    let completed = |rest: &[u8]| [&start(0x01)[..], rest].concat();
    let stepped = |rest: &[u8]| [&start(0x20)[..], &[0], rest].concat();
    let ten_years_and_more: &[u8] = &[0xe8, 0xa7, 0xad, 0x83, 0x9a, 0x09];
    assert!(decode(&id(), &signed(&id(), &in_flight(&[0]))).is_ok(), "the undamaged one");
    assert!(decode(&id(), &signed(&id(), &stepped(&[1, 1, b'a', 0]))).is_ok(), "the undamaged one");
    assert!(decode(&id(), &signed(&id(), &completed(&[0, 0, 0, 0, 0, 0, 0]))).is_ok(), "the undamaged one");
    let cases = [
        ("flags", [&start(0x04)[..], &[0]].concat()),
        ("flags", [&start(0x08)[..], &[0]].concat()),
        ("flags", [&start(0x40)[..], &[0]].concat()),
        ("flags", [&start(0x42)[..], &[0]].concat()),
        ("fence", numbers(&[&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10], &[1, 0, 0, 0, 1, 1]])),
        ("attempt", numbers(&[&[1], &[0x80, 0x80, 0x80, 0x80, 0x10], &[0, 0, 0, 1, 1]])),
        ("retention", numbers(&[&[1, 1, 0, 0, 0], &[0], &[1]])),
        ("retention", numbers(&[&[1, 1, 0, 0, 0, 1], &[0]])),
        ("retention", numbers(&[&[1, 1, 0, 0, 0, 1], ten_years_and_more])),
        ("number", numbers(&[&[0x81, 0x00], &[1, 0, 0, 0, 1, 1]])),
        ("number", numbers(&[&[1, 1], &[0xff; 9], &[0x02], &[0, 0, 1, 1]])),
        ("number", numbers(&[&[1, 1], &[0xff; 9], &[0x81], &[0, 0, 1, 1]])),
        ("rules", ruled(&[&[1, 0x81, 0x08][..], &[b'r'; RULES_BYTES_MAX + 1], &[0; 33]].concat())),
        ("completed by", completed(&[3, 0, 0, 0, 0, 0, 0])),
        ("content version", completed(&[0, 0, 0, 0x80, 0x80, 0x04, 0, 0, 0])),
        ("length", completed(&[&[0, 0, 0, 0, 65][..], &[b'h'; HEAD_BYTES_MAX + 1], &[0, 0]].concat())),
        ("body", completed(&[0, 0, 0, 0, 0, 5])),
        ("steps", stepped(&[0])),
        ("steps", stepped(&[&[65][..], &[1, b'a', 0].repeat(STEPS_MAX + 1)].concat())),
        ("step name", stepped(&[1, 0, 0])),
        ("step name", stepped(&[1, 1, b'\n', 0])),
        ("step name", stepped(&[1, 1, 0xff, 0])),
        ("step name", stepped(&[&[1, 101][..], &[b'n'; 101], &[0]].concat())),
        ("length", stepped(&[&[1, 1, b'a', 0x82, 0x80, 0x10][..], &vec![0; STEPS_BYTES_MAX + 1]].concat())),
        ("too short", in_flight(&[])),
        ("too short", stepped(&[2, 1, b'a', 0])),
        ("too short", completed(&[0, 0, 0, 0, 0, 0, 1])),
        ("too short", stepped(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01])),
        ("trailing bytes", in_flight(&[0, 0])),
    ];
    for (at, (field, body)) in cases.iter().enumerate() {
        let answer = decode(&id(), &signed(&id(), body));
        assert_eq!(answer, Err(CodecError::Damaged(field)), "case {at}");
    }
}

#[test]
fn the_largest_record_that_may_be_written_can_be_read() {
    let rules = Rules::new(vec![b'r'; RULES_BYTES_MAX]).expect("the longest rules");
    let step = |at: usize| {
        let name = format!("{at:0>100}");
        let value = vec![0x5e; STEPS_BYTES_MAX / STEPS_MAX];
        Step { name: StepName::new(&name).expect("the longest name"), value: Some(value.into()) }
    };
    let record = Record {
        fingerprint: Some(Fingerprint::from_parts(rules, [1; 32])),
        steps: (0..STEPS_MAX).map(step).collect(),
        ..records::typical()
    };
    assert_eq!(record.steps_weight(), STEPS_BYTES_MAX);
    assert_eq!(decode(&id(), &encode(&id(), &record).into()), Ok(record));
}

#[test]
fn a_typical_completed_record_costs_little_beyond_what_it_keeps() {
    let typical = records::typical();
    let kept = 512 + 3;
    let cost = |record: &Record| encode(&id(), record).len() - DIGEST_BYTES - kept;
    let counted = Record { fence: Fence::new(100_000).expect("below 2^53"), ..typical.clone() };
    println!("overhead of a completed record: {} bytes with a fence in microseconds", cost(&typical));
    println!("overhead of a completed record: {} bytes with a fence below 2^21", cost(&counted));
    assert!(cost(&typical) <= OVERHEAD_BYTES_MAX, "{} bytes", cost(&typical));
}

#[test]
fn the_example_in_the_documentation_is_a_golden_file() {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "docs", "record-format.md"].iter().collect();
    let page = fs::read_to_string(path).expect("the page that describes the format");
    let (_, example) = page.split_once("```hex\n").expect("a block of hexadecimal digits");
    let (example, _) = example.split_once("```").expect("the end of the block");
    let digits = example.split_whitespace();
    let shown: Result<Vec<u8>, _> = digits.map(|byte| u8::from_str_radix(byte, 16)).collect();
    assert_eq!(shown, Ok(golden_of("completed_head")));
}

proptest! {
    #[test]
    fn any_record_comes_back_as_it_was(id in chance::id(), record in chance::record()) {
        let bytes = Bytes::from(encode(&id, &record));
        prop_assert_eq!(&signed(&id, body_of(&bytes)), &bytes);
        prop_assert_eq!(decode(&id, &bytes), Ok(record));
    }

    #[test]
    fn any_record_under_another_id_is_damage(id in chance::id(), other in chance::id(), record in chance::record()) {
        prop_assume!(id != other);
        let answer = decode(&other, &encode(&id, &record).into());
        prop_assert_eq!(answer, Err(CodecError::Damaged("checksum")));
    }

    #[test]
    fn arbitrary_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&id(), &bytes.into()).is_err());
    }

    #[test]
    fn arbitrary_bytes_behind_a_right_checksum_have_one_meaning_or_none(
        flags in any::<u8>(), rest in proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..120),
    ) {
        let bytes = signed(&id(), &[&[RECORD_VERSION, flags & 0x73][..], &rest].concat());
        if let Ok(record) = decode(&id(), &bytes) {
            prop_assert_eq!(encode(&id(), &record), bytes);
        }
    }
}

proptest! {
    // Most damage is refused at once: what is left must still be seen often.
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_damaged_record_behind_a_right_checksum_has_one_meaning_or_none(
        record in prop_oneof![
            proptest::sample::select(records::all()).prop_map(|(_, record)| record),
            chance::record(),
        ],
        damage in chance::damage(),
    ) {
        let mut body = body_of(&encode(&id(), &record)).to_vec();
        for damage in damage {
            damage.apply(&mut body);
        }
        let bytes = signed(&id(), &body);
        if let Ok(read) = decode(&id(), &bytes) {
            prop_assert_eq!(encode(&id(), &read), bytes);
        }
    }
}
