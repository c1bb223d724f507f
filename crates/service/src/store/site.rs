//! Endpoints, links, shares, users, credentials and the audit.

use godwit_service_api::{
    page::MAX_PAGE,
    site::{EndpointState, Limits},
};
use jiff::Timestamp;
use sqlx::any::AnyRow;
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Columns as _, Statement, json, micros, name},
    model::{
        AuditRecord, CredentialEnd, CredentialRecord, EndpointRecord, LinkRecord, LinkUse,
        PrincipalRecord, ShareRecord, TokenRecord,
    },
    upkeep::DAY,
};

impl Store {
    async fn list<T>(
        &self,
        query: Statement,
        read: impl Fn(&AnyRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(read).collect()
    }

    async fn write(&self, query: Statement) -> Result<u64, StoreError> {
        Ok(query.execute(self.database.writer()).await?.rows_affected())
    }

    /// Endpoints that an operator has set or that a job has named.
    pub async fn endpoints(&self) -> Result<Vec<EndpointRecord>, StoreError> {
        let text = "SELECT n.name, endpoint.state, endpoint.limits FROM
            (SELECT name FROM endpoint UNION SELECT source FROM link
            UNION SELECT destination FROM link) AS n
            LEFT JOIN endpoint ON endpoint.name = n.name ORDER BY n.name";
        let read = |row: &AnyRow| {
            let set = row.maybe_text(1)?.is_some();
            Ok(EndpointRecord {
                name: row.text(0)?,
                state: if set {
                    row.name(1)?
                } else {
                    EndpointState::Open
                },
                limits: if set { row.json(2)? } else { Limits::default() },
            })
        };
        self.list(self.database.query(text), read).await
    }

    /// Endpoints where nothing may run.
    pub async fn banned_endpoints(&self) -> Result<Vec<String>, StoreError> {
        let text = "SELECT name FROM endpoint WHERE state = 'banned' ORDER BY name";
        self.list(self.database.query(text), |row| row.text(0))
            .await
    }

    /// Jobs with units from or to an endpoint.
    pub async fn jobs_at(&self, endpoint: &str) -> Result<Vec<Uuid>, StoreError> {
        let text = "SELECT id FROM job WHERE ended IS NULL AND number IN
            (SELECT unit.job FROM unit JOIN link ON link.number = unit.link
            WHERE link.source = $1 OR link.destination = $1) ORDER BY number";
        let query = self.database.query(text).bind(endpoint.to_owned());
        self.list(query, |row| row.uuid(0)).await
    }

    /// What running units use, by pair of endpoints.
    pub async fn links_in_use(&self) -> Result<Vec<LinkUse>, StoreError> {
        let text = "SELECT link.source, link.destination, COUNT(*),
            CAST(SUM(unit.concurrency) AS bigint), MAX(unit.parallelism)
            FROM unit JOIN link ON link.number = unit.link WHERE unit.agent IS NOT NULL
            GROUP BY link.source, link.destination ORDER BY link.source, link.destination";
        let read = |row: &AnyRow| {
            Ok(LinkUse {
                source: row.text(0)?,
                destination: row.text(1)?,
                units: row.count(2)?,
                sessions: row.count(3)?,
                parallelism: row.count(4)?,
            })
        };
        self.list(self.database.query(text), read).await
    }

    /// Sets an endpoint.
    pub async fn set_endpoint(&self, endpoint: &EndpointRecord) -> Result<(), StoreError> {
        let text = "INSERT INTO endpoint (name, state, limits) VALUES ($1, $2, $3)
            ON CONFLICT (name) DO UPDATE SET state = $2, limits = $3";
        let query = self.database.query(text).bind(endpoint.name.clone());
        let query = query
            .bind(name(endpoint.state)?)
            .bind(json(&endpoint.limits)?);
        self.write(query).await?;
        Ok(())
    }

    /// Pairs of endpoints that jobs or an operator have named.
    pub async fn links(&self) -> Result<Vec<LinkRecord>, StoreError> {
        let text = "SELECT number, source, destination, limits FROM link ORDER BY number";
        let read = |row: &AnyRow| {
            Ok(LinkRecord {
                number: row.int(0)?,
                source: row.text(1)?,
                destination: row.text(2)?,
                limits: row.json(3)?,
            })
        };
        self.list(self.database.query(text), read).await
    }

    /// Sets the limits of a pair of endpoints.
    pub async fn set_link(
        &self,
        source: &str,
        destination: &str,
        limits: &Limits,
    ) -> Result<(), StoreError> {
        let text = "INSERT INTO link (source, destination, limits) VALUES ($1, $2, $3)
            ON CONFLICT (source, destination) DO UPDATE SET limits = $3";
        let query = self.database.query(text).bind(source.to_owned());
        let query = query.bind(destination.to_owned()).bind(json(limits)?);
        self.write(query).await?;
        Ok(())
    }

    /// The tree of shares, by path.
    pub async fn shares(&self) -> Result<Vec<ShareRecord>, StoreError> {
        let query = self
            .database
            .query("SELECT path, weight FROM share ORDER BY path");
        let read = |row: &AnyRow| {
            Ok(ShareRecord {
                path: row.text(0)?,
                weight: row.real(1)?,
            })
        };
        self.list(query, read).await
    }

    /// Sets a share; `None` removes it.
    pub async fn set_share(&self, path: &str, weight: Option<f64>) -> Result<(), StoreError> {
        let query = match weight {
            Some(weight) => {
                let text = "INSERT INTO share (path, weight) VALUES ($1, $2)
                    ON CONFLICT (path) DO UPDATE SET weight = $2";
                self.database.query(text).bind(path.to_owned()).bind(weight)
            }
            None => {
                let query = self.database.query("DELETE FROM share WHERE path = $1");
                query.bind(path.to_owned())
            }
        };
        self.write(query).await?;
        Ok(())
    }

    /// Lets an agent have new work, or not.
    pub async fn set_draining(&self, agent: &str, draining: bool) -> Result<(), StoreError> {
        let query = self
            .database
            .query("UPDATE agent SET draining = $2 WHERE name = $1");
        let query = query.bind(agent.to_owned()).bind(i64::from(draining));
        found(self.write(query).await?)
    }

    /// Sets a user with the names that other systems know them by.
    pub async fn set_principal(&self, principal: &PrincipalRecord) -> Result<(), StoreError> {
        let mut work = self.database.begin().await?;
        let text = "INSERT INTO principal
            (name, role, user_groups, password_hash, disabled, max_jobs, max_files)
            VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (name) DO UPDATE SET role = $2, user_groups = $3, password_hash = $4,
            disabled = $5, max_jobs = $6, max_files = $7";
        let query = work
            .query(text)
            .bind(principal.name.clone())
            .bind(name(principal.role)?)
            .bind(json(&principal.groups)?)
            .bind(principal.password_hash.clone())
            .bind(i64::from(principal.disabled))
            .bind(principal.max_jobs.map(|n| n as i64))
            .bind(principal.max_files.map(|n| n as i64));
        query.execute(work.connection()).await?;
        let query = work.query("DELETE FROM identity WHERE principal = $1");
        query
            .bind(principal.name.clone())
            .execute(work.connection())
            .await?;
        for identity in &principal.identities {
            let text = "INSERT INTO identity (name, principal) VALUES ($1, $2)";
            let query = work
                .query(text)
                .bind(identity.clone())
                .bind(principal.name.clone());
            match query.execute(work.connection()).await {
                Err(sqlx::Error::Database(e)) if e.is_unique_violation() => {
                    return Err(StoreError::Conflict("another user has this identity"));
                }
                other => other?,
            };
        }
        work.commit().await
    }

    /// All users, by name.
    pub async fn principals(&self) -> Result<Vec<PrincipalRecord>, StoreError> {
        let query = self.database.query(&principals("ORDER BY name"));
        let mut principals = self.list(query, read_principal).await?;
        let text = "SELECT principal, name FROM identity ORDER BY name";
        let read = |row: &AnyRow| Ok((row.text(0)?, row.text(1)?));
        for (owner, identity) in self.list(self.database.query(text), read).await? {
            let place = principals.binary_search_by(|p| p.name.as_str().cmp(&owner));
            if let Ok(place) = place {
                principals[place].identities.push(identity);
            }
        }
        Ok(principals)
    }

    /// A user by name.
    pub async fn principal(&self, name: &str) -> Result<PrincipalRecord, StoreError> {
        let query = self.database.query(&principals("WHERE name = $1"));
        self.one_principal(query.bind(name.to_owned())).await
    }

    /// A user by a name that another system knows them by.
    pub async fn principal_by_identity(&self, id: &str) -> Result<PrincipalRecord, StoreError> {
        let which = "WHERE name = (SELECT principal FROM identity WHERE name = $1)";
        let query = self.database.query(&principals(which));
        self.one_principal(query.bind(id.to_owned())).await
    }

    /// The user of a token that has not ended, by the token's hash.
    pub async fn principal_by_token(&self, hash: &[u8]) -> Result<PrincipalRecord, StoreError> {
        let which = "WHERE name = (SELECT principal FROM api_token
            WHERE hash = $1 AND (expires IS NULL OR expires > {now}))";
        let query = self.database.query(&principals(which));
        self.one_principal(query.bind(hash.to_vec())).await
    }

