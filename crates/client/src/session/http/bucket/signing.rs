//! Which requests are for a bucket, and the headers that show who asks.

use std::{sync::Arc, time::SystemTime};

use godwit_http::s3::{self, signing::S3};
use godwit_http_client::{Answer, HeaderName, HeaderValue, Origin, Request, StatusCode};
use godwit_proto::{FtpPath, Reply, timestamp::Timestamp};
use parking_lot::Mutex;

use super::told_sums::{AnswerCache, ObjectSums};
use crate::{
    auth::aws::{AwsEnvironment, Keys, Service, signature},
    endpoint::{Endpoint, capabilities::Lack},
    report::reporter::Reporter,
    session::http::replies::reply,
    spec::buckets::BucketOptions,
};

const STORAGE_CLASS_HEADER: &str = "x-amz-storage-class";

/// Nothing is stored where something is.
pub(in crate::session::http) const CONDITION_HEADER: &str = "if-none-match";

/// Of requests that make an object, and of their answers where that was done.
pub(in crate::session::http) const ENCRYPTION_HEADER: &str = "x-amz-server-side-encryption";

const ENCRYPTION_KEY_HEADER: &str = "x-amz-server-side-encryption-aws-kms-key-id";

/// The service derives a key for the bucket, and asks KMS less often.
const BUCKET_KEY_HEADER: &str = "x-amz-server-side-encryption-bucket-key-enabled";

/// Why an object that has such headers is not what was asked for: `told` is what its service says
/// of its encryption. One that knows nothing of that stores it as it comes.
pub(in crate::session::http) fn unencrypted<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    told: Option<&str>,
) -> Option<Reply> {
    let mut headers = headers.into_iter();
    let (_, wanted) = headers.find(|(name, _)| *name == ENCRYPTION_HEADER)?;
    let text = format!("the service does not say that it has encrypted the object with {wanted}");
    (told != Some(wanted)).then(|| reply(504, &text))
}

