//! Options that apply to `gsiftp://` alone.

use std::fs;

use godwit_lab::peers::{RUN_TIMEOUT, gct, process};

use super::Ours;
use crate::{
    gsi_client::Secure,
    support::{Kind, against_both, assert_holds, noise},
};

/// Status of either program.
fn both_agree(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let ours = Ours::new();
    fs::write(secure.site.at("f"), noise(70_000, 1)).expect("writes");
    let (source, proxy) = (secure.url("f"), secure.path("proxy"));
    let (proxy, server) = (proxy.to_str().expect("text"), "/O=Grid/CN=server");
    let new = secure.site.local_url("new");
    let variables = secure.variables();
    for (options, succeeds) in [
        (&[][..], true),
        (&["-nodcau"], true),
        (&["-dcsafe", "-p", "2"], true),
        (&["-dcpriv", "-p", "2"], true),
        (&["-s", server], true),
        (&["-ss", server, "-ds", server], true),
        (&["-ss", "/O=Grid/CN=nobody"], false),
        (&["-cred", proxy], true),
        (&["-sc", proxy], true),
        (&["-cred", "/nowhere/proxy"], false),
    ] {
        let mut words = options.to_vec();
        words.extend([source.as_str(), &new]);
        let mut command = gct::URL_COPY.command().expect("present");
        command.args(&words).envs(variables.iter().cloned());
        let theirs = process::run(command, RUN_TIMEOUT).expect("runs");
        let ours = ours.run_with(&words, &variables);
        for finished in [theirs, ours] {
            let output = finished.log();
            assert_eq!(finished.status.success(), succeeds, "{options:?}: {output}");
        }
        if succeeds {
            assert_holds(&secure.site.local("new"), &noise(70_000, 1));
            fs::remove_file(secure.site.local("new")).expect("removes");
        }
    }
    // The destination's.
    for options in [["-ds", server], ["-dc", proxy]] {
        let local = secure.site.local_url("f");
        fs::write(secure.site.local("f"), "f").expect("writes");
        let words = [options[0], options[1], &local, &secure.url("put")];
        let put = ours.run_with(&words, &variables);
        assert!(put.status.success(), "{options:?}: {}", put.log());
        assert_holds(&secure.site.at("put"), b"f");
    }
}

against_both!(both_agree);
