//! Endpoints, users, credentials, the audit, and upgrades of the tables.

use std::time::Duration;

use godwit_service::store::{
    Store, StoreError,
    model::{CredentialRecord, EndpointRecord, PrincipalRecord},
};
use godwit_service_api::site::{EndpointState, Limits, Role};
use uuid::Uuid;

use crate::support::*;

both! {

async fn endpoints_links_and_shares_are_set_and_listed(fixture) {
    let store = &fixture.store;
    submit(store, 1).await;
    let endpoint = EndpointRecord {
        name: "gsiftp://b.example.org".into(),
        state: EndpointState::Banned,
        limits: Limits { sessions: Some(4), ..Limits::default() },
    };
    store.set_endpoint(&endpoint).await.unwrap();
    store.set_endpoint(&endpoint).await.unwrap();
    let endpoints = store.endpoints().await.unwrap();
    assert_eq!(endpoints.len(), 2);
    assert_eq!((endpoints[0].state, &endpoints[1]), (EndpointState::Open, &endpoint));
    let limits = Limits { bytes_per_second: Some(1 << 30), ..Limits::default() };
    store.set_link("gsiftp://a.example.org", &endpoint.name, &limits).await.unwrap();
    let links = store.links().await.unwrap();
    assert!(links.len() == 1 && links[0].limits == limits);
    assert_eq!(store.queues().await.unwrap()[0].key.link, links[0].number);
    store.set_share("physics/alice", Some(2.5)).await.unwrap();
    store.set_share("physics", Some(1.0)).await.unwrap();
    store.set_share("physics", None).await.unwrap();
    let shares = store.shares().await.unwrap();
    assert_eq!((shares.len(), shares[0].weight), (1, 2.5));
}

async fn users_are_found_by_name_identity_and_token(fixture) {
    let store = &fixture.store;
    let alice = PrincipalRecord {
        name: "alice".into(),
        role: Role::Operator,
        groups: vec!["physics".into()],
        identities: vec!["dn:/CN=alice".into(), "oidc:https://i#1".into()],
        max_jobs: Some(10),
        ..PrincipalRecord::default()
    };
    store.set_principal(&alice).await.unwrap();
    store.set_principal(&alice).await.unwrap();
    assert_eq!(store.principal("alice").await.unwrap(), alice);
    assert_eq!(store.principals().await.unwrap(), std::slice::from_ref(&alice));
    assert_eq!(store.principal_by_identity("dn:/CN=alice").await.unwrap(), alice);
    let thief = PrincipalRecord { name: "bob".into(), ..alice.clone() };
    assert!(matches!(store.set_principal(&thief).await, Err(StoreError::Conflict(_))));
    let (id, old) = (Uuid::new_v4(), Uuid::new_v4());
    store.add_token(id, "alice", b"hash", "laptop", None).await.unwrap();
    let past = store.now().await.unwrap() - Duration::from_secs(1);
    store.add_token(old, "alice", b"old", "ended", Some(past)).await.unwrap();
    assert_eq!(store.principal_by_token(b"hash").await.unwrap(), alice);
    let ended = store.principal_by_token(b"old").await;
    assert!(matches!(ended, Err(StoreError::NotFound)));
    assert_eq!(store.tokens("alice").await.unwrap().len(), 2);
    let other = store.remove_token("bob", id).await;
    assert!(matches!(other, Err(StoreError::NotFound)));
    store.remove_token("alice", id).await.unwrap();
    let removed = store.principal_by_token(b"hash").await;
    assert!(matches!(removed, Err(StoreError::NotFound)));
}

async fn credentials_belong_to_their_owner(fixture) {
    let store = &fixture.store;
    let mut credential = CredentialRecord {
        id: Uuid::new_v4(),
        owner: "alice".into(),
        endpoint: "gsiftp://*".into(),
        kind: "proxy".into(),
        sealed: vec![0, 255, 7],
        expires: None,
        created: store.now().await.unwrap(),
    };
    store.set_credential(&credential).await.unwrap();
    let found = store.credential("alice", credential.id).await.unwrap();
    assert_eq!(found.sealed, [0, 255, 7]);
    assert!(matches!(store.credential("bob", credential.id).await, Err(StoreError::NotFound)));
    credential.owner = "bob".into();
    assert!(matches!(store.set_credential(&credential).await, Err(StoreError::NotFound)));
    assert_eq!(store.credentials("alice").await.unwrap().len(), 1);
    store.remove_credential("alice", credential.id).await.unwrap();
    assert!(store.credentials("alice").await.unwrap().is_empty());
}

async fn the_audit_is_read_from_its_end(fixture) {
    let store = &fixture.store;
    for n in 0..3 {
        store.audit("alice", "job.cancel", &n.to_string(), "").await.unwrap();
    }
    let last = store.audits(i64::MAX, 2).await.unwrap();
    let subjects: Vec<&str> = last.iter().map(|a| a.subject.as_str()).collect();
    assert_eq!(subjects, ["2", "1"]);
    let rest = store.audits(last[1].number, 9).await.unwrap();
    assert!(rest.len() == 1 && rest[0].subject == "0");
}

async fn tables_of_version_1_are_upgraded_with_their_rows(fixture) {
    // The way back to version 1, with rows that it could hold.
    let store = &fixture.store;
    let id = submit(store, 3).await;
    store.set_principal(&PrincipalRecord { name: "alice".into(), ..Default::default() })
        .await
        .unwrap();
    fixture.execute("ALTER TABLE segment DROP COLUMN receipts").await;
    fixture.execute("ALTER TABLE principal DROP COLUMN max_jobs").await;
    fixture.execute("ALTER TABLE principal DROP COLUMN max_files").await;
    fixture.execute("ALTER TABLE unit DROP COLUMN concurrency").await;
    fixture.execute("ALTER TABLE unit DROP COLUMN parallelism").await;
    fixture.execute("ALTER TABLE agent DROP COLUMN report").await;
    fixture.execute("DROP TABLE job_now").await;
    fixture.execute("DROP TABLE delegation").await;
    fixture.execute("ALTER TABLE job DROP COLUMN request").await;
    fixture.execute("ALTER TABLE job DROP COLUMN ordered").await;
    fixture.execute("ALTER TABLE job DROP COLUMN canceled").await;
    fixture.execute("DROP TABLE webhook").await;
    fixture.execute("DROP TABLE webhook_key").await;
    fixture.execute("DROP TABLE divided_file").await;
    fixture.execute("DROP TABLE leftover").await;
    fixture.execute("ALTER TABLE job DROP COLUMN submitted").await;
    fixture.execute("ALTER TABLE job DROP COLUMN schedule").await;
    fixture.execute("DROP TABLE schedule").await;
    fixture.execute("DROP TABLE schedule_run").await;
    fixture.execute("DROP TABLE mail_count").await;
    for index in ["job_owner_name", "job_name", "job_owner_state", "job_state"] {
        fixture.execute(format!("DROP INDEX {index}")).await;
    }
    fixture.execute("ALTER TABLE job DROP COLUMN name").await;
    for table in ["web_session", "link_now", "link_hour", "browse"] {
        fixture.execute(format!("DROP TABLE {table}")).await;
    }
    for index in ["job_changed", "file_exception_failed"] {
        fixture.execute(format!("DROP INDEX {index}")).await;
    }
    fixture.execute("ALTER TABLE job DROP COLUMN changed").await;
    fixture.execute("ALTER TABLE job DROP COLUMN trace").await;
    fixture.execute("DELETE FROM _sqlx_migrations WHERE version >= 2").await;
    let refused = Store::open(&fixture.url).await;
    assert!(matches!(refused, Err(StoreError::Schema(_))));
    let upgraded = Store::migrate(&fixture.url).await.unwrap();
    assert_eq!(upgraded.schema_version().await.unwrap(), 18);
    assert_eq!(upgraded.principal("alice").await.unwrap().max_jobs, None);
    let leader = lead(&upgraded).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(&upgraded, leader, 1).await.remove(0);
    agent.poll(&upgraded, &[], vec![all_finished(&unit)]).await;
    assert_eq!(upgraded.job(id).await.unwrap().files.finished, 3);
}

}
