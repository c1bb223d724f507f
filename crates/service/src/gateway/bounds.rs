//! Texts and numbers of agents, made short and plain: they are stored, summed, and shown on
//! terminals.

use godwit_service_api::{
    agent::{AgentDescription, FileEnd, PollRequest, UnitProgress},
    browse::BrowsedEntry,
    job::{FileError, MAX_FILE_BYTES},
    preview::{JobPreview, MAX_PREVIEW_FAILURES, MAX_PREVIEWED},
};

/// Longest code of an error; few differ, as each is a row of its job.
const CODE_BYTES_MAX: usize = 40;

/// Longest message, name and pattern.
const TEXT_BYTES_MAX: usize = 1000;

/// Longest checksum: SHA-512 with its name.
const CHECKSUM_BYTES_MAX: usize = 200;

/// Most labels and patterns of an agent.
const LIST_MAX: usize = 200;

/// Most files of a result that say why they are not divided.
const UNDIVIDED_MAX: usize = 20;

/// Most slots, movers and channels.
const COUNT_MAX: u32 = 10_000;

/// Fastest that a unit may claim to be, in bytes a second.
const GOODPUT_MAX: f64 = 1e13;

/// Bounds all that the service keeps of a poll.
pub(crate) fn apply(request: &mut PollRequest) {
    describe(&mut request.description);
    request.free_slots = request.free_slots.min(COUNT_MAX);
    request.units.iter_mut().for_each(progress);
    for result in &mut request.results {
        for file in &mut result.files {
            match &mut file.end {
                FileEnd::Finished { size, checksum } => {
                    *size = (*size).min(MAX_FILE_BYTES);
                    checksum.take_if(|text| !is_checksum(text));
                }
                FileEnd::Skipped | FileEnd::Divided(_) | FileEnd::Copied => {}
                FileEnd::Failed(failure) => error(failure),
            }
        }
        result.error.iter_mut().for_each(error);
        result.undivided.truncate(UNDIVIDED_MAX);
        for file in &mut result.undivided {
            plain(&mut file.reason);
        }
    }
}

fn describe(agent: &mut AgentDescription) {
    agent.slots = agent.slots.min(COUNT_MAX);
    plain(&mut agent.version);
    plain(&mut agent.host);
    for list in [&mut agent.labels, &mut agent.endpoints] {
        list.truncate(LIST_MAX);
        list.iter_mut().for_each(plain);
    }
}

fn progress(unit: &mut UnitProgress) {
    unit.bytes = unit.bytes.min(MAX_FILE_BYTES);
    unit.open_bytes = unit.open_bytes.min(unit.bytes);
    // NaN does not pass JSON.
    unit.goodput = unit.goodput.clamp(0.0, GOODPUT_MAX);
    unit.setting.concurrency = unit.setting.concurrency.min(COUNT_MAX);
    unit.setting.parallelism = unit.setting.parallelism.min(COUNT_MAX);
    unit.limited_by.iter_mut().for_each(plain);
}

/// Names are shown as they are, by whoever shows them.
pub(super) fn entry(entry: &mut BrowsedEntry) {
    let cut = entry.name.floor_char_boundary(TEXT_BYTES_MAX);
    entry.name.truncate(cut);
    if let Some(bytes) = &mut entry.bytes {
        *bytes = (*bytes).min(MAX_FILE_BYTES);
    }
}

/// Names are shown as they are, by whoever shows them.
pub(super) fn preview(preview: &mut JobPreview) {
    preview.first.truncate(MAX_PREVIEWED);
    for file in &mut preview.first {
        file.bytes = file.bytes.map(|bytes| bytes.min(MAX_FILE_BYTES));
    }
    preview.failures.truncate(MAX_PREVIEW_FAILURES);
    preview.failures.iter_mut().for_each(plain);
}

pub(super) fn error(error: &mut FileError) {
    let is_code = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let fits = (1..=CODE_BYTES_MAX).contains(&error.code.len());
    if !fits || !error.code.bytes().all(is_code) {
        error.code = "internal".to_owned();
    }
    plain(&mut error.message);
}

fn is_checksum(text: &str) -> bool {
    text.len() <= CHECKSUM_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// One short line.
fn plain(text: &mut String) {
    let cut = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.truncate(cut);
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, " ");
    }
}

#[cfg(test)]
mod tests {
    use godwit_service_api::{
        agent::{FileOutcome, Lease, PROTOCOL, Share, UnitResult},
        job::WhoActs,
    };

    use super::*;

    #[test]
    fn what_a_hostile_agent_says_becomes_short_and_plain() {
        let lease = Lease { unit: 1, epoch: 1 };
        let failed = FileError {
            code: "\u{1b}[2J".repeat(1000),
            message: format!("\u{1b}[2J{}", "\u{e4}".repeat(1_000_000)),
            who: WhoActs::Service,
            may_pass: false,
        };
        let finished = FileEnd::Finished {
            size: u64::MAX,
            checksum: Some("x".repeat(1 << 20)),
        };
        let ends = [finished, FileEnd::Failed(failed.clone())];
        let files = ends.map(|end| FileOutcome {
            index: 0,
            bytes: 0,
            end,
        });
        let mut request = PollRequest {
            protocol: PROTOCOL,
            agent: "a".to_owned(),
            incarnation: uuid::Uuid::nil(),
            sequence: 0,
            description: AgentDescription {
                slots: u32::MAX,
                labels: vec!["x\n".to_owned(); 100_000],
                ..AgentDescription::default()
            },
            free_slots: u32::MAX,
            units: vec![UnitProgress {
                lease,
                bytes: u64::MAX,
                open_bytes: u64::MAX,
                files: 0,
                goodput: -1e300,
                setting: Share::default(),
                limited_by: None,
            }],
            results: vec![UnitResult {
                lease,
                sequence: 0,
                files: files.into(),
                found: Vec::new(),
                last: true,
                undivided: Vec::new(),
                error: Some(failed),
            }],
            renewed: None,
            removed: Vec::new(),
            browses: Vec::new(),
            wait_seconds: 0,
        };
        apply(&mut request);
        let agent = &request.description;
        assert_eq!((agent.slots, agent.labels.len()), (COUNT_MAX, LIST_MAX));
        assert_eq!(agent.labels[0], "x ");
        let unit = &request.units[0];
        assert_eq!((unit.bytes, unit.goodput), (MAX_FILE_BYTES, 0.0));
        assert_eq!(unit.open_bytes, MAX_FILE_BYTES);
        let result = &request.results[0];
        let size = MAX_FILE_BYTES;
        let checksum = None;
        assert_eq!(result.files[0].end, FileEnd::Finished { size, checksum });
        let error = result.error.as_ref().unwrap();
        assert_eq!(result.files[1].end, FileEnd::Failed(error.clone()));
        assert_eq!(error.code, "internal");
        assert!(error.message.len() <= TEXT_BYTES_MAX && error.message.starts_with(" [2J"));
    }
}
