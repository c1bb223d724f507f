//! FEAT: what a server announces and what a client makes of it.

use crate::{checksum::ChecksumAlgorithm, reply::Reply};

/// What a server said it can do; everything defaults to "no". Fields are public: a test or a shell may
/// switch one off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Each line as announced, blanks trimmed.
    pub lines: Vec<String>,
    /// `REST STREAM`.
    pub rest_stream: bool,
    /// `PARALLEL`: MODE E with several channels.
    pub parallel: bool,
    /// `ERET`.
    pub eret: bool,
    /// `ESTO`.
    pub esto: bool,
    /// `SIZE`.
    pub size: bool,
    /// `MDTM`.
    pub mdtm: bool,
    /// `MFMT`.
    pub mfmt: bool,
    /// `MLST` (then MLSD works too).
    pub mlst: bool,
    /// `MLSC`.
    pub mlsc: bool,
    /// `MLSR`.
    pub mlsr: bool,
    /// `SPAS`.
    pub spas: bool,
    /// `SPOR`.
    pub spor: bool,
    /// `EPSV`.
    pub epsv: bool,
    /// `EPRT`.
    pub eprt: bool,
    /// `SBUF`.
    pub sbuf: bool,
    /// `DCAU`.
    pub dcau: bool,
    /// `UTF8`.
    pub utf8: bool,
    /// `PASV AllowDelayed`.
    pub pasv_delayed: bool,
    /// `CKSM` with its algorithms in the server's order of preference (lowest number first).
    pub checksums: Vec<ChecksumAlgorithm>,
}

impl Features {
    /// Reads a 211 reply leniently: leading blanks optional, case-insensitive, unknown lines kept in `lines`.
    pub fn from_reply(reply: &Reply) -> Self {
        let _ = reply;
        todo!()
    }
}

/// The 211 reply with these feature lines, in GCT's frame.
pub fn feat_reply(lines: &[&str]) -> Reply {
    let _ = lines;
    todo!()
}
