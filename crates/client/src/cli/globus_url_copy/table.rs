//! The options, once: scanning, help, the page in `docs` and the tests read this table.

/// One option of `globus-url-copy`, or of GridFTP-APT's.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// All its spellings, the short one first.
    pub names: &'static [&'static str],
    /// Placeholder of its argument; `None`: it has none.
    pub argument: Option<&'static str>,
    /// What it is to us.
    pub class: Class,
    /// What is done about it, or why nothing is.
    pub note: &'static str,
    pub(crate) word: Meaning,
}

/// How an option of ours compares with the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its effect is the same.
    Same,
    /// Its effect is had, and more.
    Better,
    /// Of GridFTP-APT, which the original does not have.
    Apt,
    /// An error that names the option and the reason.
    Refused,
}

impl Class {
    /// As the page has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Apt => "APT",
            Self::Refused => "refused",
        }
    }
}

/// What an option means. Several rows may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing changes.
    Nothing,
    Refused,
    Help,
    Usage,
    Version,
    Ascii,
    Binary,
    Continue,
    List,
    CreateDestination,
    Recurse,
    RelativePaths,
    Seconds,
    Quiet,
    Verbose,
    Performance,
    Debug,
    Restart,
    Retries,
    Interval,
    RestartTimeout,
    Stall,
    Dump,
    DumpOnly,
    Subject,
    SourceSubject,
    DestinationSubject,
    TcpBuffer,
    Block,
    StripeBlock,
    Parallelism,
    Concurrency,
    Pipelined,
    NoThirdParty,
    NoDcau,
    Safe,
    Private,
    Offset,
    Length,
    ListUrl,
    Credential,
    SourceCredential,
    DestinationCredential,
    DataCredential,
    Aliases,
    Sync,
    SyncLevel,
    Algorithm,
    Verify,
    Apt,
    NoApt,
    FirstChannels,
    Growth,
    Epoch,
}

macro_rules! rows {
    ($($class:ident $word:ident [$($name:literal),+] $($argument:literal)? => $note:literal;)+) => {
        &[$(Row {
            names: &[$($name),+],
            argument: rows!(@ $($argument)?),
            class: Class::$class,
            note: $note,
            word: Meaning::$word,
        }),+]
    };
    (@) => { None };
    (@ $argument:literal) => { Some($argument) };
}

