//! The alert rules and the dashboard in `deploy/` ask only for figures that exist, and `promtool` understands them. Never
//! skipped: without `promtool` (Debian package `prometheus`) these tests fail.

mod figures;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Metrics;
use figures::{Figures, uses, words_after};

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rules without their comments.
fn rules() -> String {
    let text = read("deploy/prometheus/onlyonce.rules.yml");
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/grafana/onlyonce.json")).expect("the dashboard is JSON")
}

fn promtool(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("promtool").args(arguments).arg(file).output().expect("promtool is installed");
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {told}");
    told
}

/// Every panel that shows something.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row")
}

/// Every expression of the dashboard, with its variables filled in.
fn expressions(dashboard: &Value) -> Vec<String> {
    let targets = panels(dashboard).flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    targets
        .chain(annotations)
        .map(|asked| asked["expr"].as_str().expect("an expression"))
        .map(|expr| expr.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$route", ".*"))
        .collect()
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let file = repository("deploy/prometheus/onlyonce.rules.yml");
    assert!(promtool(&["check", "rules"], &file).contains("SUCCESS"));
    let tests = repository("deploy/prometheus/onlyonce.rules.test.yml");
    assert!(promtool(&["test", "rules"], &tests).contains("SUCCESS"));
}

#[test]
fn every_alert_has_a_test_a_severity_and_a_page_that_says_what_to_do() {
    let (rules, tests) = (rules(), read("deploy/prometheus/onlyonce.rules.test.yml"));
    let alerts = words_after(&rules, "- alert: ");
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in &alerts {
        let fires = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
        assert!(tests.contains(&fires), "no test asks when {alert} fires");
    }
    for (part, count) in [("severity: ", alerts.len()), ("summary: ", alerts.len())] {
        assert_eq!(rules.matches(part).count(), count, "{part}");
    }
    let pages = words_after(&rules, "playbook: ");
    assert_eq!(pages.len(), alerts.len());
    for page in pages {
        let (path, anchor) = page.split_once('#').unwrap_or((&page, ""));
        let text = read(path);
        let slug = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let found = text.lines().any(|line| line.starts_with('#') && slug(line) == anchor);
        assert!(anchor.is_empty() || found, "{page}: there is no such heading");
    }
}

#[test]
fn rules_and_dashboard_ask_only_for_figures_that_exist() {
    let figures = Figures::documented(&read("docs/operating.md"));
    for (what, text) in [("rule", rules())]
        .into_iter()
        .chain(expressions(&dashboard()).into_iter().map(|expression| ("panel", expression)))
    {
        let asked = uses(&text);
        assert!(!asked.is_empty(), "{what}: {text} asks for nothing of ours");
        for asked in asked {
            figures.check(&asked).unwrap_or_else(|wrong| panic!("{what}: {wrong} in {text}"));
        }
    }
    let labels = figures.labels();
    let dashboard = dashboard();
    let legends: Vec<_> = panels(&dashboard)
        .flat_map(|panel| panel["targets"].as_array().expect("targets"))
        .map(|target| target["legendFormat"].as_str().expect("a legend"))
        .collect();
    let used = words_after(&legends.join("\n"), "{{").into_iter().chain(words_after(&rules(), "$labels."));
    let asked = format!("{}\n{}", rules(), expressions(&dashboard).join("\n"));
    for label in used.chain(words_after(&asked, "by (")) {
        assert!(labels.contains(label.as_str()), "`{label}` is a label of no figure");
    }
}

#[test]
fn what_alerts_ask_for_is_on_the_dashboard() {
    let shown: BTreeSet<_> =
        expressions(&dashboard()).iter().flat_map(|text| uses(text)).map(|asked| asked.figure).collect();
    for asked in uses(&rules()) {
        assert!(shown.contains(&asked.figure), "the dashboard does not show {}", asked.figure);
    }
}

#[test]
fn the_dashboard_is_whole_and_its_expressions_are_understood() {
    let dashboard = dashboard();
    let all = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = all.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), all.len(), "ids are unique");
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a title");
        assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{title} shows nothing");
        assert!(
            panel["description"].as_str().is_some_and(|text| text.len() > 10),
            "{title} explains nothing"
        );
        assert!(panel["gridPos"]["w"].as_u64().is_some_and(|wide| wide <= 24), "{title} has no place");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title} is tied to one server");
    }
    let rules: Vec<_> = expressions(&dashboard)
        .iter()
        .enumerate()
        .map(|(number, expr)| json!({"record": format!("panel:{number}"), "expr": expr}))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("panels.yml");
    // JSON is YAML.
    fs::write(&file, json!({"groups": [{"name": "panels", "rules": rules}]}).to_string()).expect("a file");
    let told = promtool(&["check", "rules"], &file);
    assert!(told.contains(&format!("{} rules found", rules.len())), "{told}");
}

#[test]
fn what_is_shown_has_the_labels_that_are_documented() {
    let metrics = Arc::new(Metrics::new().expect("the buckets are in order"));
    super::tests::show_everything(&metrics);
    let figures = Figures::documented(&read("docs/operating.md"));
    let text = metrics.render();
    let mut seen = 0;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        for shown in uses(line) {
            figures.check(&shown).unwrap_or_else(|wrong| panic!("{wrong} in {line}"));
            seen += 1;
        }
    }
    assert!(seen > 40, "{text}");
}

#[test]
fn what_does_not_exist_is_found() {
    let figures = Figures::documented(&read("docs/operating.md"));
    for wrong in [
        "onlyonce_no_such_total",
        "onlyonce_claims_total_bucket",
        "onlyonce_claims_total{answr=\"granted\"}",
        "onlyonce_claims_total{answer=\"grunted\"}",
        "onlyonce_endings_total{ending=~\"fenced|lease-lots\"}",
    ] {
        let asked = uses(wrong);
        assert!(asked.iter().any(|asked| figures.check(asked).is_err()), "{wrong}");
    }
}
