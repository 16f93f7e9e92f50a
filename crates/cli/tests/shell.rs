//! Completions in real shells, and manual pages as `man` shows them and `mandoc` reads them. Never skipped: without `bash`,
//! `zsh`, `fish`, `man` and `mandoc` these fail.

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

/// What `mandoc` finds wrong with a page, which it reads more strictly than `man` does. Matters of style are not wrong.
fn faults(page: &Path) -> String {
    let output = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(page).output();
    let output = output.expect("mandoc is installed");
    let told = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    // Pages have no date: each is as old as its binary.
    told.lines().filter(|line| !line.contains("missing date")).collect::<Vec<_>>().join("\n")
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
        assert_eq!(faults(&pages.join(name)), "");
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

/// What fish offers for the last word of `line`.
fn offered_by_fish(script: &Path, line: &str) -> Vec<String> {
    let asking = format!("source '{}'; complete --do-complete '{line}'", script.display());
    let output = Command::new("fish").args(["--no-config", "--command", &asking]).output();
    let output = output.expect("fish is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{asking}: {told}");
    let offered = String::from_utf8(output.stdout).expect("text");
    // A description follows each.
    offered.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
}

#[test]
fn fish_completes_commands_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("onlyonce.fish");
    fs::write(&script, onlyonce(&["completions", "fish"])).expect("a file");
    assert_eq!(offered_by_fish(&script, "onlyonce pro"), ["proxy"]);
    assert_eq!(offered_by_fish(&script, "onlyonce key der"), ["derive"]);
    let flags = offered_by_fish(&script, "onlyonce proxy --ups");
    let flags: BTreeSet<_> = flags.iter().map(String::as_str).collect();
    assert_eq!(flags, BTreeSet::from(["--upstream", "--upstream-ca", "--upstream-within"]));
    assert_eq!(offered_by_fish(&script, "onlyonce key derive --zzz"), [""; 0]);
}

/// Runs in zsh: a second one on a terminal of its own gets the line and a tab, and every match that it would offer is
/// written down instead of shown.
const ASK_ZSH: &str = r#"
zmodload zsh/zpty || exit 8
zpty shell "HOME=$1 TERM=dumb zsh -f -i"
zpty -w shell "source $1/harness"
zpty -r shell said '*ready*' || exit 9
zpty -w -n shell "$2"$'\t'
zpty -r shell said '*done*' || exit 10
zpty -d shell
"#;
const HARNESS: &str = r#"
PROMPT= PROMPT2= RPROMPT=
fpath=("$HOME" $fpath)
autoload -Uz compinit
compinit -u -D
unsetopt zle_bracketed_paste 2>/dev/null
bindkey '^I' complete-word
zstyle ':completion:*' insert-tab false
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits
    builtin compadd -A hits "$@"
    (( $#hits )) && print -rl -- $hits >> $HOME/offered
    builtin compadd "$@"
}
finish() { print do''ne }
comppostfuncs=(finish)
print rea''dy
"#;

/// What zsh offers for the last word of `line`.
fn offered_by_zsh(folder: &Path, line: &str) -> BTreeSet<String> {
    let (home, offered) = (folder.to_str().expect("text"), folder.join("offered"));
    fs::write(folder.join("harness"), HARNESS).expect("a file");
    fs::write(&offered, "").expect("a file");
    let output = Command::new("zsh").args(["-f", "-c", ASK_ZSH, "zsh", home, line]).output();
    let output = output.expect("zsh is installed");
    assert!(output.status.success(), "{line}: {output:?}");
    fs::read_to_string(&offered).expect("a file").lines().map(str::to_owned).collect()
}

#[test]
fn zsh_completes_commands_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    // Where zsh looks for it, by its name: nothing but `compinit` makes it known.
    fs::write(folder.path().join("_onlyonce"), onlyonce(&["completions", "zsh"])).expect("a file");
    let offered = |line: &str| offered_by_zsh(folder.path(), line);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(offered("onlyonce pro"), names(&["proxy"]));
    assert_eq!(offered("onlyonce key der"), names(&["derive"]));
    assert_eq!(offered("onlyonce proxy --ups"), names(&["--upstream", "--upstream-ca", "--upstream-within"]));
    assert_eq!(offered("onlyonce key derive --zzz"), names(&[]));
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
