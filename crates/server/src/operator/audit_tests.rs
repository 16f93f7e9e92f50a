//! The audit file over crashes and damage.

use std::fs;

use super::*;

fn by(why: &str) -> By {
    By { who: Some("alice".into()), why: Some(why.into()), from: "127.0.0.1".into() }
}

async fn begin(audit: &Audit, why: &str) -> Result<u64, Refusal> {
    let by = by(why);
    audit.begin(Entry { action: "purge", id: None, what: None, by: &by }).await
}

async fn numbers(audit: &Audit) -> Vec<u64> {
    let page = audit.page(0, None).await.expect("a page");
    page["entries"].as_array().expect("a list").iter().filter_map(|entry| entry["n"].as_u64()).collect()
}

#[tokio::test]
async fn numbers_go_on_after_a_restart_and_answers_join_their_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::new(path.clone());
    assert_eq!(numbers(&audit).await, Vec::<u64>::new());
    assert!(!path.exists(), "a file is made when there is something to write");
    assert_eq!(begin(&audit, "first").await.expect("written"), 1);
    audit.end(1, "done").await;
    let again = Audit::new(path.clone());
    assert_eq!(begin(&again, "second").await.expect("written"), 2);
    // The first one sees what the other added.
    assert_eq!(begin(&audit, "third").await.expect("written"), 3);
    let page = audit.page(0, None).await.expect("a page");
    assert_eq!(
        (&page["entries"][0]["answer"], &page["entries"][1]["answer"]),
        (&json!("done"), &Value::Null)
    );
    assert_eq!((&page["entries"][0]["why"], &page["damaged"]), (&json!("first"), &json!(0)));
    let first = audit.page(1, Some(1)).await.expect("a page");
    assert_eq!((&first["entries"][0]["n"], &first["next"]), (&json!(2), &json!(2)));
    assert_eq!(audit.page(2, Some(1)).await.expect("a page")["next"], Value::Null);
}

#[tokio::test]
async fn a_line_cut_anywhere_is_passed_over_and_no_number_is_used_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::new(path.clone());
    begin(&audit, "kept").await.expect("written");
    let whole = fs::read(&path).expect("bytes");
    begin(&audit, "cut").await.expect("written");
    let both = fs::read(&path).expect("bytes");
    for cut in whole.len() + 1..both.len() - 1 {
        fs::write(&path, &both[..cut]).expect("written");
        let audit = Audit::new(path.clone());
        assert_eq!(begin(&audit, "after").await.expect("written"), 2, "cut at {cut}");
        assert_eq!(numbers(&audit).await, [1, 2], "cut at {cut}");
        let page = audit.page(0, None).await.expect("a page");
        assert_eq!(
            (&page["entries"][1]["why"], &page["damaged"]),
            (&json!("after"), &json!(1)),
            "cut at {cut}"
        );
    }
    fs::write(&path, &both[..both.len() - 1]).expect("written");
    let audit = Audit::new(path);
    assert_eq!(begin(&audit, "after").await.expect("written"), 3, "only the end of the line is missing");
    assert_eq!(numbers(&audit).await, [1, 2, 3]);
}

#[tokio::test]
async fn what_is_no_line_of_ours_is_counted_and_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let long = format!("{{\"n\":9,\"at\":\"{}\"}}", "x".repeat(100_000));
    fs::write(
        &path,
        format!("\0\u{fffd}garbage\n{long}\n{{\"n\":4,\"at\":\"t\",\"action\":\"purge\"}}\n[]\n"),
    )
    .expect("written");
    let audit = Audit::new(path);
    assert_eq!(begin(&audit, "next").await.expect("written"), 5);
    assert_eq!(numbers(&audit).await, [4, 5]);
    assert_eq!(audit.page(0, None).await.expect("a page")["damaged"], json!(3));
}

#[tokio::test]
async fn what_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = Audit::new(folder.path().join("no-such-folder/audit.jsonl"));
    let refusal = begin(&nowhere, "why").await.expect_err("refused");
    assert!(refusal.to_json()["type"].as_str().is_some_and(|name| name.ends_with("audit-unavailable")));
    let audit = Audit::new(folder.path().join("audit.jsonl"));
    for why in ["", "  ", "two\nlines", &"x".repeat(WHY_CHARS_MAX + 1)] {
        assert!(begin(&audit, why).await.is_err(), "{why:?}");
    }
    assert_eq!(begin(&audit, &"é".repeat(WHY_CHARS_MAX)).await.expect("written"), 1);
}

#[tokio::test]
async fn a_file_that_was_moved_or_removed_is_noticed_and_the_next_line_is_in_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::new(path.clone());
    assert_eq!(begin(&audit, "first").await.expect("written"), 1);
    // As logrotate does.
    let rotated = folder.path().join("audit.jsonl.1");
    fs::rename(&path, &rotated).expect("moved");
    assert_eq!(begin(&audit, "second").await.expect("written"), 2, "numbers go on");
    assert_eq!(numbers(&audit).await, [2]);
    assert!(fs::read_to_string(&rotated).expect("text").contains("first"));
    fs::remove_file(&path).expect("removed");
    assert_eq!(begin(&audit, "third").await.expect("written"), 3);
    assert!(fs::read_to_string(&path).expect("there again").contains("third"));
    // Another file under the name, whose numbers are further on.
    let other = folder.path().join("other");
    fs::write(&other, "{\"n\":9,\"at\":\"t\",\"action\":\"purge\"}\n").expect("written");
    fs::rename(&other, &path).expect("replaced");
    assert_eq!(begin(&audit, "tenth").await.expect("written"), 10);
    assert_eq!(numbers(&audit).await, [9, 10]);
    // Truncated in place: what is there is gone, what comes is not.
    fs::write(&path, "").expect("truncated");
    assert_eq!(begin(&audit, "eleventh").await.expect("written"), 11);
    assert_eq!(numbers(&audit).await, [11]);
}
