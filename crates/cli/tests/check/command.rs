//! The command line: what it refuses, what it announces, what it prints, and with which code it ends.

use tokio::net::TcpSocket;

use crate::report::{check, onlyonce};
use crate::server::{Defect, Server};

/// Runs it and gives back the code, the output and the errors.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = onlyonce().arg("check").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn another_machine_is_asked_only_with_yes() {
    // Documentation's own address: nothing is sent there.
    let (code, output, errors) = run(&["http://192.0.2.1/payments"]);
    assert_eq!((code, output.as_str()), (2, ""));
    assert!(errors.contains("at most") && errors.contains("--yes"), "{errors}");
}

#[test]
fn what_cannot_be_checked_has_its_own_code() {
    // A port that is taken, so that no other test gets it, and where nobody listens.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (code, _, errors) = run(&[&format!("http://{}/", silent.local_addr().unwrap())]);
    assert_eq!(code, 69, "{errors}");
    let server = Server::start(Defect::Nothing);
    let (code, _, errors) = run(&[&server.url(), "--body", "no JSON"]);
    assert_eq!(code, 65, "{errors}");
    assert!(errors.contains("answered 400"), "{errors}");
    let (code, _, errors) = run(&[&server.url(), "--effects", &server.url()]);
    assert_eq!(code, 65, "{errors}");
    let (code, _, errors) = run(&[&server.url(), "--body", "@no-such-file"]);
    assert_eq!(code, 66, "{errors}");
    for bad in [
        &["localhost"][..],
        &["ftp://localhost/"],
        &["http://127.0.0.1/", "--only", "no-such-item"],
        &["http://127.0.0.1/", "--only", "replay", "--skip", "replay"],
        &["http://127.0.0.1/", "--header", "no colon"],
        &["http://127.0.0.1/", "--method", "GET"],
        &["http://127.0.0.1/", "--concurrency", "1000"],
        &["http://127.0.0.1/", "--timeout", "0s"],
    ] {
        assert_eq!(run(bad).0, 2, "{bad:?}");
    }
}

#[test]
fn no_more_is_sent_than_was_announced() {
    let server = Server::start(Defect::IgnoresKeys);
    let output = onlyonce().args(["check", &server.url(), "--json"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let words: Vec<_> = errors.split(' ').collect();
    let at = words.iter().position(|word| *word == "most").unwrap();
    let announced: u64 = words[at + 1].parse().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let sent = report["requests"].as_u64().unwrap();
    assert!(sent > 30 && sent <= announced, "{sent} of {announced}");
}

#[test]
fn only_what_was_asked_for_is_sent_and_shown() {
    let server = Server::start(Defect::Nothing);
    let all = check(&server.url(), &[]);
    let some = check(&server.url(), &["--only", "replay", "--only", "key-quoted", "--skip", "replay-mark"]);
    assert!(
        some.with("pass").contains(&"replay-body") && some.with("pass").contains(&"key-quoted"),
        "{some}"
    );
    assert_eq!(some.len(), 6, "{some}");
    assert!(some.json["requests"].as_u64() < all.json["requests"].as_u64());
    assert_eq!(all.json["points"].as_array().unwrap().len(), 39);
    assert_eq!(all.json["points"][27]["verdict"], "pass", "28: a retry gets the earlier result");
    assert_eq!(all.json["points"][9]["verdict"], "not-applicable", "10: a duty of the text");
}

#[test]
fn what_needs_an_option_says_so() {
    let server = Server::start(Defect::Nothing);
    let report = check(&server.url(), &["--header", "Authorization: Bearer one"]);
    assert_eq!(report.code, 0, "{report}");
    for item in ["conflict-mismatch", "scope-principal", "error-failed"] {
        assert!(report.with("not-applicable").contains(&item), "{report}");
    }
    assert!(report.why("scope-principal").contains("--other-header"));
    let options = [
        "--header",
        "Authorization: Bearer one",
        "--other-header",
        "Authorization: Bearer two",
        "--only",
        "scope",
    ];
    assert_eq!(check(&server.url(), &options).with("pass"), ["scope-principal"]);
}

#[test]
fn answers_that_look_alike_are_not_taken_for_proof() {
    let server = Server::start(Defect::AnswersAlike);
    let report = check(&server.url(), &[]);
    assert_eq!(report.with("fail"), Vec::<&str>::new(), "{report}");
    assert!(report.with("unknown").contains(&"other-key-executes"), "{report}");
    let report = check(&server.url(), &["--effects", &server.effects()]);
    assert!(report.with("pass").contains(&"other-key-executes"), "{report}");
}

#[test]
fn tls_is_spoken_and_certificates_are_checked() {
    let (server, certificate) = Server::start_tls(Defect::Nothing);
    let url = server.url().replace("http:", "https:");
    let (code, _, errors) = run(&[&url]);
    assert_eq!(code, 69, "{errors}");
    assert!(errors.contains("certificate"), "{errors}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    let report =
        check(&url, &["--ca", file.to_str().unwrap(), "--slow", "Demo-Slow: 1", "--fail", "Demo-Fail: 1"]);
    assert_eq!(report.with("pass").len(), report.len(), "{report}");
}

#[test]
fn the_table_is_for_people_and_the_bytes_are_there_on_demand() {
    let server = Server::start(Defect::LosesHeaders);
    let (code, output, _) = run(&[&server.url(), "--only", "replay"]);
    assert_eq!(code, 1);
    assert!(output.contains("✗ fail"), "{output}");
    assert!(output.contains("lost or changed on retry: location"), "{output}");
    assert!(output.contains("5 pass, 1 fail"), "{output}");
    assert!(!output.contains('\u{1b}'), "no colours in a pipe");
    assert!(!output.contains("POST /payments"), "{output}");
    let (_, output, _) = run(&[&server.url(), "--only", "replay", "--verbose"]);
    assert!(output.contains("> POST /payments HTTP/1.1") && output.contains("< HTTP/1.1 201"), "{output}");
}

#[test]
fn help_has_an_example_and_the_codes() {
    let (code, output, _) = run(&["--help"]);
    assert_eq!(code, 0);
    assert!(
        output.contains("onlyonce check http://127.0.0.1:8080/payments") && output.contains("Exit codes")
    );
}