/// What an object was stored with, where that is not the default of the service.
pub(super) struct ObjectOptions(Vec<(&'static str, String)>);

impl ObjectOptions {
    /// As the answer to HEAD tells.
    pub(super) fn read(answer: &Answer) -> Self {
        let names = [
            STORAGE_CLASS_HEADER,
            ENCRYPTION_HEADER,
            ENCRYPTION_KEY_HEADER,
            BUCKET_KEY_HEADER,
        ];
        let told = |name: &'static str| Some((name, answer.header(name)?.to_owned()));
        Self(names.into_iter().filter_map(told).collect())
    }

    /// How the service has encrypted it.
    pub(super) fn encryption(&self) -> Option<&str> {
        let mut options = self.0.iter();
        let (_, method) = options.find(|(name, _)| *name == ENCRYPTION_HEADER)?;
        Some(method)
    }

    /// What a copy of it keeps, beside what is said of the copy. A key is for its method.
    pub(super) fn kept_beside(
        self,
        said: &[(&'static str, String)],
    ) -> Vec<(&'static str, String)> {
        let says = |wanted: &str| said.iter().any(|(name, _)| *name == wanted);
        let is_kept = |(name, _): &(&'static str, String)| match *name {
            STORAGE_CLASS_HEADER => !says(STORAGE_CLASS_HEADER),
            _ => !says(ENCRYPTION_HEADER),
        };
        self.0.into_iter().filter(is_kept).collect()
    }
}

/// A bucket, and as whom it is asked.
pub(in crate::session::http) struct Bucket {
    pub(in crate::session::http) endpoint: Arc<Endpoint>,
    /// What each path begins with.
    base: String,
    region: String,
    keys: Mutex<CurrentKeys>,
    /// Where keys are found again when these have expired.
    aws: AwsEnvironment,
    options: BucketOptions,
    reporter: Option<Arc<Reporter>>,
    pub(in crate::session::http) sums: AnswerCache<ObjectSums>,
    /// Of the files that fetched objects are of.
    pub(in crate::session::http) times: AnswerCache<Option<Timestamp>>,
}

/// Keys, and how often they were replaced.
struct CurrentKeys {
    keys: Option<Keys>,
    generation: u32,
    /// The user knows why there are no others.
    is_told: bool,
}

impl Bucket {
    pub(in crate::session::http) fn new(
        endpoint: &Arc<Endpoint>,
        service: &Service,
        aws: &AwsEnvironment,
        options: &BucketOptions,
    ) -> Self {
        Self {
            base: match service.is_bucket_in_host {
                true => String::new(),
                false => format!("/{}", endpoint.host()),
            },
            region: service.region.clone(),
            keys: Mutex::new(CurrentKeys {
                keys: service.keys.clone(),
                generation: 0,
                is_told: false,
            }),
            aws: aws.clone(),
            options: options.clone(),
            reporter: None,
            sums: AnswerCache::default(),
            times: AnswerCache::default(),
            endpoint: Arc::clone(endpoint),
        }
    }

    /// What it lacks is reported.
    pub(in crate::session::http) fn reporting_to(self, reporter: &Arc<Reporter>) -> Self {
        Self {
            reporter: Some(Arc::clone(reporter)),
            ..self
        }
    }

    /// Path of an object, as it is in requests.
    pub(in crate::session::http) fn target(&self, path: &FtpPath) -> String {
        format!("{}{}", self.base, s3::encoded_path(path.as_bytes()))
    }

    /// The same by a key: one that another program has made may be no path.
    pub(super) fn target_of_key(&self, key: &[u8]) -> String {
        format!("{}/{}", self.base, s3::encoded_path(key))
    }

    /// The bucket itself, with a query.
    pub(super) fn itself(&self, query: &[(&str, &str)]) -> String {
        let base = if self.base.is_empty() {
            "/"
        } else {
            &self.base
        };
        format!("{base}{}", s3::query(query))
    }

    /// The service at whose `origin` the bucket is asked, and whose keys ask.
    pub(super) fn service_and_access(&self, origin: &Origin) -> (Origin, Option<String>) {
        let mut origin = origin.clone();
        if self.base.is_empty() {
            let own = format!("{}.", self.endpoint.host());
            if let Some(service) = origin.host.strip_prefix(&own) {
                origin.host = service.to_owned();
            }
        }
        let current = self.keys.lock();
        (
            origin,
            current.keys.as_ref().map(|keys| keys.access.clone()),
        )
    }

    /// What is said of each object that is made, beside what is known of its file.
    pub(in crate::session::http) fn object_headers(&self) -> Vec<(&'static str, String)> {
        let class = self.options.storage_class.clone();
        let encryption = self.options.encryption.as_ref();
        let method = encryption.map(|encryption| encryption.method.as_str().to_owned());
        let key = encryption.and_then(|encryption| encryption.key.clone());
        let named = [
            (STORAGE_CLASS_HEADER, class),
            (ENCRYPTION_HEADER, method),
            (ENCRYPTION_KEY_HEADER, key),
        ];
        let said = named.into_iter();
        said.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Objects that are made are to be encrypted by the service.
    pub(super) fn encrypts(&self) -> bool {
        self.options.encryption.is_some()
    }

    /// What is said of an object beside that, where none that exists may be replaced.
    pub(in crate::session::http) fn condition(&self) -> Option<(&'static str, String)> {
        let wanted = self.options.keeps_existing;
        wanted.then(|| (CONDITION_HEADER, "*".to_owned()))
    }

    /// The service does not know the condition of a request.
    pub(in crate::session::http) fn lacks_conditions(&self) {
        let name = self.endpoint.name();
        let text = format!(
            "{name}: no If-None-Match: an object that is stored there while the copy runs is \
             replaced"
        );
        let capabilities = &self.endpoint.capabilities;
        match &self.reporter {
            Some(reporter) => capabilities.learn(Lack::Conditions, reporter, text),
            None => drop(capabilities.record_lack(Lack::Conditions)),
        }
    }

    /// A message that the user must see.
    pub(super) fn warn(&self, text: String) {
        if let Some(reporter) = &self.reporter {
            reporter.warn(text);
        }
    }

    /// What is said in each request.
    pub(in crate::session::http) fn prepare(&self, request: &mut Request) {
        if self.endpoint.capabilities.lacks(Lack::Conditions) {
            request.headers.remove(CONDITION_HEADER);
        }
        if self.options.requester_pays {
            let name = HeaderName::from_static("x-amz-request-payer");
            let value = HeaderValue::from_static("requester");
            request.headers.insert(name, value);
        }
    }

    /// The time that requests are signed with.
    pub(in crate::session::http) fn now(&self) -> SystemTime {
        self.endpoint.service_clock.now()
    }

    /// Keys that end were given.
    pub(in crate::session::http) fn has_token(&self) -> bool {
        let current = self.keys.lock();
        current
            .keys
            .as_ref()
            .is_some_and(|keys| keys.token.is_some())
    }

    /// The service says that the keys of a request, which were of `generation`, have expired: reads
    /// them again. True if there are others now.
    pub(in crate::session::http) async fn renew_keys(&self, generation: u32) -> bool {
        let refused = {
            let current = self.keys.lock();
            if current.generation != generation {
                return true;
            }
            current.keys.clone()
        };
        let (bucket, user) = (self.endpoint.host(), self.endpoint.user());
        let keys = match self.aws.service(bucket, user, refused.as_ref()).await {
            Ok(service) => service.keys,
            Err(why) => {
                if !std::mem::replace(&mut self.keys.lock().is_told, true) {
                    let name = self.endpoint.name();
                    self.warn(format!("{name}: the keys have expired: {why}"));
                }
                return false;
            }
        };
        let mut current = self.keys.lock();
        if current.generation == generation {
            // A file that is being written has none.
            if keys.is_none() || current.keys == keys {
                return false;
            }
            *current = CurrentKeys {
                keys,
                generation: generation + 1,
                is_told: false,
            };
        }
        true
    }

    /// Adds the headers that show who asks. Answers of which generation the keys are.
    ///
    /// # Errors
    /// The request cannot be signed: a message.
    pub(in crate::session::http) fn sign(
        &self,
        request: &mut Request,
        origin: &Origin,
        now: SystemTime,
    ) -> Result<u32, String> {
        let current = self.keys.lock();
        let generation = current.generation;
        let Some(keys) = current.keys.clone() else {
            return Ok(generation);
        };
        drop(current);
        let scope = signature::scope(now, &self.region, S3)?;
        signature::sign(request, origin, &keys, &scope)?;
        Ok(generation)
    }
}

/// What the code of a refusal means, where its status says less: services say 400 for most, and 200
/// where they had begun to answer.
pub(in crate::session::http) fn meant(status: StatusCode, code: &str) -> StatusCode {
    match code {
        "SlowDown" | "ServiceUnavailable" | "Throttling" | "RequestLimitExceeded" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        "RequestTimeout" => StatusCode::REQUEST_TIMEOUT,
        // The body has suffered on its way: it is sent again.
        "InternalError" | "BadDigest" | "XAmzContentChecksumMismatch" | "IncompleteBody" => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => StatusCode::UNAUTHORIZED,
        // Another request for the same key is under way.
        "ConditionalRequestConflict" | "OperationAborted" => StatusCode::LOCKED,
        "NoSuchKey" | "NoSuchBucket" | "NoSuchUpload" => StatusCode::NOT_FOUND,
        _ if status.is_success() => StatusCode::BAD_REQUEST,
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use godwit_http_client::{Method, Scheme, header};
    use godwit_proto::{command::Password, url::Location};

    use super::*;
    use crate::{auth::aws::Keys, endpoint::EndpointRegistry};

    fn bucket(is_bucket_in_host: bool) -> Bucket {
        let Ok(Location::Remote(url)) = Location::parse(b"s3://examplebucket") else {
            panic!("a URL");
        };
        let service = Service {
            origin: origin(Scheme::Https, HOST, 443),
            is_bucket_in_host,
            region: "us-east-1".to_owned(),
            is_of_region: true,
            keys: Some(Keys {
                access: "AKIAIOSFODNN7EXAMPLE".to_owned(),
                secret: Password::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                token: None,
            }),
        };
        let endpoint = EndpointRegistry::default().of(&url);
        Bucket::new(
            &endpoint,
            &service,
            &AwsEnvironment::default(),
            &BucketOptions::default(),
        )
    }

    const HOST: &str = "examplebucket.s3.amazonaws.com";

    fn origin(scheme: Scheme, host: &str, port: u16) -> Origin {
        let host = host.to_owned();
        Origin { scheme, host, port }
    }

    fn signature(mut request: Request) -> String {
        // 2013-05-24T00:00:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let origin = origin(Scheme::Https, HOST, 443);
        bucket(true).sign(&mut request, &origin, now).unwrap();
        let shown = format!("{request:?}");
        assert!(!shown.contains("Signature="), "{shown}");
        let header = request.headers[header::AUTHORIZATION].to_str().unwrap();
        header.split_once("Signature=").unwrap().1.to_owned()
    }

    /// The examples of the reference: those whose signed headers are the ones that we sign.
    #[test]
    fn signatures_are_those_of_the_reference() {
        for (target, expected) in [
            (
                "/?lifecycle",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "/?max-keys=2&prefix=J",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            // The empty value of a name has its sign there.
            let target = target.replace("lifecycle", "lifecycle=");
            assert_eq!(signature(Request::new(Method::GET, target)), expected);
        }
    }

    #[test]
    fn keys_stay_what_they_are_in_requests() {
        let bucket = bucket(false);
        for (path, target) in [
            ("//a", "/examplebucket//a"),
            ("/a/../b/", "/examplebucket/a/../b/"),
            ("/?uploads#x%", "/examplebucket/%3Fuploads%23x%25"),
        ] {
            let path = FtpPath::new(path).unwrap();
            assert_eq!(bucket.target(&path), target);
            let mut request = Request::new(Method::GET, bucket.target(&path));
            let origin = origin(Scheme::Http, "h", 9000);
            bucket
                .sign(&mut request, &origin, SystemTime::now())
                .unwrap();
            assert_eq!(request.target, target);
        }
        assert_eq!(bucket.itself(&[("uploads", "")]), "/examplebucket?uploads=");
    }

    #[test]
    fn codes_say_what_statuses_do_not() {
        for (status, code, status_meant) in [
            (400, "RequestTimeout", 408),
            (400, "ExpiredToken", 401),
            (200, "InternalError", 500),
            (200, "SomethingElse", 400),
            (403, "RequestTimeTooSkewed", 403),
            (503, "SlowDown", 503),
            (409, "ConditionalRequestConflict", 423),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(meant(status, code).as_u16(), status_meant, "{code}");
        }
    }
}
