//! Packages of others that tests run against, installed by name among our tools. Never skipped: without `pip` or `npm`
//! the tests that need them fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder `name` among our tools, filled by `install` if it is not there yet. Tests of other processes may come here
/// at once: they install one after the other, for not every installer can do otherwise (pyenv's keeps a list, and fails).
pub(crate) fn installed(name: &str, install: impl FnOnce(&Path) -> Command) -> PathBuf {
    let tools = std::env::var_os("ONLYONCE_TOOLS").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/onlyonce/tools"),
        PathBuf::from,
    );
    let folder = tools.join(name);
    if folder.is_dir() {
        return folder;
    }
    fs::create_dir_all(&tools).unwrap();
    let turn = File::create(tools.join(".installing")).unwrap();
    turn.lock().unwrap();
    if !folder.is_dir() {
        // ORDER: filled, then named: whoever finds it finds it whole.
        let filling = tempfile::tempdir_in(&tools).unwrap();
        let mut command = install(filling.path());
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        fs::rename(filling.keep(), &folder).unwrap();
    }
    folder
}

/// Python packages in the folder `name`, for `PYTHONPATH`.
pub(crate) fn python(name: &str, packages: &[&str]) -> PathBuf {
    installed(name, |folder| {
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        command.args(["--root-user-action=ignore", "--target"]).arg(folder).args(packages);
        command
    })
}
