//! Keys for buckets that services and programs issue: STS, the portal of single sign-on, and what a
//! profile runs.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    bucket_roles::{copy, says},
    fake_bucket::Bucket,
    harness::{Ran, text},
    hostile_http::{FakeHttp, Heard, send},
};

/// Of the start URL and of the session below.
const TOKENS: [&str; 2] = [
    "e8be5486177c5b5392bd9aa76563515b29358e6e.json",
    "0ad374308c5a4e22f723adf10145eafad7c4031c.json",
];

/// The form of a request.
fn form(heard: &Heard) -> String {
    let line = heard.2.lines().find_map(|line| line.strip_prefix("form: "));
    line.unwrap_or_default().to_owned()
}

/// An answer of STS.
fn issued(action: &str, access: &str) -> Vec<u8> {
    let body = format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
         <Credentials><AccessKeyId>{access}</AccessKeyId><SecretAccessKey>s3cret</SecretAccessKey>\
         <SessionToken>t{access}</SessionToken><Expiration>2037-01-01T00:00:00Z</Expiration>\
         </Credentials></{action}Result></{action}Response>"
    );
    body.into_bytes()
}

fn refused(code: &str, message: &str) -> Vec<u8> {
    let body = format!(
        "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error>\
         </ErrorResponse>"
    );
    body.into_bytes()
}

/// A bucket that does not take the first keys.
fn bucket_after(first: &'static str) -> Bucket {
    Bucket::start(move |heard, _, stream| {
        let is_old = heard.0 == "PUT" && says(heard, &format!("credential={first}/"));
        if is_old {
            let body = b"<Error><Code>ExpiredToken</Code></Error>";
            send(stream, "400 Bad Request", "", body);
        }
        is_old
    })
}

/// `cp` as profile `p` of this file.
fn copy_by(bucket: &Bucket, config: &str) -> Command {
    let mut command = copy(bucket);
    let path = bucket.here.path().join("config");
    fs::write(&path, config).unwrap();
    command
        .env("AWS_CONFIG_FILE", &path)
        .env("AWS_PROFILE", "p")
        .env("HOME", bucket.here.path())
        .env("AWS_EC2_METADATA_DISABLED", "true");
    for name in ["WEB_IDENTITY_TOKEN_FILE", "ROLE_ARN", "ROLE_SESSION_NAME"] {
        command.env_remove(format!("AWS_{name}"));
    }
    command
}

fn run(command: &mut Command) -> Ran {
    Ran::from(command.output().unwrap())
}

fn last_put(bucket: &Bucket) -> Heard {
    bucket.server.heard("PUT").pop().unwrap()
}

#[test]
fn a_pod_has_the_keys_of_its_role_and_asks_again_once_they_expire() {
    let asked = AtomicUsize::new(0);
    let sts = FakeHttp::start(move |heard, stream| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        // A service that cannot answer for a moment is asked again.
        if number == 0 {
            return send(stream, "503 Service Unavailable", "", b"");
        }
        let is_known = form(heard).contains("WebIdentityToken=of.the%2Bpod&")
            || form(heard).ends_with("WebIdentityToken=of.the%2Bpod");
        match is_known {
            true => {
                let keys = issued("AssumeRoleWithWebIdentity", &format!("POD{number}"));
                send(stream, "200 OK", "", &keys);
            }
            false => send(stream, "400 Bad Request", "", b""),
        }
    });
    let bucket = bucket_after("pod1");
    let token = bucket.here.path().join("token");
    fs::write(&token, "of.the+pod\n").unwrap();
    let mut command = copy_by(&bucket, "");
    command
        .env_remove("AWS_PROFILE")
        .env("AWS_ENDPOINT_URL_STS", sts.url(""))
        .env("AWS_WEB_IDENTITY_TOKEN_FILE", &token)
        .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/mover")
        .env("AWS_ROLE_SESSION_NAME", "night run");
    run(&mut command).expect(0, &[]);
    let put = last_put(&bucket);
    assert!(says(&put, "credential=pod2/"), "{}", put.2);
    assert!(says(&put, "x-amz-security-token: tpod2\r"), "{}", put.2);
    let posts = sts.heard("POST");
    // The one without an answer, the first, and the one after the refusal.
    assert_eq!(posts.len(), 3);
    for post in posts {
        let form = form(&post);
        for field in [
            "Action=AssumeRoleWithWebIdentity&",
            "Version=2011-06-15&",
            "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fmover&",
            "RoleSessionName=night+run&",
        ] {
            assert!(form.contains(field), "{form}");
        }
        assert!(!says(&post, "authorization:"), "{}", post.2);
    }
}

