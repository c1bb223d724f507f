//! The commands of each client, with our server.

use std::process::Command;

use Login::{Anonymous, Grid, Password, Ssh, Tls};
use Operation as O;
use Way::{Does, Fails, Lacks};

use super::{
    column::{Column, Way},
    operation::Operation,
    place::{Grounds, Login, Place},
    programs::{curl, ftplib, gfal2, java, lftp, of_arc, packaged, rclone, url_copy},
};
use crate::support::Need;

pub(super) fn columns(grounds: &Grounds) -> Vec<Column<'_>> {
    type Speak = fn(&Place<'_>, &str) -> Command;
    let servers = [Some(&grounds.godwitd), grounds.gct.as_ref()];
    let column = |name: &'static str,
                  need: &'static [Need],
                  package: &'static str,
                  [login, protected]: [Login; 2],
                  way: fn(Operation) -> Way,
                  speak: Speak| Column {
        name,
        needs: need,
        version: Box::new(move || packaged(package)),
        grounds,
        servers,
        login,
        protected,
        way,
        by_us: false,
        speak,
    };
    let grid = [Anonymous, Grid];
    let tls = [Anonymous, Tls];
    vec![
        column(
            "globus-url-copy",
            &[Need::Gct],
            "globus-gass-copy-progs",
            grid,
            of_url_copy,
            url_copy,
        ),
        column(
            "gfal2",
            &[Need::Gfal],
            "gfal2-plugin-gridftp",
            grid,
            of_gfal2,
            gfal2,
        ),
        column(
            "ARC",
            &[Need::ArcClient],
            "nordugrid-arc-client",
            [Grid, Grid],
            of_arcs,
            of_arc,
        ),
        column(
            "jglobus",
            &[Need::JGlobus],
            "libjglobus-gridftp-java",
            [Grid, Grid],
            of_java,
            java,
        ),
        column("lftp", &[Need::Lftp], "lftp", tls, of_lftp, lftp),
        column("curl", &[Need::Curl], "curl", tls, of_curl, curl),
        column("ftplib", &[Need::Python], "python3", tls, of_ftplib, ftplib),
        column("rclone", &[Need::Rclone], "rclone", tls, of_rclone, rclone),
    ]
}

const PLAIN_FTP: &str = "An ordinary FTP client.";
const COPIES_ALONE: &str = "`globus-url-copy` copies and lists, and does nothing else to files.";
const NO_WORD: &str = "The program has no option or function for it.";
const NO_TLS: &str = "Its TLS is that of GSI.";
const NOT_DEMANDED: &str = "godwitd takes data connections that resume a session, and others.";
const DOTS: &str = "`arccp -r` takes `.` and `..` for files where MLSD lists them, as the \
                    reference server does, too: all is copied, and the status is 1.";
const ONE_EACH: &str =
    "A session has one data channel; `pget` opens several sessions for one file.";
const N_IS_ONE: &str = "Asked for four connections (`-n 4`) it uses one, where one end is a file.";
const THREADS_ARE_ONE: &str = "Asked for four threads (`;threads=4`) it uses one.";
const BY_PROGRAM: &str = "Left to the calling program, file by file.";

