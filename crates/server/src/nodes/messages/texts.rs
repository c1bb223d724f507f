//! Types of other crates, as they travel.

use godwit_proto::{
    command::Mode,
    error::{StorageFailure, TransferFailure},
    mode_e::layout::StripeLayout,
    security::{Dcau, Protection},
};
use serde::{Deserialize, Serialize};

/// For `serde(with)`: bytes of any kind.
pub(super) mod path_bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use godwit_proto::FtpPath;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(in super::super) fn serialize<S: Serializer>(
        path: &FtpPath,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(path.as_bytes()))
    }

    pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<FtpPath, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(from)?);
        FtpPath::new(bytes.map_err(D::Error::custom)?).map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode")]
pub(super) enum ModeText {
    Stream,
    ExtendedBlock,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Dcau")]
pub(super) enum DcauText {
    None,
    OwnIdentity,
    Subject(String),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Protection")]
pub(super) enum ProtectionText {
    Clear,
    Safe,
    Confidential,
    Private,
}

/// For `serde(with)`.
pub(super) mod secret {
    use godwit_proto::security::Token;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        token: &Token,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(token.reveal())
    }

    pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Token, D::Error> {
        String::deserialize(from).map(Token::new)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StripeLayout")]
pub(super) enum LayoutText {
    Partitioned,
    Blocked { block_bytes: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StorageFailure")]
pub(super) struct StorageText {
    errno: i32,
    doing: String,
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TransferFailure")]
pub(super) enum FailureText {
    Storage(#[serde(with = "StorageText")] StorageFailure),
    NoConnection(String),
    NotAuthenticated(String),
    ConnectionLost(String),
    Protocol(String),
    Aborted,
    Checksum { computed: String, expected: String },
    Limit(String),
}

/// For `serde(with)`.
pub(super) mod failure_text {
    use godwit_proto::error::TransferFailure;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct FailureRef<'a>(#[serde(with = "super::FailureText")] &'a TransferFailure);

    #[derive(Deserialize)]
    struct Read(#[serde(with = "super::FailureText")] TransferFailure);

    pub(in super::super) fn serialize<S: Serializer>(
        failure: &Option<TransferFailure>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        failure.as_ref().map(FailureRef).serialize(to)
    }

    pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<TransferFailure>, D::Error> {
        Ok(Option::<Read>::deserialize(from)?.map(|Read(failure)| failure))
    }
}
