use super::*;

type ReadName = std::result::Result<String, &'static str>;

fn read(names: &mut NameReader, attempt: u32, raw: &[u8], form: ListingForm) -> Vec<ReadName> {
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let lines = ListingLines {
        listing: 0,
        attempt,
        form,
        bytes: LineBytes::LocalView(raw.to_vec(), permit),
    };
    let text = lines.text().unwrap();
    let told = names.read(&lines, &text).map(|e| match e {
        Ok(e) => Ok(String::from_utf8(e.name).unwrap()),
        Err(bad) => Err(bad.why),
    });
    told.collect()
}

fn names(raw: &[u8], form: ListingForm) -> Vec<ReadName> {
    let mut names = NameReader::new(&FtpPath::new("/d").unwrap());
    read(&mut names, 1, raw, form)
}

#[test]
fn machine_listings_skip_the_directory_and_refuse_outside_names() {
    let raw = b"Type=cdir; .\r\nType=pdir; ..\r\nType=dir; ..\r\nType=file;Size=3; a b\r\r\n\
                Type=file; ../etc/passwd\r\nType=file; /abs\r\nType=file; z\0\r\nrubbish\r\n\
                Type=file; \r\nType=file; a\rb\r\nType=dir; sub";
    assert_eq!(
        names(raw, ListingForm::Facts),
        [
            Ok("a b".to_owned()),
            Err("it holds a slash"),
            Err("it holds a slash"),
            Err("it holds a NUL"),
            Err("it is not understood"),
            Err("it is not understood"),
            Err("it holds a line end"),
            Ok("sub".to_owned()),
        ]
    );
}

#[test]
fn name_lists_come_with_or_without_their_directory() {
    assert_eq!(
        names(
            b"a\r\n/d/b\r\n./c\r\n\r\n/other/x\r\n/d/../y\r\n..\r\n",
            ListingForm::Names
        ),
        [
            Ok("a".to_owned()),
            Ok("b".to_owned()),
            Ok("c".to_owned()),
            Err("it holds a slash"),
            Err("it holds a slash"),
        ]
    );
}

#[test]
fn a_restarted_listing_gives_each_name_once() {
    let mut names = NameReader::new(&FtpPath::new("/d").unwrap());
    let ok = |name: &str| Ok(name.to_owned());
    let twice = || Err("it comes more than once");
    let mut read =
        |attempt, raw: &str| read(&mut names, attempt, raw.as_bytes(), ListingForm::Facts);
    let first = read(1, "Type=file; a\r\nType=file; b\r\nType=file; a\r\n");
    assert_eq!(first, [ok("a"), ok("b"), twice()]);
    let further = read(1, "Type=file; B\r\nType=dir; b\r\n");
    assert_eq!(further, [ok("B"), twice()]);
    let again = read(2, "Type=file; a\r\nType=file; c\r\nType=file; b\r\n");
    assert_eq!(again, [ok("c")]);
}

/// What comes out of `pieces`, cut, up to an error.
fn cut(bytes_max: u64, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Option<String>) {
    let (queue, mut reader) = queue();
    let cutter = LineSplitter::new(LineSink::new(queue, 7), ListingForm::Names);
    cutter.lock().bytes_max = bytes_max;
    let mut writer = cutter.clone();
    let written = pieces.iter().try_for_each(|p| writer.write_all(p));
    let mut refused = cutter.refused();
    if written.is_ok() {
        refused = cutter.finish("list", None).err().map(|e| e.to_string());
    }
    drop((cutter, writer));
    let mut got = Vec::new();
    while let Some(lines) = reader.blocking_recv() {
        let text = lines.text().unwrap().into_owned();
        assert!(lines.listing == 7 && text.len() <= LINES_BYTES + LINE_BYTES_MAX);
        got.push(text);
    }
    assert_eq!(written.is_err(), refused.is_some());
    (got, refused)
}

#[test]
fn lines_are_handed_on_whole_however_they_come() {
    let text: Vec<u8> = (0..30_000)
        .flat_map(|i| format!("Type=file; {i}\r\n").into_bytes())
        .collect();
    for size in [7, 1000, 64 << 10, 1 << 20] {
        let pieces: Vec<_> = text.chunks(size).collect();
        let (got, error) = cut(1 << 30, &pieces);
        assert_eq!((got.concat() == text, error), (true, None), "{size}");
        assert!(got.iter().all(|l| l.is_empty() || l.ends_with(b"\n")));
        assert!(got.len() <= 2 + text.len() / (LINES_BYTES / 2), "{size}");
    }
}

