//! HELP, SITE HELP, FEAT: what the server says of itself.

use crate::{
    block_checksums,
    checksum::ChecksumAlgorithm,
    commit,
    facts::FactSelection,
    feature::feat_reply,
    live,
    mode_e::HOLES_FEATURE,
    reply::{BodyStyle, Reply, ReplyCode},
    security::TOKEN_FEATURE,
};

use super::ServerPi;

/// Verbs in a row of HELP.
const ROW_WORDS: usize = 8;

/// GCT's preference number of its first choice; ours count up from it (lower is better).
const CHECKSUM_PREFERENCE: usize = 10;

impl ServerPi {
    pub(super) fn run_help(&mut self, topic: Option<&str>) {
        let Some(topic) = topic.map(str::trim).filter(|topic| !topic.is_empty()) else {
            return self.reply(&overview());
        };
        let upper = topic.to_ascii_uppercase();
        let usage = USAGE
            .iter()
            .find(|(verb, _)| *verb == upper)
            .map(|(verb, arguments)| format!("{verb} {arguments}"))
            .or_else(|| {
                SITE_USAGE
                    .iter()
                    .find(|(word, _)| *word == upper)
                    .map(|(word, arguments)| format!("SITE {word} {arguments}"))
            });
        match usage {
            None => self.answer(502, format!("Unknown command '{topic}'.")),
            Some(usage) => self.reply(&Reply::with_body(
                ReplyCode::of(214),
                BodyStyle::Blank,
                format!("Help for {upper}:"),
                [usage.trim_end().as_bytes().to_vec()],
                "End.",
            )),
        }
    }

    /// The same before and after login: nothing in it depends on who asks. DCAU is left out where
    /// it is not offered: clients would start a handshake.
    pub(super) fn run_feat(&mut self) {
        let checksums = ChecksumAlgorithm::ALL
            .iter()
            .enumerate()
            .map(|(i, algorithm)| format!("{algorithm}:{};", CHECKSUM_PREFERENCE + i))
            .collect::<String>();
        let checksums = format!("CKSM {checksums}");
        let facts = format!("MLST {}", FactSelection::DEFAULT.feature_line());
        let mut lines = vec![checksums.as_str(), facts.as_str()];
        lines.extend_from_slice(FEATURES);
        let (gssapi, tls) = (self.config.gssapi, self.config.tls);
        lines.extend(gssapi.then_some("AUTH GSSAPI"));
        lines.extend(tls.then_some("AUTH TLS"));
        let identities = gssapi || self.config.private_channel;
        if identities || tls {
            lines.extend_from_slice(&["PBSZ", "PROT"]);
        }
        if identities {
            lines.extend_from_slice(&["DCAU", "DCSC P,D"]);
        }
        lines.extend(self.config.tokens.then_some(TOKEN_FEATURE));
        self.reply(&feat_reply(&lines));
    }
}

/// Feature lines without CKSM and MLST, whose parameters are computed.
///
/// `PASV AllowDelayed;` is a promise that a new channel is always announced by 127 or 129: GCT's
/// client ignores the 227 once it has asked for it.
const FEATURES: &[&str] = &[
    "STORATTR",
    "MFMT",
    "WHOAMI",
    "MLSR",
    "MLSC",
    "UTF8",
    "LANG EN",
    "PARALLEL",
    "SIZE",
    "ERET",
    "ESTO",
    "SPAS",
    "SPOR",
    "REST STREAM",
    "TVFS",
    "MDTM",
    "PASV AllowDelayed;",
    "SBUF",
    "SCKS",
    "EPSV",
    "EPRT",
    live::FEATURE,
    commit::FEATURE,
    block_checksums::FEATURE,
    HOLES_FEATURE,
];

/// HELP without argument and SITE HELP, which clients search for the words they would like to use.
fn overview() -> Reply {
    let verbs: Vec<_> = USAGE.iter().map(|(verb, _)| *verb).collect();
    let words: Vec<_> = SITE_USAGE.iter().map(|(word, _)| *word).collect();
    let rows = verbs
        .chunks(ROW_WORDS)
        .chain(words.chunks(ROW_WORDS))
        .map(|row| format!("   {}", row.join(" ")).into_bytes());
    Reply::with_body(
        ReplyCode::of(214),
        BodyStyle::Blank,
        "The following commands are recognized:",
        rows,
        "End",
    )
}

