//! `processed_events`: the plain shape, one row or many in one statement.

use std::time::Duration;

use onlyonce_inbox::Marks;
use sqlx::Connection as _;

use crate::stage::{EFFECT, Stage, block_on};

async fn marks(stage: &Stage) -> Marks {
    let marks = Marks::new("public").unwrap();
    let client = stage.client().await;
    client.batch_execute(&marks.migration()).await.unwrap();
    client.batch_execute(&marks.migration()).await.unwrap();
    marks
}

#[test]
fn a_batch_says_for_each_event_whether_it_is_new() {
    block_on(async {
        let stage = Stage::new().await;
        let (marks, mut client) = (marks(&stage).await, stage.client().await);
        let mut transaction = client.transaction().await.unwrap();
        let fresh = marks.once_many(&mut transaction, "billing", &["b", "a", "b"]).await.unwrap();
        assert_eq!(fresh, [true, true, false], "the second of two is not");
        transaction.commit().await.unwrap();
        let mut connection = sqlx::PgConnection::connect(&stage.server.url()).await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let fresh = marks.once_many(&mut transaction, "billing", &["a", "c"]).await.unwrap();
        assert_eq!(fresh, [false, true]);
        assert!(marks.once(&mut transaction, "mailing", "a").await.unwrap(), "each consumer has its own");
        transaction.rollback().await.unwrap();
        let mut transaction = client.transaction().await.unwrap();
        assert!(marks.once(&mut transaction, "billing", "c").await.unwrap(), "what is rolled back never was");
        assert!(!marks.once(&mut transaction, "billing", "a").await.unwrap());
        assert!(marks.once(&mut transaction, "", "a").await.is_err());
        assert!(marks.once(&mut transaction, "billing", "").await.is_err());
    });
}

#[test]
fn batches_that_overlap_in_any_order_neither_deadlock_nor_mark_twice() {
    block_on(async {
        let stage = Stage::new().await;
        let marks = marks(&stage).await;
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..6_usize {
            let (marks, mut client) = (marks.clone(), stage.client().await);
            workers.spawn(async move {
                let mut done = 0;
                for round in 0..10 {
                    let mut names: Vec<String> = (0..40).map(|number| format!("{round}/{number}")).collect();
                    names.rotate_left(worker * 7);
                    if worker % 2 == 0 {
                        names.reverse();
                    }
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let mut transaction = client.transaction().await.unwrap();
                    let fresh = marks.once_many(&mut transaction, "billing", &names).await.unwrap();
                    for (name, _) in names.iter().zip(&fresh).filter(|(_, fresh)| **fresh) {
                        transaction.execute(EFFECT, &[name]).await.unwrap();
                    }
                    done += fresh.iter().filter(|fresh| **fresh).count();
                    transaction.commit().await.unwrap();
                }
                done
            });
        }
        assert_eq!(workers.join_all().await.into_iter().sum::<usize>(), 400);
        let client = stage.client().await;
        let row = client.query_one("SELECT count(*), count(DISTINCT name) FROM effects", &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (400, 400));
    });
}

#[test]
fn old_marks_are_swept_in_bounded_steps_and_young_ones_stay() {
    block_on(async {
        let stage = Stage::new().await;
        let (marks, mut client) = (marks(&stage).await, stage.client().await);
        let age = "INSERT INTO processed_events SELECT 'billing', n::text, now() - interval '31 days' \
                   FROM generate_series(1, 25) n; INSERT INTO processed_events VALUES ('billing', 'young')";
        client.batch_execute(age).await.unwrap();
        let mut swept = Vec::new();
        loop {
            let mut transaction = client.transaction().await.unwrap();
            let month = Duration::from_hours(30 * 24);
            swept.push(marks.sweep(&mut transaction, "billing", month, 10).await.unwrap());
            transaction.commit().await.unwrap();
            if swept.last() != Some(&10) {
                break;
            }
        }
        assert_eq!(swept, [10, 10, 5]);
        let left =
            client.query_one("SELECT string_agg(event_id, ',') FROM processed_events", &[]).await.unwrap();
        assert_eq!(left.get::<_, String>(0), "young");
    });
}

#[test]
fn a_schema_that_is_no_name_is_refused() {
    for bad in ["", "Public", "a b", "a;drop", "1a", &"a".repeat(64)] {
        assert!(Marks::new(bad).is_err(), "{bad}");
    }
}
