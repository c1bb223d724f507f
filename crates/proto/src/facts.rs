//! MLSx facts (RFC 3659 §7).

/// What a listing says of one file. Absent facts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `Type=`.
    pub kind: Option<FactType>,
    /// `Size=`, octets.
    pub size: Option<u64>,
    /// `Modify=`.
    pub modify: Option<crate::timestamp::Timestamp>,
    /// `Perm=`, letters of RFC 3659 §7.5.5.
    pub perm: Option<String>,
    /// `UNIX.mode=`, permission bits (octal on the wire).
    pub unix_mode: Option<u32>,
    /// `UNIX.owner=`.
    pub unix_owner: Option<String>,
    /// `UNIX.uid=`.
    pub unix_uid: Option<u32>,
    /// `UNIX.group=`.
    pub unix_group: Option<String>,
    /// `UNIX.gid=`.
    pub unix_gid: Option<u32>,
    /// `Unique=`: device-inode; equal values are the same file.
    pub unique: Option<String>,
    /// `UNIX.slink=`: where the symbolic link points, octets.
    pub unix_slink: Option<Vec<u8>>,
    /// `X.count=` on a cdir: number of entries.
    pub count: Option<u64>,
    /// `Error=` of MLSR: `OpenFailed` or `InvalidLink`.
    pub error: Option<String>,
}

/// `Type=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactType {
    /// A file.
    File,
    /// A directory.
    Dir,
    /// The listed directory itself.
    Cdir,
    /// Its parent.
    Pdir,
    /// Anything else, as spelled (`OS.unix=chr`).
    Other(String),
}

/// Which facts a client wants (OPTS MLST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactSelection {
    bits: u16,
}

impl FactSelection {
    /// Every fact GCT sends by default (those with `*` in FEAT).
    pub const DEFAULT: Self = Self { bits: u16::MAX };

    /// The selection of `OPTS MLST type;size;`; unknown names are ignored (RFC 3659 §7.9).
    pub fn parse(arguments: &str) -> Self {
        let _ = arguments;
        todo!()
    }
    /// The selected names each with `;`, as the 200 reply to OPTS MLST wants them; and with `*` marks for FEAT.
    pub fn feature_line(self) -> String {
        todo!()
    }
}

/// `Type=file;Size=3000; name`: writes selected facts. Values have non-graphic octets, `%`, `=`, `;` percent-encoded; the name is raw.
pub fn write_line(facts: &Facts, selection: FactSelection, name: &[u8], out: &mut Vec<u8>) {
    let _ = (facts, selection, name, out);
    todo!()
}

/// Reads one line, with or without the leading blank; trailing CRs are stripped. `None` where there is no `;`-list and blank.
/// ARC's UNIX seconds in `Modify` are understood.
pub fn parse_line(line: &[u8]) -> Option<(Facts, Vec<u8>)> {
    let _ = line;
    todo!()
}