    async fn one_principal(&self, query: Statement) -> Result<PrincipalRecord, StoreError> {
        let found = self.list(query, read_principal).await?;
        let mut principal = found.into_iter().next().ok_or(StoreError::NotFound)?;
        let text = "SELECT name FROM identity WHERE principal = $1 ORDER BY name";
        let query = self.database.query(text).bind(principal.name.clone());
        principal.identities = self.list(query, |row| row.text(0)).await?;
        Ok(principal)
    }

    /// Stores a token; its time is the database's.
    pub async fn add_token(
        &self,
        id: Uuid,
        principal: &str,
        hash: &[u8],
        label: &str,
        expires: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let text = "INSERT INTO api_token (id, principal, hash, label, created, expires)
            VALUES ($1, $2, $3, $4, {now}, $5)";
        let query = self.database.query(text).bind(id.to_string());
        let query = query.bind(principal.to_owned()).bind(hash.to_vec());
        let query = query.bind(label.to_owned()).bind(micros(expires));
        self.write(query).await?;
        Ok(())
    }

    /// Tokens of a user.
    pub async fn tokens(&self, principal: &str) -> Result<Vec<TokenRecord>, StoreError> {
        let text = "SELECT id, principal, hash, label, created, expires FROM api_token
            WHERE principal = $1 ORDER BY created, id";
        let query = self.database.query(text).bind(principal.to_owned());
        let read = |row: &AnyRow| {
            Ok(TokenRecord {
                id: row.uuid(0)?,
                principal: row.text(1)?,
                hash: row.bytes(2)?,
                label: row.text(3)?,
                created: row.time(4)?,
                expires: row.maybe_time(5)?,
            })
        };
        self.list(query, read).await
    }

