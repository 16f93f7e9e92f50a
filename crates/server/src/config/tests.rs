//! What a configuration file may say, and what it is told when it says it wrongly.

use std::io::Write as _;

use onlyonce_http::rules::Span;

use super::*;

fn sources(text: &str, environment: &[(&str, &str)]) -> (tempfile::NamedTempFile, Sources) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let sources = Sources { file: Some(file.path().into()), environment, flags: File::default() };
    (file, sources)
}

fn read(text: &str) -> Result<Config, ConfigError> {
    sources(text, &[]).1.read()
}

const DESIGN: &str = r#"
[proxy]
listen   = "127.0.0.1:8080"
upstream = "http://127.0.0.1:3000"
[store]
url   = "file:./onlyonce-data"
[defaults]
profile = "standard"
lease = "30s"
retention = "24h"
wait = "0s"
unknown = "hold"
principal = "authorization"
[[route]]
path = "/v1/payments/*"
methods = ["POST"]
required = true
retention = "72h"
body = "json"
exclude = ["/metadata/sent_at"]
"#;

#[test]
fn the_example_of_the_design_is_read() {
    let config = read(DESIGN).unwrap();
    config.settings().unwrap();
    let rules = config.rules();
    assert_eq!(rules.len(), 2, "one route, and the defaults for all other paths");
    assert_eq!(rules[0].retention, Some(Span::from_secs(72 * 3600)));
    assert_eq!(rules[0].lease, Some(Span::from_secs(30)), "from the defaults");
    assert_eq!(rules[1].path, None);
    assert_eq!(config.origin("store.url"), Some(Origin::File));
    assert_eq!(config.origin("proxy.connections_max"), Some(Origin::Default));
}

#[test]
fn an_unknown_field_is_refused_with_its_line_and_the_nearest_name() {
    for (text, expected) in [
        ("[proxy]\nlsiten = \"127.0.0.1:0\"", ["line 2", "`lsiten`", "did you mean `listen`?"]),
        (
            "[defaults]\nlease = \"30s\"\nretentoin = \"1h\"",
            ["line 3", "`retentoin`", "did you mean `retention`?"],
        ),
        ("[[route]]\npath = \"/a\"\n\nrequire = true", ["line 4", "`require`", "did you mean `required`?"]),
        ("[prxy]\nlisten = \"127.0.0.1:0\"", ["line 1", "`prxy`", "did you mean `proxy`?"]),
        ("[log]\ncolour = true", ["line 2", "`colour`", "known here: json, filter"]),
        ("[defaults]\nprofile = \"strype\"", ["line 2", "`strype`", "did you mean `stripe`?"]),
        ("[defaults]\nlease = \"30\"", ["line 2", "\"30\"", "duration"]),
        ("[proxy]\nlisten = \"localhost\"", ["line 2", "`localhost`", "127.0.0.1:8080"]),
        ("[proxy\nlisten = 1", ["line 1", "", ""]),
        ("[proxy]\nconnections_max = \"many\"", ["line 2", "", "many"]),
    ] {
        let error = read(text).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{text:?} should be told {part:?}, was told: {error}");
        }
    }
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_defaults() {
    let environment = [
        ("ONLYONCE_STORE_URL", "memory:"),
        ("ONLYONCE_DEFAULTS_LEASE", "5s"),
        ("ONLYONCE_DEFAULTS_REQUIRED", "true"),
        ("ONLYONCE_DEFAULTS_METHODS", "[\"POST\", \"PUT\"]"),
        ("ONLYONCE_DEFAULTS_NAMESPACE", "42"),
        ("ONLYONCE_PROXY_CONNECTIONS_MAX", "7"),
        ("ONLYONCE_PROXY_UPSTREAM", "http://127.0.0.1:4000"),
        ("OTHER", "x"),
    ];
    let (_file, mut sources) = sources(DESIGN, &environment);
    sources.flags.proxy.upstream = Some("http://127.0.0.1:5000".into());
    let config = sources.read().unwrap();
    let settings = config.settings().unwrap();
    assert_eq!(settings.upstream.url.authority, "127.0.0.1:5000");
    assert_eq!((settings.store.url.as_str(), settings.door.connections_max), ("memory:", 7));
    let defaults = config.rules().pop().unwrap();
    assert_eq!((defaults.lease, defaults.required), (Some(Span::from_secs(5)), Some(true)));
    assert_eq!(defaults.methods, Some(vec!["POST".into(), "PUT".into()]));
    assert_eq!(defaults.namespace.as_deref(), Some("42"), "a number where text is wanted is text");
    assert_eq!(config.origin("proxy.upstream"), Some(Origin::Flag));
    assert_eq!(config.origin("store.url"), Some(Origin::Environment));
    assert!(config.warnings().is_empty());
}

#[test]
fn a_store_that_nobody_sweeps_is_told() {
    let told = |url: &str, enabled: &str| {
        let read = [("ONLYONCE_STORE_URL", url), ("ONLYONCE_SWEEP_ENABLED", enabled)];
        sources("", &read).1.read().unwrap().warnings
    };
    for url in ["file:./x", "memory:"] {
        assert!(told(url, "false")[0].contains("no other process can sweep"), "{url}");
        assert!(told(url, "true").is_empty(), "{url}");
    }
    assert!(told("redis://127.0.0.1", "false").is_empty(), "cron may");
}