fn of_url_copy(operation: Operation) -> Way {
    match operation {
        O::LogIn(Tls) => Lacks(NO_TLS),
        O::LogIn(_) | O::Get => Does("{url}/file.dat file://{here}/file.dat"),
        O::List => Does("-list {url}/"),
        O::Facts => Lacks("`-list` tells names alone."),
        O::Put => Does("file://{here}/file.dat {url}/file.dat"),
        O::GetPart => Does("-off 100000 -len 50000 {url}/file.dat file://{here}/file.dat"),
        O::ResumeGet | O::ResumePut => Lacks(
            "Within one run alone (`-rst`), and then between servers alone ([g](exceptions.md)).",
        ),
        O::GetBySeveral => Does("-p 4 {url}/file.dat file://{here}/file.dat"),
        O::PutBySeveral => Does("-p 4 file://{here}/file.dat {url}/file.dat"),
        O::GetTree => Does("-r -cd {url}/tree/ file://{here}/tree/"),
        O::PutTree => Does("-r -cd file://{here}/tree/ {url}/tree/"),
        O::GetPattern => Does("{url}/*.dat file://{here}/"),
        O::Delete | O::DeleteTree | O::MakeDirectory | O::Rename | O::Permissions | O::Time => {
            Lacks(COPIES_ALONE)
        }
        O::Checksum => {
            Does("-dbg -verify-checksum -checksum-alg MD5 {url}/file.dat file://{here}/file.dat")
        }
        O::FromServer => Does("{url}/file.dat {other}/file.dat"),
        O::ToServer => Does("{other}/file.dat {url}/file.dat"),
        O::Private => Does("-dcpriv {url}/file.dat file://{here}/file.dat"),
        O::Resumed => Lacks(NO_TLS),
        O::Hidden => Does("-r -cd {url}/tree/ file://{here}/tree/"),
        O::Many => Does("-f {here}/pairs"),
        O::Home => Does("{home}/file.dat file://{here}/file.dat"),
    }
}

fn of_gfal2(operation: Operation) -> Way {
    match operation {
        O::LogIn(Tls) => Lacks(NO_TLS),
        O::LogIn(Ssh) => Lacks("Its plug-in takes `ftp://` and `gsiftp://`."),
        O::LogIn(_) | O::Get => Does("copy -f {url}/file.dat file://{here}/file.dat"),
        O::List => Does("ls {url}/"),
        O::Facts => Does("ls -l {url}/"),
        O::Put => Does("copy -f file://{here}/file.dat {url}/file.dat"),
        O::GetPart | O::ResumeGet | O::ResumePut | O::GetPattern | O::Time => Lacks(NO_WORD),
        O::GetBySeveral => Fails(
            "copy -f -n 4 {url}/file.dat file://{here}/file.dat",
            N_IS_ONE,
        ),
        O::PutBySeveral => Fails(
            "copy -f -n 4 file://{here}/file.dat {url}/file.dat",
            N_IS_ONE,
        ),
        O::GetTree => Does("copy -r {url}/tree file://{here}/tree"),
        O::PutTree => Does("copy -r file://{here}/tree {url}/tree"),
        O::Delete => Does("rm {url}/file.dat"),
        O::DeleteTree => Does("rm -r {url}/tree"),
        O::MakeDirectory => Does("mkdir {url}/made"),
        O::Rename => Does("rename {url}/file.dat {url}/renamed"),
        O::Permissions => Does("chmod 600 {url}/file.dat"),
        O::Checksum => Does("sum {url}/file.dat ADLER32"),
        O::FromServer => Does("copy -f {url}/file.dat {other}/file.dat"),
        O::ToServer => Does("copy -f {other}/file.dat {url}/file.dat"),
        O::Private => Lacks(NO_WORD),
        O::Resumed => Lacks(NO_TLS),
        O::Hidden => Does("copy -r {url}/tree file://{here}/tree"),
        O::Many => Does("bulk {url}/file.dat {url}/second.dat {other}/file.dat {other}/second.dat"),
        O::Home => Does("copy -f {home}/file.dat file://{here}/file.dat"),
    }
}

