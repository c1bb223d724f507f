//! Logins without a grid where sessions have processes of their own: whose files they have, and
//! what the monitor forbids to all.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    time::SystemTime,
};

use godwit_gsi::cert::files;
use godwit_server::access::passwords::{self, Change};
use tempfile::TempDir;

use crate::{
    client::Ftp,
    grid::Grid,
    issuer::Issuer,
    pki::Blueprint,
    privsep::{JO, KIM, can_separate, make_root, uid},
    program::Program,
    tls::{CLOSE_IN_GOOD_ORDER, clear_text_behind_auth_tls_is_refused, python, succeeded},
};

const ISSUER: &str = "https://issuer.example.org/";
const AUDIENCE: &str = "https://data.example.org";

pub(crate) struct Site {
    pub(crate) program: Program,
    pub(crate) folder: TempDir,
    issuer: Issuer,
    _grid: Grid,
}

impl Site {
    /// `None`, and a word on why, where it cannot be.
    pub(crate) fn new(arguments: &[&str]) -> Option<Self> {
        Self::serving("root", arguments)
    }

    /// `root`: of the server, in the site's folder or elsewhere.
    pub(crate) fn serving(root: &str, arguments: &[&str]) -> Option<Self> {
        if !can_separate() {
            return None;
        }
        let now = SystemTime::now();
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
        let host = host.issued_by(&grid.authority).to_pem().unwrap();
        files::write_private(&at("host.pem"), &host).unwrap();
        files::write_private(&at("jo.pem"), &grid.user.to_pem().unwrap()).unwrap();
        let authority = grid.authority.certificate().as_x509().to_pem().unwrap();
        fs::write(at("ca.pem"), authority).unwrap();
        fs::write(at("map"), format!("/O=Grid/CN=Jo {JO}\n")).unwrap();
        for (user, home, account) in [
            (JO, None, None),
            ("robot", Some("/all"), Some(JO)),
            ("no-account", None, None),
            ("root", None, None),
            ("admin", None, Some("root")),
        ] {
            let change = Change::Set {
                password: b"se cret",
                home,
                reads_only: None,
                account,
            };
            passwords::edit(&at("passwords"), user, change).unwrap();
        }
        let issuer = Issuer::es256("k");
        let keys = serde_json::json!({ "keys": [issuer.jwk] });
        fs::write(at("keys.json"), keys.to_string()).unwrap();
        make_root(&at("root"));
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let named = [
            ("--cert", text(at("host.pem"))),
            ("--gridmap", text(at("map"))),
            ("--trusted-certs", text(grid.path().to_owned())),
            ("--root", text(at(root))),
            ("--password-file", text(at("passwords"))),
            (
                "--token-issuer",
                format!("{ISSUER}={}", text(at("keys.json"))),
            ),
            ("--token-audience", AUDIENCE.to_owned()),
            ("--token-user", KIM.to_owned()),
            ("--audit-log", text(at("audit"))),
        ];
        let mut all: Vec<&str> = named
            .iter()
            .flat_map(|(flag, value)| [*flag, value])
            .collect();
        all.extend(arguments);
        Some(Self {
            program: Program::start(&all),
            folder,
            issuer,
            _grid: grid,
        })
    }

