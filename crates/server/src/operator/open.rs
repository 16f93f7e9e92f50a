//! An operator straight on a store, when no process that serves it can be asked, or need be.

use std::path::{Path, PathBuf};

use onlyonce_core::Engine;

use super::{Audit, Naming, Operator, Place};
use crate::claims;
use crate::config::{ConfigError, Sources};
use crate::sidecar::{StartError, ruled};
use crate::store::{self, OpenError};

/// Which door's records a store holds: they are named, and their outcomes written, in its way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OfDoor {
    /// `onlyonce proxy`, by the rules that are configured.
    #[default]
    Proxy,
    /// `onlyonce consume`.
    Consume,
    /// `onlyonce serve`, in this namespace.
    Serve(String),
}

/// What it takes to open a store for an operator.
#[derive(Debug)]
pub struct OpenOperator {
    /// Where the store, its secret and the rules are configured.
    pub sources: Sources,
    /// Whose records it holds.
    pub door: OfDoor,
    /// Where commands are audited; beside the store when it is a folder.
    pub audit: Option<PathBuf>,
}

impl OpenOperator {
    /// Opens the store. A folder that holds none is refused, not made.
    pub async fn open(self) -> Result<Operator, StartError> {
        let config = self.sources.read()?;
        let mut settings = config.store_settings()?;
        // Nobody asks twice here.
        settings.recent_bytes_max = 0;
        if let OfDoor::Serve(namespace) = &self.door {
            settings = claims::place(&settings, namespace)?;
        }
        if let Some(folder) = settings.url.strip_prefix("file:")
            && !Path::new(folder).join("meta").is_file()
        {
            return Err(ConfigError::field("store.url", format!("there is no store in {folder}")).into());
        }
        if settings.url == "memory:" {
            return Err(ConfigError::field("store.url", "memory: is seen by its own process only").into());
        }
        let secret = store::secret(&settings)?;
        let opened = store::open_as_it_is(&settings, None).await.map_err(|error| match error {
            OpenError::Settings(error) => StartError::Config(error),
            OpenError::Store(source) => StartError::Store { url: settings.url.clone(), source },
        })?;
        let warning = opened
            .misfit()
            .await
            .map_err(|source| StartError::Store { url: settings.url.clone(), source })?;
        let warning = warning.map(|misfit| misfit.to_string());
        let mut builder = Engine::builder(opened.store);
        if let Some(secret) = secret {
            builder = builder.secret(secret);
        }
        let engine = builder.build().await?;
        let naming = match &self.door {
            OfDoor::Proxy => {
                let engines = store::presumed(&settings, &engine);
                Naming::Routes(ruled(&config, engine.clone(), engines)?.build()?.handle())
            }
            OfDoor::Consume => Naming::Messages(config.consumer_name().into()),
            OfDoor::Serve(namespace) => Naming::Claims(namespace.as_str().into()),
        };
        let audit = self.audit.or_else(|| config.audit_file());
        let place = Place::new("store", &engine, naming);
        Ok(Operator::new(vec![place], audit.map(Audit::new), None).warning_of(warning))
    }
}
