//! What must hold for any bytes of a peer. The fuzz targets run these.

use std::time::SystemTime;

use godwit_http::{
    conditions::{Conditions, EntityTag, Validators, range_counts},
    dav::{BadXml, Depth, Wanted, overwrite},
    digest::Form,
    marker::{Ending, Event, Marker, Reader},
    multistatus::{self, Hrefs, Resource},
    range::{ContentRange, Selection, select},
    s3::{
        self,
        answers::{Made, Page, PartsPage, Refusal, UploadsPage, completing, read_upload_id},
        chunked::{Chunks, Streaming},
        requests::{self, Query, check_key, copy_source, read_completing, read_deleting},
        signing::{Asked, Claim},
        sts::{self, TemporaryKeys},
    },
    target::{Target, encoded},
};

/// Each line is every header.
pub(crate) fn headers(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let validators = Validators {
        tag: EntityTag::strong("x").unwrap(),
        modified: SystemTime::UNIX_EPOCH,
    };
    for line in text.lines() {
        if let Ok(target) = Target::of_path(line) {
            let path = encoded(target.path.as_bytes());
            let again = Target::of_path(&path).unwrap();
            assert_eq!(again.path, target.path);
            let parts = target.path.as_bytes().split(|byte| *byte == b'/');
            assert!(parts.into_iter().all(|part| part != b".." && part != b"."));
        }
        let _ = Target::of_destination(line, Some("h"));
        for size in [0, 1, 1000, u64::MAX] {
            if let Selection::Parts(parts) = select(line, size) {
                let lengths = parts.iter().map(|part| part.end - part.start);
                assert!(lengths.fold(0, u64::saturating_add) <= size);
                assert!(parts.iter().all(|part| part.end <= size));
            }
        }
        if let Some(range) = ContentRange::parse(line) {
            assert_eq!(ContentRange::parse(&range.to_string()), Some(range));
        }
        if let Some(tag) = EntityTag::parse(line) {
            assert_eq!(EntityTag::parse(&tag.to_string()), Some(tag));
        }
        let conditions = Conditions {
            if_match: Some(line),
            if_none_match: Some(line),
            if_modified_since: Some(line),
            if_unmodified_since: Some(line),
        };
        conditions.check(Some(&validators), true);
        range_counts(Some(line), &validators);
        for form in [Form::Rfc3230, Form::Rfc9530] {
            form.preferred(line);
            for (algorithm, hex) in form.read(line).unwrap_or_default() {
                let written = form.write(algorithm, &hex);
                assert_eq!(form.read(&written), Ok(vec![(algorithm, hex)]));
            }
        }
        let _ = (Depth::parse(Some(line)), overwrite(Some(line)));
    }
}

pub(crate) fn bodies(bytes: &[u8]) {
    if let Ok(wanted) = Wanted::read(bytes) {
        let resource = Resource {
            path: b"/f".to_vec(),
            is_collection: false,
            size: Some(1),
            modified: None,
            tag: None,
            free_bytes: None,
        };
        let mut text = multistatus::HEAD.to_owned();
        resource.write(&wanted, &mut text);
        let found = multistatus::read((text + multistatus::TAIL).as_bytes(), Hrefs::Encoded);
        // A request may leave out what the reader needs.
        assert!(
            matches!(found, Ok(_) | Err(BadXml::Undescribed)),
            "{wanted:?}"
        );
    }
    for hrefs in [Hrefs::Encoded, Hrefs::Literal] {
        let _ = multistatus::read(bytes, hrefs);
    }
    of_s3(bytes);
    let whole = events([bytes]);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    assert_eq!(events([first, second]), whole);
    assert!(
        whole
            .iter()
            .filter(|event| matches!(event, Event::Ended(_)))
            .count()
            <= 1
    );
    let ending = Ending::Failure(String::from_utf8_lossy(bytes).into_owned()).to_string();
    assert_eq!(ending.lines().count(), 1);
    let marker = Marker::default();
    assert_eq!(
        events([marker.to_string().as_bytes()]),
        [Event::Marker(marker)]
    );
}

fn of_s3(bytes: &[u8]) {
    let _ = (Page::read(bytes), UploadsPage::read(bytes));
    let _ = (Refusal::read(bytes), Made::read(bytes));
    let _ = read_upload_id(bytes);
    let _ = (
        TemporaryKeys::read(bytes, "AssumeRole"),
        sts::read_refusal(bytes),
    );
    if let Ok(page) = PartsPage::read(bytes) {
        assert!(Page::read(completing(page.parts.iter()).as_bytes()).is_err());
    }
    let text = String::from_utf8_lossy(bytes);
    let query = s3::query(&[("prefix", &text)]);
    assert!(query.is_ascii() && s3::encoded_path(bytes).is_ascii());
}

fn events<const N: usize>(parts: [&[u8]; N]) -> Vec<Event> {
    let (mut reader, mut events) = (Reader::default(), Vec::new());
    for part in parts {
        reader.feed(part, &mut events);
    }
    events.extend(reader.finish());
    events
}

/// Paths, queries, signatures and bodies of requests for S3, as a service reads them.
pub(crate) fn s3_requests(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        if let Ok(target) = requests::ObjectTarget::of_path(line) {
            let again = requests::ObjectTarget::of_path(&target.encoded).unwrap();
            assert_eq!((&again.encoded, &again.key), (&target.encoded, &target.key));
        }
        let _ = copy_source(line);
        if let Ok((path, _)) = check_key(line.as_bytes()) {
            let mut names = path.split(|byte| *byte == b'/');
            assert!(names.all(|name| !name.is_empty() && name != b"." && name != b".."));
        }
        let query = Query::parse(line).unwrap_or_default();
        let claims = [
            Claim::of_header(line, Some("20130524T000000Z")),
            Claim::of_query(&query),
        ];
        for claim in claims.into_iter().flatten() {
            let _ = claim.check_time(SystemTime::now());
            let asked = Asked {
                method: "GET",
                path: "/",
                query: &query,
                headers: &[("host", line)],
                payload: line,
            };
            // No input has a valid signature.
            assert!(claim.verify("secret", &asked).is_err());
        }
    }
    let _ = read_deleting(bytes);
    if let Ok(parts) = read_completing(bytes) {
        let again = read_completing(completing(parts.iter().map(|part| &part.part)).as_bytes());
        assert_eq!(again.map(|again| again.len()), Ok(parts.len()));
    }
    let how = Streaming::parse("STREAMING-UNSIGNED-PAYLOAD-TRAILER").unwrap();
    let read = |step: usize| {
        let mut chunks = Chunks::new(how, None).unwrap();
        let mut data = Vec::new();
        for slice in bytes.chunks(step) {
            let mut rest = slice;
            while let Some(count) = chunks.next(&mut rest).ok()? {
                let end = slice.len() - rest.len();
                data.extend_from_slice(&slice[end - count..end]);
            }
        }
        let trailers = chunks.finish().ok()?;
        Some((data, trailers))
    };
    assert_eq!(read(1), read(bytes.len().max(1)));
}
