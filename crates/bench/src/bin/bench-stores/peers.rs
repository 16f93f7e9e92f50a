//! The middlewares that are usually written, in the languages that they are written in.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use onlyonce_bench::starter::Starter;

use crate::Result;
use crate::arguments::Arguments;
use crate::subject::Subject;

const SOURCES: [(&str, &str); 4] = [
    ("express.cjs", include_str!("peers/express.cjs")),
    ("express-redis.cjs", include_str!("peers/express-redis.cjs")),
    ("express-postgres.cjs", include_str!("peers/express-postgres.cjs")),
    ("fastapi-redis.py", include_str!("peers/fastapi-redis.py")),
];

/// Where their sources and packages are.
#[derive(Debug)]
pub(crate) struct Peers {
    folder: PathBuf,
    has_node: bool,
    has_python: bool,
}

impl Peers {
    /// Puts the sources into a folder, with links to what they need.
    pub(crate) fn new(folder: PathBuf, arguments: &Arguments) -> Result<Self> {
        for (name, source) in SOURCES {
            fs::write(folder.join(name), source)?;
        }
        let packages = [(&arguments.node_modules, "node_modules"), (&arguments.python_path, "python")];
        for (packages, name) in packages {
            if let Some(packages) = packages {
                let packages = packages
                    .canonicalize()
                    .map_err(|error| format!("there are no packages in {}: {error}", packages.display()))?;
                symlink(packages, folder.join(name))?;
            }
        }
        let (has_node, has_python) = (arguments.node_modules.is_some(), arguments.python_path.is_some());
        Ok(Self { folder, has_node, has_python })
    }

    /// A command for a peer that keeps its records at `url`, or why there is none.
    pub(crate) fn command(
        &self,
        starter: &Starter<'_>,
        subject: Subject,
        url: &str,
    ) -> std::result::Result<Command, &'static str> {
        let source = match subject {
            Subject::ExpressRedis => "express-redis.cjs",
            Subject::ExpressPostgres => "express-postgres.cjs",
            _ => "fastapi-redis.py",
        };
        let mut command = if subject == Subject::Fastapi {
            if !self.has_python {
                return Err("--python-path was not given");
            }
            let mut command = starter.measured("python3");
            command.env("PYTHONPATH", self.folder.join("python"));
            command
        } else {
            if !self.has_node {
                return Err("--node-modules was not given");
            }
            let mut command = starter.measured("node");
            command.env("NODE_ENV", "production");
            command
        };
        command.arg(self.folder.join(source)).arg(url);
        Ok(command)
    }
}
