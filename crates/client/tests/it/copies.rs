//! Round trips with our own server.

use std::fs;

use crate::harness::{Served, bytes, godwit, run, run_with, run_with_input, text, tree};

#[test]
fn files_of_every_size_come_and_go_whole() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    for (i, size) in [0, 1, 255, 256 << 10, 3_000_000].into_iter().enumerate() {
        let data = bytes(size, i as u64 + 1);
        let (file, back) = (here.path().join(format!("f{i}")), here.path().join("back"));
        fs::write(&file, &data).unwrap();
        let url = served.url(&format!("/f{i}"));
        run(&["cp", text(&file), &url]).expect(0, &["1 file"]);
        assert_eq!(
            fs::read(served.path(&format!("f{i}"))).unwrap(),
            data,
            "put {size}"
        );
        run(&["cp", "-p", "2", &url, text(&back)]).expect(0, &[]);
        assert_eq!(fs::read(&back).unwrap(), data, "get {size}");
    }
    assert_eq!(tree(served.root.path()), ["f0", "f1", "f2", "f3", "f4"]);
    assert_eq!(tree(here.path()), ["back", "f0", "f1", "f2", "f3", "f4"]);
}

#[test]
fn trees_with_odd_names_are_the_same_after_there_and_back() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    let names = [
        "plain",
        " leading blank",
        "two  blanks",
        "ünïcode",
        "100%41",
        "semi;colon=x; y",
        "quo\"te'",
        "-dash",
        "[x]*?",
        "deep/er/and/deeper",
    ];
    for (i, name) in names.iter().enumerate() {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(i * 1000, i as u64)).unwrap();
    }
    fs::create_dir(top.join("empty")).unwrap();
    std::os::unix::fs::symlink("..", top.join("deep/loop")).unwrap();
    let ran = run(&["cp", "-r", "-c", "3", text(&top), &served.url("/")]);
    ran.expect(0, &["10 files", "leads back to a directory above it"]);
    let back = here.path().join("back");
    run(&["cp", "-r", &served.url("/top"), text(&back)]).expect(0, &["10 files"]);
    fs::remove_file(top.join("deep/loop")).unwrap();
    assert_eq!(tree(&back), tree(&top));
    for name in names {
        assert_eq!(
            fs::read(back.join(name)).unwrap(),
            fs::read(top.join(name)).unwrap()
        );
    }
}

#[test]
fn directories_take_files_by_their_names() {
    let served = Served::start();
    fs::create_dir(served.path("d")).unwrap();
    for name in ["a.dat", "b.dat", "c.txt"] {
        fs::write(served.path("d").join(name), name).unwrap();
    }
    let here = tempfile::tempdir().unwrap();
    let dir = text(here.path());
    // A pattern, an existing directory.
    run(&["cp", &served.url("/d/*.dat"), dir]).expect(0, &["2 files"]);
    assert_eq!(tree(here.path()), ["a.dat", "b.dat"]);
    // A directory that does not exist yet, named by its slash; contents by the source's slash.
    let new = here.path().join("new");
    run(&["cp", "-r", &served.url("/d/"), &format!("{}/", text(&new))]).expect(0, &["3 files"]);
    assert_eq!(tree(&new), ["a.dat", "b.dat", "c.txt"]);
    // The directory itself without it.
    run(&["cp", "-r", &served.url("/d"), &format!("{}/", text(&new))]).expect(0, &["3 files"]);
    assert!(new.join("d/c.txt").exists());
    // Several files up, one pattern of ours.
    let pattern = format!("{dir}/*.dat");
    let c = new.join("c.txt");
    run(&["cp", &pattern, text(&c), &served.url("/up/")]).expect(0, &["3 files"]);
    assert_eq!(tree(&served.path("up")), ["a.dat", "b.dat", "c.txt"]);
    run(&["cp", text(&c), &pattern, &served.url("/up/c.txt")])
        .expect(2, &["several sources need one"]);
}

