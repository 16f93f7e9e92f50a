//! Records that only this process can read: where its keys come from, and what is promised about them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onlyonce_core::store::encrypted::{Misfit, random_key};
use onlyonce_core::{Encrypted, KeyId, Keyring, RandomError, StoreError};

use super::{OpenError, Opened};
use crate::config::{ConfigError, EncryptionSettings};
use crate::operator::now;

/// The largest key file: 64 keys and something to say about each of them.
const FILE_BYTES_MAX: u64 = 64 * 1024;
const FIELD: &str = "store.encryption_key_file";

/// A store whose bytes are encrypted, and where its keys are.
#[derive(Debug, Clone)]
pub(crate) struct Encryption {
    encrypted: Arc<Encrypted>,
    settings: EncryptionSettings,
}

impl Encryption {
    /// Encrypts what `opened` is given from here on.
    pub(crate) fn begin(opened: Opened, settings: &EncryptionSettings) -> Result<Opened, ConfigError> {
        let keys = read_keys(&settings.key_file)?.accepting_plain(settings.accept_plain);
        let encrypted = Arc::new(Encrypted::new(opened.store, keys));
        let replicated = opened.replicated.map(|mut replicated| {
            replicated.encrypted = Some(Arc::clone(&encrypted));
            replicated
        });
        let encryption = Some(Self { encrypted: Arc::clone(&encrypted), settings: settings.clone() });
        Ok(Opened { store: encrypted, replicated, encryption, ..opened })
    }

    /// What the key file says now. Nothing goes by it yet.
    pub(crate) fn read(&self) -> Result<Keyring, ConfigError> {
        Ok(read_keys(&self.settings.key_file)?.accepting_plain(self.settings.accept_plain))
    }

    /// Goes on with `keys`. What cannot be used changes nothing.
    pub(crate) async fn rekey(&self, keys: &Arc<Keyring>) -> Result<(), OpenError> {
        // ORDER: before anything is written with them.
        self.admit(keys).await?;
        self.encrypted.rekey(Arc::clone(keys));
        Ok(())
    }

    /// Sees to it that the keys it began with are those of the store.
    pub(super) async fn admit_first(&self) -> Result<(), OpenError> {
        self.admit(&self.encrypted.keys()).await
    }

    /// What its keys do not fit, if anything.
    pub(super) async fn misfit(&self) -> Result<Option<Misfit>, StoreError> {
        self.encrypted.misfit(&self.encrypted.noted().await?, &self.encrypted.keys()).await
    }

    async fn admit(&self, keys: &Keyring) -> Result<(), OpenError> {
        let noted = self.encrypted.noted().await.map_err(OpenError::Store)?;
        match self.encrypted.misfit(&noted, keys).await.map_err(OpenError::Store)? {
            None => {}
            Some(lost @ (Misfit::OtherKeys(_) | Misfit::AnotherKey(_))) if self.settings.accept_lost_keys => {
                tracing::warn!(
                    "{lost}; store.accept_lost_keys lets it start, and what they wrote stays unreadable"
                );
            }
            Some(misfit) => return Err(refused(&misfit)),
        }
        // Whoever sweeps or fails over may keep it from being written now: the next start notes it.
        if !noted.is_enough(keys, now())
            && let Err(error) = self.encrypted.note(keys).await
        {
            tracing::warn!(
                error = super::told(&error),
                "which key writes here could not be noted in the store"
            );
        }
        let missing: Vec<_> =
            noted.names().filter(|name| keys.ids().all(|id| id.as_str() != *name)).collect();
        if !missing.is_empty() {
            tracing::info!(
                keys = missing.join(", "),
                "the key file lacks keys that wrote here: what they wrote and has not expired cannot be read"
            );
        }
        Ok(())
    }

    /// What is promised, in words.
    pub(crate) fn promise(&self) -> String {
        let keys = self.encrypted.keys();
        let mut text =
            format!("bodies and steps are encrypted with the key `{}` (AES-256-GCM-SIV)", keys.first());
        let older: Vec<_> = keys.ids().skip(1).map(|id| format!("`{id}`")).collect();
        if !older.is_empty() {
            text.extend(["; ", &older.join(", "), " read too"]);
        }
        if keys.accepts_plain() {
            text.push_str("; RECORDS THAT ARE NOT ENCRYPTED ARE ACCEPTED");
        }
        text
    }
}

