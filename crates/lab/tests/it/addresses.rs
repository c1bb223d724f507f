//! Names with several addresses of which only one has a server.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use godwit_lab::peers::{Tool, godwit};

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
        let octets = write_noise(&site.at("f"), 300_000, 1);
        let back = site.local("back");
        let url = format!("ftp://both.test:{}/f", site.addr().port());
        let (hosts, back_text) = (hosts.display(), back.display());
        let program = godwit::binary("godwit").expect("present");
        let script = format!(
            "mount --bind '{hosts}' /etc/hosts && exec '{}' cp -v '{url}' '{back_text}'",
            program.display()
        );
        let finished = site.told(UNSHARE.run(["--mount", "sh", "-c", &script]));
        let said = finished.log();
        assert!(finished.status.success(), "{said}\n{}", site.log());
        assert_holds(&back, &octets);
    }
}
