//! Keys that a program prints (`credential_process` of a profile).
//!
//! Source: AWS SDKs and Tools Reference Guide, "Process credential provider".

use std::{io, process::Stdio, time::Duration};

use godwit_http_client::printable;
use godwit_proto::command::Password;
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, copy, sink},
    process::Command,
    time::timeout,
};

use super::issued::{IssuedKeys, time};

/// Time for the program, in which a user may have to answer it elsewhere.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest output, and what is kept of its messages.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
const MESSAGE_BYTES_MAX: u64 = 4 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Runs `command` of `profile`.
///
/// # Errors
/// A message for the user, with the beginning of what the program says there.
pub(super) async fn keys_of(profile: &str, command: &str) -> Result<IssuedKeys, String> {
    let failed = |why: String| format!("credential_process of profile {profile}: {why}");
    // As botocore splits it, but for words that begin with #.
    let words = shlex::split(command).unwrap_or_default();
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| failed("it has no words, or a quote has no end".to_owned()))?;
    let ran = timeout(LIMIT, run(program, arguments)).await;
    let ran = ran.map_err(|_| failed(format!("no answer within {} s", LIMIT.as_secs())))?;
    let output = ran.map_err(|why| failed(why.to_string()))?;
    keys_in(&output).map_err(failed)
}

/// What a program prints.
async fn run(program: &str, arguments: &[String]) -> io::Result<Vec<u8>> {
    let mut command = Command::new(program);
    // Its input may be what is copied.
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let (output, message) = tokio::try_join!(
        output_of(child.stdout.take()),
        message_of(child.stderr.take())
    )?;
    let status = child.wait().await?;
    match (status.success(), message.is_empty()) {
        (true, _) => Ok(output),
        (false, true) => Err(io::Error::other(status.to_string())),
        (false, false) => Err(io::Error::other(format!("{status}: {message}"))),
    }
}

async fn output_of(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES_MAX + 1)
            .read_to_end(&mut output)
            .await?;
    }
    match output.len() as u64 > OUTPUT_BYTES_MAX {
        true => Err(io::Error::other("it prints too much")),
        false => Ok(output),
    }
}

async fn message_of(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut message = Vec::new();
    if let Some(mut pipe) = pipe {
        let mut head = (&mut pipe).take(MESSAGE_BYTES_MAX);
        head.read_to_end(&mut message).await?;
        // It would wait for a reader.
        copy(&mut pipe, &mut sink()).await?;
    }
    Ok(printable(&message))
}

fn keys_in(output: &[u8]) -> Result<IssuedKeys, String> {
    // What it says may hold secrets.
    let keys: Printed =
        serde_json::from_slice(output).map_err(|_| "it prints no keys".to_owned())?;
    if keys.version != 1 {
        return Err(format!("it prints keys of version {}, not 1", keys.version));
    }
    let expires = match &keys.expiration {
        Some(text) => Some(time(text).ok_or("its Expiration is no time")?),
        None => None,
    };
    let secret = Password::new(keys.secret_access_key);
    let token = keys.session_token.map(Password::new);
    IssuedKeys::new(keys.access_key_id, secret, token, expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"{"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "s"}"#;

    #[tokio::test]
    async fn what_a_program_prints_are_the_keys() {
        let issued = keys_of("p", &format!("printf %s '{KEYS}'")).await.unwrap();
        assert_eq!((&*issued.keys.access, issued.expires), ("P", None));
        // A name is not expanded, and nothing is put in for it.
        let issued = keys_of(
            "p",
            &format!("printf '%s' '{}'", KEYS.replace("P", "$HOME")),
        )
        .await;
        assert_eq!(issued.unwrap().keys.access, "$HOME");
    }

    #[tokio::test]
    async fn programs_that_fail_say_why() {
        for (command, said) in [
            ("", "no words"),
            ("printf 'x", "a quote has no end"),
            ("/none/such", "No such file"),
            ("sh -c 'printf \"no\\033[1m\\n\" >&2; exit 3'", "3: no [1m"),
            ("sh -c 'yes >&2 & exec yes'", "prints too much"),
            ("printf s3cret", "prints no keys"),
            (
                "printf '{\"Version\": 2, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"b\"}'",
                "2",
            ),
        ] {
            let error = keys_of("p", command).await.unwrap_err();
            assert!(error.contains(said), "{command}: {error}");
            assert!(error.contains("profile p") && !error.contains("s3cret"));
        }
        let long = "sh -c 'head -c 100000 /dev/zero | tr \"\\0\" e >&2; exit 1'";
        let error = keys_of("p", long).await.unwrap_err();
        assert!((200..400).contains(&error.len()), "{error}");
    }

    #[test]
    fn keys_that_a_program_prints_may_end() {
        let printed = |expiration: &str| {
            let more = format!(", \"SessionToken\": \"t\", \"Expiration\": \"{expiration}\"}}");
            keys_in(KEYS.replace('}', &more).as_bytes())
        };
        assert!(
            printed("2037-01-01T00:00:00+00:00")
                .unwrap()
                .expires
                .is_some()
        );
        assert!(printed("soon").is_err());
    }
}
