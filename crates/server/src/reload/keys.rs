//! New keys of the encryption: in force once the store has said that they fit it.
//!
//! A store that does not answer says nothing about them. They wait for it, and are tried again until it answers or a newer
//! reload brings others; the old ones stay in force meanwhile.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Keyring;
use tokio::time::Instant;

use crate::clock;
use crate::store::{Encryption, OpenError};

/// How long after one try the next one is made.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The keys in force, and those that are to be.
pub(super) struct Keys {
    encryption: Option<Encryption>,
    /// Those that the store could not be asked about, and when it is asked again.
    waiting: Option<(Arc<Keyring>, Instant)>,
}

impl Keys {
    pub(super) const fn new(encryption: Option<Encryption>) -> Self {
        Self { encryption, waiting: None }
    }

    pub(super) const fn encryption(&self) -> Option<&Encryption> {
        self.encryption.as_ref()
    }

    /// Reads the key file again, and goes on with what it says. Where that cannot be used, what was in force stays, and what
    /// waits waits on.
    pub(super) async fn reload(&mut self) {
        let Some(encryption) = &self.encryption else { return };
        match encryption.read() {
            Ok(keys) => {
                if self.waiting.take().is_some() {
                    tracing::info!("these keys replace those that waited for the store");
                }
                self.put(Arc::new(keys), true).await;
            }
            Err(error) => tracing::error!("the new keys are refused, the old ones stay: {error}"),
        }
    }

    /// Resolves when those that wait are to be tried again; never when none do.
    pub(super) async fn due(&self) {
        match &self.waiting {
            Some((_, at)) => tokio::time::sleep_until(*at).await,
            None => future::pending().await,
        }
    }

    /// Tries those that wait. `true` when they are in force now.
    pub(super) async fn again(&mut self) -> bool {
        let Some((keys, _)) = self.waiting.take() else { return false };
        let is_in_force = self.put(keys, false).await;
        if is_in_force {
            tracing::info!("the keys that waited for the store are in force");
        }
        is_in_force
    }

    async fn put(&mut self, keys: Arc<Keyring>, is_first: bool) -> bool {
        let Some(encryption) = &self.encryption else { return false };
        match encryption.rekey(&keys).await {
            Ok(()) => return true,
            Err(OpenError::Store(error)) if error.is_retryable() => {
                // Said once: an outage may be long.
                if is_first {
                    tracing::warn!(
                        %error,
                        "the store cannot be asked whether the new keys fit it: they are tried again until it can, \
                         and the old ones stay meanwhile"
                    );
                }
                self.waiting = Some((keys, clock::after(AGAIN_AFTER)));
            }
            Err(error) => tracing::error!("the new keys are refused, the old ones stay: {error}"),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use onlyonce_core::{KeyId, MemoryLimits, MemoryStore, SystemClock};
    use onlyonce_testkit::fault::Operation;
    use onlyonce_testkit::{Fault, Faulty};

    use super::*;
    use crate::config::EncryptionSettings;
    use crate::store::{Opened, new_key_line};

    fn line(name: &str) -> String {
        new_key_line(&KeyId::new(name).unwrap()).unwrap()
    }

    /// The only lines of the key file.
    fn write(file: &Path, lines: &[&str]) {
        fs::write(file, lines.join("\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// A key file with one line, and its keys, which were found to fit a store that fails as it is told to.
    async fn begun(one: &str) -> (tempfile::NamedTempFile, Keys, Arc<Faulty>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), &[one]);
        let memory = MemoryStore::new(Arc::new(SystemClock::new()), MemoryLimits::default());
        let store = Arc::new(Faulty::new(Arc::new(memory)));
        let settings = EncryptionSettings {
            key_file: file.path().to_owned(),
            accept_plain: false,
            accept_lost_keys: false,
        };
        let opened = Encryption::begin(Opened::alone(store.clone(), None), &settings).unwrap();
        let mut keys = Keys::new(opened.encryption);
        keys.reload().await;
        assert!(keys.waiting.is_none());
        (file, keys, store)
    }

    /// The name of the key that is written with.
    fn first(keys: &Keys) -> String {
        let promise = keys.encryption().unwrap().promise();
        promise.split('`').nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn keys_that_the_store_could_not_be_asked_about_are_tried_until_it_answers() {
        let (one, two) = (line("one"), line("two"));
        let (file, mut keys, store) = begun(&one).await;

        write(file.path(), &[&two, &one]);
        store.next(Operation::Other, Fault::Refuse);
        keys.reload().await;
        // What is in the file later was not asked for.
        write(file.path(), &["half a line"]);
        store.next(Operation::Other, Fault::LoseCommand);
        assert!(!keys.again().await && first(&keys) == "one", "the store has not answered");
        assert!(keys.waiting.is_some());
        keys.due().await;
        assert!(keys.again().await);
        assert_eq!(first(&keys), "two");
        assert!(!keys.again().await && keys.waiting.is_none(), "once is enough");
    }

    #[tokio::test]
    async fn keys_that_wait_are_replaced_by_newer_ones_and_by_nothing_else() {
        let (one, two, three) = (line("one"), line("two"), line("three"));
        let (file, mut keys, store) = begun(&one).await;

        write(file.path(), &[&two, &one]);
        store.next(Operation::Other, Fault::Refuse);
        keys.reload().await;
        write(file.path(), &["half a line"]);
        keys.reload().await;
        assert!(keys.waiting.is_some(), "a file that cannot be used replaces nothing");
        write(file.path(), &[&three, &one]);
        keys.reload().await;
        assert_eq!(first(&keys), "three");
        assert!(keys.waiting.is_none() && !keys.again().await, "the older ones are forgotten");
        assert_eq!(first(&keys), "three");
    }

    #[tokio::test]
    async fn keys_that_do_not_fit_are_refused_also_when_the_store_says_so_late() {
        let (file, mut keys, store) = begun(&line("one")).await;
        write(file.path(), &[&line("other")]);
        store.next(Operation::Other, Fault::Refuse);
        keys.reload().await;
        assert!(!keys.again().await && first(&keys) == "one");
        assert!(keys.waiting.is_none(), "they would never fit");
    }

    #[tokio::test]
    async fn a_store_is_asked_once_and_written_to_only_when_there_is_something_to_note() {
        let (one, two) = (line("one"), line("two"));
        let (file, mut keys, store) = begun(&one).await;
        // Twice is as good as once, and is counted.
        let asked_twice = |operation| store.next_times(5, operation, &Fault::Duplicate);
        for (lines, claims) in [(&[&*one][..], 0), (&[&*two, &*one], 1)] {
            asked_twice(Operation::Other);
            asked_twice(Operation::Claim);
            write(file.path(), lines);
            keys.reload().await;
            assert_eq!(5 - store.unmet(Operation::Other), 1, "{lines:?}");
            assert_eq!(5 - store.unmet(Operation::Claim), claims, "{lines:?}");
            store.heal();
        }
        assert_eq!(first(&keys), "two");
    }
}
