//! MLSx facts (RFC 3659 §7).

use std::borrow::Cow;

use percent_encoding::percent_decode;

use crate::{text::decimal, timestamp::Timestamp};

/// What a listing says of one file. Absent facts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `Type=`.
    pub kind: Option<FactType>,
    /// `Size=`, bytes.
    pub size: Option<u64>,
    /// `Modify=`.
    pub modify: Option<Timestamp>,
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
    /// `UNIX.slink=`: where the symbolic link points, bytes.
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

/// What follows `OS.unix=` for an entry that is neither file, directory nor link.
const SPECIAL_KINDS: [&str; 9] = [
    "chr", "cdev", "blk", "bdev", "fifo", "pipe", "sock", "door", "special",
];

impl FactType {
    /// Case-insensitive (RFC 3659 §7.5.1).
    fn parse(value: &str) -> Self {
        for (word, kind) in [
            ("file", Self::File),
            ("dir", Self::Dir),
            ("cdir", Self::Cdir),
            ("pdir", Self::Pdir),
        ] {
            if value.eq_ignore_ascii_case(word) {
                return kind;
            }
        }
        Self::Other(value.to_owned())
    }

    /// A symbolic link whose server does not say what it leads to: `OS.unix=symlink` of ProFTPD,
    /// `OS.unix=slink:target` of Pure-FTPd.
    pub fn is_link(&self) -> bool {
        let Self::Other(word) = self else {
            return false;
        };
        let word = word.to_ascii_lowercase();
        word.starts_with("os.unix=slink") || word.starts_with("os.unix=symlink")
    }

    /// A device, a pipe, a socket or the like. Pure-FTPd calls them `unknown`.
    pub fn is_special(&self) -> bool {
        let Self::Other(word) = self else {
            return false;
        };
        let word = word.to_ascii_lowercase();
        // Some append the numbers of a device: `OS.unix=chr-13/29`.
        let of_unix = word.strip_prefix("os.unix=");
        let is_kind = |kind: &str| SPECIAL_KINDS.iter().any(|known| kind.starts_with(known));
        of_unix.is_some_and(is_kind) || word == "unknown"
    }

    fn as_str(&self) -> &str {
        match self {
            Self::File => "file",
            Self::Dir => "dir",
            Self::Cdir => "cdir",
            Self::Pdir => "pdir",
            Self::Other(word) => word,
        }
    }
}

/// Names as we write them, in the order we write them. The position is the bit of
/// [`FactSelection`].
const NAMES: [&str; 12] = [
    "Type",
    "Size",
    "Modify",
    "Perm",
    "UNIX.mode",
    "UNIX.owner",
    "UNIX.uid",
    "UNIX.group",
    "UNIX.gid",
    "Unique",
    "UNIX.slink",
    "X.count",
];

/// Which facts a client wants (OPTS MLST). `Error` is not among them: MLSR sends it wherever it
/// applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactSelection {
    bits: u16,
}

impl FactSelection {
    /// Every fact GCT sends by default (those with `*` in FEAT): all but `X.count`.
    pub const DEFAULT: Self = Self { bits: 0x07ff };

    /// Every fact there is.
    pub const ALL: Self = Self { bits: 0x0fff };

    /// The selection of `OPTS MLST type;size;`; unknown names are ignored (RFC 3659 §7.9).
    pub fn parse(arguments: &str) -> Self {
        let mut bits = 0;
        for wanted in arguments.split(';').map(str::trim) {
            for (i, name) in NAMES.iter().enumerate() {
                if name.eq_ignore_ascii_case(wanted) {
                    bits |= 1 << i;
                }
            }
        }
        Self { bits }
    }

    /// What FEAT says behind `MLST `: every name, `*` behind the selected ones, each ended by `;`.
    pub fn feature_line(self) -> String {
        let mut line = String::new();
        for (i, name) in NAMES.iter().enumerate() {
            line.push_str(name);
            line.push_str(if self.has(i) { "*;" } else { ";" });
        }
        line
    }

    /// The selected names, each ended by `;`: the argument of OPTS MLST, and what RFC 3659 §7.9
    /// wants in its reply.
    pub fn names(self) -> String {
        let mut line = String::new();
        for (_, name) in NAMES.iter().enumerate().filter(|(i, _)| self.has(*i)) {
            line.push_str(name);
            line.push(';');
        }
        line
    }

    fn has(self, position: usize) -> bool {
        self.bits >> position & 1 == 1
    }
}

