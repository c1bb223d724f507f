//! FEAT: what a server announces and what a client makes of it.

use crate::{
    checksum::ChecksumAlgorithm,
    reply::{BodyStyle, Reply, ReplyCode},
    text::decimal,
};

/// What a server said it can do; everything defaults to "no". Fields are public: a test or a shell
/// may switch one off.
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
    /// `DCSC P`: data channels prove what the client says.
    pub dcsc: bool,
    /// `UTF8`.
    pub utf8: bool,
    /// `PASV AllowDelayed`.
    pub pasv_delayed: bool,
    /// `X-GODWIT CHANNELS`: see [`crate::live`].
    pub live_channels: bool,
    /// `X-GODWIT NEXT`: other numbers of channels between two transfers.
    pub next_channels: bool,
    /// `X-GODWIT REPORT`.
    pub live_report: bool,
    /// `X-GODWIT COMMIT`: see [`crate::commit`].
    pub commit: bool,
    /// `X-GODWIT LEAVES`: see [`crate::block_checksums`].
    pub leaves: bool,
    /// `X-GODWIT HOLES`: see [`crate::mode_e::Descriptor::HOLE`].
    pub holes: bool,
    /// `X-GODWIT TOKEN`: see [`crate::security::TOKEN_USER`].
    pub tokens: bool,
    /// `CKSM` with its algorithms in the server's order of preference (lowest number first).
    pub checksums: Vec<ChecksumAlgorithm>,
}

impl Features {
    /// Reads a 211 reply leniently: leading blanks optional, case-insensitive, unknown lines kept
    /// in `lines`.
    pub fn from_reply(reply: &Reply) -> Self {
        let mut found = Self::default();
        for line in reply.body() {
            let line = String::from_utf8_lossy(line).trim().to_owned();
            found.take_line(&line.to_ascii_uppercase());
            found.lines.push(line);
        }
        found
    }

    /// One line, upper case.
    fn take_line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "REST" => self.rest_stream |= rest.starts_with("STREAM"),
            "PARALLEL" => self.parallel = true,
            "ERET" => self.eret = true,
            "ESTO" => self.esto = true,
            "SIZE" => self.size = true,
            "MDTM" => self.mdtm = true,
            "MFMT" => self.mfmt = true,
            "MLST" => self.mlst = true,
            "MLSC" => self.mlsc = true,
            "MLSR" => self.mlsr = true,
            "SPAS" => self.spas = true,
            "SPOR" => self.spor = true,
            "EPSV" => self.epsv = true,
            "EPRT" => self.eprt = true,
            "SBUF" => self.sbuf = true,
            "DCAU" => self.dcau = true,
            "DCSC" => self.dcsc |= rest.split(',').any(|kind| kind.trim() == "P"),
            "UTF8" => self.utf8 = true,
            "PASV" => self.pasv_delayed |= rest.starts_with("ALLOWDELAYED"),
            "X-GODWIT" => {
                let has = |word| rest.split(',').any(|w| w.trim() == word);
                self.live_channels |= has("CHANNELS");
                self.next_channels |= has("NEXT");
                self.live_report |= has("REPORT");
                self.commit |= has("COMMIT");
                self.leaves |= has("LEAVES");
                self.holes |= has("HOLES");
                self.tokens |= has("TOKEN");
            }
            "CKSM" => self.checksums = checksums(rest),
            _ => {}
        }
    }
}

/// `MD5:10;ADLER32:10;`, the preferred (lowest number) first; unknown algorithms left out.
fn checksums(list: &str) -> Vec<ChecksumAlgorithm> {
    let mut ranked: Vec<(u32, ChecksumAlgorithm)> = Vec::new();
    for item in list.split(';') {
        let (name, rank) = item.split_once(':').unwrap_or((item, ""));
        if let Ok(algorithm) = name.trim().parse::<ChecksumAlgorithm>()
            && !ranked.iter().any(|(_, a)| *a == algorithm)
        {
            ranked.push((decimal(rank.trim()).unwrap_or(u32::MAX), algorithm));
        }
    }
    // Stable: equal ranks keep the server's order.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, a)| a).collect()
}

/// The 211 reply with these feature lines, in GCT's frame.
pub fn feat_reply(lines: &[&str]) -> Reply {
    Reply::with_body(
        ReplyCode::of(211),
        BodyStyle::Blank,
        "Extensions supported",
        lines.iter().map(|l| l.as_bytes().to_vec()),
        "End.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gct_after_login() {
        let features = Features::from_reply(&feat_reply(&[
            "CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:9;SHA512:12;FOO:1;",
            "DSI file-13.24",
            "UTF8",
            "LANG EN",
            "DCAU",
            "PARALLEL",
            "SIZE",
            "MLST Type*;Size*;",
            "ERET",
            "ESTO",
            "SPAS",
            "SPOR",
            "REST STREAM",
            "MDTM",
            "PASV AllowDelayed;",
        ]));
        use ChecksumAlgorithm::*;
        assert_eq!(features.checksums, [Sha256, Md5, Adler32, Sha1, Sha512]);
        assert_eq!(features.lines.len(), 15);
        assert!(features.rest_stream && features.pasv_delayed && features.dcau && features.utf8);
        assert!(features.parallel && features.eret && features.esto && features.mlst);
        assert!(!features.sbuf && !features.epsv && !features.mfmt && !features.mlsc);
    }

    #[test]
    fn lenient_about_case_and_blanks() {
        // ARC's lines come without a blank, vsftpd's with one, some servers' with tabs.
        let features = Features::from_reply(&feat_reply(&[
            "EPRT",
            "  epsv  ",
            "\tRest Stream",
            "SIZEX",
            "",
        ]));
        assert!(features.eprt && features.epsv && features.rest_stream && !features.size);
        assert_eq!(
            Features::from_reply(&Reply::new(ReplyCode::of(211), "none")),
            Features::default()
        );
    }

    #[test]
    fn live_requests_are_announced_one_by_one() {
        let said = |line| Features::from_reply(&feat_reply(&[line]));
        let both = said(crate::live::FEATURE);
        assert!(both.live_channels && both.live_report);
        let one = said(" x-godwit Report, later");
        assert!(!one.live_channels && one.live_report);
    }

    #[test]
    fn frame() {
        let mut out = Vec::new();
        feat_reply(&["SIZE"]).write_to(&mut out);
        assert_eq!(out, b"211-Extensions supported\r\n SIZE\r\n211 End.\r\n");
    }
}