/// Why keys that do not fit a store are refused, and what to do.
pub(super) fn refused(misfit: &Misfit) -> OpenError {
    let what_to_do = match misfit {
        Misfit::OtherKeys(_) | Misfit::AnotherKey(_) => {
            "; if it is the right file and the keys are lost for good, set store.accept_lost_keys = true"
        }
        _ => "",
    };
    OpenError::Settings(ConfigError::field(FIELD, format!("{misfit}{what_to_do}")))
}

/// Reads a key file: a line `NAME = BASE64` for each key, the one to write with first. Nobody but its owner may read it.
pub fn read_keys(path: &Path) -> Result<Keyring, ConfigError> {
    let wrong = |problem: String| ConfigError::field(FIELD, format!("{}: {problem}", path.display()));
    refuse_readable_by_others(path).map_err(wrong)?;
    if fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len() > FILE_BYTES_MAX {
        return Err(wrong("it has more than 64 KiB".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let lines = (1_usize..).zip(text.lines().map(str::trim));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    // What stands in the line is never shown: it may be a key.
    let read = |(number, line)| key(line).map_err(|problem| wrong(format!("line {number}: {problem}")));
    let keys = keys.map(read).collect::<Result<Vec<_>, _>>()?;
    Keyring::new(keys).map_err(|error| wrong(error.to_string()))
}

fn key(line: &str) -> Result<(KeyId, [u8; 32]), String> {
    let (name, value) = line.split_once('=').ok_or("it is not NAME = BASE64")?;
    let name = KeyId::new(name.trim().trim_matches('"')).map_err(|error| error.to_string())?;
    let bytes = STANDARD.decode(value.trim().trim_matches('"')).map_err(|_| "the key is not base64")?;
    let bytes =
        bytes.try_into().map_err(|bytes: Vec<u8>| format!("the key has {} bytes, not 32", bytes.len()))?;
    Ok((name, bytes))
}

/// A new key, as a line of a key file.
pub fn new_key_line(name: &KeyId) -> Result<String, RandomError> {
    Ok(format!("{name} = {}", STANDARD.encode(random_key()?)))
}

fn refuse_readable_by_others(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = fs::metadata(path).map_err(|error| error.to_string())?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!("others than its owner can read it: chmod 600 {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn read(text: &str) -> Result<Keyring, String> {
        read_keys(file(text, 0o600).path()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_key_is_written_with_and_all_are_read() {
        let line = |name| new_key_line(&KeyId::new(name).unwrap()).unwrap();
        let quoted = line("old").replace("= ", "= \"") + "\"";
        let keys = read(&format!("# since November\n\n  {}\n{quoted}\n", line("2026-11"))).unwrap();
        assert_eq!(keys.ids().map(KeyId::as_str).collect::<Vec<_>>(), ["2026-11", "old"]);
        assert_ne!(line("a"), line("a"));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_without_showing_it() {
        let short = STANDARD.encode([7; 31]);
        let good = STANDARD.encode([7; 32]);
        for (text, expected) in [
            ("", "there is no key"),
            ("# nothing", "there is no key"),
            (good.as_str(), "line 1: "),
            (&format!("a = {short}"), "line 1: the key has 31 bytes, not 32"),
            (&format!("a = {good}\nb = {good}!"), "line 2: the key is not base64"),
            (&format!("\nUPPER = {good}"), "line 2: the name of a key is"),
            (&format!("a = {good}\na = {good}"), "two keys have the same name"),
            (&"#".repeat(70_000), "64 KiB"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
            assert!(!problem.contains(&good[..8]) && !problem.contains(&short[..8]), "{problem}");
        }
        assert!(read_keys(Path::new("/nowhere/keys")).is_err());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_what_to_do() {
        let line = new_key_line(&KeyId::new("a").unwrap()).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o777] {
            let file = file(&line, mode);
            let problem = read_keys(file.path()).unwrap_err().to_string();
            assert!(problem.contains(&format!("chmod 600 {}", file.path().display())), "{problem}");
        }
        assert!(read_keys(file(&line, 0o400).path()).is_ok());
    }
}
