//! The admin side over TLS: asked by curl, as Prometheus and browsers would, and by `onlyonce records` and `onlyonce stats`.

use std::process::Command;

use crate::admin::start_with;
use crate::authority::Authority;
use crate::binary::onlyonce;
use crate::operators::TOKEN;
use crate::upstream::Upstream;

/// What curl makes of it: its exit code, and the answer with its version of HTTP and its status.
fn curl(args: &[&str]) -> (Option<i32>, String) {
    let all =
        ["--silent", "--show-error", "--max-time", "120", "--write-out", "\n%{http_version} %{http_code}"];
    let output = Command::new("curl").args(all).args(args).output().expect("curl is installed");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An operator's command, with the token: exit code, and all that it said.
fn operator(args: &[&str]) -> (Option<i32>, String) {
    let output = onlyonce(args).env("ONLYONCE_ADMIN_TOKEN", TOKEN).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn the_admin_side_speaks_tls_and_so_do_those_who_ask_it() {
    let (authority, strangers) = (Authority::new(), Authority::new());
    let [certificate, key] = authority.signed("127.0.0.1");
    let (ours, theirs) = (authority.file(), strangers.file());
    let upstream = Upstream::start();
    let tls = ["--admin-tls-certificate", &certificate, "--admin-tls-key", &key];
    let (proxy, admin) = start_with(&upstream, &[&["--store", "memory:"], &tls[..]].concat(), &[]);
    assert_eq!(proxy.post("/pay", "k").0, 200, "callers are served in the clear, as before");

    let (url, clear) = (format!("https://{admin}"), format!("http://{admin}"));
    let (code, told) = curl(&["--cacert", &ours, &format!("{url}/health/live")]);
    assert!(code == Some(0) && told.ends_with("\n2 200"), "{told}");
    let (code, told) = curl(&["--cacert", &ours, "--http1.1", &format!("{url}/metrics")]);
    assert!(code == Some(0) && told.ends_with("\n1.1 401"), "the token is asked for as before: {told}");
    let shown = format!("Authorization: Bearer {TOKEN}");
    let (_, told) = curl(&["--cacert", &ours, "--header", &shown, &format!("{url}/metrics")]);
    assert!(told.ends_with("\n2 200") && told.contains("onlyonce_claims_total"), "{told}");
    assert_eq!(curl(&["--cacert", &theirs, &url]).0, Some(60), "signed by nobody who is trusted");
    assert_ne!(curl(&[&clear]).0, Some(0), "nothing is said in the clear");

    let (code, told) = operator(&["stats", "--admin", &url, "--admin-ca", &ours]);
    assert!(code == Some(0) && told.contains("completed"), "{told}");
    let (code, told) = operator(&["records", "list", "--json", "--admin", &url, "--admin-ca", &ours]);
    assert_eq!((code, told.lines().count()), (Some(0), 1), "{told}");
    for args in [&["--admin", &url][..], &["--admin", &url, "--admin-ca", &theirs], &["--admin", &clear]] {
        let (code, told) = operator(&[&["stats"], args].concat());
        assert_eq!(code, Some(69), "{args:?}: {told}");
    }
    let (code, told) = operator(&["stats", "--admin", &clear, "--admin-ca", &ours]);
    assert!(code == Some(2) && told.contains("https://"), "{told}");
    let (code, told) = operator(&["stats", "--admin", &url, "--admin-ca", &key]);
    assert!(code == Some(2) && told.contains("no certificate"), "{told}");
}

#[test]
fn operators_show_a_certificate_where_one_is_asked_for_and_the_token_all_the_same() {
    let (servers, operators, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let [certificate, key] = servers.signed("127.0.0.1");
    let ([alice, her_key], [mallory, his_key]) = (operators.signed("alice"), strangers.signed("mallory"));
    let (ours, clients) = (servers.file(), operators.file());
    let upstream = Upstream::start();
    let tls =
        ["--admin-tls-certificate", &certificate, "--admin-tls-key", &key, "--admin-tls-client-ca", &clients];
    let (_proxy, admin) = start_with(&upstream, &[&["--store", "memory:"], &tls[..]].concat(), &[]);
    let url = format!("https://{admin}");

    let asking = ["stats", "--admin", &url, "--admin-ca", &ours];
    let shows_hers = ["--admin-certificate", &alice, "--admin-key", &her_key];
    let shows_his = ["--admin-certificate", &mallory, "--admin-key", &his_key];
    assert_eq!(operator(&[&asking[..], &shows_hers].concat()).0, Some(0));
    for shown in [&[][..], &shows_his] {
        let (code, told) = operator(&[&asking[..], shown].concat());
        assert_eq!(code, Some(69), "{shown:?}: {told}");
    }
    let output = onlyonce(&[&asking[..], &shows_hers].concat()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(65) && told.contains("token"), "{told}");

    let live = format!("{url}/health/live");
    assert_ne!(curl(&["--cacert", &ours, &live]).0, Some(0), "not even whether it runs");
    let (code, told) = curl(&["--cacert", &ours, "--cert", &alice, "--key", &her_key, &live]);
    assert!(code == Some(0) && told.ends_with("\n2 200"), "{told}");
}