#[test]
fn a_last_dot_means_the_content_and_dots_in_a_name_are_a_name() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", text(here.path()));
    fs::create_dir(here.path().join("src")).unwrap();
    fs::write(here.path().join("src/f"), "f").unwrap();
    run(&["cp", "-r", &at("src/."), &served.url("/up/")]).expect(0, &[]);
    run(&["cp", "-r", &at("src/."), &served.url("/up/new/.")]).expect(0, &[]);
    assert_eq!(tree(&served.path("up")), ["f", "new/", "new/f"]);
    run(&["cp", &served.url("/up/f"), &at("out..")]).expect(0, &[]);
    run(&["cp", "-r", &served.url("/up/new/."), &at("down")]).expect(0, &[]);
    run(&["cp", "-r", &served.url("/up/new/."), &at("down")]).expect(0, &[]);
    run(&["cp", &served.url("/up/f"), &at("made/.")]).expect(0, &[]);
    run(&["cp", &at("out.."), &served.url("/up/out..")]).expect(0, &[]);
    assert_eq!(
        tree(here.path()),
        [
            "down/", "down/f", "made/", "made/f", "out..", "src/", "src/f"
        ]
    );
    assert_eq!(fs::read(served.path("up/out..")).unwrap(), b"f");
}

#[test]
fn files_generated_by_the_kernel_are_read_to_their_end() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let source = "/proc/sys/kernel/random/boot_id";
    assert_eq!(fs::metadata(source).unwrap().len(), 0);
    run(&["cp", source, &served.url("/copy")]).expect(0, &[]);
    let id = fs::read(source).unwrap();
    assert_eq!(fs::read(served.path("copy")).unwrap(), id);
    // Among others, too, and an empty file stays one.
    let top = here.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("empty"), "").unwrap();
    std::os::unix::fs::symlink(source, top.join("id")).unwrap();
    for i in 0..20 {
        fs::write(top.join(format!("f{i}")), bytes(100, i)).unwrap();
    }
    run(&["cp", "-r", text(&top), &served.url("/top")]).expect(0, &["22 files"]);
    assert_eq!(fs::read(served.path("top/id")).unwrap(), id);
    assert_eq!(fs::read(served.path("top/empty")).unwrap(), b"");
}

#[test]
fn a_file_where_a_directory_is_fails_and_is_no_wrong_usage() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    for (ours, theirs) in [("x/f", "x"), ("x", "x/f")] {
        let (top, there) = (here.path().join("top"), served.path("top"));
        for (folder, name) in [(&top, ours), (&there, theirs)] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        }
        let (here, there) = (format!("{}/", text(&top)), served.url("/top/"));
        run(&["sync", &here, &there]).expect(4, &["of that name"]);
        run(&["sync", &there, &here]).expect(4, &["of that name"]);
        run(&["cp", "-r", &here, &there]).expect(4, &[]);
        run(&["cp", "-r", &there, &here]).expect(4, &[]);
        for folder in [&top, &served.path("top")] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn standard_input_and_output_are_files_too() {
    let served = Served::start();
    let data = bytes(700_000, 9);
    run_with_input(&["cp", "-", &served.url("/in")], &data).expect(0, &[]);
    assert_eq!(fs::read(served.path("in")).unwrap(), data);
    let ran = run(&["cp", "--json", "-q", &served.url("/in"), "/dev/null"]).expect(0, &[]);
    let summary: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(
        (&summary["exit"], &summary["bytes"]),
        (&0.into(), &700_000.into())
    );
    assert_eq!(ran.err, "");
    assert_eq!(
        run(&["cp", &served.url("/in"), "-"]).expect(0, &[]).out,
        data
    );
}

