//! A real collector, Rotel, which writes down every span, or every figure, that it is sent.
//!
//! `ONLYONCE_COLLECTOR` names the program when it is not `rotel-agent` on the path; `cargo xtask test` sets it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use onlyonce_testkit::servers::Port;
use tempfile::TempDir;

use super::series::series;

/// One private collector. It is killed when this value goes.
pub(crate) struct Collector {
    child: Child,
    folder: TempDir,
    http: Port,
    _grpc: Port,
}

/// A span, as the collector tells of it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// `Trace ID`, `Parent ID`, `ID`, `Name` and `Kind`.
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) attributes: BTreeMap<String, String>,
    /// Trace and span.
    pub(crate) links: Vec<(String, String)>,
}

impl Collector {
    /// Starts it and waits until it takes connections. It tells of `what`: `traces` or `metrics`.
    pub(crate) fn start(what: &str) -> Self {
        let (folder, http, grpc) = (TempDir::new().unwrap(), Port::free().unwrap(), Port::free().unwrap());
        let program = std::env::var_os("ONLYONCE_COLLECTOR").unwrap_or_else(|| "rotel-agent".into());
        let log = File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new(&program)
            .args(["start", "--exporter", "blackhole"])
            .args(["--debug-log", what, "--debug-log-verbosity", "detailed"])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{}", http.get())])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{}", grpc.get())])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        while TcpStream::connect(("127.0.0.1", http.get())).is_err() {
            assert_eq!(child.try_wait().unwrap(), None, "the collector does not start");
            thread::yield_now();
        }
        Self { child, folder, http, _grpc: grpc }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http.get())
    }

    /// Waits until it has begun to tell of `count` spans, and ends it: everything that it told.
    pub(crate) fn told(self, count: usize) -> Vec<Told> {
        spans(&self.ended_after(|text| spans(text).len() >= count))
    }

    /// Waits until it has told of every series in `wanted`, and ends it: every one that it told of, with its number. What a
    /// histogram counted up to each bound is there as at `/metrics`.
    pub(crate) fn figures(self, wanted: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        figures(&self.ended_after(|text| {
            // The last line may be half written.
            let told = figures(text.rsplit_once('\n').map_or("", |(whole, _)| whole));
            wanted.keys().all(|series| told.contains_key(series))
        }))
    }

    fn ended_after(mut self, is_told: impl Fn(&str) -> bool) -> String {
        let log = self.folder.path().join("log");
        let text = || fs::read_to_string(&log).unwrap();
        while !is_told(&text()) {
            assert_eq!(self.child.try_wait().unwrap(), None, "the collector has ended: {}", text());
            thread::yield_now();
        }
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap();
        text()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the spans that it has written.
fn spans(text: &str) -> Vec<Told> {
    let mut spans: Vec<Told> = Vec::new();
    let (mut is_link, mut is_attribute) = (false, false);
    for line in text.lines() {
        if line.starts_with("Span #") {
            spans.push(Told::default());
        }
        match line.split_whitespace().next() {
            Some("Attributes:") => (is_attribute, is_link) = (true, false),
            Some("SpanLink") => (is_attribute, is_link) = (false, true),
            Some("->") => {}
            _ => (is_attribute, is_link) = (false, false),
        }
        let (Some(span), Some((name, value))) = (spans.last_mut(), line.split_once(':')) else { continue };
        let (name, value) = (name.trim().trim_start_matches("-> ").to_owned(), value.trim().to_owned());
        match name.as_str() {
            "Trace ID" if is_link => span.links.push((value, String::new())),
            "ID" if is_link => span.links.last_mut().unwrap().1 = value,
            _ if is_attribute => drop(span.attributes.insert(name, value)),
            "Trace ID" | "Parent ID" | "ID" | "Name" | "Kind" => drop(span.fields.insert(name, value)),
            _ => {}
        }
    }
    spans
}

/// Reads the figures that it has written.
fn figures(text: &str) -> BTreeMap<String, f64> {
    let mut told = BTreeMap::new();
    let (mut name, mut labels, mut bounds, mut count) = (String::new(), Vec::new(), Vec::new(), 0.0);
    for line in text.lines() {
        let Some((field, value)) = line.split_once(": ") else {
            if line.starts_with("NumberDataPoints") || line.starts_with("HistogramDataPoints") {
                (labels, bounds, count) = (Vec::new(), Vec::new(), 0.0);
            }
            continue;
        };
        let number = || value.parse::<f64>().unwrap_or_else(|error| panic!("{line}: {error}"));
        match field.trim() {
            "-> Name" => value.clone_into(&mut name),
            "-> Description" | "-> Unit" | "-> DataType" | "-> IsMonotonic" | "-> AggregationTemporality" => {
            }
            "Value" => drop(told.insert(series(&name, &labels), number())),
            "Sum" => drop(told.insert(series(&format!("{name}_sum"), &labels), number())),
            "Count" => drop(told.insert(series(&format!("{name}_count"), &labels), number())),
            field if field.starts_with("ExplicitBounds") => bounds.push(value.to_owned()),
            field if field.starts_with("Buckets") => {
                count += number();
                let bound = if bounds.is_empty() { "+Inf".to_owned() } else { bounds.remove(0) };
                let labels = [&*labels, &[("le".to_owned(), bound)]].concat();
                told.insert(series(&format!("{name}_bucket"), &labels), count);
            }
            field => {
                let value = value.strip_prefix("Str(").and_then(|value| value.strip_suffix(')'));
                if let (Some(label), Some(value)) = (field.strip_prefix("-> "), value) {
                    labels.push((label.to_owned(), value.to_owned()));
                }
            }
        }
    }
    told
}
