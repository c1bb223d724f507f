//! Questions for directories: how many wait, which agent gets them, and how they end.

use std::time::Duration;

use godwit_service::store::{
    Store, StoreError,
    browsing::{AgentReach, BrowseLimits, Question},
};
use godwit_service_api::{agent::AgentDescription, browse::BrowseRequest};
use uuid::Uuid;

use crate::support::*;

const LIMITS: BrowseLimits = BrowseLimits {
    wait: Duration::from_secs(30),
    of_user: 2,
    of_all: 5,
};

fn reach(endpoint: &str, labels: &[&str]) -> AgentReach {
    AgentReach::of(&AgentDescription {
        endpoints: vec![endpoint.to_owned()],
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        ..AgentDescription::default()
    })
}

async fn ask(store: &Store, owner: &str, labels: &[&str]) -> Result<Uuid, StoreError> {
    let request = BrowseRequest {
        url: "ftp://h/d".to_owned(),
        cursor: None,
        limit: 10,
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    store
        .add_browse(owner, &Question::Directory(request), LIMITS)
        .await
}

fn is_quota(asked: &Result<Uuid, StoreError>) -> bool {
    matches!(asked, Err(StoreError::Quota { .. }))
}

both! {

async fn questions_at_the_same_time_keep_their_limits(fixture) {
    let store = &fixture.store;
    for round in 0..10 {
        let many = (0..10).map(|n| {
            let (store, owner) = (store.clone(), format!("user{}", n % 4));
            tokio::spawn(async move { ask(&store, &owner, &[]).await })
        });
        let many: Vec<_> = many.collect();
        let mut refused = 0;
        for asked in many {
            let asked = asked.await.unwrap();
            refused += usize::from(is_quota(&asked));
            assert!(asked.is_ok() || is_quota(&asked), "{asked:?}");
        }
        assert_eq!(refused, 5, "round {round}");
        let most = fixture.number(
            "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM browse GROUP BY owner) AS of_users",
        );
        assert_eq!(most.await, 2);
        fixture.execute("DELETE FROM browse").await;
    }
}

async fn an_agent_without_a_label_gets_no_question_of_who_asks_for_it(fixture) {
    let store = &fixture.store;
    let id = ask(store, "alice", &["tape", "site"]).await.unwrap();
    let waiting = store.waiting_browses().await.unwrap();
    assert_eq!(waiting[0].labels, ["tape", "site"]);
    for other in [reach("*", &[]), reach("*", &["tape"]), reach("gsiftp://*", &["site", "tape"])] {
        assert!(store.take_browses("a", &other).await.unwrap().is_empty());
    }
    let able = reach("ftp://*", &["site", "x", "tape"]);
    assert_eq!(store.take_browses("a", &able).await.unwrap()[0].id, id);
    assert!(store.take_browses("b", &able).await.unwrap().is_empty(), "one agent gets it");
}

async fn a_question_that_an_agent_looks_for_counts_until_it_has_let_go(fixture) {
    let store = &fixture.store;
    let (all, other) = (reach("*", &[]), Uuid::new_v4());
    let first = ask(store, "alice", &[]).await.unwrap();
    let second = ask(store, "alice", &[]).await.unwrap();
    assert_eq!(store.take_browses("a", &all).await.unwrap().len(), 2);
    let running = [first, second, other];
    assert_eq!(store.browses_over("a", &running).await.unwrap(), [other]);
    assert_eq!(store.browses_over("b", &running).await.unwrap(), running);
    // The user goes away.
    let ended = store.end_browse(first).await.unwrap();
    assert_eq!(ended.agent.as_deref(), Some("a"));
    assert_eq!(store.browses_over("a", &running).await.unwrap(), [first, other]);
    assert!(is_quota(&ask(store, "alice", &[]).await));
    assert!(!store.answer_browse(first, "b", "{}").await.unwrap());
    assert!(is_quota(&ask(store, "alice", &[]).await));
    // What the agent says then is not kept, and frees the place.
    assert!(!store.answer_browse(first, "a", "{}").await.unwrap());
    let third = ask(store, "alice", &[]).await.unwrap();
    assert!(matches!(store.browse_answer(first).await, Err(StoreError::NotFound)));
    // What nobody has taken, and what was answered, is gone at once.
    assert_eq!(store.end_browse(third).await.unwrap().agent, None);
    assert!(store.answer_browse(second, "a", "{}").await.unwrap());
    assert_eq!(store.end_browse(second).await.unwrap().agent.as_deref(), Some("a"));
    assert_eq!(fixture.number("SELECT COUNT(*) FROM browse").await, 0);
}

}
