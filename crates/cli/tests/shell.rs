//! Completions in a real shell, and manual pages as `man` shows them. Never skipped: without `bash` and `man` these fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn onlyonce(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(args).output().expect("the binary");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Every command, as `--help` lists it: `onlyonce`, `onlyonce key`, `onlyonce key derive` …
fn commands(above: &[&str]) -> Vec<String> {
    let mut args = above.to_vec();
    args.push("--help");
    let help = onlyonce(&args);
    let mut found = vec![[&["onlyonce"], above].concat().join(" ")];
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    for line in listed.lines().take_while(|line| line.starts_with("  ")) {
        // A description that goes on in the next line is further in.
        let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
        let name = name.split(' ').next().expect("a name");
        if name != "help" {
            found.extend(commands(&[above, &[name]].concat()));
        }
    }
    found
}

/// What `man` makes of a page. Anything that it finds strange is a failure.
fn shown(page: &Path) -> String {
    let output = Command::new("man")
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "100")
        .args(["--warnings", "--local-file"])
        .arg(page)
        .output()
        .expect("man is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.trim().is_empty(), "{}: {told}", page.display());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_command_has_a_manual_page_with_an_example() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    onlyonce(&["man", "--folder", pages.to_str().expect("text")]);
    let expected: BTreeSet<_> =
        commands(&[]).iter().map(|command| format!("{}.1", command.replace(' ', "-"))).collect();
    let written = fs::read_dir(&pages).expect("a folder");
    let written: BTreeSet<_> =
        written.map(|page| page.expect("a page").file_name().into_string().expect("text")).collect();
    assert_eq!(written, expected);
    assert!(
        expected.contains("onlyonce-key-derive.1") && expected.contains("onlyonce-man.1"),
        "{expected:?}"
    );
    for name in &expected {
        let text = shown(&pages.join(name));
        for part in ["NAME", "SYNOPSIS", "OPTIONS", "Example"] {
            assert!(text.contains(part), "{name} has no {part}:\n{text}");
        }
    }
    let proxy = shown(&pages.join("onlyonce-proxy.1"));
    let example =
        "curl -H 'Idempotency-Key: order-123' -d '{\"amount\": 100}' http://127.0.0.1:8080/payments";
    for part in ["onlyonce-proxy - Put idempotency in front", "--upstream", "Exit codes:", "SIGHUP", example]
    {
        assert!(proxy.contains(part), "{part} is not in:\n{proxy}");
    }
}

#[test]
fn one_page_is_printed_and_a_command_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.1");
    fs::write(&page, onlyonce(&["man", "key", "derive"])).expect("a file");
    assert!(shown(&page).contains("--entity"));
    let refused = Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(["man", "key", "nonsense"]).output();
    let refused = refused.expect("the binary");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("key nonsense"));
}

/// What bash offers for the last of `words`.
fn offered(script: &Path, words: &[&str]) -> Vec<String> {
    let list = words.join(" ");
    let (current, before) = (words[words.len() - 1], words[words.len() - 2]);
    let asking = format!(
        "source '{}'; complete -p onlyonce >/dev/null || exit 9; COMP_WORDS=({list} ''); COMP_CWORD={}; \
         COMP_LINE='{list}'; COMP_POINT=${{#COMP_LINE}}; _onlyonce onlyonce '{current}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.len() - 1,
    );
    let output = Command::new("bash").args(["--norc", "-c", &asking]).output().expect("bash");
    assert!(output.status.success(), "{asking}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("onlyonce.bash");
    fs::write(&script, onlyonce(&["completions", "bash"])).expect("a file");
    assert_eq!(offered(&script, &["onlyonce", "pro"]), ["proxy"]);
    assert_eq!(offered(&script, &["onlyonce", "key", "der"]), ["derive"]);
    assert_eq!(
        offered(&script, &["onlyonce", "proxy", "--ups"]),
        ["--upstream", "--upstream-within", "--upstream-ca"]
    );
    assert!(offered(&script, &["onlyonce", "key", "derive", "--zzz"]).iter().all(String::is_empty));
}

#[test]
fn every_shell_has_a_script_that_knows_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = onlyonce(&["completions", shell]);
        for command in commands(&[]) {
            let name = command.rsplit(' ').next().expect("a name");
            assert!(script.contains(name), "{shell}: {command}");
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_onlyonce")).args(["completions", "tcsh"]).output();
    assert_eq!(output.expect("the binary").status.code(), Some(2));
}