fn of_arcs(operation: Operation) -> Way {
    match operation {
        O::LogIn(Tls) => Lacks(NO_TLS),
        O::LogIn(Ssh) => Lacks("Its plug-in takes `ftp://` and `gsiftp://`."),
        O::LogIn(_) | O::Get => Does("arccp {url}/file.dat {here}/file.dat"),
        O::List => Does("arcls {url}/"),
        O::Facts => Does("arcls -l {url}/"),
        O::Put => Does("arccp {here}/file.dat {url}/file.dat"),
        O::GetPart
        | O::ResumeGet
        | O::ResumePut
        | O::GetPattern
        | O::DeleteTree
        | O::Permissions
        | O::Time => Lacks(NO_WORD),
        O::GetBySeveral => Fails(
            "arccp gsiftp://{host};threads=4{path}/file.dat {here}/file.dat",
            THREADS_ARE_ONE,
        ),
        O::PutBySeveral => Fails(
            "arccp {here}/file.dat gsiftp://{host};threads=4{path}/file.dat",
            THREADS_ARE_ONE,
        ),
        O::GetTree => Fails("arccp -r {url}/tree/ {here}/tree/", DOTS),
        O::PutTree => Does("arccp -r {here}/tree/ {url}/tree/"),
        O::Delete => Does("arcrm {url}/file.dat"),
        O::MakeDirectory => Does("arcmkdir {url}/made"),
        O::Rename => Does("arcrename {url}/file.dat {url}/renamed"),
        O::Checksum => Does("arcls -m {url}/file.dat"),
        O::FromServer | O::ToServer => Lacks("ARC leaves it to a plug-in made of gfal2."),
        O::Private => Does("arccp --secure {url}/file.dat {here}/file.dat"),
        O::Resumed => Lacks(NO_TLS),
        O::Hidden => Fails("arccp -r {url}/tree/ {here}/tree/", DOTS),
        O::Many => Lacks(NO_WORD),
        O::Home => Does("arccp {home}/file.dat {here}/file.dat"),
    }
}

fn of_java(operation: Operation) -> Way {
    match operation {
        O::LogIn(Anonymous) => Does("anonymous {port} get {path}/file.dat {here}/file.dat"),
        O::LogIn(Password) => Does("password {port} get {path}/file.dat {here}/file.dat"),
        O::LogIn(Tls) => Lacks(NO_TLS),
        O::LogIn(Ssh) => Lacks(NO_WORD),
        O::LogIn(Grid) | O::Get => Does("grid {port} get {path}/file.dat {here}/file.dat"),
        O::List => Does("grid {port} list {path}"),
        O::Facts => Does("grid {port} facts {path}"),
        O::Put => Does("grid {port} put {path}/file.dat {here}/file.dat"),
        O::GetPart => Does("grid {port} part {path}/file.dat {here}/file.dat"),
        O::ResumeGet => Does("grid {port} resume-get {path}/file.dat {here}/file.dat"),
        O::ResumePut => Does("grid {port} resume-put {path}/file.dat {here}/file.dat"),
        O::GetBySeveral => Does("grid {port} several-get {path}/file.dat {here}/file.dat"),
        O::PutBySeveral => Does("grid {port} several-put {path}/file.dat {here}/file.dat"),
        O::GetTree | O::PutTree | O::GetPattern | O::DeleteTree => Lacks(BY_PROGRAM),
        O::Delete => Does("grid {port} delete {path}/file.dat"),
        O::MakeDirectory => Does("grid {port} make {path}/made"),
        O::Rename => Does("grid {port} rename {path}/file.dat {path}/renamed"),
        O::Permissions => Does("grid {port} permissions {path}/file.dat"),
        O::Time => Lacks(NO_WORD),
        O::Checksum => Does("grid {port} checksum {path}/file.dat"),
        O::FromServer => {
            Does("grid {port} from {path}/file.dat {other_host} {other_path}/file.dat")
        }
        O::ToServer => Does("grid {port} to {path}/file.dat {other_host} {other_path}/file.dat"),
        O::Private => Does("grid {port} private {path}/file.dat {here}/file.dat"),
        O::Resumed => Lacks(NO_TLS),
        O::Hidden | O::Many => Lacks(BY_PROGRAM),
        O::Home => Does("grid {port} get ~/{name}/file.dat {here}/file.dat"),
    }
}

