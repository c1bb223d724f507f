//! Users as operators list them.

use std::time::Duration;

use godwit_service::store::model::PrincipalRecord;
use godwit_service_api::site::Role;

use crate::support::*;

both! {

async fn users_are_listed_with_what_is_known_of_them(fixture) {
    let store = &fixture.store;
    for name in ["anna", "bob", "bobby", "b%"] {
        let principal = PrincipalRecord {
            name: name.to_owned(),
            role: Role::User,
            groups: vec!["physics".to_owned()],
            password_hash: None,
            identities: Vec::new(),
            disabled: name == "anna",
            max_jobs: None,
            max_files: None,
        };
        store.set_principal(&principal).await.unwrap();
    }
    let past = store.now().await.unwrap() - Duration::from_secs(60);
    for (hash, expires) in [([1; 32], None), ([2; 32], Some(past))] {
        let id = uuid::Uuid::new_v4();
        store.add_token(id, "bob", &hash, "test", expires).await.unwrap();
    }
    let names = async |begin: &str, after: &str, limit| {
        let users = store.user_summaries(begin, after, limit).await.unwrap();
        users.into_iter().map(|user| user.name).collect::<Vec<_>>()
    };
    assert_eq!(names("bob", "", 9).await, ["bob", "bobby"]);
    assert_eq!(names("bob", "bob", 9).await, ["bobby"]);
    assert_eq!(names("bob", "", 1).await, ["bob"]);
    assert_eq!(names("b%", "", 9).await, ["b%"]);
    assert_eq!(names("", "", 9).await.len(), 4);
    let bob = store.user_summaries("bob", "", 1).await.unwrap().remove(0);
    assert_eq!((bob.tokens, bob.used, bob.submitted), (1, None, None));
    assert!(!bob.disabled && store.user_summaries("anna", "", 1).await.unwrap()[0].disabled);
}

}
