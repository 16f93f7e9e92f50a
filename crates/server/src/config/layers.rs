//! Lays flags over the environment, the environment over the file, the file over the defaults, and remembers where
//! each value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use toml::{Table, Value};

use super::error::ConfigError;
use super::file::File;
use super::nearest::nearest;

/// What begins the name of every variable that is a setting: `ONLYONCE_STORE_URL` is `url` in `[store]`.
const PREFIX: &str = "ONLYONCE_";

/// The sections that the environment can set. Routes are a list, and lists of tables have no place in a variable.
const SECTIONS: [&str; 12] = [
    "proxy", "tls", "store", "sweep", "consume", "serve", "admin", "jwt", "traces", "metrics", "log",
    "defaults",
];

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The file.
    File,
    /// The environment.
    Environment,
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// All layers in one, and where each value came from, by `section.field`.
#[derive(Debug, Clone, Default)]
pub(super) struct Layers {
    merged: Table,
    pub(super) origins: BTreeMap<String, Origin>,
}

impl Layers {
    /// Lays `over` on top.
    pub(super) fn lay(&mut self, over: &File, origin: Origin) -> Result<(), ConfigError> {
        // A shape that was just read can be written.
        let table = Table::try_from(over)
            .map_err(|error| ConfigError::field(origin.to_string(), error.to_string()))?;
        merge(&mut self.merged, table, "", &mut |path| {
            self.origins.insert(path, origin);
        });
        Ok(())
    }

    pub(super) fn finish(&self) -> Result<File, ConfigError> {
        self.merged
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| ConfigError::field("configuration", error.message()))
    }
}

fn merge(base: &mut Table, over: Table, path: &str, set: &mut impl FnMut(String)) {
    for (name, value) in over {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (base.get_mut(&name), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over, &path, set),
            (_, Value::Table(over)) => {
                let mut table = Table::new();
                merge(&mut table, over, &path, set);
                base.insert(name, Value::Table(table));
            }
            (_, value) => {
                set(path);
                base.insert(name, value);
            }
        }
    }
}

/// Reads a file's text.
pub(super) fn read_file(path: &Path, text: &str) -> Result<File, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::file(path, text, &error))
}

/// Reads the settings among `variables`, and the names that look like settings and are none.
pub(super) fn read_environment(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<(File, Vec<String>), ConfigError> {
    let mut table = Table::new();
    let mut unknown = Vec::new();
    for (name, text) in variables {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let rest = rest.to_ascii_lowercase();
        let Some((section, field)) = split(&rest) else {
            unknown.push(name);
            continue;
        };
        let value = read_value(&name, section, field, &text)?;
        let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(section) = section {
            section.insert(field.to_owned(), value);
        }
    }
    let file =
        table.try_into().map_err(|error: toml::de::Error| ConfigError::variable(PREFIX, error.message()))?;
    Ok((file, unknown))
}

fn split(rest: &str) -> Option<(&str, &str)> {
    rest.split_once('_').filter(|(section, _)| SECTIONS.contains(section))
}

/// The value that fits the field: a number, a truth value or a list if it reads as one and the field takes it, else text.
fn read_value(name: &str, section: &str, field: &str, text: &str) -> Result<Value, ConfigError> {
    let fits = |value: Value| -> Result<Value, toml::de::Error> {
        let fields = Table::from_iter([(field.to_owned(), value.clone())]);
        Table::from_iter([(section.to_owned(), Value::Table(fields))]).try_into::<File>().map(|_| value)
    };
    let literal = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    if let Some(Ok(value)) = literal.map(fits) {
        return Ok(value);
    }
    fits(Value::String(text.to_owned())).map_err(|error| ConfigError::variable(name, error.message()))
}

/// What to tell about a variable that is no setting.
pub(super) fn about_unknown(name: &str) -> String {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name).to_ascii_lowercase();
    let section = rest.split('_').next().unwrap_or_default();
    match nearest(section, SECTIONS) {
        Some(meant) => format!(
            "environment variable {name} is ignored: settings begin with {PREFIX}{}_",
            meant.to_ascii_uppercase()
        ),
        None => format!(
            "environment variable {name} is ignored: settings are named {PREFIX}SECTION_FIELD, as ONLYONCE_STORE_URL"
        ),
    }
}
