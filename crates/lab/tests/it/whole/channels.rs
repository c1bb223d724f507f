//! A thousand data channels in one transfer.

use std::{process::Command, time::Duration};

use godwit_lab::peers::{
    godwit::{self, Godwitd},
    process::{Options, Process},
};

use super::{RUN_LIMIT, alone, roomy_folder, trees};

/// Each process must stay below.
const RESIDENT_MAX: u64 = 512 << 20;

#[test]
fn a_thousand_channels_both_ways_within_512_mib() {
    let _turn = alone();
    let (root, folder) = (roomy_folder(4 << 30), roomy_folder(4 << 30));
    let server = Godwitd::serving(root.path())
        .anonymous("rw")
        .start()
        .unwrap();
    let source = folder.path().join("source");
    trees::make_file(&source, 1 << 30, 3);
    let there = server.url("there");
    let back = folder.path().join("back");
    for (from, to) in [
        (source.display().to_string(), there.clone()),
        (there, back.display().to_string()),
    ] {
        let mut command = Command::new(godwit::binary("godwit").unwrap());
        command.args([
            "cp",
            "--quiet",
            "--json",
            "-p",
            "1000",
            "--max-channels",
            "1000",
        ]);
        command.args([&from, &to]);
        let memory = server.process().watch_memory(Duration::from_millis(50));
        let client = Process::spawn(command, Options::default()).unwrap();
        let finished = client.wait(RUN_LIMIT).unwrap().success().unwrap();
        let of_server = memory.stop().single_bytes;
        let of_client = finished.usage.peak_rss_bytes;
        println!(
            "{from} -> {to}: server {} MiB, client {} MiB",
            of_server >> 20,
            of_client >> 20
        );
        assert!(
            of_server > 0 && of_server < RESIDENT_MAX,
            "server: {of_server} bytes"
        );
        assert!(
            of_client > 0 && of_client < RESIDENT_MAX,
            "client: {of_client} bytes"
        );
    }
    trees::assert_same_file(&source, &root.path().join("there"));
    trees::assert_same_file(&source, &back);
}
