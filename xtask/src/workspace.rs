//! What `cargo metadata` says of the workspace: its crates, what they depend on, their features and targets.
//!
//! Only facts are read here; which of them are allowed is decided in `tidy`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Result, process};

/// The workspace on disk.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target_dir: PathBuf,
    /// Every member.
    pub(crate) crates: Vec<Crate>,
}

/// One member of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Crate {
    /// The package's name.
    pub(crate) name: String,
    /// Its folder, relative to the root, with `/` between the parts: `crates/core`.
    pub(crate) folder: String,
    /// May it be published?
    pub(crate) published: bool,
    /// Its features, by name.
    pub(crate) features: Vec<String>,
    /// What it depends on, members and others.
    pub(crate) dependencies: Vec<Dependency>,
    /// The first file of each target, relative to the root.
    pub(crate) target_files: Vec<String>,
}

/// One line in a `[dependencies]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The package's name.
    pub(crate) name: String,
    /// Is it in `[dev-dependencies]`?
    pub(crate) dev: bool,
}

impl Workspace {
    /// Reads the workspace that `cargo xtask` was called in.
    pub(crate) fn read() -> Result<Self> {
        // Asked at run time: two checkouts that share a target folder share one binary.
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(std::env::current_dir, |path| Ok(path.into()))?;
        let metadata =
            process::output(process::cargo(&here).args(["metadata", "--no-deps", "--format-version", "1"]))?;
        Self::parse(&metadata)
    }

    fn parse(metadata: &str) -> Result<Self> {
        let metadata: Value = serde_json::from_str(metadata)?;
        let root = PathBuf::from(text(&metadata, "workspace_root")?);
        let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
        let mut crates =
            packages.iter().map(|package| read_crate(package, &root)).collect::<Result<Vec<_>>>()?;
        crates.sort_by(|a, b| a.folder.cmp(&b.folder));
        Ok(Self { target_dir: PathBuf::from(text(&metadata, "target_directory")?), root, crates })
    }
}

fn read_crate(package: &Value, root: &Path) -> Result<Crate> {
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let mut dependencies = Vec::new();
    for dependency in array(package, "dependencies")? {
        dependencies.push(Dependency {
            name: text(dependency, "name")?.to_owned(),
            dev: dependency["kind"].as_str() == Some("dev"),
        });
    }
    let mut target_files = Vec::new();
    for target in array(package, "targets")? {
        target_files.push(relative(Path::new(text(target, "src_path")?), root));
    }
    Ok(Crate {
        name: text(package, "name")?.to_owned(),
        folder: relative(manifest.parent().unwrap_or(root), root),
        // `publish = false` is written as an empty list of registries; anything else allows some registry.
        published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        features: package["features"]
            .as_object()
            .map(|all| {
                all.iter().filter(|feature| !is_mere_default(feature)).map(|(name, _)| name.clone()).collect()
            })
            .unwrap_or_default(),
        dependencies,
        target_files,
    })
}

/// A `default` that turns nothing on is the same as no feature, and one that turns on one feature is the same as that.
fn is_mere_default((name, turns_on): &(&String, &Value)) -> bool {
    // `dep:x` and `x/y` are no features of ours.
    let is_feature = |it: &Value| it.as_str().is_some_and(|it| !it.contains([':', '/']));
    let turns_on = turns_on.as_array().map(Vec::as_slice).unwrap_or_default();
    *name == "default" && turns_on.len() < 2 && turns_on.iter().all(is_feature)
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().ok_or_else(|| format!("cargo metadata: no text in `{field}`").into())
}

fn array<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().ok_or_else(|| format!("cargo metadata: no list in `{field}`").into())
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_crates_in_order_of_their_folders() {
        let metadata = r#"{"workspace_root": "/r", "target_directory": "/r/target", "packages": [
            {"name": "xtask", "manifest_path": "/r/xtask/Cargo.toml", "publish": [], "features": {},
             "dependencies": [], "targets": [{"src_path": "/r/xtask/src/main.rs"}]},
            {"name": "onlyonce", "manifest_path": "/r/crates/cli/Cargo.toml", "publish": null,
             "features": {"default": ["redis"], "redis": []}, "targets": [],
             "dependencies": [{"name": "onlyonce-core", "kind": null}, {"name": "proptest", "kind": "dev"}]}]}"#;
        let workspace = Workspace::parse(metadata).unwrap();
        let [cli, xtask] = &workspace.crates[..] else { panic!("{workspace:?}") };
        assert_eq!(
            (cli.folder.as_str(), cli.published, &cli.features[..]),
            ("crates/cli", true, &["redis".into()][..])
        );
        assert_eq!(cli.dependencies[0], Dependency { name: "onlyonce-core".into(), dev: false });
        assert!(cli.dependencies[1].dev);
        assert_eq!((xtask.published, &xtask.target_files[0][..]), (false, "xtask/src/main.rs"));
        assert_eq!(workspace.target_dir, Path::new("/r/target"));
    }

    #[test]
    fn broken_metadata_is_an_error() {
        assert!(Workspace::parse("").is_err());
        assert!(Workspace::parse(r#"{"workspace_root": 7}"#).is_err());
    }
}
