//! The door for S3, by clients that people have. What is missing here is skipped.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::{harness::pattern, s3::Door, tls::succeeded};

/// Who may have boto3: the Python of moto, where that was installed apart, and the user's.
const PYTHONS: [&str; 2] = [
    "/usr/local/lib/godwit-peers/moto_server/bin/python3",
    "python3",
];

const BOTO3: &str = "
import boto3, sys, io, os
from botocore.config import Config
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
v4 = Config(signature_version='s3v4')
s3 = boto3.client('s3', endpoint_url=os.environ['DOOR'], region_name='us-east-1', config=v4)
def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        assert error.response['Error']['Code'] == code, error
        return
    raise SystemExit('not refused: ' + code)
assert 'b' in [b['Name'] for b in s3.list_buckets()['Buckets']]
s3.head_bucket(Bucket='b')
assert s3.get_bucket_location(Bucket='b')['LocationConstraint'] is None
s3.put_object(Bucket='b', Key='d/small \\u00fc+', Body=b'0123456789', ContentType='text/plain')
got = s3.get_object(Bucket='b', Key='d/small \\u00fc+')
assert got['Body'].read() == b'0123456789'
assert s3.head_object(Bucket='b', Key='d/small \\u00fc+')['ContentLength'] == 10
part = s3.get_object(Bucket='b', Key='d/small \\u00fc+', Range='bytes=2-4')
assert part['Body'].read() == b'234'
for algorithm in ['CRC32', 'SHA1', 'SHA256']:
    s3.put_object(Bucket='b', Key='sum', Body=b'x' * 100000, ChecksumAlgorithm=algorithm)
large = open(sys.argv[1], 'rb').read()
parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
s3.upload_fileobj(io.BytesIO(large), 'b', 'd/large', Config=parts)
back = io.BytesIO()
s3.download_fileobj('b', 'd/large', back, Config=parts)
assert back.getvalue() == large
s3.copy_object(Bucket='b', Key='copy', CopySource={'Bucket': 'b', 'Key': 'd/small \\u00fc+'})
pages = s3.get_paginator('list_objects_v2').paginate(Bucket='b', PaginationConfig={'PageSize': 1})
keys = [o['Key'] for page in pages for o in page.get('Contents', [])]
assert keys == ['copy', 'd/large', 'd/small \\u00fc+', 'sum'], keys
top = s3.list_objects(Bucket='b', Delimiter='/')
assert [p['Prefix'] for p in top['CommonPrefixes']] == ['d/'], top
refused('PreconditionFailed', s3.put_object, Bucket='b', Key='copy', Body=b'', IfNoneMatch='*')
refused('NoSuchKey', s3.get_object, Bucket='b', Key='missing')
refused('NotImplemented', s3.get_bucket_versioning, Bucket='b')
refused('NotImplemented', s3.put_object, Bucket='b', Key='x', Body=b'', ACL='public-read')
import ssl, urllib.request
url = s3.generate_presigned_url('get_object', Params={'Bucket': 'b', 'Key': 'copy'}, ExpiresIn=60)
context = ssl.create_default_context(cafile=os.environ['AWS_CA_BUNDLE'])
assert urllib.request.urlopen(url, context=context).read() == b'0123456789'
upload = s3.create_multipart_upload(Bucket='b', Key='open')['UploadId']
assert [u['UploadId'] for u in s3.list_multipart_uploads(Bucket='b')['Uploads']] == [upload]
s3.abort_multipart_upload(Bucket='b', Key='open', UploadId=upload)
gone = s3.delete_objects(Bucket='b', Delete={'Objects': [{'Key': 'copy'}, {'Key': 'sum'}]})
assert len(gone['Deleted']) == 2, gone
s3.delete_object(Bucket='b', Key='d/small \\u00fc+')
";

fn prepared(door: &Door, program: &str) -> Command {
    let port = door.site.server.s3.unwrap().port();
    let mut command = Command::new(program);
    command
        .env("DOOR", format!("https://localhost:{port}"))
        .env("AWS_CA_BUNDLE", door.site.at("ca.pem"))
        .env("AWS_ACCESS_KEY_ID", &door.key.access)
        .env("AWS_SECRET_ACCESS_KEY", door.key.secret.reveal())
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdin(Stdio::null());
    command
}

#[allow(clippy::print_stderr, reason = "a skip is reported")]
fn skipped(what: &str) {
    assert!(
        std::env::var_os("GODWIT_REQUIRE_PEERS").is_none(),
        "{what} is missing"
    );
    eprintln!("skipped: no {what}");
}

/// The Python that has boto3.
fn python() -> Option<&'static str> {
    let has_boto3 = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import boto3"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    PYTHONS.into_iter().find(|python| has_boto3(python))
}

#[test]
fn boto3_stores_reads_lists_and_removes() {
    let Some(python) = python() else {
        return skipped("boto3");
    };
    let door = Door::new();
    let content = pattern(12_000_001, 5);
    let large = door.site.at("large");
    std::fs::write(&large, &content).unwrap();
    let mut command = prepared(&door, python);
    let output = command.args(["-c", BOTO3]).arg(&large).output().unwrap();
    succeeded(&output);
    assert!(door.server().read("b/d/large") == content);
    assert_eq!(crate::https::names(&door.site, "b"), ["d"]);
}

#[test]
fn rclone_copies_both_ways() {
    let door = Door::new();
    let rclone = |arguments: &[&str]| -> Option<Output> {
        let mut command = prepared(&door, "rclone");
        let port = door.site.server.s3.unwrap().port();
        // This rclone takes no authorities from there.
        command.env_remove("AWS_CA_BUNDLE");
        command.env("RCLONE_CONFIG", door.site.at("rclone.conf"));
        for (name, value) in [
            ("TYPE", "s3"),
            ("PROVIDER", "Other"),
            ("ENV_AUTH", "true"),
            ("ENDPOINT", &format!("https://localhost:{port}")),
            ("CHUNK_SIZE", "5Mi"),
            ("UPLOAD_CUTOFF", "5Mi"),
        ] {
            command.env(format!("RCLONE_CONFIG_DOOR_{name}"), value);
        }
        command
            .arg("--ca-cert")
            .arg(door.site.at("ca.pem"))
            .args(["--retries", "1"]);
        command.args(arguments).output().ok()
    };
    let from = door.site.at("from");
    for (name, bytes) in [("small", 1000), ("d/large", 12_000_001), ("empty", 0)] {
        let path = from.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, pattern(bytes, 9)).unwrap();
    }
    let back = door.site.at("back");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let Some(copied) = rclone(&["copy", &text(&from), "door:b/x"]) else {
        return skipped("rclone");
    };
    succeeded(&copied);
    assert!(door.server().read("b/x/d/large") == pattern(12_000_001, 9));
    for arguments in [
        ["copy", "door:b/x", &text(&back)],
        ["check", &text(&from), "door:b/x"],
        ["copy", "door:b/x", "door:b/y"],
    ] {
        succeeded(&rclone(&arguments).unwrap());
    }
    for name in ["small", "d/large", "empty"] {
        let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
        assert!(read(&from) == read(&back), "{name}");
        assert!(
            read(&from) == door.server().read(&format!("b/y/{name}")),
            "{name}"
        );
    }
    let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
    assert_eq!(
        modified(&from.join("small")),
        modified(&door.server().path("b/x/small"))
    );
    succeeded(&rclone(&["delete", "door:b/x"]).unwrap());
    assert_eq!(crate::https::names(&door.site, "b"), ["y"]);
}