    fn python(&self, script: &str) -> bool {
        let output = python(&self.at("ca.pem"), self.program.address, script);
        output.as_ref().map(succeeded).is_some()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Of what is beneath the root.
    fn owner(&self, name: &str) -> u32 {
        fs::metadata(self.at("root").join(name)).unwrap().uid()
    }

    /// Lines of the audit log with all of `words`.
    pub(crate) fn audited(&self, words: &[&str]) -> usize {
        let log = fs::read_to_string(self.at("audit")).unwrap();
        let with_all = |line: &&str| words.iter().all(|word| line.contains(word));
        log.lines().filter(with_all).count()
    }

    fn token(&self, scope: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.issuer.token(&serde_json::json!({
            "iss": ISSUER, "sub": "robot", "aud": AUDIENCE, "wlcg.ver": "1.0", "scope": scope,
            "exp": now.unwrap().as_secs() + seconds,
        }))
    }
}

#[test]
fn users_with_passwords_have_the_files_of_their_accounts() {
    let Some(site) = Site::new(&[]) else { return };
    let script = format!(
        "refused(lambda: f.login('{JO}', 'other'), '530')\n\
         f.login('{JO}', 'se cret')\n\
         f.prot_p()\n\
         f.storbinary('STOR /jo/f', io.BytesIO(b'x' * 1000000))\n\
         got = io.BytesIO()\n\
         f.retrbinary('RETR /jo/f', got.write)\n\
         assert got.getvalue() == b'x' * 1000000\n\
         assert f.nlst('/jo') == ['f'], f.nlst('/jo')\n\
         refused(lambda: f.retrbinary('RETR /kim/secret', got.write), '550')\n\
         refused(lambda: f.mkd('/made'), '550')\n\
         {CLOSE_IN_GOOD_ORDER}"
    );
    if !site.python(&script) {
        return;
    }
    assert_eq!(site.owner("jo/f"), uid(JO));
    assert_eq!(
        site.audited(&["\"event\":\"login\"", "\"result\":\"failed\""]),
        1
    );
    assert_eq!(
        site.audited(&["\"event\":\"put\"", "\"path\":\"/jo/f\""]),
        1
    );
    assert_eq!(site.audited(&["se cret"]), 0);
    // Another account by the file's word, and a home that is not left.
    site.python(
        "f.login('robot', 'se cret')\n\
         f.prot_p()\n\
         assert f.pwd() == '/all', f.pwd()\n\
         f.storbinary('STOR g', io.BytesIO(b'x'))\n\
         refused(lambda: f.nlst('/jo'), '550', 'does not allow')\n\
         refused(lambda: f.nlst('/all/../jo'), '550', 'does not allow')\n\
         f.quit()\n",
    );
    assert_eq!(site.owner("all/g"), uid(JO));
    site.python(
        "refused(lambda: f.login('no-account', 'se cret'), '530', 'no account of this system')\n\
         refused(lambda: f.login('root', 'se cret'), '530', 'no session runs as root')\n\
         refused(lambda: f.login('admin', 'se cret'), '530', 'no session runs as root')\n\
         refused(lambda: f.login('nobody', ''), '530')\n",
    );
}

#[test]
fn a_tokens_scope_reaches_the_session_and_its_account_is_the_bearers() {
    let Some(site) = Site::new(&[]) else { return };
    let script = format!(
        "refused(lambda: f.login(':token:', 'a.b.c'), '530', 'no token')\n\
         refused(lambda: f.login(':token:', '{late}'), '530', 'expired')\n\
         f.login(':token:', '{good}')\n\
         f.prot_p()\n\
         got = io.BytesIO()\n\
         f.retrbinary('RETR /kim/secret', got.write)\n\
         assert got.getvalue() == b\"kim's\"\n\
         refused(lambda: f.delete('/kim/secret'), '550', 'does not allow')\n\
         refused(lambda: f.storbinary('STOR /kim/g', io.BytesIO(b'x')), '550', 'does not allow')\n\
         refused(lambda: f.retrbinary('RETR /kim/../all/f', got.write), '550', 'does not allow')\n\
         refused(lambda: f.nlst('/jo'), '550')\n\
         f.storbinary('STOR /all/new', io.BytesIO(b'new'))\n\
         f.quit()\n",
        late = site.token("storage.read:/", 0),
        good = site.token(
            "storage.read:/kim storage.create:/all storage.read:/jo",
            600
        ),
    );
    if site.python(&script) {
        assert_eq!(site.owner("all/new"), uid(KIM));
        assert_eq!(
            site.audited(&[
                "\"event\":\"login\"",
                &format!("\"account\":\"{ISSUER}#robot\"")
            ]),
            1
        );
        // There is a user of that name, who has nothing to do with it.
        assert_eq!(site.audited(&["\"account\":\"robot\""]), 0);
    }
}

#[test]
fn a_certificate_under_tls_is_a_login_and_anonymous_users_are_nobody() {
    let Some(site) = Site::new(&["--anonymous", "rw"]) else {
        return;
    };
    let jo = site.at("jo.pem");
    let script = format!(
        "f.login('anonymous', 'x')\n\
         f.prot_p()\n\
         f.storbinary('STOR /all/nobodys', io.BytesIO(b'x'))\n\
         f.quit()\n\
         context.load_cert_chain({jo:?})\n\
         f.connect('localhost')\n\
         refused(lambda: f.login('{KIM}', 'x'), '530', 'may not log in as')\n\
         f.login('{JO}', 'x')\n\
         assert f.sendcmd('SITE WHOAMI') == '200 {JO}'\n\
         f.prot_p()\n\
         f.storbinary('STOR /jo/f', io.BytesIO(b'x'))\n\
         f.set_pasv(False)\n\
         assert f.nlst('/jo') == ['f']\n\
         f.quit()\n"
    );
    if site.python(&script) {
        assert_eq!(site.owner("all/nobodys"), uid("nobody"));
        assert_eq!(site.owner("jo/f"), uid(JO));
        assert_eq!(
            site.audited(&["\"event\":\"put\"", "\"identity\":\"/O=Grid/CN=Jo\""]),
            1
        );
    }
}

#[test]
fn passwords_in_clear_need_permission() {
    let Some(site) = Site::new(&[]) else { return };
    let mut ftp = Ftp::connect(site.program.address);
    ftp.await_code(220);
    ftp.expect(&format!("USER {JO}"), 530);
    let Some(site) = Site::new(&["--allow-clear-passwords"]) else {
        return;
    };
    let mut ftp = Ftp::connect(site.program.address);
    ftp.await_code(220);
    for (password, code) in [("wrong", 530), ("se cret", 230)] {
        ftp.expect(&format!("USER {JO}"), 331);
        ftp.expect(&format!("PASS {password}"), code);
    }
    ftp.expect("TYPE I", 200);
    assert_eq!(ftp.put("STOR /jo/f", b"abc").code, 226);
    assert_eq!(site.owner("jo/f"), uid(JO));
    // A token is a secret that no setting allows in clear.
    let mut ftp = Ftp::connect(site.program.address);
    ftp.await_code(220);
    ftp.expect("USER :token:", 331);
    ftp.expect(&format!("PASS {}", site.token("storage.read:/", 600)), 530);
}

#[test]
fn a_shared_account_of_pre_login_processes_is_logged() {
    let warning = "pre-login processes and users without an account have one account";
    for (front, anonymous, shares) in [
        ("nobody", "ro", true),
        ("nobody", "off", false),
        (KIM, "off", true),
        ("daemon", "ro", false),
    ] {
        let arguments = ["--front-user", front, "--anonymous", anonymous];
        let Some(site) = Site::new(&arguments) else {
            return;
        };
        let log = fs::read_to_string(site.program.log.path()).unwrap();
        assert_eq!(log.contains(warning), shares, "{front}: {log}");
    }
}

#[test]
fn clear_text_behind_auth_tls_is_refused_before_the_handshake() {
    let Some(site) = Site::new(&[]) else { return };
    clear_text_behind_auth_tls_is_refused(site.program.address);
    // A client that waits for the 234 is served.
    site.python(&format!("f.login('{JO}', 'se cret')\nf.quit()\n"));
}
