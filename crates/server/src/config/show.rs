//! Shows a configuration as it is in force: TOML again, each value with where it came from, secrets hidden.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::{Config, Origin};

/// Fields whose value is never shown.
const SECRET: [&str; 2] = ["admin.token", "traces.headers"];

/// Fields that may hold a URL with a password in it.
const URLS: [&str; 7] = [
    "store.url",
    "store.cache",
    "proxy.upstream",
    "proxy.auth_url",
    "consume.source",
    "consume.handler",
    "traces.otlp",
];

impl Config {
    /// The configuration as TOML, to be read by people; it can be used as a file again, but for what is hidden.
    pub fn show(&self) -> String {
        let mut text = String::new();
        let table = Table::try_from(&self.merged).unwrap_or_default();
        for (section, value) in &table {
            match value {
                Value::Table(fields) if !fields.is_empty() => {
                    let _ = writeln!(text, "[{section}]");
                    for (field, value) in fields {
                        let path = format!("{section}.{field}");
                        let origin = self.origin(&path).unwrap_or(Origin::Default);
                        let line = format!("{field} = {}", shown(&path, value));
                        let _ = writeln!(text, "{line:<50} # {origin}");
                    }
                    text.push('\n');
                }
                Value::Array(routes) => {
                    for route in routes {
                        let _ = writeln!(text, "[[{section}]]");
                        for (field, value) in route.as_table().into_iter().flatten() {
                            let _ = writeln!(text, "{field} = {value}");
                        }
                        text.push('\n');
                    }
                }
                _ => {}
            }
        }
        text
    }

    /// The same as one JSON value: `{"section": {"field": {"value": …, "from": "file"}}}`, routes as they are.
    pub fn show_json(&self) -> serde_json::Value {
        let table = Table::try_from(&self.merged).unwrap_or_default();
        let sections = table.iter().map(|(section, value)| {
            let Value::Table(fields) = value else { return (section.clone(), json(value)) };
            let fields = fields.iter().map(|(field, value)| {
                let path = format!("{section}.{field}");
                let value = match shown(&path, value) {
                    hidden if hidden != value.to_string() => hidden.trim_matches('"').into(),
                    _ => json(value),
                };
                let from = self.origin(&path).unwrap_or(Origin::Default).to_string();
                (field.clone(), serde_json::json!({ "value": value, "from": from }))
            });
            (section.clone(), serde_json::Value::Object(fields.collect()))
        });
        serde_json::Value::Object(sections.collect())
    }
}

fn json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn shown(path: &str, value: &Value) -> String {
    if SECRET.contains(&path) {
        return "\"***\"".to_owned();
    }
    match value {
        Value::String(url) if URLS.contains(&path) => Value::String(without_password(url)).to_string(),
        value => value.to_string(),
    }
}

/// A URL with what stands between `//` and `@` replaced.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{path}"),
        None => url.to_owned(),
    }
}
