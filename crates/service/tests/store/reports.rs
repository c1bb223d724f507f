//! Reports of ended jobs that wait to be sent.

use std::time::Duration;

use godwit_service_api::job::{JobOptions, Notification};

use crate::support::*;

both! {

async fn each_end_of_a_job_is_reported_until_its_receiver_has_taken_it(fixture) {
    let store = &fixture.store;
    let url = "https://hooks.example.org/x".to_owned();
    let notify = vec![
        Notification::Webhook { url },
        Notification::Mail { address: "jo@example.org".into() },
    ];
    let options = JobOptions { attempts: 1, notify: notify.clone(), ..JobOptions::default() };
    let id = submit_with(store, files(8), &options).await;
    let later = |_| Duration::from_secs(3600);
    assert!(store.take_reports(9, later).await.unwrap().is_empty(), "it has not ended");
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    for unit in agent.take(store, leader, 9).await {
        let outcome = |index| match index {
            3 | 5 | 7 => failed(index, error("not_found", false)),
            _ => finished(index),
        };
        let outcomes = indices(&unit).into_iter().map(outcome).collect();
        agent.poll(store, &[], vec![result(unit.lease, 0, outcomes)]).await;
    }
    let ended = store.take_reports(9, |_| Duration::ZERO).await.unwrap();
    let mut to: Vec<Notification> = ended.iter().map(|report| report.to.clone()).collect();
    to.sort_by_key(|to| matches!(to, Notification::Mail { .. }));
    assert_eq!(to, notify);
    assert!(ended.iter().all(|report| report.job == id && report.attempts == 1));
    store.remove_report(ended[0].number).await.unwrap();
    let again = store.take_reports(9, later).await.unwrap();
    assert_eq!((again.len(), again[0].attempts, again[0].number), (1, 2, ended[1].number));
    assert!(store.take_reports(9, later).await.unwrap().is_empty(), "it was put off");
    let job = store.job(id).await.unwrap();
    let failures = store.first_failures(&job, 2).await.unwrap();
    let numbers: Vec<u64> = failures.iter().map(|file| file.index).collect();
    assert_eq!(numbers, [3, 5]);
    assert_eq!(failures[0].error.as_ref().unwrap().code, "not_found");
}

async fn messages_are_counted_by_user_and_day(fixture) {
    let store = &fixture.store;
    assert_eq!(store.count_mail("alice").await.unwrap(), 1);
    assert_eq!(store.count_mail("alice").await.unwrap(), 2);
    assert_eq!(store.count_mail("bob").await.unwrap(), 1);
    fixture.execute("UPDATE mail_count SET day = day - 1").await;
    assert_eq!(store.count_mail("alice").await.unwrap(), 1);
}

}