/// `Type=file;Size=3000; name`: writes selected facts. Values have non-graphic bytes, `%`, `=`, `;`
/// percent-encoded; the name is raw.
///
/// A name with CR, LF or NUL cannot be listed: callers leave such entries out. Were one to come
/// here, these bytes become `?`, so that it cannot forge another line.
pub fn write_line(facts: &Facts, selection: FactSelection, name: &[u8], out: &mut Vec<u8>) {
    for (i, fact) in NAMES.iter().enumerate().filter(|(i, _)| selection.has(*i)) {
        if let Some(value) = value_of(facts, i) {
            write_fact(fact, &value, out);
        }
    }
    if let Some(error) = &facts.error {
        write_fact("Error", error.as_bytes(), out);
    }
    out.push(b' ');
    out.extend(name.iter().map(|b| match b {
        b'\r' | b'\n' | 0 => b'?',
        _ => *b,
    }));
}

/// The value of the fact at `position` of [`NAMES`], not encoded.
fn value_of(facts: &Facts, position: usize) -> Option<Vec<u8>> {
    let text = |v: &Option<String>| v.clone().map(String::into_bytes);
    let number = |v: Option<u32>| v.map(|n| n.to_string().into_bytes());
    match NAMES[position] {
        "Type" => facts.kind.as_ref().map(|k| k.as_str().as_bytes().to_vec()),
        "Size" => facts.size.map(|n| n.to_string().into_bytes()),
        "Modify" => facts.modify.map(|t| t.to_string().into_bytes()),
        "Perm" => text(&facts.perm),
        "UNIX.mode" => facts.unix_mode.map(|m| format!("{m:04o}").into_bytes()),
        "UNIX.owner" => text(&facts.unix_owner),
        "UNIX.uid" => number(facts.unix_uid),
        "UNIX.group" => text(&facts.unix_group),
        "UNIX.gid" => number(facts.unix_gid),
        "Unique" => text(&facts.unique),
        "UNIX.slink" => facts.unix_slink.clone(),
        _ => facts.count.map(|n| n.to_string().into_bytes()),
    }
}

fn write_fact(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    for &b in value {
        // `OS.unix=chr` is a value of Type as RFC 3659 §7.5.1 has it.
        let plain = b.is_ascii_graphic() && !matches!(b, b'%' | b';' | b'=');
        if plain || (b == b'=' && name == "Type") {
            out.push(b);
        } else {
            out.extend_from_slice(format!("%{b:02X}").as_bytes());
        }
    }
    out.push(b';');
}

/// Reads one line, with or without the leading blank; trailing CRs are stripped. `None` where there
/// is no `;`-list and blank. ARC's UNIX seconds in `Modify` are understood.
pub fn parse_line(line: &[u8]) -> Option<(Facts, Vec<u8>)> {
    let mut line = line.strip_prefix(b" ").unwrap_or(line);
    while let Some(shorter) = line.strip_suffix(b"\r").or(line.strip_suffix(b"\n")) {
        line = shorter;
    }
    let blank = line.iter().position(|b| *b == b' ')?;
    let (list, name) = (&line[..blank], &line[blank + 1..]);
    if !list.ends_with(b";") || name.is_empty() {
        return None;
    }
    let mut facts = Facts::default();
    for fact in list.split(|b| *b == b';') {
        if let Some(equals) = fact.iter().position(|b| *b == b'=') {
            let value: Cow<'_, [u8]> = percent_decode(&fact[equals + 1..]).into();
            facts.take(&fact[..equals], &value);
        }
    }
    Some((facts, name.to_vec()))
}

impl Facts {
    /// A fact that was read. Unknown ones and unreadable values leave things as they are.
    fn take(&mut self, name: &[u8], value: &[u8]) {
        let text = String::from_utf8_lossy(value);
        match name.to_ascii_lowercase().as_slice() {
            b"type" => self.kind = Some(FactType::parse(&text)),
            // proftpd's and pure-ftpd's directories.
            b"size" | b"sizd" => self.size = decimal(&text).or(self.size),
            b"modify" => self.modify = parse_modify(&text).or(self.modify),
            b"perm" => self.perm = Some(text.into_owned()),
            b"unix.mode" => self.unix_mode = parse_mode(&text).or(self.unix_mode),
            b"unix.owner" | b"unix.ownername" => self.unix_owner = Some(text.into_owned()),
            b"unix.uid" => self.unix_uid = decimal(&text).or(self.unix_uid),
            b"unix.group" | b"unix.groupname" => self.unix_group = Some(text.into_owned()),
            b"unix.gid" => self.unix_gid = decimal(&text).or(self.unix_gid),
            b"unique" => self.unique = Some(text.into_owned()),
            b"unix.slink" => self.unix_slink = Some(value.to_vec()),
            b"x.count" => self.count = decimal(&text).or(self.count),
            b"error" => self.error = Some(text.into_owned()),
            _ => {}
        }
    }
}