fn of_lftp(operation: Operation) -> Way {
    match operation {
        O::LogIn(Grid | Ssh) => Lacks(PLAIN_FTP),
        O::LogIn(_) | O::Get | O::Private => Does("get {path}/file.dat -o {here}/file.dat"),
        O::List => Does("cls -1 {path}/"),
        O::Facts => Does("cls -l {path}/"),
        O::Put => Does("put {here}/file.dat -o {path}/file.dat"),
        O::GetPart => Lacks(NO_WORD),
        O::ResumeGet => Does("get -c {path}/file.dat -o {here}/file.dat"),
        O::ResumePut => Does("put -c {here}/file.dat -o {path}/file.dat"),
        O::GetBySeveral | O::PutBySeveral => Lacks(ONE_EACH),
        O::GetTree => Does("mirror {path}/tree {here}/tree"),
        O::PutTree | O::Time => Does("mirror -R {here}/tree {path}/tree"),
        O::GetPattern => Does("mget -O {here} {path}/*.dat"),
        O::Delete => Does("rm {path}/file.dat"),
        O::DeleteTree => Does("rm -r {path}/tree"),
        O::MakeDirectory => Does("mkdir {path}/made"),
        O::Rename => Does("mv {path}/file.dat {path}/renamed"),
        O::Permissions => Does("chmod 600 {path}/file.dat"),
        O::Checksum => Does("quote CKSM ADLER32 0 -1 {path}/file.dat"),
        O::FromServer => Does(
            "set ftp:fxp-force yes; get {path}/file.dat -o \
             ftp://{other_host}/%2F{other_path}/file.dat",
        ),
        O::ToServer => Does(
            "set ftp:fxp-force yes; get ftp://{other_host}/%2F{other_path}/file.dat -o \
             ftp://{host}{path}/file.dat",
        ),
        O::Resumed => Lacks(NOT_DEMANDED),
        O::Hidden => Does("mirror {path}/tree {here}/tree"),
        O::Many => Does("mget -O {here} {path}/file.dat {path}/second.dat"),
        O::Home => Does("get ~/{name}/file.dat -o {here}/file.dat"),
    }
}

fn of_curl(operation: Operation) -> Way {
    match operation {
        O::LogIn(Grid | Ssh) | O::GetBySeveral | O::PutBySeveral => Lacks(PLAIN_FTP),
        O::LogIn(Tls) | O::Private => Does("ftp://{host}{path}/file.dat -o {here}/file.dat"),
        O::LogIn(_) | O::Get => Does("{url}/file.dat -o {here}/file.dat"),
        O::List => Does("--list-only {url}/"),
        O::Facts => Does("{url}/"),
        O::Put => Does("-T {here}/file.dat {url}/file.dat"),
        O::GetPart => Does("-r 100000-149999 {url}/file.dat -o {here}/file.dat"),
        O::ResumeGet => Does("-C - {url}/file.dat -o {here}/file.dat"),
        O::ResumePut => Does("-C - -T {here}/file.dat {url}/file.dat"),
        O::GetTree | O::PutTree | O::GetPattern | O::DeleteTree | O::FromServer | O::ToServer => {
            Lacks(NO_WORD)
        }
        O::Delete => Does("-Q DELE+{path}/file.dat {url}/"),
        O::MakeDirectory => Does("-Q MKD+{path}/made {url}/"),
        O::Rename => Does("-Q RNFR+{path}/file.dat -Q RNTO+{path}/renamed {url}/"),
        O::Permissions => Does("-Q SITE+CHMOD+600+{path}/file.dat {url}/"),
        O::Time => Does(
            "--ftp-create-dirs -T {here}/tree/one {url}/tree/one\n\
             -Q MFMT+20010909014640+{path}/tree/one {url}/",
        ),
        O::Checksum => Does("-v -Q CKSM+ADLER32+0+-1+{path}/file.dat {url}/"),
        O::Resumed => Lacks(NOT_DEMANDED),
        O::Hidden => Lacks(NO_WORD),
        O::Many => Does("{url}/file.dat -o {here}/file.dat {url}/second.dat -o {here}/second.dat"),
        O::Home => Does("{home}/file.dat -o {here}/file.dat"),
    }
}