#[test]
fn a_large_file_is_shared_between_sessions() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let data = bytes(70 << 20, 4);
    let (file, log) = (here.path().join("big"), here.path().join("log"));
    fs::write(&file, &data).unwrap();
    let url = served.url("/big");
    let shared = ["cp", "-c", "4", "-p", "2", "--events", text(&log)];
    run(&[&shared[..], &[text(&file), &url]].concat()).expect(0, &[]);
    assert!(fs::read(served.path("big")).unwrap() == data);
    // Each session opened data channels of its own.
    let events = fs::read_to_string(&log).unwrap();
    assert!(events.matches("\"opened\"").count() >= 2, "{events}");
    fs::remove_file(&file).unwrap();
    run(&[&shared[..], &[&url, text(&file)]].concat()).expect(0, &[]);
    assert!(fs::read(&file).unwrap() == data);
    let events: Vec<serde_json::Value> = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let names: Vec<_> = events
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    assert_eq!((names[0], names[names.len() - 1]), ("start", "summary"));
    let file = events.iter().find(|e| e["event"] == "file").unwrap();
    assert_eq!(file["state"], "verified");
    assert_eq!(events[names.len() - 1]["files_done"], 1);
}

#[test]
fn parts_are_cut_out_and_put_in() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let data = bytes(100_000, 5);
    fs::write(served.path("f"), &data).unwrap();
    let part = here.path().join("part");
    let url = served.url("/f");
    run_with("cp --offset 1000 --length 50K", &[&url, text(&part)]).expect(0, &[]);
    assert_eq!(fs::read(&part).unwrap(), &data[1000..1000 + 51_200]);
    run(&["cp", "--offset", "99000", &url, text(&part)]).expect(0, &[]);
    assert_eq!(fs::read(&part).unwrap(), &data[99_000..]);
    run(&["cp", "--offset", "100001", &url, text(&part)]).expect(2, &["past its end"]);
    let mut want = data.clone();
    let ours = bytes(100_000, 6);
    fs::write(&part, &ours).unwrap();
    let put = [
        "cp",
        "--verify",
        "--offset",
        "10",
        "--length",
        "20",
        text(&part),
        &url,
    ];
    run(&put).expect(0, &[]);
    want[10..30].copy_from_slice(&ours[10..30]);
    assert_eq!(fs::read(served.path("f")).unwrap(), want);
}

#[test]
fn many_small_files_use_their_data_channels_again() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, log) = (here.path().join("top"), here.path().join("log"));
    let back = here.path().join("b");
    fs::create_dir(&top).unwrap();
    for i in 0..40 {
        fs::write(top.join(format!("{i}")), bytes(i * 37, i as u64)).unwrap();
    }
    let put = [
        "cp",
        "-r",
        "--tuner",
        "static",
        "--events",
        text(&log),
        text(&top),
        &served.url("/"),
    ];
    run(&put).expect(0, &["40 files"]);
    let events = fs::read_to_string(&log).unwrap();
    assert_eq!(events.matches("\"opened\"").count(), 1, "{events}");
    let get = [
        "cp",
        "-r",
        "--tuner",
        "static",
        "--events",
        text(&log),
        &served.url("/top"),
        text(&back),
    ];
    run(&get).expect(0, &["40 files"]);
    let events = fs::read_to_string(&log).unwrap();
    assert_eq!(events.matches("\"opened\"").count(), 1, "{events}");
    assert_eq!(tree(&back), tree(&top));
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    use rustix::process::{Pid, Signal, kill_process};
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    // Standard input stays open: the put can only end by the interrupt.
    let mut child = godwit(&["cp", "-vv", "-", &served.url("/f")])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    for line in std::io::BufRead::lines(stderr) {
        let line = line.unwrap();
        if line.contains("<- 150") {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process(pid, Signal::INT).unwrap();
        }
        seen.push_str(&line);
        seen.push('\n');
    }
    assert_eq!(child.wait().unwrap().code(), Some(130), "{seen}");
    assert!(seen.contains("interrupted: 0 files"), "{seen}");
    drop(stdin);
    assert_eq!(tree(served.root.path()), Vec::<String>::new(), "{seen}");
    assert_eq!(tree(here.path()), Vec::<String>::new());
}
