//! Names with several addresses.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener},
    time::SystemTime,
};

use godwit_lab::peers::{
    Tool,
    godwit::{self, Godwitd},
};

use crate::support::{Kind, Need, Site, am_root, assert_holds, have, write_noise};

/// Shows the program another `/etc/hosts`.
const UNSHARE: Tool = Tool::new("unshare", "util-linux");

#[test]
fn every_address_of_a_name_is_tried() {
    if !have(&[Need::Godwit, Need::Godwitd])
        || !am_root("only root can show others another hosts file")
    {
        return;
    }
    let addresses: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    // Whichever is asked first, one of the two servers is behind the other address.
    for address in addresses {
        let site = Site::on_ip(Kind::Godwitd, address);
        let hosts = site.local("hosts");
        let lines = addresses.map(|address| format!("{address} both.test\n"));
        fs::write(&hosts, lines.concat()).expect("a file");
        let bytes = write_noise(&site.at("f"), 300_000, 1);
        let back = site.local("back");
        let url = format!("ftp://both.test:{}/f", site.addr().port());
        let (hosts, back_text) = (hosts.display(), back.display());
        let program = godwit::binary("godwit").expect("present");
        let script = format!(
            "mount --bind '{hosts}' /etc/hosts && exec '{}' cp -v '{url}' '{back_text}'",
            program.display()
        );
        let finished = site.expect_ok(UNSHARE.run(["--mount", "sh", "-c", &script]));
        let said = finished.log();
        assert!(finished.status.success(), "{said}\n{}", site.log());
        assert_holds(&back, &bytes);
    }
}

#[test]
fn the_addresses_of_a_name_are_used_together() {
    const FILES: usize = 80;
    if !have(&[Need::Godwit, Need::Godwitd])
        || !am_root("only root can show others another hosts file")
    {
        return;
    }
    let one = Site::on_ip(Kind::Godwitd, Ipv4Addr::new(127, 0, 0, 2).into());
    let port = one.addr().port();
    let other = Site::godwitd(|root| {
        let config = Godwitd::serving(root).ip(Ipv4Addr::new(127, 0, 0, 3).into());
        config.port(port).start().expect("godwitd starts")
    });
    // Listings are equal; the contents tell which server sent them.
    let changed = SystemTime::now();
    for (site, letter) in [(&one, "1"), (&other, "2")] {
        let folder = site.at("d");
        fs::create_dir(&folder).expect("a directory");
        for name in 0..FILES {
            let path = folder.join(name.to_string());
            fs::write(&path, letter.repeat(1_000_000)).expect("a file");
            let file = fs::File::options().write(true).open(&path).expect("a file");
            file.set_modified(changed).expect("a time");
        }
    }
    let hosts = one.local("hosts");
    // The fourth has no listener, and the fifth accepts and never greets.
    let _mute = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 5), port)).expect("a port");
    let lines = [2, 3, 4, 5].map(|last| format!("127.0.0.{last} all.test\n"));
    fs::write(&hosts, lines.concat()).expect("a file");
    let (back, events) = (one.local("back"), one.local("events"));
    let program = godwit::binary("godwit").expect("present");
    let script = format!(
        "mount --bind '{}' /etc/hosts && exec '{}' cp -rv -c 4 --no-verify --events '{}' \
         'ftp://all.test:{port}/d' '{}'",
        hosts.display(),
        program.display(),
        events.display(),
        back.display()
    );
    let finished = one.expect_ok(UNSHARE.run(["--mount", "sh", "-c", &script]));
    let said = finished.log();
    assert!(finished.status.success(), "{said}\n{}", one.log());
    let events = fs::read_to_string(events).expect("a file");
    assert!(
        !events.contains("\"retry\""),
        "no session waits there to no avail: {events}"
    );
    let sent = |letter: u8| {
        let names = 0..FILES;
        let first = |name: usize| fs::read(back.join(name.to_string())).expect("a file")[0];
        names.filter(|name| first(*name) == letter).count()
    };
    assert_eq!(sent(b'1') + sent(b'2'), FILES, "{said}");
    assert!(sent(b'1') > 0 && sent(b'2') > 0, "{said}");
}
