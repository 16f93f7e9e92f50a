//! Which store is meant: `file:DIR` today.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use onlyonce::{Encrypted, Store};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::operator::AuditFile;
use onlyonce_store_embedded::{EmbeddedStore, Options};

use super::side::refused;
use super::write::WhoArgs;
use crate::failure::Failure;
use crate::proxy::environment;

/// The store a command works on.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store, as `file:DIR`. No process may have it open
    #[arg(long, value_name = "URL")]
    store: Target,

    /// The keys of the store's encryption: records are then read and written in the clear here. Without it they are left
    /// as they are stored
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,

    /// With `--encryption-key-file`: also read records that are not encrypted
    #[arg(long, requires = "encryption_key_file")]
    accept_plain: bool,

    #[command(flatten)]
    who: WhoArgs,

    /// The file that this is audited in [default: beside the store]
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
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
    /// Does `work` as `action` between two lines of the audit: records leave the store, or enter it, past every process.
    pub(crate) async fn audited<T>(
        &self,
        action: &'static str,
        (what, why): (String, Option<&str>),
        work: impl Future<Output = Result<T, Failure>>,
        told: impl FnOnce(&T) -> String,
    ) -> Result<T, Failure> {
        let by = self.who.by(why);
        let told = |done: &Result<T, Failure>| match done {
            Ok(done) => told(done),
            Err(failure) => format!("failed, may have run in part: {}", failure.told().1),
        };
        let done = self.auditor()?.around(action, what, &by, work, told).await;
        done.map_err(|refusal| refused(&refusal.to_json()))?
    }

    fn auditor(&self) -> Result<AuditFile, Failure> {
        if let Some(path) = &self.audit {
            return Ok(AuditFile::at(path.clone()));
        }
        let mut flags = File::default();
        flags.store.url = Some(format!("file:{}", self.store.0.display()));
        let sources = Sources { file: None, environment: environment(std::env::vars_os()), flags };
        let beside = AuditFile::of(&sources).map_err(|error| Failure::Refused(Box::new(error)))?;
        beside.ok_or_else(|| Failure::Usage("name the file that this is audited in: --audit FILE".to_owned()))
    }

    /// Opens the store; makes it if it is not there and `create` says so.
    pub(crate) fn open(&self, create: bool) -> Result<EmbeddedStore, Failure> {
        let folder = &self.store.0;
        if !create && !folder.join("meta").is_file() {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no store in it");
            return Err(Failure::Unreadable { name: folder.display().to_string(), source });
        }
        Ok(EmbeddedStore::open(folder, Options::default())?)
    }

    /// The same, with what it keeps in the clear.
    pub(crate) fn open_in_the_clear(&self, create: bool) -> Result<Arc<dyn Store>, Failure> {
        // ORDER: the keys first: a store is not made for a command that cannot read it.
        let keys = self.encryption_key_file.as_deref().map(onlyonce_server::read_keys).transpose();
        let keys = keys.map_err(|error| Failure::Refused(Box::new(error)))?;
        let store = Arc::new(self.open(create)?);
        Ok(match keys {
            Some(keys) => Arc::new(Encrypted::new(store, keys.accepting_plain(self.accept_plain))),
            None => store,
        })
    }
}

/// Runs a command that asks the store.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::System(Box::new(error)))?.block_on(work)
}
