//! What the driver relies on: a small run prints every table, loses nothing, leaves nothing, and bad arguments are told
//! from a run that failed. The servers are left to `cargo xtask bench embedded`, which installs them.

use std::path::PathBuf;
use std::process::{Command, Output};

#[cfg(feature = "peers")]
const ENGINES: [&str; 5] = ["onlyonce", "log", "fjall", "redb", "redb-2pc"];
#[cfg(not(feature = "peers"))]
const ENGINES: [&str; 2] = ["onlyonce", "log"];

fn bench_embedded(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-embedded")).args(arguments).output().expect("the program starts")
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-embedded-{name}"))
}

#[test]
fn a_small_run_prints_every_table_and_leaves_nothing() {
    let folder = folder("small");
    let small = "--any-disk --records 1500 --seconds 0.1 --rounds 1 --callers 1,64 --folder";
    let mut arguments: Vec<_> = small.split(' ').collect();
    let engines = ENGINES.join(",");
    arguments.extend([folder.to_str().expect("a plain path"), "--engines", &engines]);
    let ended = bench_embedded(&arguments);
    let (tables, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{tables}\n{said}");
    for part in [
        "**1 caller, empty at first**",
        "**64 callers, 1,500 records stored**",
        "**Space and opening, 1,500 records stored**",
        "after `kill -9` under load",
        "| expire after 0.5 s |",
        "| pairs/s at least 0.8 × bare log |",
    ] {
        assert!(tables.contains(part), "no {part} in:\n{tables}");
    }
    // Once in each of the four tables of throughput, and in that of space.
    let rows = |name| tables.lines().filter(|line| line.starts_with(&format!("| {name} |"))).count();
    assert_eq!((rows("onlyonce"), rows("bare log")), (5, 5), "{tables}");
    assert!(!folder.exists(), "the folder is still there");
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let bad: [(&[&str], &str); 6] = [
        (&["--records", "0"], "0 is not in"),
        (&["--seconds", "never"], "invalid float"),
        (&["--callers", "1,0"], "not between 1 and"),
        (&["--engines", "oracle"], "invalid value 'oracle'"),
        (&["--quick", "--records", "5"], "cannot be used with"),
        (&["everything"], "unrecognized subcommand"),
    ];
    for (arguments, reason) in bad {
        let ended = bench_embedded(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    assert!(bench_embedded(&["--help"]).status.success());
}

#[test]
fn a_folder_that_is_not_ours_is_left_alone() {
    let folder = folder("foreign");
    std::fs::create_dir_all(folder.join("letters")).expect("a folder can be made");
    let ended = bench_embedded(&["--folder", folder.to_str().expect("a plain path")]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("is not empty"), "{ended:?}");
    assert!(folder.join("letters").exists());
    std::fs::remove_dir_all(folder).expect("our own folder can be removed");
}
