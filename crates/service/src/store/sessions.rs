//! Sessions of browsers. Of a session the database has the hash of its secret alone.

use std::time::Duration;

use super::{
    Store, StoreError,
    database::Columns as _,
    leases::micros,
    model::{PrincipalRecord, SessionProof},
};

/// That a session was used is written so often at most.
const USED_GAP: Duration = Duration::from_secs(60);

/// How long a session lasts.
#[derive(Clone, Copy, Debug)]
pub struct SessionLife {
    /// From the login.
    pub whole: Duration,
    /// Without a request.
    pub idle: Duration,
    /// Most sessions of a user: the oldest ends where one more begins.
    pub most: u32,
}

/// A session that has not ended.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// Whose.
    pub principal: PrincipalRecord,
    /// What it began with, where that was an identity.
    pub identity: Option<String>,
}

impl Store {
    /// Begins a session, and ends the oldest of the user's where there are too many.
    pub async fn add_session(
        &self,
        hash: &[u8],
        principal: &str,
        proof: &SessionProof,
        life: SessionLife,
    ) -> Result<(), StoreError> {
        let (mut token, mut identity, mut password) = (None, None, None);
        match proof.clone() {
            SessionProof::Token(hash) => token = Some(hash),
            SessionProof::Identity(name) => identity = Some(name),
            SessionProof::Password(hash) => password = Some(hash),
        }
        let mut work = self.database.begin().await?;
        let text = "DELETE FROM web_session
            WHERE principal = $1 AND (expires <= {now} OR used <= {now} - $2)";
        let query = work.query(text).bind(principal.to_owned());
        let query = query.bind(micros(life.idle));
        query.execute(work.connection()).await?;
        let text = "DELETE FROM web_session WHERE hash IN
            (SELECT hash FROM web_session WHERE principal = $1
            ORDER BY created DESC, hash LIMIT 1000 OFFSET $2)";
        let query = work.query(text).bind(principal.to_owned());
        let query = query.bind(i64::from(life.most.saturating_sub(1)));
        query.execute(work.connection()).await?;
        let text = "INSERT INTO web_session
            (hash, principal, token, identity, password, created, used, expires)
            VALUES ($1, $2, $3, $4, $5, {now}, {now}, {now} + $6)";
        let query = work
            .query(text)
            .bind(hash.to_vec())
            .bind(principal.to_owned())
            .bind(token)
            .bind(identity)
            .bind(password)
            .bind(micros(life.whole));
        query.execute(work.connection()).await?;
        work.commit().await
    }

    /// A session that has not ended, nor has what it began with, as far as the database knows.
    /// `is_use`: the session is not idle.
    pub async fn session(
        &self,
        hash: &[u8],
        idle: Duration,
        is_use: bool,
    ) -> Result<SessionRecord, StoreError> {
        let text = "SELECT s.principal, CASE WHEN s.used < {now} - $3 THEN 1 ELSE 0 END, s.identity
            FROM web_session AS s JOIN principal AS p ON p.name = s.principal
            WHERE s.hash = $1 AND s.expires > {now} AND s.used > {now} - $2 AND p.disabled = 0
            AND (s.token IS NULL OR EXISTS (SELECT 1 FROM api_token AS t
                WHERE t.hash = s.token AND t.principal = s.principal
                AND (t.expires IS NULL OR t.expires > {now})))
            AND (s.identity IS NULL OR EXISTS (SELECT 1 FROM identity AS i
                WHERE i.name = s.identity AND i.principal = s.principal))
            AND (s.password IS NULL OR s.password = p.password_hash)";
        let query = self.database.query(text).bind(hash.to_vec());
        let query = query.bind(micros(idle)).bind(micros(USED_GAP));
        let row = query.fetch_optional(self.database.reader()).await?;
        let row = row.ok_or(StoreError::NotFound)?;
        if is_use && row.flag(1)? {
            let text = "UPDATE web_session SET used = {now} WHERE hash = $1";
            let query = self.database.query(text).bind(hash.to_vec());
            query.execute(self.database.writer()).await?;
        }
        Ok(SessionRecord {
            principal: self.principal(&row.text(0)?).await?,
            identity: row.maybe_text(2)?,
        })
    }

    /// Ends a session. One that is not there has ended before.
    pub async fn end_session(&self, hash: &[u8]) -> Result<(), StoreError> {
        let query = self
            .database
            .query("DELETE FROM web_session WHERE hash = $1");
        let query = query.bind(hash.to_vec());
        query.execute(self.database.writer()).await?;
        Ok(())
    }
}