    /// Removes a token of a user.
    pub async fn remove_token(&self, principal: &str, id: Uuid) -> Result<(), StoreError> {
        let text = "DELETE FROM api_token WHERE principal = $1 AND id = $2";
        let query = self.database.query(text).bind(principal.to_owned());
        found(self.write(query.bind(id.to_string())).await?)
    }

    /// Stores a credential, or renews one of the same owner and name. Its `created` is not read.
    pub async fn set_credential(&self, credential: &CredentialRecord) -> Result<(), StoreError> {
        let text = "INSERT INTO credential (id, owner, endpoint, kind, sealed, expires, created)
            VALUES ($1, $2, $3, $4, $5, $6, {now})
            ON CONFLICT (id) DO UPDATE SET endpoint = $3, kind = $4, sealed = $5, expires = $6,
            created = {now} WHERE credential.owner = $2";
        let query = self
            .database
            .query(text)
            .bind(credential.id.to_string())
            .bind(credential.owner.clone())
            .bind(credential.endpoint.clone())
            .bind(credential.kind.clone())
            .bind(credential.sealed.clone())
            .bind(micros(credential.expires));
        found(self.write(query).await?)
    }

    /// Replaces a credential that was stored at `stored`, and not since.
    pub async fn renew_credential(
        &self,
        credential: &CredentialRecord,
        stored: Timestamp,
    ) -> Result<(), StoreError> {
        let text = "UPDATE credential SET kind = $3, sealed = $4, expires = $5, created = {now}
            WHERE id = $1 AND owner = $2 AND created = $6";
        let query = self
            .database
            .query(text)
            .bind(credential.id.to_string())
            .bind(credential.owner.clone())
            .bind(credential.kind.clone())
            .bind(credential.sealed.clone())
            .bind(micros(credential.expires))
            .bind(micros(Some(stored)));
        found(self.write(query).await?)
    }

    /// Credentials of a kind of which less than a third of their time is left, or that ended in the
    /// last day; at most so many, the first to end first.
    pub async fn credentials_to_renew(
        &self,
        kind: &str,
        limit: u32,
    ) -> Result<Vec<CredentialRecord>, StoreError> {
        let text = "SELECT id, owner, endpoint, kind, sealed, expires, created FROM credential
            WHERE kind = $1 AND (expires - {now}) * 3 < expires - created
            AND expires > {now} - $2 ORDER BY expires, id LIMIT $3";
        let query = self.database.query(text).bind(kind.to_owned());
        let query = query.bind(DAY).bind(i64::from(limit));
        self.list(query, read_credential).await
    }

    /// Credentials of a user, latest first.
    pub async fn credentials(&self, owner: &str) -> Result<Vec<CredentialRecord>, StoreError> {
        let text = "SELECT id, owner, endpoint, kind, sealed, expires, created FROM credential
            WHERE owner = $1 ORDER BY created DESC, id";
        let query = self.database.query(text).bind(owner.to_owned());
        self.list(query, read_credential).await
    }