#[test]
fn roles_are_assumed_one_by_the_other() {
    let sts = FakeHttp::start(|heard, stream| {
        let (form, is_first) = (form(heard), says(heard, "credential=akid/"));
        let is_second = says(heard, "credential=one/") && says(heard, "x-amz-security-token: tone");
        let access = match (is_first, is_second) {
            (true, _) if form.contains("RoleArn=arn%3A1&") => "ONE",
            (_, true) if form.contains("RoleArn=arn%3A2&") => "TWO",
            _ => return send(stream, "403 Forbidden", "", &refused("AccessDenied", "no")),
        };
        send(stream, "200 OK", "", &issued("AssumeRole", access));
    });
    let bucket = Bucket::start(|_, _, _| false);
    let config = format!(
        "[profile p]\nrole_arn = arn:2\nsource_profile = q\nregion = eu-west-3\n\
         external_id = e&f\nduration_seconds = 900\nservices = s\n\
         [profile q]\nrole_arn = arn:1\ncredential_source = Environment\n\
         [services s]\nsts =\n  endpoint_url = {}\ns3 =\n  endpoint_url = {}\n",
        sts.url(""),
        bucket.server.url("")
    );
    let mut command = copy_by(&bucket, &config);
    // A profile of the URL: the keys in the environment are those of its source alone.
    let from = bucket.here.path().join("f");
    let mut by_url = bucket.command(&["cp", "--retries=1", text(&from), "s3://p@mine/f"]);
    by_url
        .env("AWS_CONFIG_FILE", bucket.here.path().join("config"))
        .env_remove("AWS_ENDPOINT_URL")
        .env_remove("AWS_SESSION_TOKEN");
    run(&mut by_url).expect(0, &[]);
    let put = last_put(&bucket);
    assert!(says(&put, "credential=two/"), "{}", put.2);
    let posts = sts.heard("POST");
    assert_eq!(posts.len(), 2);
    assert!(
        says(&posts[1], "/eu-west-3/sts/aws4_request"),
        "{}",
        posts[1].2
    );
    let last = form(&posts[1]);
    assert!(
        last.contains("ExternalId=e%26f&DurationSeconds=900"),
        "{last}"
    );
    assert!(last.contains("RoleSessionName=godwit-"), "{last}");
    let ran = run(command.env_remove("AWS_ENDPOINT_URL"));
    ran.expect(3, &["credential_source Environment", "AWS_ACCESS_KEY_ID"]);
}

#[test]
fn what_sts_refuses_is_told_without_secrets() {
    let sts = FakeHttp::start(|_, stream| {
        let said = refused(
            "AccessDenied",
            "not \u{1b}[1mauthorized\nx-token: t0p-secret",
        );
        send(stream, "403 Forbidden", "", &said);
    });
    let bucket = Bucket::start(|_, _, _| false);
    let config = "[profile p]\nrole_arn = arn:1\nsource_profile = q\n\
        [profile q]\naws_access_key_id = Q\naws_secret_access_key = s3cret\n\
        aws_session_token = t0p-secret\n";
    let mut command = copy_by(&bucket, config);
    let ran = run(command.env("AWS_ENDPOINT_URL_STS", sts.url("")));
    let ran = ran.expect(3, &["arn:1", "AccessDenied: not  [1mauthorized"]);
    assert!(!ran.err.contains("secret"), "{}", ran.err);
    assert!(bucket.server.heard("PUT").is_empty());
    // An answer that goes on for ever, and one that has no keys.
    for body in [vec![b'x'; 1 << 20], b"<AssumeRoleResponse/>".to_vec()] {
        let sts = FakeHttp::start(move |_, stream| send(stream, "200 OK", "", &body));
        let mut command = copy_by(&bucket, config);
        let ran = run(command.env("AWS_ENDPOINT_URL_STS", sts.url("")));
        ran.expect(3, &["assume the role arn:1", &sts.url("")]);
    }
}

