//! Buckets: the directories at the root.

use godwit_engine::storage::FileKind;
use godwit_http::s3::{
    requests::is_bucket,
    written::{Answer, time},
};
use godwit_proto::FtpPath;
use hyper::StatusCode;
use rustix::io::Errno;

use super::{
    super::{answer::HttpAnswer, session::HttpSession},
    place::bucket_path,
    refused::S3Error,
    xml,
};
use crate::{
    access::rights::Operation,
    observe::event::{Entry, What},
    storage::failure,
    transfers::checksums::blocking,
};

/// Buckets that are told: what one answer can have.
const BUCKETS_MAX: usize = 10_000;

/// ListBuckets: those that the login may look at.
pub(super) async fn list(session: &HttpSession) -> Result<HttpAnswer, S3Error> {
    let storage = std::sync::Arc::clone(&session.unscoped);
    let listed = blocking(move || {
        let mut found = Vec::new();
        for entry in storage.list(&FtpPath::root())? {
            let (name, metadata) = entry?;
            let name = String::from_utf8(name).unwrap_or_default();
            if metadata.kind != FileKind::Directory || !is_bucket(&name) {
                continue;
            }
            if found.len() == BUCKETS_MAX {
                return Err(failure(Errno::OVERFLOW, "list so many buckets"));
            }
            found.push((name, metadata.modified));
        }
        Ok(found)
    });
    let listed = listed.await;
    let entry = Entry::new(What::List).path(&FtpPath::root());
    session.recorder.change(entry, &listed);
    let mut listed = listed?;
    listed.retain(|(name, _)| {
        bucket_path(name).is_ok_and(|path| session.may(Operation::Look, &path))
    });
    listed.sort_unstable();
    let mut answer = Answer::new("ListAllMyBucketsResult");
    let buckets = |answer: &mut Answer| {
        for (name, modified) in &listed {
            answer.within("Bucket", |answer| {
                answer.field("Name", name);
                answer.field("CreationDate", &time(*modified));
                Ok(())
            })?;
        }
        Ok(())
    };
    // Names of buckets are plain.
    let _ = answer.within("Buckets", buckets);
    Ok(xml(StatusCode::OK, answer.finish()))
}

/// Where a bucket is.
pub(super) async fn find(session: &HttpSession, name: &str) -> Result<FtpPath, S3Error> {
    let path = bucket_path(name)?;
    let (storage, at) = (session.storage(), path.clone());
    match blocking(move || storage.stat(&at)).await {
        Ok(metadata) if metadata.kind == FileKind::Directory => Ok(path),
        Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => Err(S3Error::no_bucket()),
        Ok(_) => Err(S3Error::no_bucket()),
        Err(failure) => Err(failure.into()),
    }
}

/// GetBucketLocation: there is one region, the first of all.
pub(super) fn location() -> HttpAnswer {
    xml(StatusCode::OK, Answer::new("LocationConstraint").finish())
}