#[test]
fn variables_that_set_nothing_are_refused_or_told() {
    let told = |name: &str, value: &str| sources("", &[(name, value)]).1.read().unwrap_err().to_string();
    assert!(told("ONLYONCE_DEFAULTS_LEAS", "5s").contains("did you mean `lease`?"));
    assert!(told("ONLYONCE_DEFAULTS_LEASE", "soon").contains("ONLYONCE_DEFAULTS_LEASE"));
    let warnings = sources("", &[("ONLYONCE_LEASE", "5s")]).1.read().unwrap().warnings;
    assert!(warnings[0].contains("ONLYONCE_LEASE is ignored"), "{warnings:?}");
    let warnings = sources("", &[("ONLYONCE_DEFAULT_LEASE", "5s")]).1.read().unwrap().warnings;
    assert!(warnings[0].contains("ONLYONCE_DEFAULTS_"), "{warnings:?}");
}

#[test]
fn what_cannot_work_is_refused_with_its_name() {
    let good = "[proxy]\nupstream = \"http://a\"\n";
    for (text, expected) in [
        ("", "proxy.upstream"),
        ("[proxy]\nupstream = \"a:80\"", "proxy.upstream"),
        ("[proxy]\nupstream = \"ftp://a\"", "proxy.upstream"),
        ("[proxy]\nupstream = \"http://u:p@a\"", "credentials"),
        ("[proxy]\nupstream = \"http://a/?b\"", "query"),
        ("[proxy]\nupstream = \"http://a\"\nconnections_max = 0", "proxy.connections_max"),
        ("[proxy]\nupstream = \"http://a\"\nbuffered_bytes_max = 2097151", "proxy.buffered_bytes_max"),
        (
            &format!("{good}[[route]]\npath = \"/a\"\nrequest_bytes_max = 268435457"),
            "proxy.buffered_bytes_max",
        ),
        ("[proxy]\nupstream = \"http://a\"\nhead_within = \"0s\"", "proxy.head_within"),
        ("[proxy]\nupstream = \"http://a\"\nupstream_within = \"5m\"", "proxy.upstream_within"),
        (&format!("{good}[[route]]\npath = \"/a\"\nrun_max = \"30s\""), "proxy.upstream_within"),
        (&format!("{good}[tls]\ncertificate = \"a\""), "tls.key"),
        (&format!("{good}[tls]\nclient_ca = \"a\""), "tls.certificate"),
        (
            &format!("{good}[admin]\ntls_certificate = \"a\""),
            "admin.tls_certificate: is set, but admin.listen",
        ),
        (&format!("{good}[admin]\nlisten = \"127.0.0.1:1\"\ntls_key = \"a\""), "admin.tls_certificate"),
        (&format!("{good}[admin]\nlisten = \"127.0.0.1:1\"\ntls_certificate = \"a\""), "admin.tls_key"),
        (&format!("{good}[defaults]\npath = \"/a\""), "defaults.path"),
        (&format!("{good}[store]\ncache = \"redis://a\""), "only a postgres:// store"),
        (&format!("{good}[store]\nredis_prefix = \"a\""), "Redis store only"),
        (&format!("{good}[store]\nallow_eviction = false"), "store.allow_eviction"),
        (&format!("{good}[sweep]\nbatch = 0"), "sweep.batch"),
        (&format!("{good}[sweep]\nevery = \"0s\""), "sweep.every"),
        (&format!("{good}[sweep]\nlease = \"100ms\""), "lease is shorter"),
        (&format!("{good}[sweep]\nquiet = \"at night\""), "22:00-06:00"),
        (&format!("{good}[store]\naccept_plain = true"), "store.encryption_key_file is not"),
        (&format!("{good}[store]\naccept_lost_keys = true"), "store.encryption_key_file is not"),
        (&format!("{good}[admin]\nlisten = \"0.0.0.0:0\""), "set admin.token too"),
        (&format!("{good}[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"short\""), "shorter than 16"),
        (&format!("{good}[admin]\ntoken = \"0123456789abcdef\""), "admin.listen is not"),
    ] {
        let error = read(text).unwrap().settings().unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?} should be told {expected:?}, was told: {error}");
    }
    read(good).unwrap().settings().unwrap();
}

#[test]
fn what_is_shown_hides_secrets_and_can_be_read_again() {
    let text = format!("{DESIGN}[admin]\ntoken = \"hush\"\n")
        .replace("file:./onlyonce-data", "redis://u:hush@h:1/0");
    let config = read(&text).unwrap();
    let shown = config.show();
    assert!(!shown.contains("hush") && !config.show_json().to_string().contains("hush"), "{shown}");
    assert!(shown.contains("redis://***@h:1/0"), "{shown}");
    assert!(shown.contains("# file") && shown.contains("# default"), "{shown}");
    let again = read(&shown).unwrap();
    assert_eq!(again.rules(), config.rules());
    assert_eq!(
        config.show_json()["defaults"]["lease"],
        serde_json::json!({ "value": "30s", "from": "file" })
    );
}

#[test]
fn every_field_of_every_section_is_documented() {
    let page = include_str!("../../../../docs/configuration.md");
    let error = |section: &str| {
        let text = format!("[{section}]\nno_such_field_at_all_anywhere = 1");
        toml::from_str::<File>(&text).unwrap_err().message().to_owned()
    };
    for section in ["proxy", "tls", "store", "sweep", "serve", "admin", "jwt", "log", "defaults"] {
        let message = error(section);
        let names: Vec<_> = message.split('`').skip(3).step_by(2).collect();
        assert!(!names.is_empty(), "{message}");
        for name in names {
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/configuration.md lacks `{name}` of [{section}]"
            );
        }
    }
}