/// All of them, in the order of the original's help.
pub const OPTIONS: &[Row] = rows! {
    Same Help ["-help"] => "the list of options, on standard error, and status 1 as there";
    Same Usage ["-usage"] => "in three lines";
    Better Version ["-version"] => "tells that it is godwit";
    Better Version ["-versions"] => "as -version: there are no modules";
    Same Continue ["-c", "-continue-on-error"] => "continues with the next pair of URLs after \
                                                   an error; all files of a directory are tried \
                                                   in either case";
    Same Ascii ["-a", "-ascii"] => "no effect on FTP, as there: bytes arrive as they are";
    Same Binary ["-b", "-binary"] => "the default";
    Better List ["-f", "-filename"] "FILE" => "the same grammar, lines of any length; neighbours \
                                               of the same names on the same servers share their \
                                               sessions, and have directories made for them";
    Better CreateDestination ["-cd", "-create-dest"] => "directories above the destination are \
                                                         made; without it one that ends in / and \
                                                         is missing is made";
    Same Recurse ["-r", "-recurse"] => "directories with all below them";
    Better Nothing ["-fast", "-fast-data-channels"] => "always so where the server can: MODE E, \
                                                        data channels kept for the next file";
    Same Seconds ["-t", "-transfer-time"] "SECONDS" => "ends the copy after this time; the same \
                                                        command resumes it";
    Same Quiet ["-q", "-quiet"] => "nothing but errors, which is the default";
    Same Verbose ["-v", "-verbose"] => "URLs of files as they start and end";
    Same Performance ["-vb", "-verbose-perf"] => "bytes and rates beside the URLs";
    Same Debug ["-dbg", "-debugftp"] => "the dialogue on standard error, passwords and tokens \
                                         masked";
    Same Restart ["-rst", "-restart"] => "failed transfers are retried from where they stopped";
    Same Retries ["-rst-retries", "-restart-retries"] "N" => "how often; 0 without a limit; 5 by \
                                                             default";
    Same Interval ["-rst-interval", "-restart-interval"] "SECONDS" => "time between; 0, the \
                                                                       default: short at first, \
                                                                       and twice as long after \
                                                                       each";
    Refused RestartTimeout ["-rst-timeout", "-restart-timeout"] "SECONDS" => "attempts are bounded \
                                                                              by number \
                                                                              (-rst-retries), and \
                                                                              the whole by -t; 0, \
                                                                              the default, is \
                                                                              taken";
    Same Stall ["-st", "-stall-timeout"] "SECONDS" => "time without a byte or an answer; 0 for \
                                                       none; without it 600";
    Better Dump ["-df", "-dumpfile"] "FILE" => "pairs that are not done, one a line; the \
                                                journal holds partial files, which the next run \
                                                resumes";
    Same DumpOnly ["-do", "-dump-only"] "FILE" => "pairs that would be copied, one a line, without \
                                                   facts behind them; - for standard output";
    Same RelativePaths ["-rp", "-relative-paths"] => "paths of servers begin at home; those that \
                                                      begin with %2F at the root";
    Same Subject ["-s", "-subject"] "NAME" => "identity that both servers must have";
    Same SourceSubject ["-ss", "-source-subject"] "NAME" => "identity that the source must have";
    Same DestinationSubject ["-ds", "-dest-subject"] "NAME" => "identity that the destination must \
                                                                have";
    Same TcpBuffer ["-tcp-bs", "-tcp-buffer-size"] "SIZE" => "socket buffers of data channels at \
                                                              both ends; without it the kernels'";
    Same Block ["-bs", "-block-size"] "SIZE" => "longest block of MODE E; without it 1 MiB";
    Same Parallelism ["-p", "-parallel"] "N" => "data channels, fixed: switches tuning off; 0 as 1";
    Refused NoThirdParty ["-notpt", "-no-third-party-transfers"] => "between two servers bytes do \
                                                                     not pass here: copy down and \
                                                                     up again; without effect \
                                                                     where one end is local";
    Same NoDcau ["-nodcau", "-no-data-channel-authentication"] => "data channels are not \
                                                                   authenticated";
    Same Safe ["-dcsafe", "-data-channel-safe"] => "integrity at least, or an error";
    Same Private ["-dcpriv", "-data-channel-private"] => "encrypted data channels, or an error";
    Same Offset ["-off", "-partial-offset"] "N" => "first byte of a part, at the same place of the \
                                                    destination, which keeps the rest of what it \
                                                    has; past the end of the source is an error";
    Same Length ["-len", "-partial-length"] "N" => "bytes of a part";
    Same ListUrl ["-list", "-list-url"] "URL" => "names at a server, directories with a slash; \
                                                  with -r those below too";
    Same Nothing ["-stripe", "-striped"] => "always so for large files, where the destination has \
                                             several data nodes";
    Same StripeBlock ["-sbs", "-striped-block-size"] "SIZE" => "between servers, blocks of this \
                                                                size go to the data nodes in turn; \
                                                                without it, and from here, each \
                                                                takes what it can; 0 as without";
    Same Nothing ["-ipv6", "-IPv6"] => "always so where the host has an address of that kind";
    Refused Refused ["-u", "-udt"] => "there is no UDT here: data goes over TCP";
    Same Nothing ["-g2", "-gridftp2"] => "no effect on what arrives";
    Same Nothing ["-no-g2", "-nogridftp2"] => "no effect on what arrives: GETPUT is not used";
    Same Nothing ["-dp", "-delayed-pasv"] => "no effect on what arrives: a round trip once a \
                                              session (docs/adr/0037)";
    Refused Refused ["-mn", "-module-name"] "NAME" => "storage modules are chosen by the server";
    Refused Refused ["-mp", "-module-parameters"] "TEXT" => "storage modules are chosen by the \
                                                             server";
    Refused Refused ["-smn", "-src-module-name"] "NAME" => "storage modules are chosen by the \
                                                            server";
    Refused Refused ["-smp", "-src-module-parameters"] "TEXT" => "storage modules are chosen by \
                                                                  the server";
    Refused Refused ["-dmn", "-dst-module-name"] "NAME" => "storage modules are chosen by the \
                                                            server";
    Refused Refused ["-dmp", "-dst-module-parameters"] "TEXT" => "storage modules are chosen by \
                                                                  the server";
    Refused Refused ["-aa", "-authz-assert"] "FILE" => "assertions of a Community Authorization \
                                                        Service are not sent: use a bearer token \
                                                        with ftpes://";
    Refused Refused ["-saa", "-src-authz-assert"] "FILE" => "as -aa";
    Refused Refused ["-daa", "-dst-authz-assert"] "FILE" => "as -aa";
    Refused Refused ["-cache-aa", "-cache-authz-assert"] => "as -aa";
    Refused Refused ["-cache-saa", "-cache-src-authz-assert"] => "as -aa";
    Refused Refused ["-cache-daa", "-cache-dst-authz-assert"] => "as -aa";
    Better Nothing ["-pp", "-pipeline"] => "always so, in every direction";
    Better Pipelined ["-ppq", "-pipelineq"] "N" => "small files in flight, fixed; 0 as the path \
                                                    needs";
    Same Concurrency ["-cc", "-concurrency"] "N" => "control channels, fixed; large files are \
                                                     shared between them";
    Refused Refused ["-nlb", "-nl-bottleneck"] => "there is no NetLogger here: godwit cp --events \
                                                   FILE and godwit explain FILE tell what limited \
                                                   a transfer";
    Refused Refused ["-nli", "-nl-interval"] "N" => "as -nlb";
    Refused Refused ["-SP", "-src-pipe"] "COMMAND" => "commands are not run at servers";
    Refused Refused ["-DP", "-dst-pipe"] "COMMAND" => "commands are not run at servers";
    Refused Refused ["-P", "-pipe"] "COMMAND" => "commands are not run at servers";
    Refused Refused ["-dcstack", "-data-channel-stack"] "STACK" => "XIO drivers are chosen by the \
                                                                    server";
    Refused Refused ["-fsstack", "-file-system-stack"] "STACK" => "XIO drivers are chosen by the \
                                                                   server";
    Refused Refused ["-src-dcstack", "-source-data-channel-stack"] "STACK" => "XIO drivers are \
                                                                               chosen by the \
                                                                               server";
    Refused Refused ["-src-fsstack", "-source-file-system-stack"] "STACK" => "XIO drivers are \
                                                                              chosen by the server";
    Refused Refused ["-dst-dcstack", "-dest-data-channel-stack"] "STACK" => "XIO drivers are \
                                                                             chosen by the server";
    Refused Refused ["-dst-fsstack", "-dest-file-system-stack"] "STACK" => "XIO drivers are chosen \
                                                                            by the server";
    Same Credential ["-cred"] "FILE" => "proxy for both ends";
    Same SourceCredential ["-sc", "-src-cred"] "FILE" => "proxy for the host of the source";
    Same DestinationCredential ["-dc", "-dst-cred"] "FILE" => "proxy for the host of the \
                                                               destination";
    Refused DataCredential ["-data-cred"] "FILE" => "servers that know you by two proxies are \
                                                     given one of them for data, of themselves; \
                                                     auto is taken, and means that";
    Better Aliases ["-af", "-alias-file"] "FILE" => "pairs of URLs take turns at the hosts, at \
                                                     most -cc of them";
    Same Sync ["-sync"] => "files that are equal at the destination are omitted";
    Same SyncLevel ["-sync-level"] "0..3" => "0 it is there, 1 size, 2 size and not older, 3 size \
                                              and checksum; without it 2";
    Same Algorithm ["-checksum-alg", "-algo"] "NAME" => "of -verify-checksum and -sync-level 3; \
                                                         without it MD5";
    Better Verify ["-verify-checksum", "-checksum"] => "insists on checksums; without it whole \
                                                        files are compared where the server can";
    Refused Refused ["-X", "-extentions"] "TEXT" => "no plug-ins are loaded";
    Refused Refused ["-CP", "-plugin"] "LIST" => "no plug-ins are loaded";
    Refused Refused ["-MC", "-multicast"] "FILE" => "servers do not send to each other on their \
                                                     own";
    Same Nothing ["-preserve"] => "no effect, as there";
    Same Nothing ["-cp", "-copy-perms"] => "no effect, as there";
    Same Nothing ["-allo", "-allocate"] => "no effect on what arrives";
    Same Nothing ["-no-allo", "-no-allocate"] => "no effect on what arrives";
    Apt Apt ["-apt"] => "tunes the number of channels by GridFTP-APT in place of godwit's own \
                         tuner";
    Apt NoApt ["-noapt"] => "one data channel unless -p says more";
    Apt FirstChannels ["-n0"] "N" => "channels of its first chunk; without it 4";
    Apt Growth ["-alpha"] "X" => "growth of its bracket phase; without it 2";
    Apt Epoch ["-delta"] "SECONDS" => "length of a chunk; without it 3";
};

