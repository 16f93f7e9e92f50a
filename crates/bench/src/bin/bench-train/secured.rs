//! Two sidecars one behind the other, with TLS and HTTP/2 before and between them, under load from h2load.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onlyonce_bench::machine;
use onlyonce_bench::started::Started;
use onlyonce_bench::starter::Starter;

use crate::{Result, Training};

const KEY: &str = "idempotency-key: 2f1c6a0e-7b1d-4f9a-9d0c-5f0c1d3a7e21";
/// The version of HTTP, and what h2load calls it.
const VERSIONS: [(&str, &[&str]); 2] = [("HTTP/2", &["-m", "8"]), ("HTTP/1.1", &["--h1"])];

pub(crate) fn train(training: &mut Training<'_>) -> Result<()> {
    let Training { onlyonce, workplace, starter, time } = training;
    let folder = workplace.folder("secured")?;
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    fs::write(&certificate, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    let body = folder.join("body.json");
    fs::write(&body, r#"{"amount":1999,"currency":"EUR","order":"A-1042"}"#)?;

    let upstream = starter.upstream()?;
    let secured = |starter: &mut Starter<'_>, upstream: &str| -> Result<Started> {
        let folder = starter.folder("secured")?;
        let mut command = starter.sidecar_before(onlyonce, upstream, "memory:");
        command.args(["--principal", "shared"]).arg("--upstream-ca").arg(&certificate);
        command.arg("--tls-certificate").arg(&certificate).arg("--tls-key").arg(&key);
        starter.start("secured", &mut command, &folder, None)
    };
    let behind = secured(starter, &format!("http://{}", upstream.address()))?;
    let before = secured(starter, &format!("https://{}", behind.address()))?;
    for (version, options) in VERSIONS {
        for header in [Some(KEY), None] {
            let what = if header.is_some() { "replays" } else { "pass-through" };
            eprintln!("TLS and {version}: {what}");
            load(before.address(), options, header, &body, *time)
                .map_err(|error| format!("TLS and {version}, {what}: {error}"))?;
        }
    }
    Ok(())
}

/// Loads with h2load, and sees to it that requests were answered.
fn load(
    address: SocketAddr,
    options: &[&str],
    header: Option<&str>,
    body: &Path,
    time: Duration,
) -> Result<()> {
    let mut command = Command::new("h2load");
    command.args(["-c", "16", "-D", &time.as_secs().to_string()]).args(options).arg("-d").arg(body);
    command.args(["-H", "content-type: application/json"]);
    command.args(header.into_iter().flat_map(|header| ["-H", header]));
    command.arg(format!("https://{address}/payments"));
    let output = machine::output(&mut command)?;
    if is_answered(&output) {
        Ok(())
    } else {
        Err(format!("h2load saw more refusals than answers of 2xx, or none: {output}").into())
    }
}

/// Whether most answers were of 2xx, as h2load counts them.
fn is_answered(output: &str) -> bool {
    let codes = output.lines().find_map(|line| line.strip_prefix("status codes: ")).unwrap_or_default();
    let count = |code: &str| {
        let named = codes.split(", ").find_map(|part| part.strip_suffix(code));
        named.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    count(" 2xx") > count(" 4xx") + count(" 5xx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_refusals_are_counted() {
        let output = |codes: &str| format!("requests: 9 total, 9 started\nstatus codes: {codes}\n");
        assert!(is_answered(&output("7 2xx, 0 3xx, 2 4xx, 0 5xx")));
        assert!(!is_answered(&output("4 2xx, 0 3xx, 4 4xx, 1 5xx")));
        assert!(!is_answered(&output("0 2xx, 0 3xx, 0 4xx, 0 5xx")) && !is_answered("no such line"));
    }
}
