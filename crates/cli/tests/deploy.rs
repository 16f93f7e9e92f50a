//! What `deploy/` says can be believed: its configurations are accepted, and its image and pods run without rights. The
//! packages, the service and the alert rules are checked elsewhere (`cargo xtask test`, the server's metrics).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[path = "tools/mod.rs"]
mod tools;

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Exit code and words of `onlyonce config …` on `text`, with these settings in the environment.
fn config(command: &[&str], text: &str, settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("onlyonce.toml");
    fs::write(&file, text).expect("a file");
    let mut onlyonce = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONLYONCE_")) {
        onlyonce.env_remove(name);
    }
    let output = onlyonce.arg("config").args(command).arg(&file).envs(settings.iter().copied()).output();
    let output = output.expect("the binary");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn the_packaged_configuration_is_good() {
    let (code, told) = config(&["check"], &read("debian/onlyonce.toml"), &[]);
    assert_eq!(code, Some(0), "{told}");
}

/// Reads the manifests, says what is unsafe about them, and prints the configuration.
const MANIFESTS: &str = r#"
import sys, yaml
documents = list(yaml.safe_load_all(sys.stdin))
kinds = {document["kind"]: document for document in documents}
pod = kinds["Deployment"]["spec"]["template"]["spec"]
assert kinds["Deployment"]["spec"]["replicas"] > 1
assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0
containers = pod["initContainers"] + pod["containers"]
for container in containers:
    rights = container["securityContext"]
    assert rights["allowPrivilegeEscalation"] is False, container["name"]
    assert rights["readOnlyRootFilesystem"] is True and rights["capabilities"]["drop"] == ["ALL"], container["name"]
    assert ":" in container["image"] and not container["image"].endswith(":latest"), container["image"]
sidecar = next(container for container in containers if container["name"] == "onlyonce")
assert sidecar["restartPolicy"] == "Always"
assert sidecar["readinessProbe"]["httpGet"]["path"] == "/health/ready"
assert sidecar["livenessProbe"]["httpGet"]["path"] == "/health/live"
ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
assert ports == {"http": 8080, "admin": 9090}
assert kinds["Service"]["spec"]["ports"][0]["targetPort"] == "http"
variables = {variable["name"]: variable for variable in sidecar["env"]}
assert "secretKeyRef" in variables["ONLYONCE_STORE_URL"]["valueFrom"], "a store's URL has a password in it"
assert "secretKeyRef" in variables["ONLYONCE_ADMIN_TOKEN"]["valueFrom"]
mounted = {volume["name"]: volume for volume in pod["volumes"]}[sidecar["volumeMounts"][0]["name"]]
assert mounted["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == kinds["Service"]["spec"]["selector"]
sys.stdout.write(kinds["ConfigMap"]["data"]["onlyonce.toml"])
"#;

#[test]
fn the_pods_run_without_rights_on_a_store_that_they_share() {
    let text = read("kubernetes/sidecar.yaml");
    assert!(text.contains("replicas on `file:` would not protect each other"), "it must be said");
    let folder = tempfile::tempdir().expect("a folder");
    let manifests = folder.path().join("manifests.yaml");
    fs::write(&manifests, &text).expect("a file");
    let output = Command::new("python3")
        .env("PYTHONPATH", tools::python("pyyaml-6.0.2", &["pyyaml==6.0.2"]))
        .args(["-c", MANIFESTS])
        .stdin(fs::File::open(&manifests).expect("the file"))
        .output()
        .expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let configuration = String::from_utf8(output.stdout).expect("text");
    let (code, told) = config(&["check"], &configuration, &[]);
    assert_eq!(code, Some(0), "{told}");
    // As the container is started: with its variables.
    let settings = [
        ("ONLYONCE_STORE_URL", "postgres://onlyonce:PASSWORD@postgres/onlyonce"),
        ("ONLYONCE_ADMIN_LISTEN", "0.0.0.0:9090"),
        ("ONLYONCE_ADMIN_TOKEN", "an-operator-knows-this"),
    ];
    let (code, told) = config(&["show", "--config"], &configuration, &settings);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("0.0.0.0:9090") && !told.contains("PASSWORD"), "{told}");
}

#[test]
fn the_image_is_built_by_cargo_alone_and_runs_as_nobody() {
    let text = read("container/Containerfile");
    let lines: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
    let all = |word: &str| lines.iter().filter_map(|line| line.strip_prefix(word)).collect::<Vec<_>>();
    for image in all("FROM ") {
        let name = image.split(' ').next().expect("a name");
        assert!(name.contains(':') && !name.ends_with(":latest"), "{image} is not pinned");
    }
    let users = all("USER ");
    assert!(
        users.last().is_some_and(|user| !user.starts_with('0') && !user.starts_with("root")),
        "{users:?}"
    );
    assert_eq!(all("ENTRYPOINT "), [r#"["/usr/bin/onlyonce"]"#]);
    for fetches in ["ADD ", "curl", "wget", "apt-get", "git clone", "http"] {
        assert!(!lines.iter().any(|line| line.contains(fetches)), "it fetches with {fetches}");
    }
    assert!(lines.iter().any(|line| line.contains("cargo build --release --locked")), "{text}");
    // What it copies from the source is there.
    for file in ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        assert!(text.contains(file) && path.is_file(), "{file}");
    }
}

#[test]
fn the_image_of_one_program_runs_as_the_other_does() {
    let words = ["VOLUME ", "WORKDIR /var", "USER ", "EXPOSE ", "STOPSIGNAL ", "ENTRYPOINT ", "CMD "];
    let said = |file: &str| -> Vec<String> {
        let text = read(file);
        let lines = text.lines().filter(|line| words.iter().any(|word| line.starts_with(word)));
        lines.map(str::to_owned).collect()
    };
    let of_one = said("container/Containerfile.static");
    assert_eq!(of_one, said("container/Containerfile"));
    assert_eq!(of_one.len(), words.len(), "{of_one:?}");
    let text = read("container/Containerfile.static");
    let from: Vec<_> = text.lines().filter(|line| line.starts_with("FROM ")).collect();
    assert_eq!(from, ["FROM scratch"], "it stands on nothing");
    assert!(!text.contains("\nRUN "), "there is nothing that could be run");
}