/// What came of a listing: whether it is whole, or why not.
fn ended(form: ListingForm, text: &[u8], reply: &str) -> std::result::Result<bool, String> {
    let (queue, _reader) = queue();
    let mut cutter = LineSplitter::new(LineSink::new(queue, 0), form);
    cutter.write_all(text).unwrap();
    let reply = Reply::new(godwit_proto::ReplyCode::new(226).unwrap(), reply);
    match cutter.finish("list", Some(&reply)) {
        Ok(ListingEnd::WholeListing(_)) => Ok(true),
        Ok(ListingEnd::Misunderstood(_)) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_listing_is_whole_unless_something_speaks_against_it() {
    use ListingForm::{Facts, Long, Names};
    let long = "-rw-r--r-- 1 a b 3 Nov 25 16:43 f\r\n";
    for (form, text, whole) in [
        (Facts, "", true),
        (Facts, "Type=file; a\r\n\r\n", true),
        (Facts, "Type=cdir;Perm=el; .\r\n", true),
        // In the shape of LIST.
        (Facts, long, true),
        (Facts, "rubbish\r\n", false),
        (Long, long, true),
        (Long, &format!("total 1\r\n{long}rubbish\r\n"), false),
        (Names, "anything\n", true),
    ] {
        assert_eq!(ended(form, text.as_bytes(), "done"), Ok(whole), "{text}");
    }
    for (form, text, said, why) in [
        (
            Facts,
            "Type=file; a\r\nType=fi",
            "done",
            "in the middle of a line",
        ),
        (Facts, "Type=file; a", "done", "in the middle of a line"),
        (Names, "a\r\nb", "done", "in the middle of a line"),
        (
            Facts,
            "Type=cdir;Perm=l; .\r\n",
            "done",
            "names may be missing",
        ),
        (
            Facts,
            "Type=file; a\r\n",
            "2 matches total",
            "counts 2 names",
        ),
        (
            Long,
            "",
            "done (but failed to open directory)",
            "failed to open",
        ),
    ] {
        let error = ended(form, text.as_bytes(), said).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn only_a_listing_that_was_understood_and_read_is_complete() {
    let complete = |form, sent: &str, read_too: bool| {
        let (queue, mut reader) = queue();
        let mut cutter = LineSplitter::new(LineSink::new(queue, 0).again(), form);
        cutter.write_all(sent.as_bytes()).unwrap();
        let Ok(ListingEnd::WholeListing(whole)) = cutter.finish("list", None) else {
            panic!("{sent}");
        };
        let mut names = NameReader::new(&FtpPath::new("/d").unwrap());
        while let Some(lines) = reader.try_recv().ok().filter(|_| read_too) {
            let text = lines.text().unwrap();
            names.read(&lines, &text).for_each(drop);
        }
        names.complete(&whole)
    };
    let is_complete = |text: &str| complete(ListingForm::Facts, text, true).is_some();
    assert!(is_complete("Type=file; a\r\nType=OS.unix=fifo; b\r\n"));
    assert!(is_complete(""));
    for bad in ["rubbish", "Type=fule; x", "Type=file; a", "Type=file; ../a"] {
        assert!(!is_complete(&format!("Type=file; a\r\n{bad}\r\n")), "{bad}");
    }
    assert!(complete(ListingForm::Facts, "Type=file; a\r\n", false).is_none());
    let hides = |text: &str| {
        complete(ListingForm::Names, text, true)
            .unwrap()
            .may_hide(b".a")
    };
    assert!(hides("b\r\n") && !hides(".\r\nb\r\n") && !hides(".b\r\n"));
}

#[test]
fn a_large_listing_waits_outside_memory_in_order() {
    let text: Vec<u8> = (0..2_000_000)
        .flat_map(|i| format!("Type=file; {i}\n").into_bytes())
        .collect();
    assert!(text.len() > 2 * WAITING_BYTES_MAX);
    let (got, error) = cut(1 << 30, &[&text]);
    assert_eq!((got.concat() == text, error), (true, None));
}

#[test]
fn neither_a_line_nor_a_listing_goes_on_for_ever() {
    let long = vec![b'x'; 1 << 20];
    let (got, error) = cut(1 << 30, &[b"a\n", &long]);
    assert_eq!(got, [b"a\n"]);
    assert!(error.unwrap().contains("longer than 65536 bytes"));
    let many = b"Type=file; a\n".repeat(100_000);
    let (_, error) = cut(1 << 20, &[&many]);
    assert!(error.unwrap().contains("longer than 1 MiB"));
}

#[test]
fn a_listing_without_a_reader_ends() {
    let (queue, reader) = queue();
    drop(reader);
    let mut cutter = LineSplitter::new(LineSink::new(queue, 0), ListingForm::Facts);
    let error = cutter.write_all(b"Type=file; a\r\n").unwrap_err();
    assert!(error.to_string().contains("no task reads"), "{error}");
}
