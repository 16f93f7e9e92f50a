//! Which figures and labels there are, as `docs/operating.md` lists them, and which a text asks for.

use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus adds, and the one of histograms.
const FOREIGN: [&str; 3] = ["job", "instance", "le"];
const HISTOGRAM_PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];

/// The figures with their labels, and the values that each label may have. No values: any.
pub(super) struct Figures(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

/// One series that a text asks for: the figure, and its labels with one value each.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) figure: String,
    labels: Vec<(String, String)>,
}

impl Figures {
    /// Reads the table, which a test compares with what the code counts.
    pub(super) fn documented(page: &str) -> Self {
        let mut figures = BTreeMap::new();
        for line in page.lines().filter(|line| line.starts_with("| `onlyonce_")) {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            figures.insert(cells[1].trim_matches('`').to_owned(), labels(cells[2]));
        }
        for (name, _) in super::super::NAMES {
            assert!(figures.contains_key(name), "{name} is not in the table");
        }
        Self(figures.into_iter().filter(|(name, _)| is_counted(name)).collect())
    }

    /// Is there such a series?
    pub(super) fn check(&self, asked: &Asked) -> Result<(), String> {
        let known = self.0.get(&asked.figure).ok_or_else(|| format!("{} is not counted", asked.figure))?;
        for (label, value) in &asked.labels {
            match known.get(label) {
                _ if FOREIGN.contains(&label.as_str()) => {}
                None => return Err(format!("{} has no label `{label}`", asked.figure)),
                Some(values) if values.is_empty() || value == ".*" => {}
                Some(values) if values.contains(value) => {}
                Some(_) => return Err(format!("`{label}` of {} is never `{value}`", asked.figure)),
            }
        }
        Ok(())
    }

    /// The names of all labels.
    pub(super) fn labels(&self) -> BTreeSet<&str> {
        self.0.values().flat_map(BTreeMap::keys).map(String::as_str).chain(FOREIGN).collect()
    }
}

/// The code has the last word on what there is; the page may be ahead of it by no figure.
fn is_counted(name: &str) -> bool {
    super::super::NAMES.iter().any(|(counted, _)| *counted == name)
}

/// `` `tier`: recent, cache; `what`: answered, … ``: the labels, with their values where all are listed.
fn labels(cell: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels = BTreeMap::new();
    for part in cell.split(';').filter(|part| part.contains('`')) {
        let (names, values) = part.rsplit_once("`:").unwrap_or((part, ""));
        let open = values.contains('…');
        let names: Vec<_> =
            names.split('`').map(str::trim).filter(|name| !matches!(*name, "" | ",")).collect();
        for (index, name) in names.iter().enumerate() {
            let own = index + 1 == names.len() && !open;
            let values = values.split(',').map(|value| value.trim().to_owned());
            labels.insert(
                (*name).to_owned(),
                values.filter(|value| own && !value.is_empty()).collect::<BTreeSet<_>>(),
            );
        }
    }
    labels
}

/// Everything of ours that `text` asks for. A pattern of alternatives asks for each of them.
pub(super) fn uses(text: &str) -> Vec<Asked> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in text.match_indices("onlyonce_") {
        if text[..at].ends_with(part_of_name) {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c| !part_of_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let figure = if is_counted(name) {
            name
        } else {
            // Only histograms have parts, and only they do not say what they count in their name's last word.
            let whole = HISTOGRAM_PARTS.iter().find_map(|part| name.strip_suffix(part));
            whole.filter(|whole| !whole.ends_with("_total")).unwrap_or(name)
        };
        let matchers =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
        found.push(Asked { figure: figure.to_owned(), labels: selected(matchers) });
    }
    found
}

/// `a="x",b=~"y|z"` as pairs. Values here hold no comma.
fn selected(matchers: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for matcher in matchers.split(',').filter(|matcher| !matcher.trim().is_empty()) {
        let (label, value) = matcher.split_once('=').unwrap_or((matcher, ""));
        let label = label.trim().trim_end_matches('!');
        let (is_pattern, value) = value.strip_prefix('~').map_or((false, value), |value| (true, value));
        let value = value.trim_matches('"');
        let values: Vec<_> = if is_pattern { value.split('|').collect() } else { vec![value] };
        labels.extend(values.into_iter().map(|value| (label.to_owned(), value.to_owned())));
    }
    labels
}

/// The words that follow `mark`, up to what ends a word; several where commas are between them.
pub(super) fn words_after(text: &str, mark: &str) -> Vec<String> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "_-./#, ".contains(c));
    let mut words = Vec::new();
    for (at, _) in text.match_indices(mark) {
        let rest = &text[at + mark.len()..];
        let list = &rest[..rest.find(ends).unwrap_or(rest.len())];
        // A list stands in brackets; elsewhere the first word is what was asked for.
        let count = if mark.ends_with('(') { usize::MAX } else { 1 };
        words.extend(list.split([',', ' ']).filter(|word| !word.is_empty()).take(count).map(str::to_owned));
    }
    words
}