    /// When the latest credential of all users was stored.
    pub async fn latest_credential(&self) -> Result<Option<Timestamp>, StoreError> {
        let query = self.database.query("SELECT MAX(created) FROM credential");
        let found = self.list(query, |row| row.maybe_time(0)).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Which endpoints each user has credentials for, and when these were stored and end.
    pub async fn credential_ends(&self) -> Result<Vec<CredentialEnd>, StoreError> {
        let text = "SELECT owner, endpoint, created, expires FROM credential ORDER BY owner, id";
        let read = |row: &AnyRow| {
            Ok(CredentialEnd {
                owner: row.text(0)?,
                endpoint: row.text(1)?,
                created: row.time(2)?,
                expires: row.maybe_time(3)?,
            })
        };
        self.list(self.database.query(text), read).await
    }

    /// One credential of a user.
    pub async fn credential(&self, owner: &str, id: Uuid) -> Result<CredentialRecord, StoreError> {
        let text = "SELECT id, owner, endpoint, kind, sealed, expires, created FROM credential
            WHERE owner = $1 AND id = $2";
        let query = self
            .database
            .query(text)
            .bind(owner.to_owned())
            .bind(id.to_string());
        let credentials = self.list(query, read_credential).await?;
        credentials.into_iter().next().ok_or(StoreError::NotFound)
    }

    /// Removes a credential of a user.
    pub async fn remove_credential(&self, owner: &str, id: Uuid) -> Result<(), StoreError> {
        let text = "DELETE FROM credential WHERE owner = $1 AND id = $2";
        let query = self.database.query(text).bind(owner.to_owned());
        found(self.write(query.bind(id.to_string())).await?)
    }

    /// Keeps the sealed key of a user's delegation, unless one waits already.
    pub async fn add_delegation(&self, owner: &str, sealed: &[u8]) -> Result<(), StoreError> {
        let text = "INSERT INTO delegation (owner, sealed, created) VALUES ($1, $2, {now})
            ON CONFLICT (owner) DO NOTHING";
        let query = self.database.query(text).bind(owner.to_owned());
        self.write(query.bind(sealed.to_vec())).await?;
        Ok(())
    }

    /// The sealed key that waits for a user's proxy.
    pub async fn delegation(&self, owner: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let text = "SELECT sealed FROM delegation WHERE owner = $1";
        let query = self.database.query(text).bind(owner.to_owned());
        let found = self.list(query, |row| row.bytes(0)).await?;
        Ok(found.into_iter().next())
    }

    /// Forgets that key.
    pub async fn remove_delegation(&self, owner: &str) -> Result<(), StoreError> {
        let text = "DELETE FROM delegation WHERE owner = $1";
        self.write(self.database.query(text).bind(owner.to_owned()))
            .await?;
        Ok(())
    }

    /// Writes down who did what.
    pub async fn audit(
        &self,
        who: &str,
        action: &str,
        subject: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        let text = "INSERT INTO audit (at, who, action, subject, detail)
            VALUES ({now}, $1, $2, $3, $4)";
        let query = self
            .database
            .query(text)
            .bind(who.to_owned())
            .bind(action.to_owned());
        let query = query.bind(subject.to_owned()).bind(detail.to_owned());
        self.write(query).await?;
        Ok(())
    }

    /// The audit before this number, latest first.
    pub async fn audits(&self, before: i64, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let text = "SELECT number, at, who, action, subject, detail FROM audit
            WHERE number < $1 ORDER BY number DESC LIMIT $2";
        let limit = i64::from(limit.clamp(1, MAX_PAGE));
        let query = self.database.query(text).bind(before).bind(limit);
        let read = |row: &AnyRow| {
            Ok(AuditRecord {
                number: row.int(0)?,
                at: row.time(1)?,
                who: row.text(2)?,
                action: row.text(3)?,
                subject: row.text(4)?,
                detail: row.text(5)?,
            })
        };
        self.list(query, read).await
    }
}

fn found(rows: u64) -> Result<(), StoreError> {
    match rows {
        0 => Err(StoreError::NotFound),
        _ => Ok(()),
    }
}

fn principals(which: &str) -> String {
    format!(
        "SELECT name, role, user_groups, password_hash, disabled, max_jobs, max_files
        FROM principal {which}"
    )
}

fn read_principal(row: &AnyRow) -> Result<PrincipalRecord, StoreError> {
    Ok(PrincipalRecord {
        name: row.text(0)?,
        role: row.name(1)?,
        groups: row.json(2)?,
        password_hash: row.maybe_text(3)?,
        identities: Vec::new(),
        disabled: row.flag(4)?,
        max_jobs: row.maybe_int(5)?.map(|n| n as u64),
        max_files: row.maybe_int(6)?.map(|n| n as u64),
    })
}

fn read_credential(row: &AnyRow) -> Result<CredentialRecord, StoreError> {
    Ok(CredentialRecord {
        id: row.uuid(0)?,
        owner: row.text(1)?,
        endpoint: row.text(2)?,
        kind: row.text(3)?,
        sealed: row.bytes(4)?,
        expires: row.maybe_time(5)?,
        created: row.time(6)?,
    })
}