#[test]
fn a_program_prints_keys_and_newer_ones_once_they_expire() {
    let bucket = bucket_after("prog1");
    let here = text(bucket.here.path()).to_owned();
    let script = format!(
        "echo x >> {here}/runs; echo \"{{\\\"Version\\\": 1, \
         \\\"AccessKeyId\\\": \\\"PROG$(wc -l < {here}/runs | tr -d ' ')\\\", \
         \\\"SecretAccessKey\\\": \\\"s3cret\\\", \\\"SessionToken\\\": \\\"t\\\"}}\"\n"
    );
    let path = format!("{here}/keys of a program");
    fs::write(&path, script).unwrap();
    let config = format!("[profile p]\ncredential_process = sh \"{path}\"\n");
    run(&mut copy_by(&bucket, &config)).expect(0, &[]);
    let put = last_put(&bucket);
    assert!(says(&put, "credential=prog2/"), "{}", put.2);
    let runs = fs::read_to_string(format!("{here}/runs")).unwrap();
    assert_eq!(runs.lines().count(), 2);
}

/// A token of single sign-on in the home of `here`.
fn leave_token(here: &Path, name: &str, expires: &str) {
    let folder = here.join(".aws/sso/cache");
    fs::create_dir_all(&folder).unwrap();
    let token = format!("{{\"accessToken\": \"t0ken\", \"expiresAt\": \"{expires}\"}}");
    let path = folder.join(name);
    fs::write(&path, token).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn the_portal_is_shown_the_token_of_single_sign_on() {
    let portal = FakeHttp::start(|heard, stream| {
        let is_known = heard.1 == "/federation/credentials?role_name=r%20s&account_id=12"
            && says(heard, "x-amz-sso_bearer_token: t0ken\r");
        let keys = b"{\"roleCredentials\": {\"accessKeyId\": \"SSO\", \
            \"secretAccessKey\": \"s3cret\", \"sessionToken\": \"t\", \
            \"expiration\": 2114380800000}}";
        match is_known {
            true => send(stream, "200 OK", "", keys),
            false => send(stream, "403 Forbidden", "", b"{\"message\": \"no access\"}"),
        }
    });
    let start = "https://example.awsapps.com/start";
    let role = "sso_account_id = 12\nsso_role_name = r s\n";
    let settings = format!("sso_start_url = {start}\nsso_region = eu-west-1\n");
    let legacy = format!("[profile p]\n{role}{settings}");
    let session =
        format!("[profile p]\n{role}sso_session = my-sso\n[sso-session my-sso]\n{settings}");
    for (config, token) in [(&legacy, TOKENS[0]), (&session, TOKENS[1])] {
        let bucket = Bucket::start(|_, _, _| false);
        let copy = || {
            let mut command = copy_by(&bucket, config);
            command.env("AWS_ENDPOINT_URL_SSO", portal.url(""));
            command
        };
        let to_log_in = "aws sso login --profile p";
        run(&mut copy()).expect(3, &[to_log_in]);
        leave_token(bucket.here.path(), token, "2020-01-01T00:00:00Z");
        run(&mut copy()).expect(3, &["expired", to_log_in]);
        assert!(bucket.server.heard("PUT").is_empty());
        leave_token(bucket.here.path(), token, "2037-01-01T00:00:00Z");
        run(&mut copy()).expect(0, &[]);
        let put = last_put(&bucket);
        assert!(says(&put, "credential=sso/"), "{}", put.2);
    }
    let bucket = Bucket::start(|_, _, _| false);
    leave_token(bucket.here.path(), TOKENS[0], "2037-01-01T00:00:00Z");
    let other = legacy.replace("12", "13");
    let mut command = copy_by(&bucket, &other);
    let ran = run(command.env("AWS_ENDPOINT_URL_SSO", portal.url("")));
    let ran = ran.expect(3, &["403", "no access"]);
    assert!(!ran.err.contains("t0ken"), "{}", ran.err);
}
