//! What becomes of each option of `globus-gridftp-server`.

use super::{number, text};

/// An option of that server.
#[derive(Debug)]
pub(super) struct Row {
    /// As its configuration files have it.
    pub(super) name: &'static str,
    /// On its command line, without the dash.
    pub(super) words: &'static [&'static str],
    pub(super) kind: Kind,
    becomes: Becomes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 0 or 1, and which by default.
    Flag(bool),
    Number,
    Text,
}

/// What becomes of an option, by its value.
#[derive(Clone, Copy, Debug)]
enum Becomes {
    /// Nothing, whatever it says.
    Nothing(&'static str),
    /// The administrator's decision.
    Decision(&'static str),
    /// A key with the same text.
    Key(&'static str),
    /// A key with the same number of seconds.
    Seconds(&'static str),
    /// A key that is set so.
    Set(&'static str, &'static str),
    /// A key that is true.
    Switch(&'static str),
    /// Nothing where it has this value, else a decision.
    Only(&'static str, &'static str),
    Port,
    Interface {
        control: bool,
        data: bool,
    },
    PortRange,
    Anonymous,
    Root,
    Banner,
    BannerFile,
    Terse,
    Sessions,
    AuthLevel,
    Names,
    Level,
    Module,
}

/// What becomes of an option that has a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is as it was without.
    Default,
    Meaningless(&'static str),
    Undecided(&'static str),
    /// A key and its TOML.
    Set(&'static str, String),
    Port(u16),
    Interface {
        control: bool,
        data: bool,
    },
    Anonymous,
    Root,
    Banner,
    BannerFile,
}

/// Beginnings of variables that steer modules of authorization.
pub(super) const AUTHORIZATION: [&str; 5] =
    ["GSI_AUTHZ_CONF", "LCMAPS_", "LCAS_", "LLGT_", "PEPC_"];

const SERVES: &str = "one program serves all sessions";
const LOGS: &str = "the log is on standard error, for the service manager to keep";
const NODES: &str = "there are no data nodes of other processes: one server moves its data itself";
const SHARING: &str = "Globus sharing is not had: sessions are of who logs in";
const DRIVERS: &str = "there are no XIO drivers";
const USAGE: &str = "the server sends no usage statistics";
const FIREWALL: &str = "addresses are let in by the host's firewall";

macro_rules! rows {
    ($($name:literal [$($word:literal),*] $kind:expr => $becomes:expr;)+) => {
        &[$(Row {
            name: $name,
            words: &[$($word),*],
            kind: $kind,
            becomes: $becomes,
        }),+]
    };
}

use Becomes as B;
use Kind::{Flag, Number, Text};

/// All that its help lists and what its files may have besides, in the order of its help.
pub(super) const OPTIONS: &[Row] = rows! {
    "help" ["help", "h"] Flag(false) => B::Nothing("asks for help");
    "longhelp" ["longhelp", "hh"] Flag(false) => B::Nothing("asks for help");
    "version" ["version", "v"] Flag(false) => B::Nothing("asks for the version");
    "versions" ["versions", "V"] Flag(false) => B::Nothing("asks for the version");
    "inetd" ["inetd", "i"] Flag(false) => B::Decision(
        "godwitd listens by itself: remove the service from inetd's configuration");
    "daemon" ["daemon", "s"] Flag(true) => B::Nothing(SERVES);
    "detach" ["detach", "S"] Flag(false) => B::Nothing(
        "runs in the foreground, under a service manager");
    "ssh" ["ssh"] Flag(false) => B::Decision(
        "godwitd --ssh is what sshd starts, and needs no settings");
    "exec" ["exec"] Text => B::Nothing(SERVES);
    "chdir" ["chdir"] Flag(true) => B::Nothing("paths of settings are absolute");
    "chdir_to" ["chdir-to"] Text => B::Nothing("paths of settings are absolute");
    "threads" ["threads"] Number => B::Nothing("as many threads as there is work for");
    "fork" ["fork", "f"] Flag(true) => B::Nothing(SERVES);
    "fork_fallback" ["fork-fallback"] Flag(false) => B::Nothing(SERVES);
    "single" ["single", "1"] Flag(false) => B::Decision("there is no server for one session");
    "chroot_path" ["chroot-path"] Text => B::Root;
    "auth_level" ["auth-level"] Number => B::AuthLevel;
    "process_user" ["process-user"] Text => B::Decision(
        "let the service manager start godwitd as that account (User=), with privsep = false");
    "process_group" ["process-group"] Text => B::Decision(
        "let the service manager start godwitd with that group (Group=), with privsep = false");
    "ipc_allow_from" ["ipc-allow-from"] Text => B::Nothing(NODES);
    "ipc_deny_from" ["ipc-deny-from"] Text => B::Nothing(NODES);
    "allow_from" ["allow-from"] Text => B::Decision(FIREWALL);
    "deny_from" ["deny-from"] Text => B::Decision(FIREWALL);
    "encrypt_data" ["encrypt-data"] Flag(false) => B::Set("protect", "private");
    "secure_ipc" ["secure-ipc", "si"] Flag(true) => B::Nothing(NODES);
    "ipc_auth_mode" ["ipc-auth-mode", "ia"] Text => B::Nothing(NODES);
    "ipc_user_name" ["ipc-user-name"] Text => B::Nothing(NODES);
    "ipc_subject" ["ipc-subject"] Text => B::Nothing(NODES);
    "ipc_credential" ["ipc-credential", "ipc-cred"] Text => B::Nothing(NODES);
    "ipc_cookie" ["ipc-cookie"] Text => B::Nothing(NODES);
    "allow_anonymous" ["allow-anonymous", "aa"] Flag(false) => B::Anonymous;
    "anonymous_names_allowed" ["anonymous-names-allowed"] Text => B::Names;
    "anonymous_user" ["anonymous-user"] Text => B::Key("anonymous-user");
    "anonymous_group" ["anonymous-group"] Text => B::Decision(
        "sessions have the groups of their account: give it that group");
    "sharing_dn" ["sharing-dn"] Text => B::Decision(SHARING);
    "sharing_state_dir" ["sharing-state-dir"] Text => B::Nothing(SHARING);
    "sharing_control" ["sharing-control"] Flag(true) => B::Nothing(SHARING);
    "sharing_rp" ["sharing-rp"] Text => B::Nothing(SHARING);
    "sharing_users_allow" ["sharing-users-allow"] Text => B::Nothing(SHARING);
    "sharing_users_deny" ["sharing-users-deny"] Text => B::Nothing(SHARING);
    "sharing_groups_allow" ["sharing-groups-allow"] Text => B::Nothing(SHARING);
    "sharing_groups_deny" ["sharing-groups-deny"] Text => B::Nothing(SHARING);
    "allow_root" ["allow-root"] Flag(false) => B::Decision(
        "no session runs as root: map those users to accounts of their own");
    "allow_disabled_login" ["allow-disabled-login"] Flag(false) => B::Nothing(
        "a disabled account may log in if it is in the gridmap file");
    "pw_file" ["password-file"] Text => B::Decision(
        "the format differs: run godwitd passwd FILE USER for each user and set password-file, \
            with TLS or allow-clear-passwords");
    "connections_max" ["connections-max"] Number => B::Sessions;
    "connections_disabled" ["connections-disabled"] Flag(false) => B::Decision(
        "stop the service: SIGTERM lets running transfers end");
    "offline_msg" ["offline-msg"] Text => B::Nothing("a server that is stopped says nothing");
    "disable_command_list" ["disable-command-list"] Text => B::Decision(
        "single commands cannot be disabled: rights of accounts and of tokens decide");
    "cas" ["cas", "authz-callouts"] Flag(true) => B::Nothing(
        "no authorization modules are called: accounts are in the gridmap file");
    "use_home_dirs" ["use-home-dirs"] Flag(true) => B::Decision(
        "sessions begin in the account's home if it is below root");
    "home_dir" ["home-dir"] Text => B::Decision(
        "sessions begin in the account's home if it is below root: root can be that directory \
            for all");
    "restrict_paths" ["restrict-paths", "rp"] Text => B::Decision(
        "root can be one directory for all; beyond that, permissions of the file system and \
            rights in password files and tokens decide");
    "rp_follow_symlinks" ["rp-follow-symlinks"] Flag(false) => B::Nothing(
        "links are followed as far as root, and the kernel keeps them there");
    "acl" ["acl", "em"] Text => B::Decision("no modules are loaded");
    "log_level" ["log-level", "d"] Text => B::Level;
    "log_module" ["log-module"] Text => B::Nothing(LOGS);
    "log_single" ["logfile", "l"] Text => B::Nothing(LOGS);
    "log_unique" ["logdir", "L"] Text => B::Nothing(LOGS);
    "log_transfer" ["log-transfer", "Z"] Text => B::Key("transfer-log");
    "log_filemode" ["log-filemode"] Text => B::Nothing(
        "an existing log keeps its permissions, only the owner can read a new one");
    "disable_usage_stats" ["disable-usage-stats"] Flag(true) => B::Nothing(USAGE);
    "usage_stats_target" ["usage-stats-target"] Text => B::Nothing(USAGE);
    "usage_stats_id" ["usage-stats-id"] Text => B::Nothing(USAGE);
    "remote_nodes" ["remote-nodes", "r"] Text => B::Decision(NODES);
    "hybrid" ["hybrid"] Flag(false) => B::Nothing(NODES);
    "data_node" ["data-node", "dn"] Flag(false) => B::Decision(NODES);
    "stripe_blocksize" ["stripe-blocksize", "sbs"] Number => B::Nothing(NODES);
    "stripe_count" ["stripe-count"] Number => B::Nothing(NODES);
    "brain" ["brain"] Text => B::Decision(NODES);
    "stripe_layout" ["stripe-layout", "sl"] Number => B::Nothing(NODES);
    "stripe_blocksize_locked" ["stripe-blocksize-locked"] Flag(false) => B::Nothing(NODES);
    "stripe_layout_locked" ["stripe-layout-locked"] Flag(false) => B::Nothing(NODES);
    "stripe_mode" ["stripe-mode"] Number => B::Nothing(NODES);
    "blocksize" ["blocksize", "bs"] Number => B::Nothing("blocks are as long as they need to be");
    "sync_writes" ["sync-writes"] Flag(false) => B::Set("durability", "batch");
    "direct" ["direct"] Flag(false) => B::Switch("direct-io");
    "perms" ["perms"] Text => B::Only(
        "0644", "files are created with 0666 less the umask: set it in the service manager \
            (UMask=)");
    "file_timeout" ["file-timeout"] Number => B::Nothing(
        "a disk that hangs delays only the sessions that use it");
    "port" ["port", "p"] Number => B::Port;
    "control_interface" ["control-interface"] Text => B::Interface { control: true, data: false };
    "data_interface" ["data-interface"] Text => B::Interface { control: false, data: true };
    "ipc_interface" ["ipc-interface"] Text => B::Nothing(NODES);
    "hostname" ["hostname"] Text => B::Interface { control: true, data: true };
    "ipc_port" ["ipc-port"] Number => B::Nothing(NODES);
    "control_preauth_timeout" ["control-preauth-timeout"] Number => B::Seconds("login-timeout");
    "control_idle_timeout" ["control-idle-timeout"] Number => B::Seconds("idle-timeout");
    "ipc_idle_timeout" ["ipc-idle-timeout"] Number => B::Nothing(NODES);
    "ipc_connect_timeout" ["ipc-connect-timeout"] Number => B::Nothing(NODES);
    "always_send_markers" ["always-send-markers"] Flag(false) => B::Nothing(
        "markers are sent in MODE E");
    "allow_udt" ["allow-udt"] Flag(false) => B::Decision(
        "there is no UDT here: data goes over TCP");
    "port_range" ["port-range"] Text => B::PortRange;
    "epsv_ip" ["epsv-ip"] Flag(false) => B::Decision(
        "EPSV has no address here, as RFC 2428 has it: see data-address");
    "epsv_match" ["epsv-match"] Flag(false) => B::Nothing("EPSV is as RFC 2428 has it");
    "banner" ["banner"] Text => B::Banner;
    "banner_file" ["banner-file"] Text => B::BannerFile;
    "banner_terse" ["banner-terse"] Flag(false) => B::Terse;
    "banner_append" ["banner-append"] Flag(false) => B::Nothing("a banner takes the place of ours");
    "version_tag" ["version-tag"] Text => B::Nothing("the version is ours");
    "login_msg" ["login-msg"] Text => B::Decision(
        "there is no message after the login: put it into the banner");
    "login_msg_file" ["login-msg-file"] Text => B::Decision(
        "there is no message after the login: put it into the banner");
    "load_dsi_module" ["dsi"] Text => B::Module;
    "allowed_modules" ["allowed-modules"] Text => B::Decision("no modules are loaded");
    "dc_whitelist" ["dc-whitelist"] Text => B::Nothing(DRIVERS);
    "fs_whitelist" ["fs-whitelist"] Text => B::Nothing(DRIVERS);
    "popen_whitelist" ["popen-whitelist"] Text => B::Decision("commands of clients are not run");
    "xnetmgr" ["xnetmgr"] Text => B::Decision(DRIVERS);
    "dc_default" ["dc-default"] Text => B::Decision(DRIVERS);
    "fs_default" ["fs-default"] Text => B::Decision(DRIVERS);
    "configfile" ["c"] Text => B::Nothing("was read, too");
    "config_dir" ["C"] Text => B::Nothing("was read, too");
    "config_base_path" ["config-base-path"] Text => B::Decision(
        "paths are absolute here: write them out");
    "debug" ["debug"] Flag(false) => B::Nothing("GODWITD_LOG=debug shows more");
    "pidfile" ["pidfile"] Text => B::Nothing("a service manager knows its processes");
    "globus_location" ["G"] Text => B::Nothing("there is nothing of Globus here");
    "ignore_bad_threads" ["ignore-bad-threads"] Flag(false) => B::Nothing(SERVES);
    "bad_signal_exit" ["exit"] Flag(true) => B::Nothing(SERVES);
    "slow_dirlist" [] Number => B::Nothing("listings are as fast as they can be");
    "checksum_throttle" [] Number => B::Nothing("checksums are as fast as they can be");
    "extension" ["extension"] Text => B::Decision("no modules are loaded");
};

/// By its name in a file.
pub(super) fn row_of(name: &str) -> Option<&'static Row> {
    OPTIONS.iter().find(|row| row.name == name)
}

/// By a word of a command line, and whether it says no: `-no-fork`, `-nfork`, `--fork`.
pub(super) fn row_of_word(word: &str) -> Option<(&'static Row, bool)> {
    let word = word.strip_prefix('-')?;
    let word = word.strip_prefix('-').unwrap_or(word);
    let row = |word: &str| OPTIONS.iter().find(|row| row.words.contains(&word));
    if let Some(row) = row(word) {
        return Some((row, false));
    }
    let negated = word.strip_prefix("no-").or_else(|| word.strip_prefix('n'));
    let row = negated.and_then(row)?;
    matches!(row.kind, Kind::Flag(_)).then_some((row, true))
}

/// `value` is of the row's kind.
pub(super) fn fate_of(row: &Row, value: &str) -> Fate {
    match row.becomes {
        B::Nothing(why) => Fate::Meaningless(why),
        B::Decision(why) => Fate::Undecided(why),
        B::Key(key) => Fate::Set(key, text(value)),
        B::Seconds(key) => match number(value) {
            Some(seconds) if seconds > 0 => Fate::Set(key, seconds.to_string()),
            _ => Fate::Undecided("every wait has a limit here"),
        },
        B::Set(key, word) => Fate::Set(key, text(word)),
        B::Switch(key) => Fate::Set(key, true.to_string()),
        B::Only(usual, _) if value == usual => Fate::Default,
        B::Only(_, why) => Fate::Undecided(why),
        B::Port => match number(value).and_then(|port| u16::try_from(port).ok()) {
            Some(port) => Fate::Port(port),
            None => Fate::Undecided("is no port"),
        },
        B::Interface { control, data } => Fate::Interface { control, data },
        B::PortRange => match port_range(value) {
            Some(range) => Fate::Set("port-range", range),
            None => Fate::Undecided("is no range of ports"),
        },
        B::Anonymous => Fate::Anonymous,
        B::Root => Fate::Root,
        B::Banner => Fate::Banner,
        B::BannerFile => Fate::BannerFile,
        B::Terse => Fate::Set("banner", text("ready.")),
        B::Sessions => match number(value) {
            Some(-1) => Fate::Undecided("sessions have a limit here: see max-sessions"),
            Some(count @ 1..=4_294_967_295) => Fate::Set("max-sessions", count.to_string()),
            _ => Fate::Undecided("stop the service: SIGTERM lets running transfers end"),
        },
        B::AuthLevel => match number(value) {
            Some(-1 | 1..=3) => Fate::Default,
            Some(5..=7) => Fate::Set("privsep", "false".to_owned()),
            _ => Fate::Undecided("who is not known is not let in: see anonymous"),
        },
        B::Names => match value
            .split(',')
            .all(|name| matches!(name.trim(), "anonymous" | "ftp"))
        {
            true => Fate::Default,
            false => Fate::Undecided("the names of anonymous users are anonymous and ftp"),
        },
        B::Level => match value.to_ascii_uppercase().contains("TRANSFER") {
            true => Fate::Meaningless("each transfer is in the log"),
            false => Fate::Meaningless("GODWITD_LOG says how much is logged"),
        },
        B::Module => match value {
            "file" => Fate::Default,
            _ => {
                Fate::Undecided("files are those of the file system: no storage modules are loaded")
            }
        },
    }
}

/// `A,B` as TOML of ours.
pub(super) fn port_range(value: &str) -> Option<String> {
    let range = godwit_engine::host::net::parse_port_range(value)?;
    Some(text(&format!("{}-{}", range.start(), range.end())))
}
