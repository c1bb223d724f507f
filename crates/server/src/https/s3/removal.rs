//! DeleteObjects: up to a thousand keys in one request.

use godwit_http::s3::{
    requests::{XML_BYTES_MAX, read_deleting},
    written::Answer,
};
use hyper::{HeaderMap, StatusCode};

use super::{
    super::{answer::HttpAnswer, session::HttpSession},
    object::remove,
    payload::Payload,
    place::{ObjectPlace, bucket_path},
    refused::S3Error,
    xml,
};

pub(super) async fn remove_all(
    session: &HttpSession,
    bucket: &str,
    body: Payload<'_>,
) -> Result<HttpAnswer, S3Error> {
    session.check_writes()?;
    let directory = bucket_path(bucket)?;
    let body = body.whole(XML_BYTES_MAX).await?;
    let (keys, is_quiet) = read_deleting(&body)?;
    let mut answer = Answer::new("DeleteResult");
    // A key that no answer can name would end the work half done.
    for key in &keys {
        let named = Answer::new("Deleted").key("Key", key.as_bytes());
        named.map_err(|why| S3Error::argument(&why.to_string()))?;
    }
    for key in keys {
        let removed = match ObjectPlace::within(bucket, &directory, key.as_bytes()) {
            Ok(place) => remove(session, &place, &HeaderMap::new()).await,
            Err(refused) => Err(refused),
        };
        let written = match removed {
            Ok(()) if is_quiet => Ok(()),
            Ok(()) => answer.within("Deleted", |answer| answer.key("Key", key.as_bytes())),
            Err(refused) => answer.within("Error", |answer| {
                answer.key("Key", key.as_bytes())?;
                answer.field("Code", refused.code);
                answer.field("Message", &refused.text);
                Ok(())
            }),
        };
        written.map_err(|why| S3Error::argument(&why.to_string()))?;
    }
    Ok(xml(StatusCode::OK, answer.finish()))
}