/// The row of a spelling.
pub(crate) fn row_of(name: &str) -> Option<&'static Row> {
    OPTIONS.iter().find(|row| row.names.contains(&name))
}

/// Why the option of this spelling is refused.
pub(crate) fn refusal(name: &str) -> String {
    let note = row_of(name).map_or("", |row| row.note);
    format!("{name}: {note}")
}

impl Row {
    /// Its spellings with their argument, as help and page have them.
    pub fn shown(&self) -> String {
        let names = self.names.iter().map(|name| match self.argument {
            Some(argument) => format!("{name} {argument}"),
            None => (*name).to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Its line of `docs/globus-url-copy.md`.
    pub fn line(&self) -> String {
        let (shown, class) = (self.shown(), self.class.as_str());
        format!("| `{shown}` | {class} | {} |", self.note)
    }
}

/// What `-help` says.
pub(crate) fn help() -> String {
    let mut text = format!(
        "\nglobus-url-copy [options] <sourceURL> <destURL>\nglobus-url-copy [options] -f \
         <filename>\n\n\
         This is {}: godwit's copies behind the command line of globus-url-copy. The number of \
         channels is tuned\n\
         while data flows, unless -p or -noapt is given.\n\nOPTIONS\n",
        crate::cli::globus_url_copy::VERSION
    );
    for row in OPTIONS {
        let refused = match row.class {
            Class::Refused => "refused: ",
            _ => "",
        };
        text += &format!("  {}\n       {refused}{}\n", row.shown(), row.note);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_spelling_is_one_options() {
        let names: Vec<_> = OPTIONS.iter().flat_map(|row| row.names).collect();
        let different: HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len());
        assert!(names.iter().all(|name| name.starts_with('-')));
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../../../docs/globus-url-copy.md");
        let lines = page.lines().filter(|line| line.starts_with("| `-"));
        let found: Vec<_> = lines.map(str::to_owned).collect();
        let wanted: Vec<_> = OPTIONS.iter().map(Row::line).collect();
        assert_eq!(found, wanted, "\n{}", wanted.join("\n"));
    }
}
