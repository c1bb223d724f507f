//! Temporary files of divided files that were given up.

use crate::store::{
    StoreError,
    database::{Columns as _, Work},
};

/// Ends all divisions of a job that is final.
pub(super) async fn give_up_all(work: &mut Work, job: i64) -> Result<(), StoreError> {
    let text = "DELETE FROM divided_file WHERE job = $1 RETURNING temporary, upload, copied";
    let query = work.query(text).bind(job);
    let rows = query.fetch_all(work.connection()).await?;
    let (mut temporary, mut copied) = (Vec::new(), 0_i64);
    for row in &rows {
        temporary.push((row.text(0)?, row.maybe_text(1)?));
        copied = copied.saturating_add(row.int(2)?);
    }
    if temporary.is_empty() {
        return Ok(());
    }
    let text = "UPDATE job SET bytes_done = bytes_done - $2 WHERE number = $1";
    let query = work.query(text).bind(job).bind(copied);
    query.execute(work.connection()).await?;
    leave(work, job, &temporary).await
}

/// Notes temporary files that an agent is to remove: URL, and what an upload is known by.
pub(super) async fn leave(
    work: &mut Work,
    job: i64,
    files: &[(String, Option<String>)],
) -> Result<(), StoreError> {
    for (url, upload) in files {
        let text = "INSERT INTO leftover (owner, url, upload, since)
            SELECT owner, $2, $3, {now} FROM job WHERE number = $1";
        let query = work.query(text).bind(job).bind(url.clone());
        let query = query.bind(upload.clone());
        query.execute(work.connection()).await?;
    }
    Ok(())
}