/// Verbs and their arguments.
const USAGE: &[(&str, &str)] = &[
    ("ABOR", ""),
    ("ALLO", "<bytes>"),
    ("APPE", "<path>"),
    ("CDUP", ""),
    (
        "CKSM",
        "<algorithm> <offset> <length, -1 to the end> <path>",
    ),
    ("CWD", "<path>"),
    ("DELE", "<path>"),
    ("EPRT", "|<1 or 2>|<address>|<port>|"),
    ("EPSV", "[1 | 2 | ALL]"),
    ("ERET", "P <offset> <length> <path>"),
    ("ESTO", "A <offset> <path>"),
    ("FEAT", ""),
    ("HELP", "[<command>]"),
    ("LANG", "EN"),
    ("LIST", "[<path>]"),
    ("MDTM", "<path>"),
    ("MFMT", "<YYYYMMDDHHMMSS> <path>"),
    ("MKD", "<path>"),
    ("MLSC", "[<path>]"),
    ("MLSD", "[<path>]"),
    ("MLSR", "[<path>]"),
    ("MLST", "[<path>]"),
    ("MODE", "S | E"),
    ("NLST", "[<path>]"),
    ("NOOP", ""),
    (
        "OPTS",
        "RETR | PASV | MLST | MLSR | CKSM | UTF8 <option>=<value>;...",
    ),
    ("PASS", "<password>"),
    ("PASV", ""),
    ("PORT", "<h1,h2,h3,h4,p1,p2>"),
    ("PWD", ""),
    ("QUIT", ""),
    (
        "REST",
        "<offset> | <start>-<end>[,<start>-<end>...] (ends excluded)",
    ),
    ("RETR", "<path>"),
    ("RMD", "<path>"),
    ("RNFR", "<path>"),
    ("RNTO", "<path>"),
    ("SBUF", "<bytes>"),
    ("SCKS", "<algorithm> <value>"),
    ("SITE", "<command>, see SITE HELP"),
    ("SIZE", "<path>"),
    ("SPAS", "[1 | 2]"),
    ("SPOR", "<address> [<address>...]"),
    ("STAT", "[<path>]"),
    ("STOR", "<path>"),
    ("STOU", ""),
    ("STRU", "F"),
    ("SYST", ""),
    ("TREV", "RESTART | PERF <seconds>"),
    ("TYPE", "A | I"),
    ("USER", "<name>"),
];

/// Words of SITE and their arguments. GCT's client searches SITE HELP for the buffer words, CHMOD,
/// CHGRP, UTIME, SYMLINK and CLIENTINFO.
const SITE_USAGE: &[(&str, &str)] = &[
    ("BUFSIZE", "<bytes>"),
    ("CHGRP", "<group> <path>"),
    ("CHMOD", "<octal mode> <path>"),
    ("CLIENTINFO", "<key>=<value>;..."),
    (
        "GODWIT",
        "CHANNELS <number> | NEXT <number> | REPORT | COMMIT <fact>=<value>;... <path> | LEAVES \
         CRC32C <leaf> <offset> <length> <path>",
    ),
    ("HELP", ""),
    ("RBUFSIZ", "<bytes>"),
    ("RBUFSZ", "<bytes>"),
    ("RDEL", "<path>"),
    ("RETRBUFSIZE", "<bytes>"),
    ("SBUF", "<bytes>"),
    ("SBUFSIZ", "<bytes>"),
    ("SBUFSZ", "<bytes>"),
    ("SETDISKSTACK", "default | file"),
    ("SETNETSTACK", "default | tcp | gsi | tcp,gsi"),
    (
        "STORATTR",
        "modify=<YYYYMMDDHHMMSS>;x.checksum.md5=<value>;",
    ),
    ("STORBUFSIZE", "<bytes>"),
    ("SYMLINK", "<target> <link>"),
    ("SYMLINKFROM", "<target>"),
    ("SYMLINKTO", "<link>"),
    ("TASKID", "<word>"),
    ("TRNC", "<bytes> <path>"),
    ("UTIME", "<YYYYMMDDHHMMSS> <path>"),
    ("VERSION", ""),
    ("WHOAMI", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_what_the_parser_knows() {
        let verbs: Vec<_> = USAGE.iter().map(|(verb, _)| *verb).collect();
        assert_eq!(verbs, crate::command::VERBS);
        let words: Vec<_> = SITE_USAGE.iter().map(|(word, _)| *word).collect();
        assert_eq!(words, crate::site::WORDS);
    }
}
