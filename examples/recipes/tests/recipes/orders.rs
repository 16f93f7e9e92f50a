//! Orders with nothing but the database: many at the same moment make one.

use std::process::{Command, Output};
use std::thread;

use onlyonce_testkit::servers::PostgresServer;

fn orders(server: &PostgresServer, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
    command.env("DATABASE_URL", server.url()).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn an_order_is_created_once_and_an_old_price_changes_nothing() {
    let server = PostgresServer::start(&[]).unwrap();
    said(&orders(&server, &["prepare"]));
    let answers: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| said(&orders(&server, &["create", "ann", "cart-7", "100"]))))
            .collect();
        started.into_iter().map(|running| running.join().unwrap()).collect()
    });
    let created: Vec<_> = answers.iter().filter(|answer| answer.ends_with("created")).collect();
    assert_eq!(created.len(), 1, "{answers:?}");
    let number = created[0].trim_end_matches(" created");
    assert!(answers.iter().all(|answer| answer.starts_with(number)), "all get the same order: {answers:?}");

    let other = orders(&server, &["create", "ann", "cart-7", "999"]);
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("another reference"));
    assert!(
        said(&orders(&server, &["create", "bob", "cart-7", "100"])).ends_with("created"),
        "another customer"
    );

    assert_eq!(said(&orders(&server, &["price", "apple", "120", "2"])), "set");
    assert!(said(&orders(&server, &["price", "apple", "110", "1"])).starts_with("older"));
    assert!(said(&orders(&server, &["price", "apple", "120", "2"])).starts_with("older"));
    assert_eq!(said(&orders(&server, &["price", "apple", "130", "3"])), "set");
}
