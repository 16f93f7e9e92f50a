//! Shows a configuration as it is in force: TOML again, each value with where it came from, secrets hidden.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::{Config, Origin};

/// Fields whose value is never shown.
const SECRET: [&str; 3] = ["admin.token", "traces.headers", "metrics.headers"];

/// Fields that may hold a URL with a password in it.
const URLS: [&str; 8] = [
    "store.url",
    "store.cache",
    "proxy.upstream",
    "proxy.auth_url",
    "consume.source",
    "consume.handler",
    "traces.otlp",
    "metrics.otlp",
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

/// Parts of the names of parameters whose values are never shown.
const SECRET_PARAMETERS: [&str; 8] = ["pass", "pwd", "secret", "token", "key", "auth", "cred", "sig"];

/// A URL with what stands between `//` and `@` replaced, and every parameter that may be a secret.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return url.to_owned() };
    let (slashes, rest) = rest.split_at(if rest.starts_with("//") { 2 } else { 0 });
    // ORDER: parameters first: an `@` in the value of one is none of the address.
    let shown = match rest.split_once('?') {
        Some((address, query)) => format!("{address}?{}", without_secrets(query)),
        None => rest.to_owned(),
    };
    // The last one: a password may hold any number of them, also `/` and `?`, where somebody forgot to escape it.
    match shown.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}:{slashes}***@{host}"),
        None => format!("{scheme}:{slashes}{shown}"),
    }
}

fn without_secrets(query: &str) -> String {
    let shown = query.split('&').map(|pair| {
        let Some((name, _)) = pair.split_once('=') else { return pair.to_owned() };
        let plain = percent_decoded(name).to_ascii_lowercase();
        let is_secret = SECRET_PARAMETERS.iter().any(|part| plain.contains(part));
        if is_secret { format!("{name}=***") } else { pair.to_owned() }
    });
    shown.collect::<Vec<_>>().join("&")
}

/// The text with every `%XX` read; what is none stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn no_secret_of_a_url_is_shown_wherever_it_stands() {
        for (url, shown) in [
            ("memory:", "memory:"),
            ("file:./onlyonce-data", "file:./onlyonce-data"),
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://u:hush@h:1/0", "redis://***@h:1/0"),
            ("redis://u:hu@sh@h:1/0", "redis://***@h:1/0"),
            ("redis://:hu/sh@h:1/0", "redis://***@h:1/0"),
            ("redis://:hu?sh@h:1/0", "redis://***@h:1/0"),
            ("redis:hush@h", "redis:***@h"),
            ("postgres://h/d?password=hush", "postgres://h/d?password=***"),
            (
                "postgres://u@h/d?sslmode=require&PassWord=hush&schema=s",
                "postgres://***@h/d?sslmode=require&PassWord=***&schema=s",
            ),
            ("postgres://h?password=hu@sh/hush", "postgres://h?password=***"),
            ("postgres://h/d?p%61ssword=hush", "postgres://h/d?p%61ssword=***"),
            ("postgres://h/d?sslpassword=hush&sslkey=hush", "postgres://h/d?sslpassword=***&sslkey=***"),
            ("http://h/check?api_token=hush#hush=1", "http://h/check?api_token=***"),
        ] {
            assert_eq!(without_password(url), shown, "{url}");
        }
    }
}