fn of_ftplib(operation: Operation) -> Way {
    match operation {
        O::LogIn(Grid | Ssh) | O::GetBySeveral | O::PutBySeveral => Lacks(PLAIN_FTP),
        O::LogIn(_) | O::Get | O::Private => Does("get('{path}/file.dat', '{here}/file.dat')"),
        O::List => Does("print(f.nlst('{path}'))"),
        O::Facts => Does("print(list(f.mlsd('{path}')))"),
        O::Put => Does("put('{path}/file.dat', '{here}/file.dat')"),
        O::GetPart => Does("part('{path}/file.dat', '{here}/file.dat', 100000, 50000)"),
        O::ResumeGet => Does("get('{path}/file.dat', '{here}/file.dat', rest=100000, mode='ab')"),
        O::ResumePut => Does("put('{path}/file.dat', '{here}/file.dat', rest=100000)"),
        O::GetTree | O::PutTree | O::GetPattern | O::DeleteTree => Lacks(BY_PROGRAM),
        O::Delete => Does("f.delete('{path}/file.dat')"),
        O::MakeDirectory => Does("f.mkd('{path}/made')"),
        O::Rename => Does("f.rename('{path}/file.dat', '{path}/renamed')"),
        O::Permissions => Does("f.sendcmd('SITE CHMOD 600 {path}/file.dat')"),
        O::Time => Does(
            "f.mkd('{path}/tree'); put('{path}/tree/one', '{here}/tree/one'); f.sendcmd('MFMT \
             20010909014640 {path}/tree/one')",
        ),
        O::Checksum => Does("print(f.sendcmd('CKSM ADLER32 0 -1 {path}/file.dat'))"),
        O::FromServer => Does(
            "between('{path}/file.dat', *'{other_host}'.split(':'), '{other_path}/file.dat', True)",
        ),
        O::ToServer => Does(
            "between('{path}/file.dat', *'{other_host}'.split(':'), '{other_path}/file.dat', \
             False)",
        ),
        O::Resumed => Lacks(NOT_DEMANDED),
        O::Hidden | O::Many => Lacks(BY_PROGRAM),
        O::Home => Does("get('~/{name}/file.dat', '{here}/file.dat')"),
    }
}

fn of_rclone(operation: Operation) -> Way {
    match operation {
        O::LogIn(Grid | Ssh) | O::GetBySeveral | O::PutBySeveral => Lacks(PLAIN_FTP),
        O::LogIn(_) | O::Get | O::Private => Does("copyto :ftp:{path}/file.dat {here}/file.dat"),
        O::List => Does("lsf :ftp:{path}"),
        O::Facts => Does("lsl :ftp:{path}"),
        O::Put => Does("copyto {here}/file.dat :ftp:{path}/file.dat"),
        O::GetPart | O::ResumeGet | O::ResumePut | O::Permissions | O::FromServer | O::ToServer => {
            Lacks(NO_WORD)
        }
        O::GetTree => Does("copy :ftp:{path}/tree {here}/tree"),
        O::PutTree | O::Time => Does("copy {here}/tree :ftp:{path}/tree"),
        O::GetPattern => Does("copy --include *.dat :ftp:{path} {here}"),
        O::Delete => Does("deletefile :ftp:{path}/file.dat"),
        O::DeleteTree => Does("purge :ftp:{path}/tree"),
        O::MakeDirectory => Does("mkdir :ftp:{path}/made"),
        O::Rename => Does("moveto :ftp:{path}/file.dat :ftp:{path}/renamed"),
        O::Checksum => Lacks(NO_WORD),
        O::Resumed => Lacks(NOT_DEMANDED),
        O::Hidden => Does("copy :ftp:{path}/tree {here}/tree"),
        O::Many => Does("copy --files-from {here}/names :ftp:{path} {here}"),
        O::Home => Lacks("Its paths without a `/` begin there."),
    }
}
