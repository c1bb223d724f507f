//! Issued keys that are used again: each session of a copy asks for keys, and services would have
//! them all wait, and count them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::Mutex;

use super::{Keys, issued::IssuedKeys, source::AskedKeys};

/// Keys that end sooner are not used for another session: a copy begins with them.
const EARLY: Duration = Duration::from_secs(5 * 60);

/// Keys of each profile that a URL names, and of the one that none names, with how they were asked
/// for. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyCache(Arc<Mutex<HashMap<Option<String>, CachedKeys>>>);

type CachedKeys = (AskedKeys, IssuedKeys);

impl KeyCache {
    /// Those that are kept, unless they are `refused`, end soon, or are asked for otherwise now;
    /// else those that `issue` gets, for which others wait.
    ///
    /// # Errors
    /// Those of `issue`, if there are no other keys.
    pub(super) async fn keys(
        &self,
        profile: Option<&str>,
        asked: &AskedKeys,
        refused: Option<&Keys>,
        issue: impl Future<Output = Result<IssuedKeys, String>>,
    ) -> Result<Keys, String> {
        let mut all = self.0.lock().await;
        let profile = profile.map(str::to_owned);
        let kept = all.get(&profile).filter(|(by, _)| by == asked);
        let kept = kept.map(|(_, kept)| kept.clone());
        let kept = kept.filter(|kept| Some(&kept.keys) != refused);
        let now = SystemTime::now();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.lasts_until(now + EARLY)) {
            return Ok(kept.keys.clone());
        }
        match (issue.await, kept) {
            (Ok(issued), _) => {
                all.insert(profile, (asked.clone(), issued.clone()));
                Ok(issued.keys)
            }
            (Err(_), Some(kept)) if kept.lasts_until(SystemTime::now()) => Ok(kept.keys),
            (Err(why), _) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use godwit_gsi::ftps::Authorities;
    use godwit_proto::command::Password;

    use super::*;
    use crate::auth::aws::{
        endpoints::AwsService,
        source::{FirstKeys, KeySource},
        sts::Sts,
    };

    fn issued(access: &str, seconds: u64) -> IssuedKeys {
        let expires = SystemTime::now() + Duration::from_secs(seconds);
        let secret = Password::new("s");
        IssuedKeys::new(access.to_owned(), secret, None, Some(expires)).unwrap()
    }

    fn asked(command: &str) -> AskedKeys {
        let (profile, command) = ("p".to_owned(), command.to_owned());
        AskedKeys {
            source: KeySource {
                first: FirstKeys::Process { profile, command },
                roles: Vec::new(),
            },
            sts: Sts {
                origin: AwsService::Sts.of_region("r"),
                region: "r".to_owned(),
                authorities: Authorities::System,
            },
        }
    }

    #[tokio::test]
    async fn keys_are_issued_again_when_they_end_or_are_refused() {
        let (cache, by) = (KeyCache::default(), asked("c"));
        let get = async |refused: Option<&Keys>, next: Result<IssuedKeys, String>| {
            let keys = cache.keys(None, &by, refused, async { next }).await;
            keys.map(|keys| keys.access)
        };
        let failed = || Err("no".to_owned());
        assert!(get(None, failed()).await.is_err());
        let (first, second) = (issued("A", 3600), issued("B", 60));
        assert_eq!(get(None, Ok(first.clone())).await.unwrap(), "A");
        assert_eq!(get(None, failed()).await.unwrap(), "A");
        let refused = Some(&first.keys);
        assert!(get(refused, failed()).await.is_err());
        assert_eq!(get(refused, Ok(second)).await.unwrap(), "B");
        // They end soon, and are better than none.
        assert_eq!(get(refused, failed()).await.unwrap(), "B");
        assert_eq!(get(None, Ok(issued("C", 60))).await.unwrap(), "C");
    }

    #[tokio::test]
    async fn keys_are_those_of_their_profile_as_it_is_now() {
        let cache = KeyCache::default();
        let get = async |profile, command: &str, next: &str| {
            let issue = async { Ok(issued(next, 3600)) };
            let keys = cache.keys(profile, &asked(command), None, issue).await;
            keys.unwrap().access
        };
        assert_eq!(get(None, "c", "A").await, "A");
        assert_eq!(get(Some("p"), "c", "B").await, "B");
        assert_eq!(get(None, "c", "C").await, "A");
        assert_eq!(get(None, "other", "D").await, "D");
    }
}
