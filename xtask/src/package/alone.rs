//! Runs a binary in a root that holds nothing else: no library, no shell, no configuration. What it serves there, it
//! serves anywhere.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{Result, process};

/// A name that only the root's own list of hosts knows.
const NAME: &str = "claims.onlyonce.internal";
const CLAIM: &str = r#"{"key": "k", "owner": "00112233445566778899aabbccddeeff"}"#;

/// Starts a claims API in `root`, and a sidecar in front of it that finds it by name; asks through both.
pub(super) fn prove(binary: &Path, root: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::create_dir_all(root.join("records"))?;
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("etc/hosts"), format!("127.0.0.1 {NAME}\n"))?;
    fs::copy(binary, root.join("onlyonce"))?;
    let claims =
        Served::start(root, &["serve", "--listen", "127.0.0.1:0", "--store", "file:/records/claims"])?;
    let port = claims.address.rsplit(':').next().unwrap_or_default();
    let upstream = format!("http://{NAME}:{port}");
    let sidecar =
        ["proxy", "--listen", "127.0.0.1:0", "--store", "file:/records/proxy", "--upstream", &upstream];
    let sidecar = Served::start(root, &sidecar)?;
    for expected in ["idempotency-replayed: false", "idempotency-replayed: true"] {
        let answer = sidecar.ask()?;
        if !answer.contains(expected) || !answer.contains("\"granted\"") {
            return Err(format!("in an empty root, {expected} was expected of\n{answer}").into());
        }
    }
    drop((sidecar, claims));
    println!("in a root of its own it served a request, found a host by name and replayed the answer");
    Ok(fs::remove_dir_all(root)?)
}

/// A process in the root; it is killed when this goes.
struct Served {
    child: Child,
    address: String,
    /// Kept open: it ends when nobody reads it any more.
    output: Option<BufReader<ChildStdout>>,
}

impl Served {
    fn start(root: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = chroot();
        command.arg(root).arg("/onlyonce").args(arguments);
        println!("$ {}", process::line(&command));
        // Nothing of this machine's settings, but where its own programs are.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        // ORDER: held before anything can fail, so that it never outlives this.
        let mut served = Self { child, address: String::new(), output };
        let mut line = String::new();
        served.output.as_mut().ok_or("no output")?.read_line(&mut line)?;
        match line.trim().strip_prefix("listening on ") {
            Some(address) => address.clone_into(&mut served.address),
            None => return Err(format!("it did not start: {line}").into()),
        }
        Ok(served)
    }

    /// Claims something, always the same.
    fn ask(&self) -> Result<String> {
        process::output(
            Command::new("curl")
                .args(["--silent", "--show-error", "--include", "--max-time", "60"])
                .args(["--header", "content-type: application/json", "--header", "idempotency-key: k"])
                .args(["--data", CLAIM])
                .arg(format!("http://{}/v1/claims", self.address)),
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `chroot`, also for those who are not root, where the kernel lets them be it among themselves.
fn chroot() -> Command {
    let user = process::probe(Path::new("id"), &["-u"]).unwrap_or_default();
    if user.trim() == "0" {
        return Command::new("chroot");
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "chroot"]);
    command
}
