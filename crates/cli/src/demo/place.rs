//! Where everything of one demo is: the addresses, and the folder that goes away with it.

use std::net::SocketAddr;
use std::path::PathBuf;

use onlyonce::key::derive::random_v4;
use tempfile::TempDir;

use super::system;
use crate::failure::Failure;
use crate::paint::{Paint, Tone};

/// The surroundings of a demo. Dropping it removes what was made for it.
#[derive(Debug)]
pub(crate) struct Place {
    folder: TempDir,
    store: String,
    is_kept: bool,
    pub(super) upstream: SocketAddr,
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    /// Part of every key, so that a store that was used before does not know them.
    run: String,
}

impl Place {
    pub(super) fn new(
        store: Option<&str>,
        upstream: SocketAddr,
        listen: SocketAddr,
        admin: SocketAddr,
    ) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("onlyonce-demo-").tempdir().map_err(system)?;
        let own = format!("file:{}", folder.path().join("store").display());
        Ok(Self {
            store: store.map_or(own, ToOwned::to_owned),
            is_kept: store.is_some(),
            folder,
            upstream,
            listen,
            admin,
            run: random_v4()?.as_str().chars().take(4).collect(),
        })
    }

    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Does the store remember after a crash?
    pub(super) fn is_durable(&self) -> bool {
        !self.store.starts_with("memory:")
    }

    /// What the sidecar says goes here, not between the lines for people.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("sidecar.log")
    }

    /// The key of an order.
    pub(super) fn key(&self, order: &str) -> String {
        format!("{order}-{}", self.run)
    }

    pub(super) fn describe(&self, process: u32) -> String {
        let paint = Paint::for_stream(&std::io::stdout());
        let end = if self.is_kept { "kept" } else { "removed when this ends" };
        let row = |name: &str, value: &str, note: &str| {
            let note = paint.paint(Tone::Quiet, note);
            format!("  {name:<13} {}  {note}", paint.paint(Tone::Code, &format!("{value:<30}")))
        };
        [
            String::new(),
            paint.paint(Tone::Strong, "onlyonce demo"),
            String::new(),
            row(
                "payments API",
                &format!("http://{}", self.upstream),
                "a small service that knows nothing of keys",
            ),
            row(
                "sidecar",
                &format!("http://{}", self.listen),
                &format!("onlyonce proxy in front of it, process {process}"),
            ),
            row(
                "dashboard",
                &format!("http://{}", self.admin),
                "for a browser: what happens, and what nobody knows",
            ),
            row("store", &self.store, end),
        ]
        .join("\n")
    }
}
