//! Users and their credentials as pages list them: no secrets, and never more than fit.

use godwit_service_api::{account::CredentialView, site::Role};
use jiff::Timestamp;
use sqlx::any::AnyRow;

use super::{Store, StoreError, database::Columns as _};

/// A user of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSummary {
    /// Unique.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Groups that they are in.
    pub groups: Vec<String>,
    /// They are refused.
    pub disabled: bool,
    /// Tokens that have not ended.
    pub tokens: u64,
    /// When they last used a session of a browser that is known still.
    pub used: Option<Timestamp>,
    /// When they submitted their latest job that is kept.
    pub submitted: Option<Timestamp>,
}

impl Store {
    /// Users by name, at most so many, whose names begin with `begin` and come after `after`.
    pub async fn user_summaries(
        &self,
        begin: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<UserSummary>, StoreError> {
        let text = "SELECT name, role, user_groups, disabled,
            (SELECT COUNT(*) FROM api_token AS t WHERE t.principal = p.name
                AND (t.expires IS NULL OR t.expires > {now})),
            (SELECT MAX(s.used) FROM web_session AS s WHERE s.principal = p.name),
            (SELECT j.created FROM job AS j WHERE j.owner = p.name
                ORDER BY j.number DESC LIMIT 1)
            FROM principal AS p WHERE name > $2 AND substr(name, 1, CAST($3 AS INTEGER)) = $1
            ORDER BY name LIMIT $4";
        // Text of PostgreSQL has no NUL, and no name either.
        if begin.contains('\0') || after.contains('\0') {
            return Ok(Vec::new());
        }
        let length = i64::try_from(begin.chars().count()).unwrap_or(i64::MAX);
        let query = self.database.query(text).bind(begin.to_owned());
        let query = query
            .bind(after.to_owned())
            .bind(length)
            .bind(i64::from(limit));
        let rows = query.fetch_all(self.database.reader()).await?;
        let read = |row: &AnyRow| {
            Ok(UserSummary {
                name: row.text(0)?,
                role: row.name(1)?,
                groups: row.json(2)?,
                disabled: row.flag(3)?,
                tokens: row.count(4)?,
                used: row.maybe_time(5)?,
                submitted: row.maybe_time(6)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// The latest credentials of a user, at most so many, and how many there are.
    pub async fn credential_views(
        &self,
        owner: &str,
        limit: u32,
    ) -> Result<(Vec<CredentialView>, u64), StoreError> {
        let text = "SELECT id, endpoint, kind, expires, created FROM credential
            WHERE owner = $1 ORDER BY created DESC, id LIMIT $2";
        let query = self.database.query(text).bind(owner.to_owned());
        let query = query.bind(i64::from(limit));
        let rows = query.fetch_all(self.database.reader()).await?;
        let read = |row: &AnyRow| {
            Ok(CredentialView {
                id: row.uuid(0)?,
                endpoint: row.text(1)?,
                kind: row.text(2)?,
                expires: row.maybe_time(3)?,
                created: row.time(4)?,
            })
        };
        let views = rows.iter().map(read).collect::<Result<_, StoreError>>()?;
        let text = "SELECT COUNT(*) FROM credential WHERE owner = $1";
        let query = self.database.query(text).bind(owner.to_owned());
        let row = query.fetch_one(self.database.reader()).await?;
        Ok((views, row.count(0)?))
    }
}
