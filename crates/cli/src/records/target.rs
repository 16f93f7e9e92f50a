//! Which store is meant: `file:DIR` today.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use onlyonce_store_embedded::{EmbeddedStore, Options};

use crate::failure::Failure;

/// The store a command works on.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store, as `file:DIR`. No process may have it open
    #[arg(long, value_name = "URL")]
    store: Target,
}

#[derive(Debug, Clone)]
struct Target(PathBuf);

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        match url.split_once(':') {
            Some(("file", folder)) if !folder.is_empty() => Ok(Self(folder.into())),
            Some(("file", _)) => Err("file: needs a folder, as in file:./onlyonce-data".into()),
            _ => Err("the stores that can be named here are: file:DIR".into()),
        }
    }
}

impl StoreArgs {
    /// Opens the store; makes it if it is not there and `create` says so.
    pub(crate) fn open(&self, create: bool) -> Result<EmbeddedStore, Failure> {
        let folder = &self.store.0;
        if !create && !folder.join("meta").is_file() {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no store in it");
            return Err(Failure::Unreadable { name: folder.display().to_string(), source });
        }
        Ok(EmbeddedStore::open(folder, Options::default())?)
    }
}

/// Runs a command that asks the store.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::System(Box::new(error)))?.block_on(work)
}
