//! Uploads to a bucket that are not complete, ours and those of others: `godwit uploads`.

use godwit_http::s3::{
    self,
    answers::{OpenUpload, UploadsPage},
};
use godwit_http_client::{Body, Method};
use godwit_proto::{
    FtpPath, Reply,
    error::{FailureKind, failure_kind},
};

use crate::{
    error::{Error, Result},
    session::{
        Session,
        control::Control,
        http::{
            commands::{HttpControl, senseless},
            error::HttpError,
            replies::not_offered,
        },
    },
};

impl Session {
    /// A page of the uploads whose keys begin with a path, behind the key and the id of `after`.
    ///
    /// # Errors
    /// The service refuses, or its answer cannot be read.
    pub(crate) async fn open_uploads(
        &mut self,
        prefix: &FtpPath,
        after: Option<&(Vec<u8>, String)>,
    ) -> Result<UploadsPage> {
        let doing = format!("list the uploads of {}", self.endpoint.url(prefix));
        let asked = match &mut self.control {
            Control::Http(control) => control.uploads_page(prefix, after).await,
            Control::Ftp(_) => Ok(Err(not_offered("uploads"))),
        };
        self.said_by_bucket(doing, asked)
    }

    /// Removes the parts of an upload. One that is gone is as good as removed.
    ///
    /// # Errors
    /// The service refuses.
    pub(crate) async fn abort_upload(&mut self, upload: &OpenUpload) -> Result<()> {
        let (id, name) = (upload.id.escape_debug(), self.endpoint.name());
        let key = s3::encoded_path(&upload.key);
        let doing = format!("abort the upload {id} of {name}/{key}");
        let asked = match &mut self.control {
            Control::Http(control) => control.abort_other(upload).await,
            Control::Ftp(_) => Ok(Err(not_offered("uploads"))),
        };
        match asked {
            Ok(Err(refused)) if failure_kind(&refused) == Some(FailureKind::NotFound) => Ok(()),
            asked => self.said_by_bucket(doing, asked),
        }
    }

    fn said_by_bucket<T>(
        &mut self,
        doing: String,
        asked: std::result::Result<std::result::Result<T, Reply>, HttpError>,
    ) -> Result<T> {
        match asked {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(refused)) => Err(Error::refused(doing, refused)),
            Err(error) => {
                self.broken = true;
                let error = error.of_control(&self.control.peer());
                Err(Error::Control { doing, error })
            }
        }
    }
}

impl HttpControl {
    async fn uploads_page(
        &mut self,
        prefix: &FtpPath,
        after: Option<&(Vec<u8>, String)>,
    ) -> std::result::Result<std::result::Result<UploadsPage, Reply>, HttpError> {
        let prefix = prefix.to_string();
        let key = after.map(|(key, _)| String::from_utf8_lossy(key).into_owned());
        let mut query = vec![
            ("uploads", ""),
            ("encoding-type", "url"),
            ("prefix", prefix.strip_prefix('/').unwrap_or(&prefix)),
        ];
        if let (Some(key), Some((_, id))) = (&key, after) {
            query.extend([("key-marker", key.as_str()), ("upload-id-marker", id)]);
        }
        let target = self.bucket()?.itself(&query);
        Ok(
            match self
                .ask_bucket(Method::GET, &target, &[], Body::default)
                .await?
            {
                Ok(body) => {
                    let page = UploadsPage::read(&body);
                    Ok(page.map_err(|bad| senseless("GET", &bad.to_string()))?)
                }
                Err(refused) => Err(refused),
            },
        )
    }

    async fn abort_other(
        &mut self,
        upload: &OpenUpload,
    ) -> std::result::Result<std::result::Result<(), Reply>, HttpError> {
        let query = s3::query(&[("uploadId", &upload.id)]);
        let target = format!("{}{query}", self.bucket()?.target_of_key(&upload.key));
        let aborted = self.ask_bucket(Method::DELETE, &target, &[], Body::default);
        Ok(aborted.await?.map(drop))
    }
}
