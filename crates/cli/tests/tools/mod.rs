//! Packages of others that tests run against, installed by name among our tools. Never skipped: without `pip` or `npm`
//! the tests that need them fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder `name` among our tools, filled by `install` if it is not there yet. Two tests may come here at once:
/// each fills a folder of its own, and the first one to be done gives it its name.
pub(crate) fn installed(name: &str, install: impl FnOnce(&Path) -> Command) -> PathBuf {
    let tools = std::env::var_os("ONLYONCE_TOOLS").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/onlyonce/tools"),
        PathBuf::from,
    );
    let folder = tools.join(name);
    if !folder.is_dir() {
        fs::create_dir_all(&tools).unwrap();
        let filling = tempfile::tempdir_in(&tools).unwrap();
        let mut command = install(filling.path());
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        if fs::rename(filling.path(), &folder).is_ok() {
            let _ = filling.keep();
        }
        assert!(folder.is_dir(), "somebody has it in place");
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
