//! What is put is found again, in the short form where there is one; every flipped bit is noticed.

use std::time::Duration;

use onlyonce_core::record::{Completed, CompletedBy, State};
use onlyonce_core::{Fence, Fingerprint, Lease, Outcome, Owner, Retention, Rules};

use super::*;
use crate::catalog::SEQ_BITS;

const ID: RecordId = RecordId::from_bytes([7; 32]);
const HOME: Home = Home { seq: 3 << SEQ_BITS, started_at: Timestamp::from_millis(1_780_000_000_000) };
const AT: usize = 100;

fn grant() -> Record {
    let granted_at = HOME.started_at + Duration::from_secs(5);
    Record {
        fence: Fence::new((3 << 32) + 17).unwrap(),
        attempt: 1,
        owner: Owner::from_bytes([9; 16]),
        fingerprint: Some(Fingerprint::from_parts(Rules::standard(), [5; 32])),
        created_at: granted_at,
        granted_at,
        run_until: granted_at + Duration::from_mins(5),
        retention: Retention::DEFAULT,
        unknown_retention: Retention::UNKNOWN_DEFAULT,
        remote: false,
        steps: Vec::new(),
        state: State::InFlight { lease_until: granted_at + Lease::DEFAULT.get() },
    }
}

fn finish(base: &Record) -> Record {
    let at = base.granted_at + Duration::from_millis(250);
    let outcome = Outcome::kept(3, [b'x'; 200].as_slice()).with_head("201").unwrap();
    let expires_at = at + base.retention.get();
    let completed = Completed { outcome, by: CompletedBy::Execution, at, expires_at, late: None };
    Record { state: State::Completed(completed), ..base.clone() }
}

/// A segment with `record` at [`AT`].
fn segment(record: &Record, base: Option<(u32, &Record)>) -> Vec<u8> {
    let mut bytes = vec![0; AT];
    put(&mut bytes, HOME, &ID, record, base);
    bytes
}

fn record_at(bytes: &[u8], offset: usize) -> Option<Record> {
    match read(&Bytes::copy_from_slice(bytes), HOME, offset).unwrap() {
        Found::Entry(Entry { id: ID, content: Content::Record(record), .. }) => Some(*record),
        _ => None,
    }
}

/// A grant, and its completion behind it.
fn both() -> (Vec<u8>, usize, Record) {
    let (grant, finish) = (grant(), finish(&grant()));
    let mut bytes = segment(&grant, None);
    let at = bytes.len();
    put(&mut bytes, HOME, &ID, &finish, Some((100, &grant)));
    (bytes, at, finish)
}

#[test]
fn a_usual_operation_takes_52_bytes_beside_id_fingerprint_and_outcome() {
    let (bytes, at, finish) = both();
    assert_eq!(record_at(&bytes, AT), Some(grant()));
    assert_eq!(record_at(&bytes, at), Some(finish));
    assert_eq!(at - AT, 29 + 32 + 32);
    assert_eq!(bytes.len() - at, 23 + "201".len() + 200);
}

#[test]
fn a_grant_with_terms_and_rules_of_its_own_is_short_too() {
    let mut record = grant();
    record.retention = Retention::new(Duration::from_hours(72)).unwrap();
    record.run_until = record.granted_at + Duration::from_secs(7);
    record.remote = true;
    record.fingerprint = Some(Fingerprint::from_parts(Rules::new("json -/sent_at").unwrap(), [5; 32]));
    let bytes = segment(&record, None);
    assert_eq!(record_at(&bytes, AT), Some(record));
    assert!(bytes.len() - AT < 120, "{}", bytes.len() - AT);
}

#[test]
fn what_the_short_forms_cannot_say_is_written_whole() {
    let early = HOME.started_at.as_millis() - 1;
    let cases: [fn(&mut Record); 6] = [
        |record| record.attempt = 2,
        |record| record.fence = Fence::new((4 << 32) + 17).unwrap(),
        |record| record.created_at = Timestamp::from_millis(1),
        |record| record.fingerprint = None,
        |record| record.run_until = Timestamp::from_millis(1),
        |record| record.state = State::Released { expires_at: Timestamp::from_millis(2_000_000_000_000) },
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut record = grant();
        change(&mut record);
        assert_eq!(record_at(&segment(&record, None), AT), Some(record), "case {number}");
    }
    let mut record = grant();
    (record.created_at, record.granted_at) = (Timestamp::from_millis(early), Timestamp::from_millis(early));
    assert_eq!(record_at(&segment(&record, None), AT), Some(record));
    let base = grant();
    let ends: [fn(&mut Completed); 3] = [
        |end| end.by = CompletedBy::Resolve,
        |end| end.late = Some(Outcome::kept(1, "late").into()),
        |end| end.expires_at = end.at,
    ];
    for change in ends {
        let mut record = finish(&base);
        let State::Completed(completed) = &mut record.state else { unreachable!() };
        change(completed);
        assert_eq!(record_at(&segment(&record, Some((0, &base))), AT), Some(record));
    }
}

#[test]
fn a_completion_is_never_written_on_top_of_a_completion() {
    let base = finish(&grant());
    assert_eq!(record_at(&segment(&base, Some((0, &base))), AT), Some(base));
}

#[test]
fn a_completion_of_another_grant_is_damage() {
    let (mut bytes, at, _) = both();
    let mut other = grant();
    other.fence = Fence::new((3 << 32) + 18).unwrap();
    let (start, end) = (AT, at);
    bytes.splice(start..end, segment(&other, None).split_off(AT));
    assert_eq!(record_at(&bytes, at), None);
}

#[test]
fn a_mark_counts_only_where_it_was_written() {
    let mut bytes = Vec::new();
    put_mark(&mut bytes, HOME.seq, 100);
    let other = Home { seq: HOME.seq + 1, ..HOME };
    assert_eq!(Head::read(&bytes, HOME, 100), Some(Head::Mark));
    assert_eq!(Head::read(&bytes, HOME, 101), None);
    assert_eq!(Head::read(&bytes, other, 100), None);
    assert_eq!(Head::read(&bytes[..MARK_BYTES - 1], HOME, 100), None);
}

#[test]
fn every_flipped_bit_is_noticed_and_the_key_it_hit_is_known() {
    let mut whole = grant();
    whole.attempt = 2;
    let (both, finish_at, _) = both();
    for (bytes, at) in [(segment(&whole, None), AT), (both.clone(), AT), (both, finish_at)] {
        let right = record_at(&bytes, at);
        assert!(right.is_some());
        for bit in AT * 8..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = record_at(&flipped, at);
            assert!(found.is_none() || found == right, "bit {bit}: {found:#?}");
            let id = id_at(&Bytes::from(flipped), HOME, at).unwrap();
            assert_eq!(id, Some(ID), "bit {bit}");
        }
    }
}

#[test]
fn nothing_is_found_in_nothing() {
    for bytes in [&[][..], &[0; 64], &[1; 64], &[2; 64], &[3; 400], &[4; 64], &[0x83; 400], &[0xff; 400]] {
        assert_eq!(Head::read(bytes, HOME, 0), None);
        assert_eq!(repair(bytes, HOME, 0), None);
    }
}
