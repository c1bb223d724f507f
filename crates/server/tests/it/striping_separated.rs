//! Data nodes that run as root: each session moves its data as its user's account, on the front end
//! and on the nodes.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::PathBuf,
    process::Command,
    thread,
    time::SystemTime,
};

use godwit_gsi::cert::files;
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CapabilitySet, remove_capability_from_bounding_set},
};

use crate::{
    client::{EOD, EOF, Ftp, block, comma_address, connect, data_block, listen},
    harness::{eventually, pattern},
    metrics::scrape,
    nodes::Site as Storage,
    pki::Blueprint,
    privsep::{JO, KIM, can_separate, make_root, uid},
    separated_logins::Site,
    striping_programs::{NodeProgram, arguments_of},
    tls::{python, succeeded},
};

struct Cluster {
    nodes: Vec<NodeProgram>,
    front: Site,
    root: PathBuf,
    storage: Storage,
}

/// `None`, and a word on why, where it cannot be. `more`: of the nodes.
fn cluster(more: &[&str]) -> Option<Cluster> {
    if !can_separate() {
        return None;
    }
    let storage = Storage::new();
    fs::set_permissions(storage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = storage.path().join("root");
    make_root(&root);
    let nodes = [2, 3].map(|number| NodeProgram::with(&storage, number, &root, more));
    let mut arguments = arguments_of(&storage.tls("front", &["front.example"]));
    let addresses = nodes.each_ref().map(|node| node.address.to_string());
    for address in addresses {
        arguments.extend(["--data-nodes".to_owned(), address]);
    }
    let more_of_front = ["--allow-clear-passwords", "--metrics", "127.0.0.1:0"];
    arguments.extend(more_of_front.map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let front = Site::serving(root.to_str().unwrap(), &arguments)?;
    Some(Cluster {
        nodes: nodes.into(),
        front,
        root,
        storage,
    })
}

impl Cluster {
    fn log_in(&self, user: &str) -> Ftp {
        let mut ftp = Ftp::connect(self.front.program.address);
        ftp.await_code(220);
        ftp.expect(&format!("USER {user}"), 331);
        ftp.expect("PASS se cret", 230);
        ftp.expect("TYPE I", 200);
        ftp
    }

    /// With a link to each node.
    fn log_in_on_all(&self, user: &str) -> Ftp {
        let mut ftp = self.log_in(user);
        ftp.expect("MODE E", 200);
        let reply = ftp.expect("SPAS", 229);
        assert_eq!(reply.lines.len(), 2 + self.nodes.len(), "{reply:?}");
        ftp
    }

    /// Processes of sessions on all nodes, and the accounts that they run as.
    fn processes(&self) -> Vec<(Pid, u32)> {
        let all = fs::read_dir("/proc").unwrap();
        let all = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        let ours = all.filter(|pid| {
            let of = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
            let parents = self
                .nodes
                .iter()
                .map(|node| format!("PPid:\t{}\n", node.child.id()));
            of("status").is_ok_and(|status| parents.into_iter().any(|line| status.contains(&line)))
                && of("cmdline").is_ok_and(|line| line.contains("privsep-node"))
        });
        ours.filter_map(|pid| {
            let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
            Some((Pid::from_raw(i32::try_from(pid).ok()?)?, owner))
        })
        .collect()
    }
}

/// Root gets the rights of all others nowhere, as on a file system that maps it to another account.
fn squashed<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // The bounding set is that of a thread, and of the programs that it starts.
    thread::scope(|scope| {
        let squashed = scope.spawn(|| {
            for capability in [
                CapabilitySet::DAC_OVERRIDE,
                CapabilitySet::DAC_READ_SEARCH,
                CapabilitySet::FOWNER,
            ] {
                remove_capability_from_bounding_set(capability).unwrap();
            }
            work()
        });
        squashed.join().unwrap()
    })
}

/// Root needs the folder itself for a moment, for the question that shows which nodes are well, and
/// nothing below it.
#[test]
fn root_needs_no_rights_in_the_folders_of_users() {
    let Some(cluster) = squashed(|| cluster(&[])) else {
        return;
    };
    let root = &cluster.root;
    let mut ftp = cluster.log_in(JO);
    let host = |ftp: &mut Ftp| ftp.call("PASV").code;
    eventually("the nodes are well", || host(&mut ftp) == 227);
    chown(root, Some(uid(KIM)), None).unwrap();
    let mut said = String::new();
    eventually("no node is well", || {
        let reply = ftp.call("PASV");
        said = reply.text();
        reply.code == 425
    });
    assert!(said.contains("root_squash"), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    fs::set_permissions(root, fs::Permissions::from_mode(0o1777)).unwrap();
    eventually("the nodes are well again", || host(&mut ftp) == 227);
    // The folder of the user is closed to root.
    assert_eq!(ftp.put("STOR /jo/part", b"one").code, 226);
    ftp.expect("RNFR /jo/part", 350);
    ftp.expect("RNTO /jo/f", 250);
    assert_eq!(ftp.get("RETR /jo/f"), b"one");
    ftp.expect("MODE E", 200);
    let reply = ftp.expect("SPAS", 229);
    assert_eq!(reply.lines.len(), 2 + cluster.nodes.len(), "{reply:?}");
    let file = fs::metadata(root.join("jo").join("f")).unwrap();
    assert_eq!(file.uid(), uid(JO));
}

#[test]
fn nodes_move_files_as_the_account_of_the_user() {
    let Some(cluster) = cluster(&[]) else { return };
    let mut ftp = cluster.log_in(JO);
    let host = ftp.pasv().ip();
    assert!(cluster.nodes.iter().any(|node| node.address.ip() == host));
    assert_eq!(ftp.put("STOR /jo/f", b"one").code, 226);
    let file = cluster.root.join("jo").join("f");
    assert_eq!(fs::metadata(&file).unwrap().uid(), uid(JO));
    assert_eq!(ftp.get("RETR /jo/f"), b"one");
    // All nodes at a time, one process each.
    ftp.expect("MODE E", 200);
    let reply = ftp.expect("SPAS", 229);
    let addresses: Vec<_> = reply.lines[1..3].iter().map(|l| comma_address(l)).collect();
    assert_ne!(addresses[0].ip(), addresses[1].ip());
    let bytes = pattern(2_000_000, 3);
    ftp.send("STOR /jo/g");
    for (address, half) in addresses.iter().zip([0..1_000_000, 1_000_000..2_000_000]) {
        let mut data = connect(*address);
        let blocks = [
            data_block(half.start as u64, &bytes[half]),
            block(EOF | EOD, 0, 1, b""),
        ];
        std::io::Write::write_all(&mut data, &blocks.concat()).unwrap();
    }
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    let file = cluster.root.join("jo").join("g");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    assert_eq!(fs::metadata(&file).unwrap().uid(), uid(JO));
    // Monitoring and the audit log say which nodes that were.
    let numbers = scrape(&cluster.front.program);
    let names = cluster.nodes.iter().map(|node| node.address.to_string());
    for node in names {
        let of = |what: &str| numbers.value(&format!("godwitd_node_{what}{{node=\"{node}\"}}"));
        assert_eq!((of("up"), of("links")), (1.0, 1.0), "{node}");
        assert!(of("bytes_total") >= 1_000_000.0, "{node}");
        assert_eq!(
            cluster.front.audited(&["\"put\"", "/jo/g", &node]),
            1,
            "{node}"
        );
    }
    let processes = cluster.processes();
    assert!(processes.len() >= 2, "{processes:?}");
    assert!(
        processes.iter().all(|(_, owner)| *owner == uid(JO)),
        "{processes:?}"
    );
    ftp.expect("QUIT", 221);
    eventually("the processes of the session have ended", || {
        cluster.processes().is_empty()
    });
}

/// A user's process is the user's: it may end at any time, and no other session shall notice.
#[test]
fn a_user_who_ends_processes_at_nodes_takes_no_node_from_others() {
    let Some(cluster) = cluster(&[]) else { return };
    let _jo = cluster.log_in_on_all(JO);
    let processes = cluster.processes();
    assert_eq!(processes.len(), 2, "{processes:?}");
    for (pid, _) in processes {
        kill_process(pid, Signal::KILL).unwrap();
    }
    let of = |what: &str| {
        let numbers = scrape(&cluster.front.program);
        let each = cluster.nodes.iter().map(|node| {
            numbers.value(&format!("godwitd_node_{what}{{node=\"{}\"}}", node.address))
        });
        each.collect::<Vec<_>>()
    };
    eventually("the front end has noticed", || of("links") == [0.0, 0.0]);
    assert_eq!(of("up"), [1.0, 1.0]);
    cluster.log_in_on_all(JO);
}

/// It hears nothing of the end of its link, and ends nothing itself.
#[test]
fn a_process_that_stands_still_is_ended_with_its_link() {
    let Some(cluster) = cluster(&[]) else { return };
    let mut jo = cluster.log_in_on_all(JO);
    let processes = cluster.processes();
    assert_eq!(processes.len(), 2, "{processes:?}");
    for (pid, _) in processes {
        kill_process(pid, Signal::STOP).unwrap();
    }
    jo.expect("QUIT", 221);
    eventually("the processes of the session have ended", || {
        cluster.processes().is_empty()
    });
}

#[test]
fn files_that_the_user_may_not_read_or_write_stay_that() {
    let Some(cluster) = cluster(&[]) else { return };
    let secret = cluster.root.join("secret");
    fs::write(&secret, b"secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&secret, Some(uid(KIM)), None).unwrap();
    let mut ftp = cluster.log_in(JO);
    for command in ["RETR /secret", "STOR /secret", "APPE /secret"] {
        let data = ftp.passive();
        let reply = ftp.call(command);
        assert_eq!(reply.code, 550, "{command}: {reply:?}");
        drop(data);
    }
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    // The front end opens first, and refuses: what the node does alone is in
    // `a_node_opens_files_as_the_account_whoever_asks`.
    let closed = cluster.root.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("name"), b"").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let data = ftp.passive();
    let reply = ftp.call("NLST /closed");
    assert_eq!(reply.code, 550, "{reply:?}");
    drop(data);
}

/// Speaks to a node as its front end does, in place of one: what the process of a session may, the
/// node alone decides. `orders`: JSON, one a line; `None` without Python.
fn say_to_node(cluster: &Cluster, orders: &[String]) -> Option<String> {
    let tls = cluster.storage.tls("front", &["front.example"]);
    let node = cluster.nodes[0].address;
    let script = format!(
        "import json, socket, ssl, struct, sys\n\
         context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n\
         context.check_hostname = False\n\
         context.load_verify_locations({:?})\n\
         context.load_cert_chain({:?})\n\
         link = context.wrap_socket(socket.create_connection(('{}', {}), 20))\n\
         link.settimeout(20)\n\
         def send(text):\n\
         \x20   link.sendall(struct.pack('>I', len(text)) + text.encode())\n\
         def take(count):\n\
         \x20   whole = b''\n\
         \x20   while len(whole) < count:\n\
         \x20       some = link.recv(count - len(whole))\n\
         \x20       if not some: sys.exit()\n\
         \x20       whole += some\n\
         \x20   return whole\n\
         for order in sys.argv[1:]:\n\
         \x20   send(order)\n\
         \x20   for _ in range(0 if order.startswith('{{\"Login') else 40):\n\
         \x20       text = take(struct.unpack('>I', take(4))[0]).decode()\n\
         \x20       said = json.loads(text)\n\
         \x20       if 'Beat' not in said:\n\
         \x20           print(text, flush=True)\n\
         \x20           break\n\
         \x20       send(json.dumps({{'Beat': {{'sent': 0, 'heard': said['Beat']['sent']}}}}))\n",
        tls.authorities,
        tls.cert,
        node.ip(),
        node.port(),
    );
    let mut python = Command::new("python3");
    let output = python.args(["-c", &script]).args(orders).output().ok()?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A front end that is wrong about rights still gets nothing that the account may not have.
#[test]
fn a_node_opens_files_as_the_account_whoever_asks() {
    let Some(cluster) = cluster(&[]) else { return };
    for (name, owner) in [("kims", KIM), ("jos", JO)] {
        let path = cluster.root.join(name);
        fs::write(&path, b"secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(uid(owner)), None).unwrap();
    }
    let account = format!(
        r#"{{"name":"{JO}","ids":{{"uid":{},"gid":1,"groups":[]}}}}"#,
        uid(JO)
    );
    let login = [
        r#"{"Login":{"user":"jo","session":1,"client":"127.0.0.1","rights":null,"#,
        r#""durability":"none","ftps":false,"account":"#,
        &account,
        "}}",
    ];
    // Paths are in base64.
    for (path, is_open) in [("L2tpbXM=", false), ("L2pvcw==", true)] {
        let client = listen();
        let peer = client.local_addr().unwrap().to_string();
        let connect = [
            r#"{"ConnectTo":{"spec":{"parallelism":1,"holes":false,"socket_buffer_bytes":null,"#,
            r#""foreign_hosts":true,"dcau":"None","protection":"Clear","ftps":false},"peer":""#,
            &peer,
            r#"","share":"Whole"}}"#,
        ];
        let start = [
            r#"{"Start":{"transfer":1,"job":{"Send":{"path":""#,
            path,
            r#"","file":"Unknown","base":0,"ranges":[[0,6]],"ascii":false}},"mode":"Stream"}}"#,
        ];
        let hello = r#"{"Hello":{"version":3}}"#.to_owned();
        let orders = [hello, login.concat(), connect.concat(), start.concat()];
        let Some(said) = say_to_node(&cluster, &orders) else {
            return;
        };
        let last = said.lines().last().unwrap();
        assert_eq!(last.contains("Permission denied"), !is_open, "{said}");
        assert_eq!(last.starts_with(r#"{"Ready""#), is_open, "{said}");
    }
}

/// The process of a session, which its user may take over, has the node's key of TLS only where the
/// front end says that the session needs it.
#[test]
fn the_key_of_users_is_read_for_sessions_over_tls_alone() {
    let now = SystemTime::now();
    let authority = Blueprint::authority("/O=Other/CN=CA").at(now).self_signed();
    let host = Blueprint::host("/O=Other/CN=host", &["localhost"]).at(now);
    let host = host.issued_by(&authority).to_pem().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [key, ca] = ["host.pem", "ca.pem"].map(|name| folder.path().join(name));
    files::write_private(&key, &host).unwrap();
    let path = key.to_str().unwrap();
    let Some(cluster) = cluster(&["--tls", "--cert", path, "--key", path]) else {
        return;
    };
    let mut trusted = fs::read(cluster.front.folder.path().join("ca.pem")).unwrap();
    trusted.extend(authority.certificate().as_x509().to_pem().unwrap());
    fs::write(&ca, trusted).unwrap();
    let private = |after: &str| {
        let script = format!(
            "f.trust_server_pasv_ipv4_address = True\n\
             f.login('{JO}', 'se cret')\n\
             f.prot_p()\n\
             {after}\n\
             f.quit()\n"
        );
        python(&ca, cluster.front.program.address, &script)
    };
    if let Some(output) = private("f.storbinary('STOR /jo/private', io.BytesIO(b'x'))") {
        succeeded(&output);
    }
    // The file of the key is gone: logins that need it fail, all others go on.
    fs::remove_file(&key).unwrap();
    let mut ftp = cluster.log_in(JO);
    assert_eq!(ftp.put("STOR /jo/clear", b"one").code, 226);
    if let Some(output) = private("refused(f.nlst, '425')") {
        succeeded(&output);
    }
}

#[test]
fn a_front_end_with_accounts_and_a_node_without_do_not_go_together() {
    let Some(cluster) = cluster(&["--privsep=false"]) else {
        return;
    };
    let mut ftp = cluster.log_in(JO);
    let reply = ftp.call("PASV");
    assert_eq!(reply.code, 425, "{reply:?}");
    let text = reply.text();
    assert!(text.contains("start both as root, or none"), "{text}");
    let named = |address: String| text.contains(&address);
    let addresses = cluster.nodes.iter().map(|node| node.address.to_string());
    assert!(addresses.into_iter().any(named), "{text}");
}