/// At least 14 digits are a date; fewer are UNIX seconds, as long as 14 digits could say that date.
fn parse_modify(text: &str) -> Option<Timestamp> {
    if text.len() >= 14 {
        return Timestamp::parse(text);
    }
    decimal(text)
        .map(Timestamp)
        .filter(|t| *t <= Timestamp::MAX)
}

fn parse_mode(text: &str) -> Option<u32> {
    let octal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| octal)?;
    // Some servers send the file type bits too.
    Some(mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (Facts, String) {
        let (facts, name) = parse_line(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
        (facts, String::from_utf8(name).unwrap())
    }

    fn written(facts: &Facts, selection: FactSelection, name: &str) -> String {
        let mut out = Vec::new();
        write_line(facts, selection, name.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    const GCT: &str = "Type=file;Size=3000;Modify=20261121060534;Perm=awr;UNIX.mode=0666;\
                       UNIX.owner=root;UNIX.uid=0;UNIX.group=root;UNIX.gid=0;\
                       Unique=fe00-99a082; /data/a1";

    #[test]
    fn gct_line_comes_back() {
        let (facts, name) = read(&format!(" {GCT}\r\r"));
        assert_eq!(name, "/data/a1");
        assert_eq!(facts.kind, Some(FactType::File));
        assert_eq!(facts.size, Some(3000));
        assert_eq!(facts.unix_mode, Some(0o666));
        assert_eq!(written(&facts, FactSelection::DEFAULT, "/data/a1"), GCT);
        assert_eq!(
            written(&facts, FactSelection::parse("size;TYPE;nonsense;"), "a b"),
            "Type=file;Size=3000; a b"
        );
    }

    #[test]
    fn values_are_encoded_and_names_are_not() {
        let facts = Facts {
            kind: Some(FactType::Other("OS.unix=chr".into())),
            unix_owner: Some("a b;c=%é".into()),
            unix_slink: Some(b"x\xff\n".to_vec()),
            ..Facts::default()
        };
        let line = written(&facts, FactSelection::ALL, "n;a=m %41\r\n226 x");
        assert_eq!(
            line,
            "Type=OS.unix=chr;UNIX.owner=a%20b%3Bc%3D%25%C3%A9;UNIX.slink=x%FF%0A; n;a=m %41??226 x"
        );
        assert_eq!(read(&line).0, facts);
    }

    #[test]
    fn foreign_lines() {
        let (facts, name) =
            read("type=DIR;sizd=4096;modify=1795241134;UNIX.mode=040755;x.foo=; a b");
        assert_eq!(facts.kind, Some(FactType::Dir));
        assert_eq!(facts.size, Some(4096));
        assert_eq!(facts.modify, Timestamp::parse("20261121060534"));
        assert_eq!(facts.unix_mode, Some(0o755));
        assert_eq!(name, "a b");
        assert_eq!(
            read("Size=x;Modify=2026;; f").0.modify,
            Some(Timestamp(2026))
        );
        assert_eq!(
            read("Error=OpenFailed;Type=dir; d").0.error.as_deref(),
            Some("OpenFailed")
        );
        // Thirteen digits: no date, and seconds beyond the year 9999.
        assert_eq!(read("Modify=2026112172693;; f").0.modify, None);
        for bad in [
            "",
            " ",
            "name",
            "a b",
            "Type=file;",
            "Type=file; ",
            "Type=file;name",
        ] {
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn links_and_special_files_are_told_apart() {
        let told = |word: &str| {
            let kind = FactType::parse(word);
            (kind.is_link(), kind.is_special())
        };
        for link in ["OS.unix=symlink", "OS.unix=slink:", "os.UNIX=slink:/x"] {
            assert_eq!(told(link), (true, false), "{link}");
        }
        for special in ["OS.unix=chr-1/3", "OS.unix=fifo", "unknown"] {
            assert_eq!(told(special), (false, true), "{special}");
        }
        for other in [
            "file",
            "dir",
            "cdir",
            "fule",
            "OS",
            "OS.unix=x",
            "OS.foo=chr",
        ] {
            assert_eq!(told(other), (false, false), "{other}");
        }
    }

    #[test]
    fn feature_line_marks_what_is_on() {
        assert_eq!(
            FactSelection::DEFAULT.feature_line(),
            "Type*;Size*;Modify*;Perm*;UNIX.mode*;UNIX.owner*;UNIX.uid*;UNIX.group*;UNIX.gid*;\
             Unique*;UNIX.slink*;X.count;"
        );
        assert_eq!(FactSelection::parse("Modify;type").names(), "Type;Modify;");
        assert_eq!(
            FactSelection::parse(&FactSelection::ALL.names()),
            FactSelection::ALL
        );
        assert_eq!(FactSelection::parse("").names(), "");
    }
}
