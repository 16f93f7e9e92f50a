//! A sidecar with keys, and what they are kept in.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::service::Service;
use crate::sidecar::{Sidecar, make_key};

/// A service, a configuration of a sidecar in front of it, and two keys, of which `old` is in the key file.
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    pub(crate) service: Service,
    pub(crate) config: PathBuf,
    /// Lines of key files.
    pub(crate) old: String,
    pub(crate) new: String,
    store: String,
}

impl Stage {
    /// One whose records are in files.
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = format!("file:{}", folder.path().join("store").display());
        Self::over(folder, store)
    }

    /// One whose records are in `store`.
    pub(crate) fn over(folder: TempDir, store: String) -> Self {
        let line = |name| fs::read_to_string(make_key(folder.path(), name)).unwrap().trim().to_owned();
        let (old, new) = (line("old"), line("new"));
        let service = Service::start("Content-Type: application/json\r\n", r#"{"paid":"plainly"}"#);
        let config = folder.path().join("onlyonce.toml");
        let stage = Self { folder, service, config, old, new, store };
        stage.write_keys(&[&stage.old]);
        stage.configure("");
        stage
    }

    /// Writes the configuration, with `more` about the store.
    pub(crate) fn configure(&self, more: &str) {
        let keys = self.folder.path().join("keys").display().to_string();
        let text = format!(
            "[proxy]\nupstream = {:?}\n[store]\nurl = {:?}\nencryption_key_file = {keys:?}\n{more}\n",
            self.service.url(),
            self.store
        );
        fs::write(&self.config, text).unwrap();
    }

    /// Writes the key file of these keys, the one to write with first.
    pub(crate) fn write_keys(&self, lines: &[&str]) {
        let path = self.folder.path().join("keys");
        let _ = fs::remove_file(&path);
        fs::write(&path, lines.join("\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn start(&self) -> Sidecar {
        Sidecar::start(&self.config, self.folder.path())
    }
}
